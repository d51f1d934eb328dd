"""The run as CSV in long form: one line per cell and metric, in stored units.

A cell without a number still has a line, with its state and reason; a metric that a cell
could not give has a line with an empty value and the reason in `absent`. Nothing becomes 0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matrix.records import Record

FIELDS = (
    "run",
    "id",
    "environment",
    "framework",
    "version",
    "hardware",
    "backend",
    "level",
    "subject",
    "batch",
    "sequence",
    "precision",
    "threads",
    "variant",
    "arm",
    "state",
    "reason_code",
    "reason",
    "flags",
    "metric",
    "value",
    "unit",
    "low",
    "high",
    "n",
    "derived",
    "absent",
)


def render(records: Sequence[Record], header: Mapping[str, Any]) -> str:
    """All of it, with a heading line. Numbers have every digit (repr), never a scaled unit."""
    out = io.StringIO()
    writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
    writer.writeheader()
    for record in records:
        known = _cell(record, str(header.get("id", "")))
        writer.writerows({**known, **line} for line in _lines(record))
    return out.getvalue()


def _lines(record: Record) -> Iterator[dict[str, Any]]:
    for name, value in record.metrics.items():
        yield {
            "metric": name,
            "value": repr(value.value),
            "unit": value.unit,
            "low": "" if value.low is None else repr(value.low),
            "high": "" if value.high is None else repr(value.high),
            "n": value.n,
            "derived": str(value.derived).lower(),
        }
    for name, why in record.absent.items():
        yield {"metric": name, "absent": _text(why)}
    if not record.metrics and not record.absent:
        yield {}


def _cell(record: Record, run: str) -> dict[str, Any]:
    environment, workload, reason = record.environment, record.workload, record.reason
    return {
        "run": _text(run),
        "id": record.id,
        "environment": _text(environment.name),
        "framework": _text(environment.framework),
        "version": _text(environment.version),
        "hardware": _text(environment.hardware),
        "backend": environment.backend,
        "level": workload.level,
        "subject": _text(workload.subject),
        "batch": workload.batch,
        "sequence": "" if workload.sequence is None else workload.sequence,
        "precision": workload.precision,
        "threads": workload.threads,
        "variant": _text(workload.variant),
        "arm": _text(record.arm),
        "state": record.state.value,
        "reason_code": reason.code if reason else "",
        "reason": _text(reason.text) if reason else "",
        "flags": " ".join(flag.code for flag in record.flags),
    }


def _text(value: str) -> str:
    """A spreadsheet runs what starts like a formula: such text gets an apostrophe in front."""
    return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
