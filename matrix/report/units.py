"""Numbers for people: the one place where a stored value gets a scaled unit.

Stored data keeps one unit per metric for ever (the registry's); only a view scales.
Three significant digits, the unit always beside the number, and cells that stand in one
row share a unit, so that 0.90 ms is not taken for less than 1.1 us (see `scale_for`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable

# Per stored unit: what one of it is in the family's base unit.
_STORED = {
    "s": ("time", 1.0),
    "ms": ("time", 1e-3),
    "us": ("time", 1e-6),
    "ns": ("time", 1e-9),
    "bytes": ("bytes", 1.0),
    "J": ("energy", 1.0),
    "W": ("power", 1.0),
    "TFLOP/s": ("arithmetic", 1e12),
    "FLOP": ("operations", 1.0),
    "GB/s": ("traffic", 1e9),
}
# Per family: symbol -> size in the base unit, largest first.
_FAMILIES: dict[str, tuple[tuple[str, float], ...]] = {
    "time": (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)),
    "bytes": (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)),
    "energy": (("kJ", 1e3), ("J", 1.0), ("mJ", 1e-3), ("uJ", 1e-6)),
    "power": (("kW", 1e3), ("W", 1.0), ("mW", 1e-3)),
    "arithmetic": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6), ("kFLOP/s", 1e3)),
    "operations": (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3), ("FLOP", 1.0)),
    "traffic": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)),
}
_BASES = {
    "time": "s",
    "bytes": "bytes",
    "energy": "J",
    "power": "W",
    "arithmetic": "FLOP/s",
    "operations": "FLOP",
    "traffic": "B/s",
}
_SYMBOLS = {symbol: (family, size) for family, rows in _FAMILIES.items() for symbol, size in rows}

DIGITS = 3
# A row shares its largest cell's unit, or its smallest's where that one would shrink below this...
_LEAST_IN_ONE_UNIT = 0.05
# ...and the largest would not grow beyond this.
_MOST_IN_ONE_UNIT = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """How values of one stored unit are printed: divide by `divisor`, then write `symbol`."""

    symbol: str
    divisor: float

    def number(self, value: float, digits: int = DIGITS) -> str:
        return number(value / self.divisor, digits) if self.symbol else _pure(value, digits)

    def text(self, value: float, digits: int = DIGITS) -> str:
        return f"{self.number(value, digits)} {self.symbol}".rstrip()


def scale_for(values: Iterable[float], unit: str, digits: int = DIGITS) -> Scale:
    """One scale for all of `values`: the largest one's unit, unless that hides the smallest."""
    if unit not in _STORED:
        return Scale("" if unit == "1" else unit, 1.0)
    family, size = _STORED[unit]
    magnitudes = sorted(abs(v) for v in values if v)
    if not magnitudes:
        return _scale(family, size, next(s for s, z in _FAMILIES[family] if z == size))
    large = _symbol(_FAMILIES[family], magnitudes[-1] * size, digits)
    small = _symbol(_FAMILIES[family], magnitudes[0] * size, digits)
    hidden = magnitudes[0] * size / _SYMBOLS[large][1] < _LEAST_IN_ONE_UNIT
    readable = magnitudes[-1] * size / _SYMBOLS[small][1] < _MOST_IN_ONE_UNIT
    return _scale(family, size, small if hidden and readable else large)


def human(value: float, unit: str, digits: int = DIGITS) -> str:
    """`value`, stored in `unit`, with the unit that reads best: human(0.00123, "s") is "1.23 ms"."""
    return scale_for([value], unit, digits).text(value, digits)


def parse(text: str) -> tuple[float, str]:
    """The inverse of `human`: the value in its family's base unit (s, bytes, J, W), and that unit."""
    match = re.fullmatch(r"\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*(\S.*?)?\s*", text)
    if not match:
        raise ValueError(f"{text!r} is no number with a unit")
    value, symbol = float(match[1].replace(",", "")), (match[2] or "1").replace("µ", "u")
    if symbol not in _SYMBOLS:
        return value, symbol
    family, size = _SYMBOLS[symbol]
    return value * size, _BASES[family]


def number(value: float, digits: int = DIGITS) -> str:
    """`value` with `digits` significant digits, whole from there up, thousands apart."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude < 1e-3 or magnitude >= 1e9:
        return f"{value:.{digits - 2}e}"
    decimals = max(0, digits - 1 - _exponent(magnitude, digits))
    return f"{value:,.{decimals}f}"


def ratio(value: float) -> str:
    """A factor with enough digits that 1.00 and 1.01 differ: "1.17x", "12.4x", "340x"."""
    return f"{number(value)}x"


def pretty(text: str) -> str:
    """The same text where Unicode can be shown: micro sign, times sign, dash for a range."""
    return re.sub(r"(?<=\d)x\b", "×", re.sub(r"\bu(?=[sJ]\b)", "µ", text))


def _scale(family: str, size: float, symbol: str) -> Scale:
    return Scale(symbol, _SYMBOLS[symbol][1] / size)


def _symbol(rows: tuple[tuple[str, float], ...], magnitude: float, digits: int) -> str:
    """The largest unit of which there is at least one *as printed*: 999.9996 us is 1.00 ms."""
    for symbol, size in rows:
        if magnitude / size >= 1 - 0.5 * 10.0**-digits:
            return symbol
    return rows[-1][0]


def _exponent(magnitude: float, digits: int) -> int:
    """The decimal exponent after rounding to `digits` significant digits: 9.999 counts as 10.0."""
    return int(f"{magnitude:.{digits - 1}e}".partition("e")[2])


def _pure(value: float, digits: int) -> str:
    """A number without a unit. Close to one (a cosine), what is missing from one is what matters."""
    missing = 1.0 - value
    if missing and math.isfinite(missing) and abs(missing) < 1e-3:
        return f"1 {'-' if missing > 0 else '+'} {abs(missing):.1e}"
    return "1" if value == 1 else number(value, digits)
