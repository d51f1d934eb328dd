"""`matrix compare`: a verdict for every cell of two environments, from stored runs. Reads only."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence

from matrix import paths
from matrix.catalog.types import Catalog
from matrix.commands import shared
from matrix.compare import fail_on
from matrix.compare.comparison import Comparison, compare
from matrix.compare.findings import PARITY, STATE
from matrix.compare.sides import duels
from matrix.errors import ExitCode, UsageError
from matrix.report.comparison import FORMATS, Options, render
from matrix.report.metrics import metric
from matrix.report.style import Style
from matrix.select import selector


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix compare`."""
    parser.add_argument("base", metavar="BASE", help="RUN:ENVIRONMENT, or RUN alone for an A/B run")
    parser.add_argument(
        "candidate",
        nargs="?",
        metavar="CANDIDATE",
        help="RUN:ENVIRONMENT; RUN is an id, a prefix, a name or latest",
    )
    add_judging_arguments(parser)
    parser.add_argument("--select", metavar="EXPR", help="only cells for which this holds on either side")
    add_output_arguments(parser)
    shared.add_results_argument(parser)
    parser.epilog = (
        "examples:\n"
        "  matrix compare nightly:onnxruntime-1.31.0-cpu nightly:onnxruntime-1.32.0-cpu\n"
        "  matrix compare latest --fail-on regressed,inconclusive --format markdown -o summary.md\n\n"
        "exit codes: 0 none of --fail-on occurs; 1 one of them does; 2 wrong usage; 3 a run cannot be read"
    )


def add_judging_arguments(parser: argparse.ArgumentParser) -> None:
    """What `compare` and every command that ends in a comparison have in common."""
    parser.add_argument(
        "--fail-on",
        metavar="WORDS",
        default=fail_on.DEFAULT,
        help=f"exit with 1 when one of these occurs: verdicts, states, missing (default: {fail_on.DEFAULT}; "
        "none for never)",
    )
    parser.add_argument(
        "--margin",
        action="append",
        default=[],
        metavar="METRIC=FRACTION",
        help="smallest change of a metric that matters, e.g. latency_ms=0.05 (repeatable)",
    )
    parser.add_argument(
        "--metric", action="append", default=[], metavar="ID", help="judge only this metric (repeatable)"
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """In which form, and where to."""
    parser.add_argument("--format", choices=tuple(FORMATS), default="table", help="default: table")
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.add_argument("--all", action="store_true", help="list the rows that are no worse too")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of standard output")


def execute(args: argparse.Namespace) -> int:
    """Compare, show, and say by the exit code whether a word of --fail-on occurs."""
    catalog = shared.load_catalog()
    words = fail_on.parse(args.fail_on)
    margins, metrics = margins_of(args.margin, catalog), metrics_of(args.metric, catalog)
    select = selector(args.select) if args.select is not None else None
    found = duels(paths.results_dir(args.results), args.base, args.candidate)
    comparison = compare(found, catalog, margins=margins, metrics=metrics, select=select, words=words)
    return show(args, comparison, catalog)


def show(args: argparse.Namespace, comparison: Comparison, catalog: Catalog) -> int:
    """Print or write it; the exit code by its `fail_on`."""
    chosen = "json" if args.json else args.format
    style = Style() if args.output else Style.detect(sys.stdout)
    text = render(chosen, comparison, catalog, Options(style=style, all=args.all))
    if args.output:
        shared.write_output(paths.given(args.output, "-o"), text)
        print(f"wrote {args.output}", file=sys.stderr)
    else:
        if chosen != "table" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # what a program or a browser reads, in any locale
        print(text, end="")
    return ExitCode.VERDICT if comparison.failing else ExitCode.OK


def margins_of(texts: Sequence[str], catalog: Catalog) -> dict[str, float]:
    """`latency_ms=0.05` or `latency_ms=5%`, each metric once. Raises UsageError."""
    found: dict[str, float] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        name = name.strip()
        metric(catalog, name)
        share = value.strip().removesuffix("%")
        try:
            margin = float(share) / (100.0 if share != value.strip() else 1.0)
        except ValueError:
            margin = float("nan")
        if not mark or not 0 < margin < 1:
            raise UsageError(f"--margin {text!r}: write METRIC=FRACTION between 0 and 1, e.g. {name}=0.05")
        if name in found:
            raise UsageError(f"--margin {text!r}: {name} has one already")
        found[name] = margin
    return found


def metrics_of(names: Sequence[str], catalog: Catalog) -> tuple[str, ...]:
    """Registry ids; `state` and `parity` are possible too. Raises UsageError."""
    for name in names:
        if name not in (STATE, PARITY):
            metric(catalog, name)
    return tuple(names)
