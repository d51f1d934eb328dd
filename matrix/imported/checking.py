"""From raw columns to samples: every value checked, converted to the registry's unit, or refused.

A file is taken whole or not at all. What is wrong is told with file, line, column and reason,
several at once, in the order of the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.catalog.types import Metric
from matrix.errors import ConfigError, UsageError
from matrix.imported import units
from matrix.imported.columns import MOST_PROBLEMS, OPTIONAL, REQUIRED, Columns, complaints
from matrix.imported.samples import KEYS, Samples, ordered, split_arm
from matrix.strict_yaml.located import did_you_mean

_LONGEST_NAME = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLUMN_ORDER = {name: i for i, name in enumerate((*REQUIRED, *OPTIONAL))}

#: a raw value's name, or why it can be none
Named = tuple[str, str]


def samples_of(columns: Columns, registry: Mapping[str, Metric]) -> Samples:
    """The samples of a file. Raises ConfigError with everything that is wrong in it."""
    found = _Problems(columns)
    if not columns.rows:
        raise ConfigError([f"{columns.file}: it holds no samples"])
    names: dict[str, tuple[str, ...]] = {}
    codes: dict[str, npt.NDArray[np.int32]] = {}
    checks = {"environment": _environment, "metric": _metric_check(registry)}
    for key in KEYS:
        names[key], codes[key] = _encoded(columns, key, checks.get(key, _name), found)
    value = _numbers(columns, found)
    written, unit_codes = _units(columns)
    for code, name in enumerate(names["metric"]):
        of_metric = codes["metric"] == code
        for unit_code, unit in enumerate(written):
            rows = np.flatnonzero(of_metric & (unit_codes == unit_code) if len(written) > 1 else of_metric)
            why = _convert(value, rows, unit, registry[name])
            found.add("unit", rows if why else rows[:0], why)
        _check_range(value, np.flatnonzero(of_metric), registry[name], columns, found=found)
    found.raise_if_any()
    for key in ("block", "launch"):  # labels, so that their order in the file means nothing
        names[key], codes[key] = _sorted(names[key], codes[key])
    return ordered(names, codes, value)


class _Problems:
    """What is wrong, by row and column; counted beyond what is kept."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._found: list[tuple[int, int, str]] = []
        self._total = 0

    def add(self, column: str, rows: npt.NDArray[np.intp], text: Callable[[int], str] | str) -> None:
        self._total += len(rows)
        for row in rows[:MOST_PROBLEMS].tolist():
            said = text if isinstance(text, str) else text(row)
            self._found.append((row, _COLUMN_ORDER[column], f"{self._columns.place(row)}: {column}: {said}"))

    def raise_if_any(self) -> None:
        if self._found:
            raise complaints([text for *_, text in sorted(self._found)], self._total)


