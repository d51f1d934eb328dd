"""A prepared operator case on disk, as the oracle leaves it and every framework reads it.

    case.json     the `OperatorCase`
    model.onnx    the nodes, with constants as initialisers
    inputs.npz    what is fed, by name; bfloat16 as its bits (uint16)
    expected.npz  what should come out: float outputs as float64, others in their own type
    oracle.json   what each output is, by which version, with which notes; or why there is none

The files hold values only. `feed` gives them the strides that the case asks for.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from matrix_adapters import tensors
from matrix_adapters.protocol import OperatorCase, TensorSpec, from_json, to_json, write_atomic

CASE_FILE = "case.json"
MODEL_FILE = "model.onnx"
INPUTS_FILE = "inputs.npz"
EXPECTED_FILE = "expected.npz"
ORACLE_FILE = "oracle.json"

LAYOUTS = ("contiguous", "transposed", "strided", "broadcast")

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What a folder holds. `expected` is None where `oracle["failed"]` says why."""

    case: OperatorCase
    inputs: Arrays
    expected: Arrays | None
    oracle: Mapping[str, Any]


def write_case(folder: Path, case: OperatorCase, inputs: Mapping[str, Array]) -> None:
    """case.json and inputs.npz; the folder is made. Constants are left out: the model has them."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / CASE_FILE, to_json(case) + "\n")
    fed = {spec.name: inputs[spec.name] for spec in case.inputs if not spec.constant}
    tensors.save(folder / INPUTS_FILE, fed)


def write_oracle(folder: Path, oracle: Mapping[str, Any], expected: Mapping[str, Array] | None) -> None:
    """oracle.json, and expected.npz before it where there is one: a folder with an oracle is complete."""
    if expected is not None:
        tensors.save(folder / EXPECTED_FILE, expected)
    text = json.dumps(oracle, allow_nan=False, indent=2, sort_keys=True)
    write_atomic(folder / ORACLE_FILE, text + "\n")


def read_case(folder: Path) -> OperatorCase:
    """Raises FileNotFoundError, or ProtocolError for a file that is no case."""
    return from_json(OperatorCase, (folder / CASE_FILE).read_text(encoding="utf-8"))


def read(folder: Path) -> Prepared:
    """Everything. Raises as `read_case`, and ValueError for arrays that do not fit the case."""
    case = read_case(folder)
    oracle = json.loads((folder / ORACLE_FILE).read_text(encoding="utf-8"))
    expected = None if "failed" in oracle else tensors.load(folder / EXPECTED_FILE)
    return Prepared(case=case, inputs=_inputs(folder, case), expected=expected, oracle=oracle)


def feed(folder: Path) -> Arrays:
    """The fed tensors by name, in the case's order, each with the strides of its layout."""
    case = read_case(folder)
    return arranged(case, _inputs(folder, case))


def arranged(case: OperatorCase, inputs: Mapping[str, Array]) -> Arrays:
    """The fed tensors of `case` with the strides of their layouts."""
    return {spec.name: laid_out(inputs[spec.name], spec) for spec in case.inputs if not spec.constant}


def laid_out(array: Array, spec: TensorSpec) -> Array:
    """The same values in memory of its own, with the strides that `spec.layout` names.

    "transposed": the axes lie in memory in reverse order. "strided": every second element of the
    last axis of a larger array. "broadcast": stride 0 along the first axis, whose entries must be
    equal (ValueError). A tensor with too few axes for its layout is contiguous.
    """
    if spec.layout not in LAYOUTS:
        raise ValueError(f"tensor {spec.name!r}: no layout {spec.layout!r}, use {', '.join(LAYOUTS)}")
    if spec.layout == "transposed":
        return np.array(array, order="F", copy=True)
    if spec.layout == "strided" and array.ndim:
        wider = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wider[..., ::2] = array
        return wider[..., ::2]
    if spec.layout == "broadcast" and array.ndim and array.shape[0] > 1:
        first = np.array(array[:1], order="C", copy=True)
        if any(row.tobytes() != first[0].tobytes() for row in array[1:]):
            raise ValueError(f"tensor {spec.name!r}: values that differ cannot share memory")
        return as_strided(first, array.shape, (0, *first.strides[1:]))
    return np.array(array, order="C", copy=True)


def _inputs(folder: Path, case: OperatorCase) -> Arrays:
    arrays = tensors.load(folder / INPUTS_FILE)
    for spec in case.inputs:
        if spec.constant:
            continue
        if spec.name not in arrays:
            raise ValueError(f"{folder / INPUTS_FILE} has no array {spec.name!r}")
        if arrays[spec.name].shape != spec.shape:
            found = list(arrays[spec.name].shape)
            raise ValueError(f"tensor {spec.name!r} is {found} in the file, {list(spec.shape)} in the case")
    return {spec.name: arrays[spec.name] for spec in case.inputs if not spec.constant}
