"""What the configuration says about a file's inputs and outputs, brought together with the file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from matrix.artefacts.onnx_file.facts import OnnxFacts, TensorInfo
from matrix.catalog.types import InputEntry
from matrix.errors import ConfigError

#: names that exporters give to these two axes; any other free dimension has to be given
AXES = {
    **dict.fromkeys(("batch", "batch_size", "N", "n"), "batch"),
    **dict.fromkeys(("sequence", "sequence_length", "seq_len", "seq_length", "seq", "s"), "sequence"),
}


def resolve_inputs(
    facts: OnnxFacts, given: Mapping[str, InputEntry], *, batch: int, sequence: int | None = None
) -> dict[str, InputEntry]:
    """One complete entry per input of the file: its dtype, a size for every dimension, a generator.

    Raises ConfigError listing every input that stays open, with what to write for it.
    """
    problems = [
        f"inputs.{name}: the file has no such input{_near(name, facts.inputs)}"
        for name in given
        if name not in facts.inputs
    ]
    sizes = _Sizes(batch=batch, sequence=sequence, problems=problems)
    entries = {name: given.get(name, InputEntry()) for name in facts.inputs}
    for name, info in facts.inputs.items():  # what is given binds the symbols for the rest
        sizes.bind(info, entries[name])
    resolved = {}
    for name, info in facts.inputs.items():
        if entries[name].file is not None:
            shape = _check_file(info, entries[name], problems)
        else:
            shape = sizes.shape(info, entries[name])
        resolved[name] = _complete(info, entries[name], name in given, shape, problems)
    sizes.check_batch(resolved)
    if problems:
        raise ConfigError([f"{facts.path.name}: {problem}" for problem in problems])
    return resolved


def resolve_outputs(facts: OnnxFacts, given: Sequence[str]) -> list[str]:
    """The outputs to compare: those given, else all. Raises ConfigError for one the file lacks."""
    problems = [
        f"{facts.path.name}: outputs: the file has no output {name!r}{_near(name, facts.outputs)}"
        for name in given
        if name not in facts.outputs
    ]
    if problems:
        raise ConfigError(problems)
    return list(given or facts.outputs)


class _Sizes:
    """Sizes of symbolic dimensions, collected over all inputs so that one symbol means one size."""

    def __init__(self, *, batch: int, sequence: int | None, problems: list[str]) -> None:
        self._axes = {"batch": batch, "sequence": sequence}
        self._symbols: dict[str, int] = {}
        self._problems = problems
        self._follows_batch = False

    def bind(self, info: TensorInfo, entry: InputEntry) -> None:
        """Take the sizes that the configuration gives for this input's symbols."""
        if entry.shape is None or info.shape is None or len(entry.shape) != len(info.shape):
            return
        for symbol, wanted in zip(info.shape, entry.shape, strict=True):
            size = self._size(wanted)
            if isinstance(symbol, str) and size is not None:
                before = self._symbols.setdefault(symbol, size)
                if before != size:
                    self._problems.append(
                        f"inputs.{info.name}.shape: {symbol!r} is {size} here and {before} in another input"
                    )

    def shape(self, info: TensorInfo, entry: InputEntry) -> list[int]:
        """A size for every dimension; a problem is noted for each one that has none."""
        declared = info.shape
        if declared is None and entry.shape is None:
            self._problems.append(f"inputs.{info.name}: the file declares no shape, write shape: [...]")
            return []
        wanted: Sequence[Any] = entry.shape if entry.shape is not None else declared or ()
        if declared is not None and len(declared) != len(wanted):
            self._problems.append(
                f"inputs.{info.name}.shape: {len(wanted)} dimensions given, the file has {_shown(declared)}"
            )
            return []
        return [self._resolve(info, axis, item) for axis, item in enumerate(wanted)]

    def check_batch(self, resolved: Mapping[str, InputEntry]) -> None:
        """A batch that no dimension follows would make every count of items wrong."""
        batch = self._axes["batch"]
        leading = {entry.shape[0] for entry in resolved.values() if entry.shape}
        if batch != 1 and not self._follows_batch and leading != {batch}:
            self._problems.append(
                f"batch {batch} was asked, but no input dimension follows it: write `batch` in the "
                "inputs' shapes, or export the model with a free batch dimension"
            )

    def _resolve(self, info: TensorInfo, axis: int, item: int | str | None) -> int:
        size = self._size(item)
        declared = None if info.shape is None else info.shape[axis]
        if size is None:
            named = f"({item!r}) " if item else ""
            known = ", ".join("?" if d is None else str(d) for d in info.shape or (item,))
            self._problems.append(
                f"inputs.{info.name}: dimension {axis} {named}has no size: "
                f"write inputs.{info.name}.shape with `batch`, `sequence` or numbers for [{known}]"
            )
            return 1
        if isinstance(declared, int) and declared != size:
            self._problems.append(
                f"inputs.{info.name}.shape: dimension {axis} is {declared} in the file, {size} is asked"
            )
        if size < 1:
            self._problems.append(f"inputs.{info.name}: dimension {axis} is {size}: nothing can be measured")
        return size

    def _size(self, item: int | str | None) -> int | None:
        if item is None or isinstance(item, int):
            return item
        axis = AXES.get(item)
        if item not in ("batch", "sequence") and item in self._symbols:
            return self._symbols[item]
        self._follows_batch = self._follows_batch or axis == "batch"
        return self._axes[axis] if axis else None


