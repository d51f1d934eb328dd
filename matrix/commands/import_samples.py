"""`matrix import`: samples that were measured elsewhere become a stored run."""

from __future__ import annotations

import argparse
import json
import sys

from matrix import paths
from matrix.commands import shared
from matrix.errors import ExitCode
from matrix.imported import samples
from matrix.imported.run import import_file


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix import`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="CSV or Parquet, one sample a row, columns environment, workload, metric, block, launch, value "
        "and, if values are not in the registry's units, unit",
    )
    parser.add_argument("--name", required=True, help="the name of the run that it becomes")
    parser.add_argument("--json", action="store_true", help="say what was imported as JSON")
    shared.add_results_argument(parser)
    parser.epilog = (
        "Rows of one environment, workload, metric, block and launch are the samples of one launch. An\n"
        "environment X@aa is X measured against itself; a workload called control is a fixed piece of work\n"
        "that shows whether the machine moved.\n\n"
        "example:\n  matrix import samples.csv --name nightly\n  matrix compare nightly:old nightly:new"
    )


def execute(args: argparse.Namespace) -> int:
    """Import the file whole, or say all that is wrong with it."""
    catalog = shared.load_catalog()
    run = import_file(
        paths.results_dir(args.results), paths.given(args.file, "FILE"), args.name, catalog.metrics
    )
    found = samples.load(run.folder)
    if args.json:
        answer = {
            "run": run.id,
            "name": args.name,
            "samples": len(found),
            **{f"{key}s": list(found.names[key]) for key in ("environment", "metric", "workload")},
        }
        print(json.dumps(answer, indent=1))
    else:
        counts = ", ".join(
            _count(len(found.names[key]), key) for key in ("environment", "workload", "metric")
        )
        print(f"{args.name}: {_count(len(found), 'sample')}, {counts}", file=sys.stderr)
        print(run.id)
    return ExitCode.OK


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
