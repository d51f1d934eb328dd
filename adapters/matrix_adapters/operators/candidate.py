"""A user's own implementation of an operator, found by name: a callable, or an operator that a library has.

`options["candidate"]` of a task names it. It is imported, never evaluated: "package.module:function"
or "/folder/file.py:function", where a dotted function name goes into a class. The folder it
lies in goes to the end of the import path, of this process alone, so that it cannot hide a package.

The callable is given the case's input tensors in the operator's order (None for one that is left
out) and, of a single operator, its attributes by name; it returns the output tensor, or as many
as the case has.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from matrix_adapters.adapter import Unsupported
from matrix_adapters.protocol import Task

#: kinds that are PyTorch's; `onnx_candidate` has the other one
KINDS = ("python", "torch_library")
LIBRARIES = (".so", ".dylib", ".dll")


class CandidateError(Exception):
    """The candidate cannot be had as it is named; the message says what is missing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """`folder`: where its module lies, "" for one that is installed."""

    name: str
    operator: str
    callable: str
    kind: str = "python"
    folder: str = ""
    gradient: bool = False


def of(task: Task) -> Candidate | None:
    """The candidate of a task, or None. Raises CandidateError for a description that is none."""
    given = task.options.get("candidate")
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise CandidateError(f"a candidate is described by a mapping, got {given!r}")
    try:
        return Candidate(**given)
    except TypeError as error:
        raise CandidateError(f"a candidate cannot be described so: {error}") from None


def load(candidate: Candidate) -> Callable[..., Any]:
    """Import it. Raises CandidateError, or whatever its own module raises."""
    if candidate.kind not in KINDS:
        raise Unsupported(f"candidates of the kind {candidate.kind} are not for PyTorch: {', '.join(KINDS)}")
    where, name = split(candidate.callable)
    if candidate.kind == "torch_library":
        return _torch_operator(candidate, where, name)
    module = _module(where, candidate.folder)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise CandidateError(f"{where} has no {name!r}")
        found = getattr(found, part)
    if not callable(found):
        raise CandidateError(f"{name} of {where} is a {type(found).__name__}, and cannot be called")
    return found  # type: ignore[no-any-return]


def missing_tool(said: str) -> str:
    """Which of the two tools that PyTorch's extensions are built with is not here; "" where both are.

    `said`: the message of the error that loading a candidate ended with.
    """
    if "Ninja is required" in said:
        return "the candidate has to be compiled: PyTorch's extension tools need ninja, and found none"
    compiler = (os.environ.get("CXX") or "c++").split()[0]  # "ccache g++" is possible
    if "Error building extension" in said and shutil.which(compiler) is None:
        return f"the candidate has to be compiled: there is no C++ compiler {compiler} here"
    return ""


def split(written: str) -> tuple[str, str]:
    """("file.py", "function"), ("library.so", "namespace::name"): a path may have colons of its own.

    Raises CandidateError where one of the two is missing.
    """
    where, _, name = written.rpartition(":")
    if where.endswith(":"):
        where, _, space = where[:-1].rpartition(":")
        name = f"{space}::{name}" if space else ""
    if not where or not name:
        raise CandidateError(f"{written!r} is not written module:function")
    return where, name


def _module(where: str, folder: str) -> ModuleType:
    path = Path(folder, where)
    if path.suffix != ".py":
        _reach(folder)
        return importlib.import_module(where)
    if not path.is_file():
        raise CandidateError(f"there is no file {path}")
    _reach(str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CandidateError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # what it defines can be found by name, as dataclasses do
    spec.loader.exec_module(module)
    return module


def _torch_operator(candidate: Candidate, where: str, name: str) -> Callable[..., Any]:
    import torch

    path = Path(candidate.folder, where)
    if path.suffix in LIBRARIES:
        if not path.is_file():
            raise CandidateError(f"there is no file {path}")
        torch.ops.load_library(str(path))
    else:
        _module(where, candidate.folder)
    namespace, _, operator = name.partition("::")
    operator, _, overload = operator.partition(".")
    if not namespace or not operator:
        raise CandidateError(f"{name!r} is not written namespace::operator")
    try:
        packet = getattr(getattr(torch.ops, namespace), operator)
        found: Callable[..., Any] = getattr(packet, overload) if overload else packet
    except AttributeError:
        raise CandidateError(f"{where} registers no operator {name}") from None
    return found


def _reach(folder: str) -> None:
    if folder and folder not in sys.path:
        sys.path.append(folder)
