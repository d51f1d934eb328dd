"""`matrix bisect`: which release is the first one that is worse? Each is measured beside the good one."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from matrix import paths
from matrix.arms import Arm
from matrix.bisect import state as states
from matrix.bisect.answers import answer_of
from matrix.bisect.search import Conclusion, Search
from matrix.bisect.state import State, Tested
from matrix.catalog.types import Catalog, Framework
from matrix.commands import ab, shared
from matrix.commands.bisect_plan import begun
from matrix.commands.progress import observer_for
from matrix.commands.run import duration, seed
from matrix.compare.comparison import compare
from matrix.compare.findings import STATE
from matrix.compare.sides import duels
from matrix.config.sweep import SweepConfig
from matrix.environments.base import Backend
from matrix.environments.cutoff import CutOff
from matrix.environments.releases import Candidate
from matrix.errors import ExitCode, Interrupted, UsageError
from matrix.judge.bisection import Answer, Nothing
from matrix.report import bisection as view
from matrix.report.comparison.words import sentence
from matrix.store.runs import RunStore, StoredRun


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix bisect`."""
    parser.add_argument("framework", nargs="?", metavar="FRAMEWORK", help="a name of `matrix catalog`")
    parser.add_argument("good", nargs="?", metavar="GOOD", help="a version that is well")
    parser.add_argument("bad", nargs="?", metavar="BAD", help="a later one that is worse")
    parser.add_argument(
        "--cell",
        metavar="CELL",
        help="what is measured: a row's name ('distilbert b1 s128 fp32 1t'), a model, or an expression "
        "as of --select; default: all of the sweep",
    )
    parser.add_argument("--metric", metavar="ID", default="", help="follow this metric; default: the worst")
    parser.add_argument(
        "--wheels",
        nargs="+",
        metavar="PATH",
        default=[],
        help="search through these wheels or folders of them",
    )
    parser.add_argument(
        "--images", nargs="+", metavar="IMAGE", default=[], help="search through these base images, in order"
    )
    parser.add_argument("--pre", action="store_true", help="pre-releases too")
    parser.add_argument(
        "--with",
        dest="changes",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="every version has this in common: numpy=1.26.4, python=3.12, env:NAME=VALUE, variant=NAME",
    )
    ab.add_arguments(parser)
    parser.add_argument(
        "--budget", metavar="TIME", type=duration, help="measure each version for so long at most: 5m"
    )
    parser.add_argument("--seed", type=seed, help="seed of the random order (default: the sweep's)")
    parser.add_argument(
        "--margin",
        action="append",
        default=[],
        metavar="METRIC=FRACTION",
        help="smallest change of a metric that matters, e.g. latency_ms=0.05 (repeatable)",
    )
    parser.add_argument(
        "--resume", metavar="ID", help="go on with a search that was stopped: its id, or latest"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.epilog = (
        "examples:\n"
        "  matrix bisect onnxruntime 1.26.0 1.32.0 --cell distilbert --metric latency_ms\n"
        "  matrix bisect onnxruntime 1.31.0 nightly-3 --wheels nightlies/ --cell 'batch == 8'\n"
        "  matrix bisect --resume latest\n\n"
        "exit codes: 0 nothing to find; 1 a first bad version, or a range that holds it; 2 wrong usage;\n"
        "3 the ends could not be compared, or it was not completed; 130 interrupted, resumable"
    )


def execute(args: argparse.Namespace) -> int:
    """Search, print what was found."""
    catalog = shared.load_catalog()
    results = paths.results_dir(args.results)
    state = _resumed(args, results) if args.resume else begun(args, catalog)
    framework = ab.framework_of(state.framework, catalog)
    states.save(results, state)
    search = Search(
        state,
        _Measuring(args, catalog, framework, results),
        own=framework.provided_by,
        keep=lambda known: states.save(results, known),
        say=_say if not args.quiet else lambda _: None,
    )
    try:
        conclusion = search.run()
    except BaseException:
        print(f"matrix: continue with: {_resume(state.id, results)}", file=sys.stderr, flush=True)
        raise
    if spent := sum(tested.unfinished for tested in search.state.tested.values()):
        more = f"{_resume(state.id, results)} --budget 20m"
        _say(f"{spent} comparison{'s' if spent > 1 else ''} spent the budget undecided; more of it: {more}")
    shown = view.as_json if args.json else view.text
    print(shown(search.state, conclusion), end="")
    return _code(conclusion)


class _Measuring:
    """Tests one version: an A/B run of its own in the results folder, gone on with where it was stopped."""

    def __init__(
        self, args: argparse.Namespace, catalog: Catalog, framework: Framework, results: Path
    ) -> None:
        self._args, self._catalog, self._framework, self._results = args, catalog, framework, results

    def __call__(self, state: State, candidate: Candidate) -> Tested:
        config, store, backend = self._store(state, candidate)
        followed = state.target.metric if state.target else state.metric
        metrics = (followed,) if followed else ()
        with store, observer_for(sys.stderr, quiet=self._args.quiet) as observer:
            outcome = ab.measure(
                config,
                self._catalog,
                store,
                backend,
                observer=observer,
                budget_s=self._args.budget,
                margins=state.margins,
                metrics=metrics,
            )
        if outcome.error is not None:
            raise outcome.error
        if outcome.exit_code == ExitCode.INTERRUPTED:
            raise Interrupted("interrupted")
        found = duels(self._results, outcome.run, None)
        shown = (*metrics, STATE) if metrics else ()  # its state says why nothing was measured
        comparison = compare(found, self._catalog, margins=state.margins, metrics=shown)
        run = found[0].candidate.run
        locks = _lock(run, found[0].base.environment), _lock(run, found[0].candidate.environment)
        answered = answer_of(comparison, state.target, state.metric, locks, sentence)
        spent = outcome.outcome == "budget_spent" and answered.answer is Answer.SKIP
        return answered.model_copy(update={"unfinished": spent})

    def _store(self, state: State, candidate: Candidate) -> tuple[SweepConfig, RunStore, Backend]:
        begun_run = self._results / state.running.get(candidate.label, "")
        if candidate.label in state.running and begun_run.is_dir():  # else somebody removed it
            return ab.again(begun_run, self._catalog)
        asked = ab.Asked(
            framework=self._framework,
            base=_arm(state.versions[0].candidate, state),
            candidates=(_arm(candidate, state),),
            config=state.config,
            select=state.select,
            backend=state.backend,
            results=str(self._results),
            seed=state.seed,
            cutoff=CutOff(self._framework.name, state.as_of) if state.as_of else None,
            facts={"bisection": state.id},
        )
        begun = ab.begin(asked, self._catalog)
        states.save(self._results, state.with_run(candidate.label, begun[1].header.id))
        return begun


def _arm(candidate: Candidate, state: State) -> Arm:
    """Of one key, what the candidate says of itself counts, not what all have in common."""
    merged = {text.partition("=")[0]: text for text in (*state.changes, *candidate.changes)}
    return Arm(version=candidate.version, changes=tuple(sorted(merged.values())), variant=state.variant)


def _lock(run: StoredRun, side: str) -> tuple[str, ...]:
    """What was really in an environment; empty for one that could not be built."""
    attempt = run.attempts().environments.get(side.partition("@")[0])
    return attempt.environment.lock if attempt else ()


def _resumed(args: argparse.Namespace, results: Path) -> State:
    given = args.framework or args.cell or args.select or args.wheels or args.images or args.changes
    if given or args.config != shared.DEFAULT_SWEEP or args.as_of or args.pre or args.seed is not None:
        raise UsageError("--resume goes on with a search as it was begun: give it an id and a --budget only")
    return states.load(results, args.resume).reopened()


def _say(text: str) -> None:
    print(f"bisect: {text}", file=sys.stderr, flush=True)


def _resume(name: str, results: Path) -> str:
    more = "" if results == paths.results_dir() else f" --results {shlex.quote(str(results))}"
    return f"matrix bisect --resume {name}{more}"


def _code(conclusion: Conclusion) -> int:
    if not isinstance(conclusion.end, Nothing):
        return ExitCode.VERDICT
    return ExitCode.OK if conclusion.end.bad_end is Answer.GOOD else ExitCode.INCOMPLETE
