"""Small cases for every ONNX operator that the PyTorch mapping knows, several attributes each. Data only."""

from __future__ import annotations

from collections.abc import Iterator

from matrix_adapters.protocol import OperatorCase
from torch_cases import elementwise, exact, layer, reduction, sampling, sequence, shape
from torch_cases.table import Entry, as_case

_MODULES = (elementwise, layer, reduction, shape, sampling, sequence, exact)


def cases() -> Iterator[OperatorCase]:
    """Every entry in each of its dtypes; names are numbered within an operator."""
    counts: dict[str, int] = {}
    for entry in _entries():
        number = counts[entry.op] = counts.get(entry.op, 0) + 1
        for dtype in entry.dtypes:
            yield as_case(entry, f"{entry.op}/{number}", dtype)


def _entries() -> Iterator[Entry]:
    for module in _MODULES:
        for family in module.FAMILIES:
            yield from family()
