"""A user's ONNX file as a catalog entry: what the file says, under what the user wrote.

Shapes keep `batch` and `sequence` where those axes are free, so that one entry serves all
the batches of a sweep; `matrix.artefacts.onnx_file` checks each of them against the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from matrix.artefacts.onnx_file import OnnxFacts, OnnxRefused, inspect, resolve_inputs, resolve_outputs
from matrix.artefacts.onnx_file.inputs import AXES
from matrix.catalog.types import DEFAULT_SEQUENCE, InputEntry
from matrix.errors import ConfigError


def look_at(path: Path) -> OnnxFacts:
    """What is in the file. Raises ConfigError with the reason when it cannot be used."""
    try:
        return inspect(path)
    except OnnxRefused as error:
        raise ConfigError([str(error)]) from None


def outputs(facts: OnnxFacts, given: Sequence[str]) -> list[str]:
    """The outputs to compare. Raises ConfigError for one the file lacks."""
    return resolve_outputs(facts, given)


def inputs(
    facts: OnnxFacts,
    given: Mapping[str, Mapping[str, Any]],
    batches: Sequence[int],
    sequences: Sequence[int],
) -> tuple[dict[str, InputEntry], int | None]:
    """Complete entries, and the only batch the file takes (None where that axis is free).

    `given` holds the fields the user wrote. Raises ConfigError with everything that stays open.
    """
    entries = {name: _given(name, fields, facts) for name, fields in given.items()}
    shapes = _shapes(facts, entries)
    fixed = _fixed_batch(shapes)
    lengths: Sequence[int | None] = [None]
    if any("sequence" in (shape or ()) for shape in shapes.values()):
        lengths = sequences or [DEFAULT_SEQUENCE]
    problems: dict[str, None] = {}
    resolved: dict[str, InputEntry] = {}
    for batch in [b for b in batches if fixed is None or b == fixed] or [fixed or 1]:
        for length in lengths:
            try:
                resolved = resolve_inputs(facts, entries, batch=batch, sequence=length)
            except ConfigError as error:
                problems.update(dict.fromkeys(error.problems))
    if problems:
        raise ConfigError([p.removeprefix(f"{facts.path.name}: ") for p in problems])
    complete = {
        name: entry if entry.file else entry.model_copy(update={"shape": shapes[name]})
        for name, entry in resolved.items()
    }
    return complete, fixed


def _given(name: str, fields: Mapping[str, Any], facts: OnnxFacts) -> InputEntry:
    """The user's fields; a range without a distribution means the one that fits the type."""
    info = facts.inputs.get(name)
    filled = dict(fields)
    if ("low" in filled or "high" in filled) and "distribution" not in filled and "file" not in filled:
        whole = info is not None and info.dtype.startswith(("int", "uint", "string"))
        filled["distribution"] = "integers" if whole else "uniform"
    try:
        return InputEntry.model_validate(filled)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        text = str(details.get("ctx", {}).get("error", details["msg"]))
        raise ConfigError([f"inputs.{name}: {text}"]) from None


def _shapes(facts: OnnxFacts, given: Mapping[str, InputEntry]) -> dict[str, list[int | str] | None]:
    """Every input's shape in `batch`, `sequence` and numbers, as far as it can be told."""
    bound: dict[str, int | str] = {}
    for name, entry in given.items():
        info = facts.inputs.get(name)
        if info is not None and info.shape is not None and entry.shape is not None:
            pairs = zip(info.shape, entry.shape, strict=False)
            bound.update({symbol: size for symbol, size in pairs if isinstance(symbol, str)})
    shapes: dict[str, list[int | str] | None] = {}
    for name, info in facts.inputs.items():
        entry = given.get(name, InputEntry())
        shape = entry.shape if entry.shape is not None else info.shape
        if shape is None:
            shapes[name] = None
        else:
            shapes[name] = [
                axis if isinstance(axis, int) else bound.get(axis or "", AXES.get(axis or "", axis or "?"))
                for axis in shape
            ]
    return shapes


def _fixed_batch(shapes: Mapping[str, list[int | str] | None]) -> int | None:
    """The size that all leading dimensions share, where none of them is free."""
    if any(shape is None or "batch" in shape for shape in shapes.values()):
        return None
    leading = {shape[0] for shape in shapes.values() if shape}
    only = leading.pop() if len(leading) == 1 else None
    return only if isinstance(only, int) else None
