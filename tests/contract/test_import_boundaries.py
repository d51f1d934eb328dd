"""Who may import whom: the host knows no framework, the worker knows nothing of the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import matrix
import matrix_adapters
from matrix import catalog

HOST = Path(matrix.__file__).parent
WORKER = Path(matrix_adapters.__file__).parent

HOST_FILES = sorted(HOST.rglob("*.py"))
WORKER_FILES = sorted(WORKER.rglob("*.py"))

ADAPTERS = {f.adapter for f in catalog.load().frameworks.values()}
FRAMEWORKS = {f.import_package for f in catalog.load().frameworks.values()} | {
    "keras",
    "keras_hub",
    "timm",
    "tensorrt_rtx",
    "transformers",
    "safetensors",
    "onnxscript",
}


def imports(source: str) -> Iterator[str]:
    """Every module that a source text imports, at the top or inside a function, by its dotted name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "absolute imports only: a worker module may be named like its framework"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def outside_the_protocol(source: str) -> list[str]:
    """Worker modules that a host module imports, other than the one that both sides share."""
    allowed = ("matrix_adapters.protocol",)
    return [
        name
        for name in imports(source)
        if name.startswith("matrix_adapters.") and not any(inside(name, a) for a in allowed)
    ]


def frameworks_in(source: str) -> list[str]:
    return [name for name in imports(source) if name.partition(".")[0] in FRAMEWORKS]


def host_modules_in(source: str) -> list[str]:
    return [name for name in imports(source) if inside(name, "matrix")]


@pytest.mark.parametrize("path", HOST_FILES, ids=lambda p: str(p.relative_to(HOST)))
def test_the_host_imports_no_framework_and_of_the_worker_the_protocol_only(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert frameworks_in(source) == []
    assert outside_the_protocol(source) == []


@pytest.mark.parametrize("path", WORKER_FILES, ids=lambda p: str(p.relative_to(WORKER)))
def test_the_worker_imports_nothing_of_the_host(path: Path) -> None:
    assert host_modules_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_an_adapter_knows_no_other_adapter(adapter: str) -> None:
    source = (WORKER / f"{adapter.partition('.')[2]}.py").read_text(encoding="utf-8")
    assert not (set(imports(source)) & (ADAPTERS - {adapter}))


@pytest.mark.parametrize(
    ("source", "check"),
    [
        ("def f():\n    import torch.nn", frameworks_in),
        ("from matrix_adapters import worker", outside_the_protocol),
        ("from matrix_adapters.clock import steady", outside_the_protocol),
        ("if True:\n    from matrix.judge import parity", host_modules_in),
    ],
)
def test_a_planted_import_across_a_boundary_is_found(source: str, check: object) -> None:
    assert check(source)  # type: ignore[operator]


def test_what_is_allowed_is_not_reported() -> None:
    assert outside_the_protocol("import matrix_adapters\nfrom matrix_adapters.protocol import Task") == []
    assert host_modules_in("import matrix_adapters.protocol\nimport matrixlike") == []
