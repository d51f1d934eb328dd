"""Others' tests as prepared cases: what other projects expect of operators. Task kind FOREIGN.

`options["tests"]` names a collection; each of its tests becomes a case folder (see `case_folder`),
and `out/index.json` lists all of them in order, those too that cannot be run from a folder, with
the reason. Nothing is downloaded: the collections are part of the installed packages.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix_adapters.launch import Launch
from matrix_adapters.operators import case_folder, elements
from matrix_adapters.protocol import OperatorCase, Reason, Result, State, Task, plain, write_atomic

INDEX_FILE = "index.json"

#: `options["tests"]` -> the module that collects them: `collect()` gives a `Collection`
COLLECTIONS: Mapping[str, str] = {
    "onnx": "matrix_adapters.operators.node_tests",
    "opinfo": "matrix_adapters.operators.opinfo",
}
STRING = "string"

Array = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignTest:
    """One test: what goes in, what has to come out, and how near.

    `inputs` and `expected` by name, in their own types (bfloat16 as ml_dtypes or torch give it, as
    bits); `rtol` and `atol` as `numpy.allclose` has them. `refused`: why no folder can hold it.
    `open`: why its outputs are not the only right ones.
    """

    case: OperatorCase
    test: str  # as its own project calls it
    rtol: float
    atol: float
    inputs: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    expected: Mapping[str, Array] = dataclasses.field(default_factory=dict)
    dtypes: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of the outputs
    model: bytes = b""
    refused: Reason | None = None
    open: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collection:
    """All tests of one project, by which release of it."""

    source: str  # "onnx 1.23.2 node test"
    versions: Mapping[str, str]
    tests: Iterable[ForeignTest]


def handle(task: Task, launch: Launch) -> Result:
    """Leave every test of `options["tests"]`. Raises ValueError for a collection that does not exist."""
    name = str(task.options.get("tests"))
    if name not in COLLECTIONS:
        raise ValueError(f"no tests are called {name!r}: there are {', '.join(COLLECTIONS)}")
    begin = time.perf_counter()
    launch.heart.enter(f"collect {name}")
    with launch.heart.beating(), contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collect: Callable[[], Collection] = importlib.import_module(COLLECTIONS[name]).collect
        found = collect()
        entries = [_entry(launch.out_dir, n, test, found.source) for n, test in enumerate(found.tests)]
    index = {"source": found.source, "cases": entries}
    text = json.dumps(index, allow_nan=False, sort_keys=True, separators=(",", ":"))
    write_atomic(launch.out_dir / INDEX_FILE, text + "\n")
    launch.phases["collect_s"] = time.perf_counter() - begin
    launch.versions.update({**found.versions, "numpy": np.__version__})
    launch.artefacts.update({"cases": len(entries), "source": found.source})
    return launch.result(State.OK)


def _entry(out: Path, number: int, test: ForeignTest, source: str) -> dict[str, Any]:
    if test.refused is None:
        write(out / str(number), test, source)
    return {
        "folder": str(number) if test.refused is None else "",
        "case": plain(test.case),
        "test": test.test,
        "rtol": test.rtol,
        "atol": test.atol,
        "refused": plain(test.refused),
        "open": test.open,
    }


def write(folder: Path, test: ForeignTest, source: str) -> None:
    """The files of a prepared case; its oracle is the test itself."""
    dtypes = {spec.name: spec.dtype for spec in test.case.inputs}
    inputs = {name: kept(array, dtypes[name]) for name, array in test.inputs.items()}
    case_folder.write_case(folder, test.case, inputs)
    if test.model:
        (folder / case_folder.MODEL_FILE).write_bytes(test.model)
    expected = {name: _wide(array, test.dtypes[name]) for name, array in test.expected.items()}
    outputs = {
        name: {"dtype": test.dtypes[name], "shape": list(array.shape)} for name, array in expected.items()
    }
    oracle = {"source": source, "test": test.test, "outputs": outputs, "notes": []}
    case_folder.write_oracle(folder, oracle, expected)


def kept(array: Array, dtype: str) -> Array:
    """A tensor as it lies in a file: bfloat16 as bits, text as fixed-width text."""
    if dtype == STRING:
        return np.array([_text(value) for value in array.ravel()], dtype=np.str_).reshape(array.shape)
    if dtype == elements.BFLOAT16:
        return array.view(np.uint16)
    return np.asarray(array, elements.storage(dtype))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _wide(array: Array, dtype: str) -> Array:
    """An expected output: floats as float64, which holds every one of them exactly."""
    if dtype == elements.BFLOAT16:
        return elements.from_bits(kept(array, dtype)).astype(np.float64)
    return kept(array, dtype).astype(np.float64) if elements.is_float(dtype) else kept(array, dtype)
