"""`matrix operators`: tests that others wrote, run through our adapters and judged by their own limits."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

from matrix import paths
from matrix.artefacts.content_cache import ContentCache
from matrix.artefacts.foreign_tests import (
    COLLECTIONS,
    ONNX_TESTS,
    Collected,
    ForeignPreparer,
    NotCollected,
    Suite,
    collect,
    with_rules,
)
from matrix.catalog.types import Catalog, Framework
from matrix.commands import shared
from matrix.commands.backends import choose_for
from matrix.commands.foreign import plan_of, run_task_in, sweep_of
from matrix.commands.progress import observer_for
from matrix.commands.run import duration
from matrix.consolidate.stored import records_of
from matrix.environments.base import Backend, BuildFailed
from matrix.errors import ExitCode, StorageError, UsageError
from matrix.estimate import artefact_environment
from matrix.machine import fingerprint as machine
from matrix.operators.gain import Share
from matrix.records import OPERATOR
from matrix.report import write_all
from matrix.report.operators import candidates, foreign
from matrix.report.style import Style
from matrix.store import durable
from matrix.store.formats import RunHeader
from matrix.store.names import check_new_name, find_run, new_id
from matrix.store.runs import RunStore, StoredRun
from matrix.strict_yaml.located import did_you_mean
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.run import run_sweep
from matrix.sweep.session import new_header
from matrix_adapters.protocol import plain

_VERSION = re.compile(r"[0-9][0-9A-Za-z.!+_-]*")
_SUMMARIES = {
    "onnx-tests": "run the ONNX project's backend node tests in an ONNX runtime",
    "opinfo": "run PyTorch's OpInfo samples through the PyTorch mapping",
    "show": "show the tables of a stored run again",
    "candidates": "show what a run found of one's own kernels, and what they would bring",
}
_EXITS = (
    "exit codes: 0 when no test fails (with several versions: when none fails that did not fail in the\n"
    "first); 1 when one does; 2 wrong usage; 3 not completed, or nothing was run; 130 interrupted"
)
_EXAMPLES = {
    "onnx-tests": (
        "  matrix operators onnx-tests onnxruntime\n"
        "  matrix operators onnx-tests onnxruntime 1.31.0 1.32.0 --json\n"
        "  matrix operators onnx-tests --resume latest"
    ),
    "opinfo": "  matrix operators opinfo pytorch",
    "show": "  matrix operators show latest",
    "candidates": "  matrix operators candidates latest --share bert_base=0.12",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix operators`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in _SUMMARIES.items():
        sub = actions.add_parser(
            name,
            help=summary,
            description=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"examples:\n{_EXAMPLES[name]}\n\n{_EXITS}",
        )
        if name in ("show", "candidates"):
            sub.add_argument("run", metavar="RUN", help="id, prefix, name or latest")
            if name == "candidates":
                sub.add_argument(
                    "--share",
                    metavar="MODEL=SHARE",
                    action="append",
                    default=[],
                    help="the part of a model's time that the operator takes, 0 to 1, as a profile has it; "
                    "without it, what follows from the run's own models and their operators",
                )
        else:
            _add_run_arguments(sub, COLLECTIONS[name])
        sub.add_argument("--json", action="store_true", help="every reason and every test that changed")
        shared.add_results_argument(sub)
    parser.epilog = f"examples:\n{_EXAMPLES['onnx-tests']}\n\n{_EXITS}"


def _add_run_arguments(parser: argparse.ArgumentParser, suite: Suite) -> None:
    known = "one that runs ONNX files" if suite.consumes == "onnx" else "pytorch"
    parser.add_argument("framework", nargs="?", metavar="FRAMEWORK", help=known)
    parser.add_argument(
        "versions",
        nargs="*",
        metavar="VERSION",
        help="the default one where none is given; later ones are compared with the first",
    )
    parser.add_argument(
        "--hardware", metavar="NAME", action="append", help="only this profile (default: all of this machine)"
    )
    parser.add_argument("--select", metavar="EXPR", help="only the tests for which this holds")
    parser.add_argument(
        "--backend",
        choices=("auto", "docker", "venv", "host"),
        default="auto",
        help="how environments are realised, as for `matrix run`",
    )
    parser.add_argument("--budget", metavar="TIME", type=duration, help="begin nothing after this long: 20m")
    parser.add_argument("--name", default="", help="a name for the run, to be used instead of its id")
    parser.add_argument("--resume", metavar="RUN", help="continue a run that was stopped")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def execute(args: argparse.Namespace) -> int:
    """Do what was asked."""
    if args.action == "candidates":
        return _candidates(args)
    if args.action == "show":
        folder = find_run(paths.results_dir(args.results), args.run)
        run = StoredRun(folder)
        found = foreign.summary(records_of(run), _told(run.header)["source"])
        return _print(args, found) or _code(found)
    catalog = shared.load_catalog()
    return _run(args, COLLECTIONS[args.action], catalog)


def _candidates(args: argparse.Namespace) -> int:
    shares = [_share(text) for text in args.share]
    run = StoredRun(find_run(paths.results_dir(args.results), args.run))
    found = candidates.find(records_of(run), shares, run.header.config)
    if not found:
        raise UsageError(f"{run.id} has no candidates: a sweep names them under `candidates:`")
    if args.json:
        print(json.dumps(candidates.as_data(found), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(candidates.table(found, Style.detect(sys.stdout)), end="")
    if any(one.wrong for one in found):
        return ExitCode.VERDICT
    if not all(one.passed for one in found):  # no gate may take this for a pass
        print("matrix: a candidate was not run in any case", file=sys.stderr)
        return ExitCode.INCOMPLETE
    return ExitCode.OK


def _share(text: str) -> Share:
    model, _, number = text.rpartition("=")
    try:
        return Share(model=model, share=float(number), source="given")
    except ValueError:
        raise UsageError(f"--share {text}: write MODEL=SHARE with a number from 0 to 1") from None


def _run(args: argparse.Namespace, suite: Suite, catalog: Catalog) -> int:
    store, backend, collected = _resumed(args, suite, catalog) if args.resume else _new(args, suite, catalog)
    config = sweep_of(suite, store.header.config, collected)
    with store, observer_for(sys.stderr, quiet=args.quiet) as observer:
        observer.say(f"run {store.header.id}: {store.header.backend_why}")
        outcome = run_sweep(
            config,
            with_rules(catalog, collected.cases),
            store=store,
            backend=backend,
            artefacts=lambda _: ForeignPreparer(collected),
            observer=observer,
            budget_s=args.budget,
        )
    return _show(args, outcome, store, catalog, collected)


def _new(args: argparse.Namespace, suite: Suite, catalog: Catalog) -> tuple[RunStore, Backend, Collected]:
    framework = _framework(args.framework, suite, catalog)
    for version in args.versions:
        if not _VERSION.fullmatch(version):
            raise UsageError(f"{version!r} is no version; write one like {framework.default_version}")
    for name in args.hardware or ():
        if name not in catalog.hardware:
            has = did_you_mean(name, catalog.hardware) or f" (there are {', '.join(catalog.hardware)})"
            raise UsageError(f"no hardware is called {name!r}{has}")
    results = paths.results_dir(args.results)
    if args.name:
        check_new_name(results, args.name)
    asked = {
        "tests": suite.name,
        "framework": framework.name,
        "versions": list(dict.fromkeys(args.versions)),
        "hardware": list(dict.fromkeys(args.hardware or ())),
    }
    config = sweep_of(suite, {"foreign": asked}, None)
    chosen = choose_for(args.backend, catalog, config, ())
    collected = _collected(chosen.backend, suite, catalog, quiet=args.quiet)
    config = sweep_of(suite, {"foreign": {**asked, "source": collected.source}}, collected)
    cells = plan_of(config, catalog, collected, args.select)
    header = new_header(
        config,
        backend=chosen.backend.name,
        backend_why=chosen.why,
        machine=plain(machine.fingerprint()),
        name=args.name,
    )
    return RunStore.create(results, header, cells), chosen.backend, collected


def _resumed(args: argparse.Namespace, suite: Suite, catalog: Catalog) -> tuple[RunStore, Backend, Collected]:
    if args.framework or args.versions or args.select or args.hardware or args.name:
        raise UsageError("--resume continues a run as it was planned: give it a run and a --budget only")
    store = RunStore.open(find_run(paths.results_dir(args.results), args.resume))
    try:
        _same_kind(args.backend, suite, store.header)
        config = sweep_of(suite, store.header.config, None)
        backend = choose_for(store.header.backend, catalog, config, ()).backend
        return store, backend, _collected(backend, suite, catalog, quiet=args.quiet)
    except BaseException:
        store.close()
        raise


def _same_kind(backend: str, suite: Suite, header: RunHeader) -> None:
    told = _told(header)
    if told["tests"] != suite.name:
        raise UsageError(f"{header.id} is a run of {told['tests']}, not of {suite.name}")
    if backend not in ("auto", header.backend):
        raise UsageError(f"--backend {backend}: this run was begun with {header.backend}")


def _told(header: RunHeader) -> dict[str, str]:
    told = header.config.get("foreign")
    if not isinstance(told, dict):
        raise UsageError(f"{header.id} is no run of others' tests: `matrix report {header.id}` shows it")
    return {"tests": str(told.get("tests", "")), "source": str(told.get("source", ""))}


def _framework(name: str | None, suite: Suite, catalog: Catalog) -> Framework:
    able = [
        framework
        for framework in catalog.frameworks.values()
        if OPERATOR in framework.levels
        and framework.consumes == suite.consumes
        and (suite is ONNX_TESTS or framework.name == "pytorch")
    ]
    names = [framework.name for framework in able]
    if not name:
        raise UsageError(f"say in which framework: matrix operators {suite.name} {names[0]}")
    if name in names:
        return catalog.frameworks[name]
    if name in catalog.frameworks:
        title = catalog.frameworks[name].title
        raise UsageError(f"{title} cannot run {suite.title}: {', '.join(names)} can")
    raise UsageError(f"no framework is called {name!r}{did_you_mean(name, names)}: {', '.join(names)}")


def _collected(backend: Backend, suite: Suite, catalog: Catalog, *, quiet: bool) -> Collected:
    """The tests, made in the environment that makes all artefacts. Raises NotCollected, StorageError."""
    maker = artefact_environment(catalog)
    if maker is None:
        raise NotCollected("the catalog has no environment that makes artefacts")
    if not quiet:
        print(f"matrix: collecting {suite.title} (from the cache where they are in it)", file=sys.stderr)
    with backend.session(new_id("collect")):
        try:
            built = backend.build(maker)
        except BuildFailed as failed:
            raise NotCollected(f"{maker.name}, which holds the tests, is missing: {failed}") from None
        cache = ContentCache(paths.home() / "artefacts")
        return collect(cache, suite, built.lock, run_task_in(built, cache))


def _show(
    args: argparse.Namespace, outcome: SweepOutcome, store: RunStore, catalog: Catalog, collected: Collected
) -> int:
    records = records_of(store.reader())
    found = foreign.summary(records, collected.source)
    problem, code = outcome.error, outcome.exit_code
    if problem is None:
        try:
            write_all(store.folder, records, store.header.model_dump(mode="json"), catalog)
            text = json.dumps(foreign.as_data(found), indent=1, ensure_ascii=False, allow_nan=False)
            durable.replace(store.folder / "reports" / "tests.json", text + "\n")
            durable.replace(store.folder / "reports" / "tests.txt", foreign.table(found, Style()))
        except StorageError as full:  # what was found out is shown all the same
            problem, code = full, ExitCode.INCOMPLETE
    if problem is not None:
        print(f"matrix: {problem}", file=sys.stderr)
    if outcome.outcome != "complete":
        results: Path = outcome.folder.parent
        more = "" if results == paths.results_dir() else f" --results {shlex.quote(str(results))}"
        how = outcome.outcome.replace("_", " ")
        command = f"matrix operators {args.action} --resume {outcome.run}{more}"
        print(f"matrix: {how}; continue with: {command}", file=sys.stderr)
    _print(args, found)
    if not any(one.run for one in found.passes):  # no gate may take this for a pass
        print("matrix: no test was run in any environment", file=sys.stderr)
    if code in (ExitCode.INTERRUPTED, ExitCode.INCOMPLETE):
        return code
    return _code(found)


def _print(args: argparse.Namespace, found: foreign.Summary) -> int:
    if args.json:
        print(json.dumps(foreign.as_data(found), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(foreign.table(found, Style.detect(sys.stdout)), end="")
    return ExitCode.OK


def _code(found: foreign.Summary) -> int:
    """1 for a failing test; where versions are compared, only for one that did not fail in the first."""
    if not any(one.run for one in found.passes):
        return ExitCode.INCOMPLETE if found.passes else ExitCode.OK
    if found.changes:
        worse = any(one.newly_failing for one in found.changes)
    else:
        worse = any(one.failing for one in found.passes)
    return ExitCode.VERDICT if worse else ExitCode.OK
