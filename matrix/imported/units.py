"""Units as people write them in files, and what they are in the metric registry's own.

Stored data has one unit per metric, so the conversion happens here, once, at the edge. A unit
of another kind is an error: a latency in bytes is a mistake, not a number.
"""

from __future__ import annotations

from collections.abc import Mapping

_TIME = {"ns": 1.0, "us": 1e3, "\u00b5s": 1e3, "\u03bcs": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}
_BYTES = {
    "B": 1.0,
    "bytes": 1.0,
    "kB": 1e3,
    "KB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
_RATIO = {"1": 100.0, "%": 1.0}
#: the registry's unit -> what may be written for it, and how many of the smallest each is
_KINDS: Mapping[str, Mapping[str, float]] = {
    "s": _TIME,
    "ms": _TIME,
    "bytes": _BYTES,
    "J": {"uJ": 1.0, "\u00b5J": 1.0, "mJ": 1e3, "J": 1e6, "kJ": 1e9},
    "1": _RATIO,
    "items/s": {"items/s": 1.0, "1/s": 1.0, "inferences/s": 1.0, "items/ms": 1e3},
    "samples/s": {"samples/s": 1.0, "1/s": 1.0, "samples/ms": 1e3},
    "tokens/s": {"tokens/s": 1.0, "tok/s": 1.0, "1/s": 1.0, "tokens/ms": 1e3},
    "requests/s": {
        "requests/s": 1.0,
        "req/s": 1.0,
        "rps": 1.0,
        "qps": 1.0,
        "1/s": 1.0,
        "requests/min": 1 / 60,
    },
    "TFLOP/s": {"GFLOP/s": 1.0, "GFLOPS": 1.0, "TFLOP/s": 1e3, "TFLOPS": 1e3, "PFLOP/s": 1e6, "PFLOPS": 1e6},
    "GB/s": {"MB/s": 1.0, "GB/s": 1e3, "TB/s": 1e6, "MiB/s": 1.048576, "GiB/s": 1073.741824},
}
#: units of what cannot have taken no time, or run at no speed
_NEVER_ZERO = frozenset(_KINDS) - {"bytes", "J", "1"}


def known(unit: str) -> tuple[str, ...]:
    """What may be written for a metric whose unit in the registry is `unit`."""
    return tuple(_KINDS.get(unit, {unit: 1.0}))


def conversion(written: str, unit: str) -> tuple[float, float] | None:
    """(multiply by, divide by) to come from `written` to `unit`; None where it is no such unit.

    Two factors, one of them 1 where the units are decimal: 250 us become 0.25 ms exactly.
    """
    if not written or written == unit:
        return 1.0, 1.0
    sizes = _KINDS.get(unit, {})
    if written not in sizes or unit not in sizes:
        return None
    mine, wanted = sizes[written], sizes[unit]
    return (mine / wanted, 1.0) if mine >= wanted else (1.0, wanted / mine)


def least(unit: str) -> tuple[float, bool]:
    """The smallest value that a metric of this unit can have, and whether that value is possible itself."""
    if unit == "1":  # a similarity or a gap may be below zero
        return float("-inf"), False
    return 0.0, unit not in _NEVER_ZERO