def _complete(
    info: TensorInfo, entry: InputEntry, is_given: bool, shape: list[int], problems: list[str]
) -> InputEntry:
    """The entry with the file's dtype and this shape; values are chosen only where it is safe to."""
    where = f"inputs.{info.name}"
    if "dtype" in entry.model_fields_set and entry.dtype != info.dtype:
        problems.append(f"{where}.dtype: {entry.dtype} given, the file has {info.dtype}")
    update: dict[str, Any] = {"dtype": info.dtype, "shape": shape}
    if entry.file is None:
        chosen = is_given and bool({"distribution", "low", "high"} & entry.model_fields_set)
        update |= {} if chosen else _default_values(info, problems)
        _check_indices(info, entry.model_copy(update=update), problems)
    return entry.model_copy(update=update)


def _default_values(info: TensorInfo, problems: list[str]) -> dict[str, Any]:
    """Values for an input of which the configuration says nothing."""
    if info.dtype in ("float16", "bfloat16", "float32", "float64"):
        return {"distribution": "normal"}
    if info.dtype == "bool":
        return {"distribution": "integers", "low": 0, "high": 2}
    if info.dtype.startswith(("int", "uint")) and info.index_limit is not None:
        return {"distribution": "integers", "low": 0, "high": info.index_limit}
    if info.dtype == "string":  # words are drawn by number
        return {"distribution": "integers", "low": 0, "high": 1000}
    if info.dtype.startswith(("int", "uint")):
        wanted = "{distribution: integers, low: 0, high: N} (or mask): the file does not say how far they go"
    else:
        wanted = f"another model: values of type {info.dtype} cannot be made"
    problems.append(f"inputs.{info.name} is {info.dtype}: write {wanted}")
    return {}


def _check_indices(info: TensorInfo, entry: InputEntry, problems: list[str]) -> None:
    limit = info.index_limit
    if limit is None or entry.distribution == "mask":
        return
    if entry.distribution == "constant":
        low = high = int(entry.low or 0)
    else:
        low, high = int(entry.low or 0), int(entry.high or 1) - 1
    if not -limit <= low <= high < limit:
        problems.append(
            f"inputs.{info.name}: values {low}..{high} are out of range, the model has {limit} rows for them"
        )


def _check_file(info: TensorInfo, entry: InputEntry, problems: list[str]) -> list[int]:
    """The shape of the array in `entry.file`, checked against the file's type, shape and tables."""
    where = f"inputs.{info.name}.file"
    if entry.file is not None and entry.file.exists() and not entry.file.is_file():
        problems.append(f"{where}: {entry.file} is no file")  # a pipe would be waited for, for ever
        return []
    try:
        array = np.load(str(entry.file), mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        why = "it is no array, or one of Python objects" if "pickle" in str(error) else str(error)
        problems.append(f"{where}: {entry.file} cannot be read as an array: {why}")
        return []
    if not isinstance(array, np.ndarray):
        problems.append(f"{where}: {entry.file} holds several arrays: give one .npy per input")
        return []
    dtype = "string" if array.dtype.kind == "U" else array.dtype.name
    if dtype != {"bfloat16": "uint16"}.get(info.dtype, info.dtype):  # raw bits: NumPy has no such type
        problems.append(f"{where}: holds {dtype}, the model takes {info.dtype}")
    shape = [int(size) for size in array.shape]
    declared = info.shape
    if declared is not None and (
        len(declared) != len(shape)
        or any(isinstance(d, int) and d != s for d, s in zip(declared, shape, strict=True))
    ):
        problems.append(f"{where}: has shape {shape}, the model takes {_shown(declared)}")
    limit = info.index_limit
    if limit is not None and array.dtype.kind in "iu" and array.size:
        low, high = int(array.min()), int(array.max())
        if not -limit <= low <= high < limit:
            problems.append(
                f"{where}: values {low}..{high} are out of range, the model has {limit} rows for them"
            )
    return shape


def _shown(shape: Sequence[int | str | None]) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def _near(name: str, known: Mapping[str, Any]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (it has {', '.join(known) or 'none'})"