def _encoded(
    columns: Columns, key: str, check: Callable[[str], Named], found: _Problems
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """The distinct names of a column in the order of first sight, and each row's index into them.

    A name that is refused has the index -1.
    """
    column = columns.values[key]
    try:
        distinct = dict.fromkeys(column)
    except TypeError:
        raise UsageError(f"{columns.file}: column {key} holds lists or structures, no names") from None
    index: dict[str, int] = {}
    code_of: dict[Any, int] = {}
    refused: dict[int, str] = {}
    for raw in distinct:
        name, why = _text_of(raw)
        if not why:
            name, why = check(name)
        if why:
            code_of[raw] = -1 - len(refused)
            refused[-1 - len(refused)] = why
        else:
            code_of[raw] = index.setdefault(name, len(index))
    codes = np.fromiter(map(code_of.__getitem__, column), np.int32, columns.rows)
    for code, why in refused.items():
        found.add(key, np.flatnonzero(codes == code), why)
    return tuple(index), codes


def _text_of(raw: Any) -> Named:
    """A cell as a name: trimmed; a whole number of a Parquet column as people write it.

    Text that a writer of Parquet did not mark as such arrives as bytes.
    """
    if isinstance(raw, bytes):
        try:
            raw = raw.decode("utf-8")
        except UnicodeDecodeError:
            return "", f"{raw[:40]!r} is no UTF-8 text"
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    name = "" if raw is None or (isinstance(raw, float) and math.isnan(raw)) else str(raw).strip()
    if not name:
        return "", "missing"
    if len(name) > _LONGEST_NAME:
        return "", f"{name[:40]!r}... is longer than {_LONGEST_NAME} characters"
    if _CONTROL.search(name):
        return "", f"{name[:40]!r} holds a control character"
    return name, ""


def _name(name: str) -> Named:
    return name, ""


def _environment(name: str) -> Named:
    plain, _ = split_arm(name)
    if ":" in name:
        return "", f"{name!r}: a colon is not possible in it (RUN:ENVIRONMENT)"
    if "@" in plain or not plain:
        return "", f"{name!r}: @ is for the arm of an A/A pair only, NAME@aa"
    return name, ""


def _metric_check(registry: Mapping[str, Metric]) -> Callable[[str], Named]:
    def check(name: str) -> Named:
        if name in registry:
            return name, ""
        return "", f"{name!r} is not in the metric registry{did_you_mean(name, registry)}"

    return check


def _numbers(columns: Columns, found: _Problems) -> npt.NDArray[np.float64]:
    """The values as they were written; NaN where one was refused."""
    column = columns.values["value"]
    refused: list[int] = []
    try:
        value = np.fromiter(map(_number, column), np.float64, columns.rows)
    except (TypeError, ValueError, OverflowError):  # one by one: which?
        value = np.ones(columns.rows)
        for row, raw in enumerate(column):
            try:
                value[row] = _number(raw)
            except (TypeError, ValueError, OverflowError):
                refused.append(row)
    found.add("value", np.array(refused, np.intp), lambda row: _why_no_number(column[row]))
    infinite = np.flatnonzero(~np.isfinite(value))
    found.add("value", infinite, lambda row: f"{column[row]} is not finite")
    value[infinite] = value[refused] = np.nan  # nothing more is to be said of them
    return value


def _number(raw: Any) -> float:
    """Raises ValueError, TypeError for what is no number. Python's own `1_000` is none in a file."""
    if isinstance(raw, bool) or (isinstance(raw, str) and "_" in raw):
        raise ValueError(raw)
    return float(raw)


def _why_no_number(raw: Any) -> str:
    if raw is None or not str(raw).strip():
        return "missing"
    text = str(raw).strip()
    hint = " (a decimal point is needed)" if re.fullmatch(r"[-+]?\d+,\d+", text) else ""
    return f"{text[:40]!r} is not a number{hint}"


def _convert(value: npt.NDArray[np.float64], rows: npt.NDArray[np.intp], unit: str, metric: Metric) -> str:
    """Bring these rows to the registry's unit, in place. Returns why it cannot be done, else ""."""
    factors = units.conversion(unit, metric.unit)
    if factors is None:
        value[rows] = np.nan  # nothing more is to be said of them
        known = ", ".join(units.known(metric.unit))
        return f"{unit[:40]!r} is no unit of {metric.id}; there are {known}"
    if factors != (1.0, 1.0):
        with np.errstate(over="ignore", under="ignore"):
            value[rows] = value[rows] * factors[0] / factors[1]
    return ""


def _check_range(
    value: npt.NDArray[np.float64],
    rows: npt.NDArray[np.intp],
    metric: Metric,
    columns: Columns,
    *,
    found: _Problems,
) -> None:
    """What a metric of this unit cannot be: a time of nothing, a size below it, a number too large."""
    low, possible = units.least(metric.unit)
    mine, written = value[rows], columns.values["value"]
    with np.errstate(invalid="ignore"):
        wrong = rows[mine < low if possible else mine <= low]
    what = "negative" if possible else "zero or negative"
    found.add("value", wrong, lambda row: f"{written[row]}: {metric.id} cannot be {what}")
    huge = rows[np.isposinf(mine)]
    found.add("value", huge, lambda row: f"{written[row]} is too large a number of {metric.unit}")


def _units(columns: Columns) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """The distinct units as written ("" for the registry's own), and each row's index into them."""
    column = columns.values.get("unit")
    if column is None:
        return ("",), np.zeros(columns.rows, np.int32)
    index: dict[str, int] = {}
    texts = {raw: ("" if raw is None else str(raw).strip()) for raw in set(column)}
    code_of = {raw: index.setdefault(text, len(index)) for raw, text in texts.items()}
    return tuple(index), np.fromiter(map(code_of.__getitem__, column), np.int32, columns.rows)


def _sorted(
    names: tuple[str, ...], codes: npt.NDArray[np.int32]
) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    order = sorted(range(len(names)), key=lambda i: names[i])
    place = np.empty(len(names), np.int32)
    place[order] = np.arange(len(names), dtype=np.int32)
    return tuple(names[i] for i in order), place[codes]
