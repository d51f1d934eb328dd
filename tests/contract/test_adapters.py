"""Rules that every shipped adapter obeys, readable without its framework."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from matrix import catalog
from matrix_adapters.protocol import Task, TaskKind

ADAPTER_METHODS = ["__init__", "start", "probe", "load"]
RUNNER_METHODS = ["prepare", "compile", "run", "sync", "fetch", "effective", "close"]

FRAMEWORKS = {f.adapter: f.import_package for f in catalog.load().frameworks.values()}
MODULES = [*FRAMEWORKS, "matrix_adapters.null"]


@pytest.fixture(params=MODULES)
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def task(module: ModuleType, **fields: Any) -> Task:
    return Task(kind=TaskKind.MEASURE, framework="any", adapter=module.__name__, **fields)


def runners(module: ModuleType) -> list[type]:
    """The classes of this module that can make a call."""
    classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == module.__name__]
    return [c for c in classes if callable(getattr(c, "run", None)) and callable(getattr(c, "fetch", None))]


def order(cls: type, names: list[str]) -> list[str]:
    """Those of `names` that the class defines itself, in the order of its source."""
    return [name for name in vars(cls) if name in names]


def test_an_adapter_is_read_without_importing_its_framework(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {
        name.partition(".")[0]
        for node in top
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }
    assert names <= {*sys.stdlib_module_names, "numpy", "matrix_adapters"}


def test_an_adapter_is_made_from_a_task_and_imports_nothing(module: ModuleType) -> None:
    before = set(sys.modules)
    adapter = module.Adapter(task(module, device="cuda:1", threads=3))
    assert adapter.name
    assert isinstance(adapter.environment, Mapping)
    assert all(isinstance(text, str) for pair in adapter.environment.items() for text in pair)
    assert FRAMEWORKS.get(module.__name__, "no framework") not in set(sys.modules) - before


def test_every_adapter_defines_the_same_methods_in_the_same_order(module: ModuleType) -> None:
    assert order(module.Adapter, ADAPTER_METHODS) == ADAPTER_METHODS


def test_every_runner_defines_the_same_methods_in_the_same_order(module: ModuleType) -> None:
    complete = [cls for cls in runners(module) if order(cls, RUNNER_METHODS) == RUNNER_METHODS]
    assert complete, f"no class of {module.__name__} defines {', '.join(RUNNER_METHODS)} in this order"


def test_every_runner_can_be_synchronised(module: ModuleType) -> None:
    for cls in runners(module):
        assert callable(getattr(cls, "sync", None)), f"{cls.__name__} forgets sync"
