"""`matrix report`: any view of stored runs. Reads only."""

from __future__ import annotations

import argparse
import io
import sys
from typing import Any

from matrix import paths
from matrix.commands import shared
from matrix.consolidate.stored import records_of
from matrix.errors import ExitCode, UsageError
from matrix.records import Record
from matrix.report import FORMATS, Options, render
from matrix.report.style import Style
from matrix.store.names import find_run_and_environment
from matrix.store.runs import StoredRun, read_header
from matrix.strict_yaml.located import did_you_mean


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix report`."""
    parser.add_argument(
        "runs",
        nargs="*",
        default=["latest"],
        metavar="RUN",
        help="id, unique prefix, name or `latest` (the default); RUN:ENVIRONMENT for one environment of it",
    )
    parser.add_argument("--format", choices=tuple(FORMATS), default="table", help="default: table")
    parser.add_argument(
        "--metric", action="append", default=[], metavar="ID", help="only this metric (repeatable)"
    )
    parser.add_argument(
        "--baseline", metavar="ENVIRONMENT", help="the column that ratios and geometric means refer to"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of standard output")
    shared.add_results_argument(parser)
    parser.epilog = "example:\n  matrix report latest --format markdown --metric latency_ms -o matrix.md"


def execute(args: argparse.Namespace) -> int:
    """Print or write one view."""
    results = paths.results_dir(args.results)
    records: list[Record] = []
    headers: list[dict[str, Any]] = []
    folder = None
    for text in args.runs:
        run, environment = find_run_and_environment(results, text)
        records += _of_environment(records_of(StoredRun(run)), environment, text)
        headers.append(read_header(run).model_dump(mode="json"))
        folder = run
    header = headers[-1]
    if len(args.runs) > 1:
        _refuse_clashes(records)
        header = _joined(headers)
    style = Style() if args.output else Style.detect(sys.stdout)
    options = Options(metrics=args.metric, baseline=args.baseline, style=style, run_dir=folder)
    text = render(args.format, records, header, shared.load_catalog(), options)
    if args.output:
        shared.write_output(paths.given(args.output, "-o"), text)
        print(f"wrote {args.output}", file=sys.stderr)
    else:
        if args.format != "table" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # what a program or a browser reads, in any locale
        print(text, end="")
    return ExitCode.OK


def _of_environment(records: list[Record], environment: str, text: str) -> list[Record]:
    """The records of one environment (all without a name). Raises UsageError when there is none of it."""
    found = [record for record in records if not environment or record.environment.name == environment]
    if records and not found:
        names = list(dict.fromkeys(record.environment.name for record in records))
        hint = did_you_mean(environment, names)
        raise UsageError(f"{text}: the run has no such environment{hint}; it has {', '.join(names)}")
    return found


def _joined(headers: list[dict[str, Any]]) -> dict[str, Any]:
    """One header for several runs: all their ids and warnings; what differs between them is left out."""
    first = headers[0]
    same = {key: value for key, value in first.items() if all(h.get(key) == value for h in headers)}
    warnings = [warning for header in headers for warning in header.get("warnings", ())]
    return {**same, "id": " + ".join(header["id"] for header in headers), "name": "", "warnings": warnings}


def _refuse_clashes(records: list[Record]) -> None:
    """Two numbers for one cell cannot share a place in one matrix: they are what `compare` is for."""
    seen: set[str] = set()
    for record in records:
        if record.id in seen:
            raise UsageError(f"two of these runs hold the cell {record.label!r}: show them one by one")
        seen.add(record.id)
