"""A CSV or Parquet file as columns of raw values, every row with its place in the file."""

from __future__ import annotations

import csv
import dataclasses
import glob
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrix.errors import ConfigError, UsageError
from matrix.strict_yaml.located import did_you_mean

REQUIRED = ("environment", "workload", "metric", "block", "launch", "value")
OPTIONAL = ("unit",)
#: problems told at once; more do not help
MOST_PROBLEMS = 20

_PARQUET = b"PAR1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns of one length by name; a missing value is None or an empty text."""

    file: str
    values: dict[str, Sequence[Any]]
    lines: Sequence[int] | None  # of a text file: the line on which each row ends
    rows: int

    def place(self, row: int) -> str:
        """Where a row (from 0) is, as a reader finds it."""
        if self.lines is None:
            return f"{self.file}: row {row + 1}"
        return f"{self.file}:{self.lines[row]}"


def read(path: Path, content: bytes) -> Columns:
    """The columns of `content`, which is what `path` holds. Raises ConfigError, UsageError."""
    if content[:4] == _PARQUET:
        return _parquet(path)
    return _text(path.name, content)


def complaints(problems: Sequence[str], total: int) -> ConfigError:
    """All that is wrong, as one error; `total` counts those that are not shown too."""
    shown = list(problems[:MOST_PROBLEMS])
    if total > len(shown):
        shown.append(f"... and {total - len(shown)} more; nothing was imported")
    else:
        shown.append("nothing was imported")
    return ConfigError(shown)


def _text(file: str, content: bytes) -> Columns:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{file}:{line}: neither UTF-8 text nor a Parquet file: {error.reason}") from None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    ragged: list[str] = []
    width = None
    try:
        for row in reader:
            if not row:
                continue
            if width is None:
                _check_header(file, row)
                width = len(row)
                names = [name.strip() for name in row]
            elif len(row) != width:
                what = f"{len(row)} value{'' if len(row) == 1 else 's'}, the header has {width}"
                ragged.append(f"{file}:{reader.line_num}: {what}")
            else:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise UsageError(f"{file}:{reader.line_num}: {error}") from None
    if width is None:
        raise UsageError(f"{file}: it is empty; the first line names the columns {', '.join(REQUIRED)}")
    if ragged:
        raise complaints(ragged, len(ragged))
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [()] * width
    return Columns(file=file, values=dict(zip(names, columns, strict=True)), lines=lines, rows=len(rows))


def _parquet(path: Path) -> Columns:
    import duckdb

    # a table function takes patterns: the brackets of a name are none
    source = glob.escape(str(path))
    try:
        with duckdb.connect(":memory:") as connection:
            found = connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [source]).description or ()
            names = [str(column[0]) for column in found]
            _check_header(path.name, names)
            table = connection.execute("SELECT * FROM read_parquet(?)", [source]).fetchall()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path.name}: this Parquet file cannot be read: {first}") from None
    columns: list[Sequence[Any]] = list(zip(*table, strict=True)) if table else [()] * len(names)
    return Columns(file=path.name, values=dict(zip(names, columns, strict=True)), lines=None, rows=len(table))


def _check_header(file: str, row: Sequence[str]) -> None:
    """The column names: all that are needed, each once, and no other."""
    names = [name.strip() for name in row]
    known = (*REQUIRED, *OPTIONAL)
    missing = [name for name in REQUIRED if name not in names]
    problems = []
    if len(names) == 1 and missing and any(mark in names[0] for mark in ";\t|"):
        problems.append(f"{file}:1: one column only: columns are separated by commas")
    elif missing:
        problems.append(f"{file}:1: no column {', '.join(missing)} (needed: {', '.join(REQUIRED)})")
    if not problems or len(names) > 1:
        for name in dict.fromkeys(names):
            if name not in known:
                hint = did_you_mean(name, known)
                problems.append(f"{file}:1: unknown column {name!r}{hint}; there are {', '.join(known)}")
            elif names.count(name) > 1:
                problems.append(f"{file}:1: two columns are called {name!r}")
    if problems:
        raise complaints(problems, len(problems))
