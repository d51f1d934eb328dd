"""`candidates:` of a sweep: an implementation of one's own, one more column beside the stock operator.

It is named, never evaluated: the worker imports it, and nothing of it runs in this process.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from matrix.catalog.types import Catalog, Entry
from matrix.config.user_model import absolute
from matrix.errors import UsageError
from matrix.records import CANDIDATE
from matrix.strict_yaml.located import Checker, did_you_mean
from matrix.strict_yaml.source import Loc

_LIBRARIES = (".so", ".dylib", ".dll")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One way to give an implementation: which adapters take it, and how its `callable` is written."""

    frameworks: tuple[str, ...]
    files: tuple[str, ...]  # what may stand before the colon, by its suffix
    modules: bool  # or an importable module
    function: re.Pattern[str]
    example: str


KINDS: Mapping[str, Kind] = {
    "python": Kind(
        frameworks=("pytorch",),
        files=(".py",),
        modules=True,
        function=re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"),
        example="module:function or file.py:function",
    ),
    "torch_library": Kind(
        frameworks=("pytorch",),
        files=(".py", *_LIBRARIES),
        modules=True,
        function=re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?"),
        example="library.so:namespace::operator or file.py:namespace::operator",
    ),
    "ort_custom_ops": Kind(
        frameworks=("onnxruntime",),
        files=_LIBRARIES,
        modules=False,
        function=re.compile(r"[A-Za-z_][\w.]*::[A-Za-z_]\w*"),
        example="library.so:domain::Operator",
    ),
}


class CandidateChoice(Entry):
    """One candidate. Its column is checked with every case of the operator that the catalog has."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")]
    operator: str = Field(description="of the catalog: Gelu, or a composite such as BiasGelu")
    framework: str
    callable: str = Field(description="package.module:function, file.py:function, library.so:namespace::name")
    kind: Literal["python", "torch_library", "ort_custom_ops"] = "python"
    gradient: bool = Field(default=False, description="it has one: compare it with differences, in float64")
    path: str = Field(default="", description="folder of the module; none: the sweep file's own")

    @property
    def variant(self) -> str:
        """What its cells have in the place of a framework's variant."""
        return CANDIDATE + self.name

    def resolved(self, folder: Path) -> CandidateChoice:
        """The same with absolute paths: what a run stores, and a worker is told."""
        where, function = split(self.callable)
        home = absolute(Path(self.path), folder) if self.path else folder.absolute()
        if where.endswith(KINDS[self.kind].files):
            where = str(absolute(Path(where), home))
        return self.model_copy(update={"callable": f"{where}:{function}", "path": str(home)})

    def told(self) -> dict[str, Any]:
        """As `matrix_adapters.operators.candidate.Candidate` has it."""
        return {
            "name": self.name,
            "operator": self.operator,
            "callable": self.callable,
            "kind": self.kind,
            "folder": self.path,
            "gradient": self.gradient,
        }


def check_candidates(checker: Checker, data: Mapping[str, Any], folder: Path, catalog: Catalog) -> None:
    """Report every operator, framework and file of `candidates:` that is not there."""
    named = {name for name in map(_framework_name, _listed(data, "frameworks")) if name}
    seen: set[str] = set()
    for i, entry in enumerate(_listed(data, "candidates")):
        if not isinstance(entry, Mapping):
            continue
        loc: Loc = ("candidates", i)
        name = entry.get("name")
        if isinstance(name, str) and name in seen:
            checker.add((*loc, "name"), f"a second candidate is called {name!r}: choose another name")
        seen.add(str(name))
        _operator(checker, loc, entry, catalog)
        _framework(checker, loc, entry, named)
        _callable(checker, loc, entry, folder)
        if entry.get("kind") == "ort_custom_ops" and entry.get("gradient") is True:
            checker.add((*loc, "gradient"), "an operator of ONNX Runtime has no gradient to be compared")


def split(written: str) -> tuple[str, str]:
    """("file.py", "function"), ("library.so", "namespace::name"): a path may have colons of its own."""
    where, _, function = written.rpartition(":")
    if where.endswith(":"):
        where, _, space = where[:-1].rpartition(":")
        function = f"{space}::{function}"
    return where, function


def _operator(checker: Checker, loc: Loc, entry: Mapping[str, Any], catalog: Catalog) -> None:
    operator = entry.get("operator")
    if not isinstance(operator, str):
        return
    from matrix.operators.load import load_operators  # many entries: only for a sweep that names some

    known = load_operators(catalog.operators)
    if operator not in known.cases:
        hint = did_you_mean(operator, known.cases)
        checker.add((*loc, "operator"), f"the catalog has no cases of an operator {operator!r}{hint}")


def _framework(checker: Checker, loc: Loc, entry: Mapping[str, Any], named: set[str]) -> None:
    framework, kind = entry.get("framework"), str(entry.get("kind", "python"))
    if not isinstance(framework, str) or kind not in KINDS:
        return
    if framework not in KINDS[kind].frameworks:
        able = ", ".join(KINDS[kind].frameworks)
        checker.add((*loc, "framework"), f"a candidate of the kind {kind} is one for {able}, not {framework}")
    elif framework not in named:
        checker.add(
            (*loc, "framework"), f"the sweep has no framework {framework}: name it under `frameworks`"
        )


def _callable(checker: Checker, loc: Loc, entry: Mapping[str, Any], folder: Path) -> None:
    try:
        _callable_of(checker, loc, entry, folder)
    except UsageError as error:  # a path that no system call takes
        checker.add((*loc, "callable"), str(error))


def _callable_of(checker: Checker, loc: Loc, entry: Mapping[str, Any], folder: Path) -> None:
    written, kind = entry.get("callable"), KINDS.get(str(entry.get("kind", "python")))
    if not isinstance(written, str) or kind is None:
        return
    where, function = split(written)
    if not kind.function.fullmatch(function):
        checker.add((*loc, "callable"), f"write it {kind.example}, got {written!r}")
        return
    home = folder
    given = entry.get("path")
    if isinstance(given, str) and given:
        home = absolute(Path(given), folder)
        if not home.is_dir():
            checker.add((*loc, "path"), f"there is no folder {home}")
            return
    if where.endswith(kind.files):
        if not (path := absolute(Path(where), home)).is_file():
            checker.add((*loc, "callable"), f"there is no file {path}")
    elif not (kind.modules and _MODULE.fullmatch(where)) or where.endswith(_LIBRARIES):
        checker.add((*loc, "callable"), f"{where!r} cannot hold it: write it {kind.example}")


def _framework_name(entry: Any) -> str | None:
    name = entry.get("name") if isinstance(entry, Mapping) else entry
    return name if isinstance(name, str) else None


def _listed(data: Mapping[str, Any], key: str) -> Iterator[Any]:
    value = data.get(key)
    yield from value if isinstance(value, list) else ()
