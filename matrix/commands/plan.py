"""`matrix plan`: the cells, what cannot run and why, and what it would cost. Runs nothing."""

from __future__ import annotations

import argparse
import json

from matrix.commands import shared
from matrix.errors import ExitCode
from matrix.report.plan_view import plan_json, plan_text


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix plan`."""
    shared.add_sweep_arguments(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="list every cell")
    parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    parser.epilog = "example:\n  matrix plan -c full --select 'batch == 1' --verbose"


def execute(args: argparse.Namespace) -> int:
    """Print the plan."""
    _, plan = shared.sweep_and_plan(args, shared.load_catalog())
    print(json.dumps(plan_json(plan), indent=2) if args.json else plan_text(plan, args.verbose))
    return ExitCode.OK
