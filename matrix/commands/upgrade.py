"""`matrix upgrade`: is a newer version worse anywhere? Both are measured side by side, then judged."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix import paths
from matrix.catalog.types import Catalog
from matrix.commands import ab, shared
from matrix.commands import compare as comparing
from matrix.commands.progress import observer_for
from matrix.commands.run import duration, seed
from matrix.compare import fail_on
from matrix.compare.comparison import compare
from matrix.compare.sides import duels
from matrix.errors import ExitCode, UsageError
from matrix.report.comparison import write_all
from matrix.store.names import find_run
from matrix.sweep.outcome import SweepOutcome

_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+_-]*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix upgrade`."""
    parser.add_argument("framework", nargs="?", metavar="FRAMEWORK", help="a name of `matrix catalog`")
    parser.add_argument("old", nargs="?", metavar="OLD", help="the version that is in use: the base")
    parser.add_argument("new", nargs="*", metavar="NEW", help="the version to be judged, or several")
    for side, what in (("base", "the base"), ("candidate", "the candidate")):
        parser.add_argument(
            f"--{side}-with",
            metavar="KEY=VALUE",
            action="append",
            default=[],
            help=f"{what} differs in this as well: numpy=2.2.0, python=3.12, base=IMAGE, env:NAME=VALUE, "
            "variant=NAME, or DISTRIBUTION=FILE.whl; may be repeated",
        )
    ab.add_arguments(parser)
    parser.add_argument(
        "--budget",
        metavar="TIME",
        type=duration,
        help="measure for so long at most, builds not counted: 20m",
    )
    parser.add_argument("--name", default="", help="a name for the run, to be used instead of its id")
    parser.add_argument("--seed", type=seed, help="seed of the random order (default: the sweep's)")
    parser.add_argument("--resume", metavar="RUN", help="go on with an upgrade that was stopped")
    comparing.add_judging_arguments(parser)
    comparing.add_output_arguments(parser)
    parser.epilog = (
        "examples:\n  matrix upgrade onnxruntime 1.31.0 1.32.0\n"
        "  matrix upgrade onnxruntime 1.29.0 1.30.0 1.31.0 1.32.0 --budget 1h\n"
        "  matrix upgrade onnxruntime 1.32.0 1.32.0 --candidate-with numpy=2.2.0 --budget 10m\n"
        "  matrix upgrade pytorch 2.12.0 2.13.0 -c mine.yaml --format markdown -o summary.md\n\n"
        "Both versions may be the same: then it says what could have been detected.\n\n"
        "exit codes: 0, or 1 for a word of --fail-on; 2 wrong usage; 3 not completed,\n"
        "or no cell of the base is ok; 130 interrupted"
    )


def execute(args: argparse.Namespace) -> int:
    """Measure, judge, print; the exit code is the verdict's."""
    catalog = shared.load_catalog()
    words = fail_on.parse(args.fail_on)  # before anything is measured: a wrong word costs nothing
    margins, metrics = comparing.margins_of(args.margin, catalog), comparing.metrics_of(args.metric, catalog)
    if args.output:
        shared.check_output(paths.given(args.output, "-o"))
    outcome = _measured(args, catalog, margins, metrics)
    if outcome.resume_command:
        how = outcome.outcome.replace("_", " ")
        print(f"matrix: {how}; continue with: {_resume(outcome)}", file=sys.stderr, flush=True)
    if outcome.error is not None:
        print(f"matrix: {outcome.error}", file=sys.stderr, flush=True)
    found = duels(outcome.folder.parent, outcome.run, None)
    comparison = compare(found, catalog, margins=margins, metrics=metrics, words=words)
    code = comparing.show(args, comparison, catalog)
    reports = write_all(outcome.folder, comparison, catalog)
    print(f"reports   {next(path for path in reports if path.suffix == '.html')}", file=sys.stderr)
    if not comparison.base.ok:  # nothing to be worse than: no gate may take this for a pass
        print("matrix: nothing could be compared: no cell of the base is ok", file=sys.stderr, flush=True)
        code = code or ExitCode.INCOMPLETE
    bad = outcome.exit_code in (ExitCode.INTERRUPTED, ExitCode.INCOMPLETE)
    return outcome.exit_code if bad else code


def _measured(
    args: argparse.Namespace, catalog: Catalog, margins: Mapping[str, float], metrics: Sequence[str]
) -> SweepOutcome:
    if args.resume:
        _nothing_but_resume(args)
        config, store, backend = ab.again(find_run(paths.results_dir(args.results), args.resume), catalog)
    else:
        config, store, backend = ab.begin(_asked(args, catalog), catalog)
    with store, observer_for(sys.stderr, quiet=args.quiet) as observer:
        observer.say(f"run {store.header.id}: {store.header.backend_why}")
        return ab.measure(
            config,
            catalog,
            store,
            backend,
            observer=observer,
            budget_s=args.budget,
            margins=margins,
            metrics=metrics,
        )


def _asked(args: argparse.Namespace, catalog: Catalog) -> ab.Asked:
    if not (args.framework and args.old and args.new):
        raise UsageError(
            "say what to compare: matrix upgrade FRAMEWORK OLD NEW, e.g. onnxruntime 1.31.0 1.32.0"
        )
    framework = ab.framework_of(args.framework, catalog)
    for text in (args.old, *args.new):
        if not _VERSION.fullmatch(text):
            raise UsageError(f"{text!r} is no version; write one like {framework.default_version}")
    return ab.Asked(
        framework=framework,
        base=ab.arm_of(args.old, args.base_with, framework, "--base-with"),
        candidates=tuple(
            ab.arm_of(new, args.candidate_with, framework, "--candidate-with")
            for new in dict.fromkeys(args.new)
        ),
        config=args.config,
        select=args.select,
        backend=args.backend,
        results=args.results,
        name=args.name,
        seed=args.seed,
        as_of=args.as_of,
    )


def _nothing_but_resume(args: argparse.Namespace) -> None:
    given = args.framework or args.select or args.config != shared.DEFAULT_SWEEP or args.name
    given = given or args.seed is not None or args.base_with or args.candidate_with or args.as_of
    if given or args.backend != "auto":
        raise UsageError(
            "--resume goes on with an upgrade as it was planned: give it a run and a --budget only"
        )


def _resume(outcome: SweepOutcome) -> str:
    results: Path = outcome.folder.parent
    more = "" if results == paths.results_dir() else f" --results {shlex.quote(str(results))}"
    return f"matrix upgrade --resume {outcome.run}{more}"
