"""`matrix history`: what a metric did over the stored runs of this kind of machine. Reads only."""

from __future__ import annotations

import argparse
import io
import sys

from matrix import paths
from matrix.commands import shared
from matrix.errors import ExitCode, UsageError
from matrix.history import history
from matrix.report.history_view import as_json, table
from matrix.report.metrics import PRIMARY, metric
from matrix.report.style import Style
from matrix.select import selector
from matrix.store.names import all_runs, find_run


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix history`."""
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="id, prefix, name or latest (default: all runs)"
    )
    parser.add_argument("--metric", default=PRIMARY, metavar="ID", help=f"default: {PRIMARY}")
    parser.add_argument("--select", metavar="EXPR", help="only the cells for which this holds")
    parser.add_argument("--json", action="store_true", help="every point and step as JSON")
    shared.add_results_argument(parser)
    parser.epilog = (
        "Runs of the newest run's machine only, and imported ones. A step is told where the ranges of the\n"
        "runs before and after it do not touch; it is a hint, `matrix compare` gives verdicts.\n\n"
        "example:\n  matrix history --metric load_s --select 'framework == \"onnxruntime\"'"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the series."""
    catalog = shared.load_catalog()
    metric(catalog, args.metric)  # with a hint for a mistyped one
    select = selector(args.select) if args.select is not None else None
    results = paths.results_dir(args.results)
    runs = [find_run(results, text) for text in args.runs] or all_runs(results)
    if not runs:
        raise UsageError(f"there are no runs in {results}; `matrix run` makes one")
    entry = catalog.metrics[args.metric]
    found = history(runs, entry, select)
    for problem in found.unreadable:
        print(f"matrix: left out: {problem}", file=sys.stderr)
    if args.json:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        print(as_json(found, entry), end="")
    else:
        print(table(found, entry, Style.detect(sys.stdout), selected=select is not None), end="")
    return ExitCode.OK
