"""`import timm` where no torchvision is installed.

timm imports a few names of torchvision at module level, only to offer image transforms and
one norm layer that no model here uses; torchvision itself has no build for every PyTorch
build. For the length of that import, an empty stand-in answers; then it is taken away again,
since other libraries (transformers among them) look for torchvision and would believe it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

# Modules that a library tries and does without: refusing them keeps that path.
_REFUSED = ("torchvision.models",)


def import_timm() -> Any:
    """The timm module, with a stand-in for torchvision if (and only if) that is missing."""
    if "timm" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return importlib.import_module("timm")
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module("timm")
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
            del sys.modules[name]


class _Name(type):
    """A class any attribute of which is a string: enough for `InterpolationMode.NEAREST`."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _StandIn(types.ModuleType):
    """A package with every attribute a class that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Serves `torchvision` and everything below it as `_StandIn`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision" or fullname.startswith(_REFUSED):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to execute."""
