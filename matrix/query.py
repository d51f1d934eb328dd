"""SQL over many runs: tables `runs`, `cells` and `metrics`, in memory, made from cells.jsonl."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.consolidate.stored import records_of
from matrix.errors import UsageError
from matrix.store import durable
from matrix.store.runs import CELLS_FILE, StoredRun, dump

if TYPE_CHECKING:
    import duckdb

_REASON = "STRUCT(code VARCHAR, text VARCHAR)"
_COLUMNS = {
    "id": "VARCHAR",
    "label": "VARCHAR",
    "arm": "VARCHAR",
    "environment": "STRUCT(name VARCHAR, framework VARCHAR, version VARCHAR, hardware VARCHAR, build VARCHAR,"
    " backend VARCHAR, key VARCHAR, python VARCHAR, size_bytes BIGINT)",
    "workload": "STRUCT(level VARCHAR, subject VARCHAR, batch BIGINT, sequence BIGINT, precision VARCHAR,"
    " threads BIGINT, variant VARCHAR)",
    "required": "BOOLEAN",
    "xfail": "VARCHAR",
    "state": "VARCHAR",
    "reason": _REASON,
    "flags": f"{_REASON}[]",
    "metrics": "MAP(VARCHAR, STRUCT(value DOUBLE, unit VARCHAR, low DOUBLE, high DOUBLE, n BIGINT))",
    "contract_hash": "VARCHAR",
    "attempts": "BIGINT",
    "started": "VARCHAR",
    "ended": "VARCHAR",
}
_RUNS = "CREATE TABLE runs (run VARCHAR, name VARCHAR, created VARCHAR, sweep VARCHAR, outcome VARCHAR,"
_RUNS += " backend VARCHAR, seed BIGINT, version VARCHAR, machine VARCHAR, folder VARCHAR, file VARCHAR)"
_CELLS = """
CREATE TABLE cells AS
SELECT runs.run, id, label, coalesce(arm, '') AS arm,
       environment.name AS environment, environment.framework, environment.version, environment.hardware,
       environment.backend, environment.python, environment.size_bytes,
       workload.level, workload.subject AS model, workload.batch, workload.sequence, workload.precision,
       workload.threads, coalesce(workload.variant, '') AS variant,
       coalesce(required, false) AS required, coalesce(xfail, '') AS xfail,
       state, reason.code AS reason_code, reason.text AS reason,
       list_transform(coalesce(flags, []), lambda flag: flag.code) AS flags,
       metrics, contract_hash, coalesce(attempts, 0) AS attempts, started, ended
FROM read_json(?, format = 'newline_delimited', columns = {columns}, filename = true,
               maximum_object_size = 268435456) AS line
JOIN runs ON runs.file = line.filename
"""
_METRICS = """
CREATE TABLE metrics AS
SELECT run, id AS cell, label, environments.environment, framework, environments.version, hardware, model,
       batch, sequence, precision, threads, variant, state, entry.key AS metric,
       entry.value.value, entry.value.unit, entry.value.low, entry.value.high, coalesce(entry.value.n, 1) AS n
FROM (SELECT *, unnest(map_entries(metrics)) AS entry FROM cells) AS environments
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a query returned."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query(runs: Sequence[Path], sql: str) -> Answer:
    """Run one SQL query over the run folders. Raises UsageError for wrong SQL, StorageError for a bad run.

    `runs`: run, name, created, sweep, outcome, backend, seed, version, machine (an identity), folder.
    `cells`: run, id, label, framework, version, hardware, model, batch, precision, threads, state, flags, ...
    `metrics`: run, cell (the id in `cells`), the same fields of environment and workload, state, metric,
    value, unit, low, high, n.
    """
    import duckdb

    with tempfile.TemporaryDirectory() as scratch, duckdb.connect(":memory:") as connection:
        _fill(connection, [StoredRun(run) for run in runs], Path(scratch))
        # From here on the query sees these three tables and nothing else of the machine.
        connection.execute("SET enable_external_access = false")
        try:
            result = connection.execute(sql)
            columns = tuple(str(column[0]) for column in result.description or ())
            return Answer(columns=columns, rows=tuple(tuple(row) for row in result.fetchall()))
        except duckdb.Error as error:
            raise UsageError(f"query: {error}") from None


def _fill(connection: duckdb.DuckDBPyConnection, runs: Sequence[StoredRun], scratch: Path) -> None:
    connection.execute(_RUNS)
    files = []
    for number, run in enumerate(runs):
        file = _records_file(run, scratch / f"{number}.jsonl")
        files.append(str(file))
        header = run.header
        machine = header.machine.get("identity")
        row = [header.id, header.name, header.created, header.sweep, header.outcome, header.backend]
        row += [header.seed, header.version, machine, str(run.folder), str(file)]  # type: ignore[list-item]
        connection.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
    columns = json.dumps(_COLUMNS).replace('"', "'")
    if not files:
        empty = scratch / "none.jsonl"
        empty.write_text("")
        files = [str(empty)]
    connection.execute(_CELLS.replace("{columns}", columns), [files])
    connection.execute(_METRICS)
    connection.execute("ALTER TABLE runs DROP COLUMN file")


def _records_file(run: StoredRun, spare: Path) -> Path:
    """The run's cells.jsonl; made afresh beside it where a killed session left none."""
    if run.is_consolidated():
        return (run.folder / CELLS_FILE).absolute()
    durable.replace(spare, _dumped(run))
    return spare


def _dumped(run: StoredRun) -> Iterator[bytes]:
    for record in records_of(run):
        yield durable.dump_line(dump(record))
