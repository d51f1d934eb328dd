"""`matrix query`: SQL over stored runs. Reads only."""

from __future__ import annotations

import argparse
import csv
import json
import sys

from tabulate import tabulate

from matrix import paths
from matrix.commands import shared
from matrix.errors import ExitCode, UsageError
from matrix.query import query
from matrix.store.names import all_runs, find_run


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix query`."""
    parser.add_argument(
        "sql", metavar="SQL", help="one SELECT over the tables runs, cells and metrics (DuckDB)"
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="id, prefix, name or latest (default: all runs)"
    )
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")
    shared.add_results_argument(parser)
    parser.epilog = (
        "examples:\n"
        "  matrix query \"SELECT model, framework, value FROM metrics WHERE metric = 'latency_ms'\"\n"
        '  matrix query "SELECT state, count(*) AS cells FROM cells GROUP BY state" latest'
    )


def execute(args: argparse.Namespace) -> int:
    """Print the answer."""
    results = paths.results_dir(args.results)
    runs = [find_run(results, text) for text in args.runs] or all_runs(results)
    if not runs:
        raise UsageError(f"there are no runs in {results}; `matrix run` makes one")
    answer = query(runs, args.sql)
    if args.format == "json":
        rows = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        print(json.dumps(rows, indent=2, default=str))
    elif args.format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    else:
        print(tabulate(answer.rows, headers=answer.columns))
    return ExitCode.OK
