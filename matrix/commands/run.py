"""`matrix run`: environments, models, every cell, then the matrix and its reports."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from matrix import paths
from matrix.artefacts.store import ArtefactStore
from matrix.catalog.types import Catalog
from matrix.commands import shared
from matrix.commands.backends import choose_for
from matrix.commands.progress import observer_for
from matrix.config.sweep import SweepConfig, load_sweep, sweep_from_data
from matrix.consolidate.stored import records_of
from matrix.environments.base import Backend
from matrix.errors import ExitCode, StorageError, UsageError
from matrix.imported import samples
from matrix.machine import fingerprint as machine
from matrix.records import Record
from matrix.report import Options, render, write_all
from matrix.report.style import Style
from matrix.store.formats import RunHeader
from matrix.store.names import check_new_name, find_run
from matrix.store.runs import RunStore
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.run import run_sweep
from matrix.sweep.session import new_header
from matrix_adapters.protocol import plain

_DURATION = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?", re.ASCII)
_LONGEST_BUDGET_S = 366 * 86400


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix run`."""
    shared.add_sweep_arguments(parser)
    parser.add_argument(
        "--backend",
        choices=("auto", "docker", "venv", "host"),
        default="auto",
        help="how environments are realised; auto takes containers where an engine answers, else "
        "virtualenvs; host is the interpreter this command runs in",
    )
    parser.add_argument(
        "--resume", metavar="RUN", help="continue a run that was stopped; nothing is repeated"
    )
    parser.add_argument(
        "--budget", metavar="TIME", type=duration, help="begin nothing after this long, e.g. 90s, 20m, 1h30m"
    )
    parser.add_argument("--name", default="", help="a name for the run, to be used instead of its id")
    parser.add_argument(
        "--seed", type=seed, help="seed of the random order of launches (default: the sweep's)"
    )
    parser.add_argument("--json", action="store_true", help="print the records as JSON instead of the matrix")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    shared.add_results_argument(parser)
    parser.epilog = (
        "examples:\n  matrix run\n  matrix run --select 'model == \"distilbert\"' --budget 5m\n"
        "  matrix run --resume latest"
    )


def execute(args: argparse.Namespace) -> int:
    """Run the sweep, print the matrix, write the reports. The exit code is the run's."""
    catalog = shared.load_catalog()
    config, store, backend = _resumed(args, catalog) if args.resume else _new(args, catalog)
    with store, observer_for(sys.stderr, quiet=args.quiet) as observer:
        observer.say(f"run {store.header.id}: {store.header.backend_why}")
        outcome = run_sweep(
            config,
            catalog,
            store=store,
            backend=backend,
            artefacts=lambda environment_key: ArtefactStore(paths.home(), environment_key),
            observer=observer,
            budget_s=args.budget,
        )
    return _show(args, outcome, store, catalog)


def _new(args: argparse.Namespace, catalog: Catalog) -> tuple[SweepConfig, RunStore, Backend]:
    config = _with_models(args, load_sweep(args.config, catalog), catalog, args.backend)
    plan = shared.plan_for_this_machine(config, catalog, args.select)
    results = paths.results_dir(args.results)
    if args.name:
        check_new_name(results, args.name)
    wanted = {cell.environment for cell in plan.runnable}
    chosen = choose_for(args.backend, catalog, config, wanted)
    if config.candidates and chosen.backend.name == "docker":
        raise UsageError("candidates are files of this machine, a container has none: give --backend venv")
    header = new_header(
        config,
        backend=chosen.backend.name,
        backend_why=chosen.why,
        machine=plain(machine.fingerprint()),
        name=args.name,
        seed=args.seed,
    )
    return config, RunStore.create(results, header, plan.cells), chosen.backend


def _with_models(
    args: argparse.Namespace, config: SweepConfig, catalog: Catalog, backend: str
) -> SweepConfig:
    """The sweep with the operators of the models that it names (`from-model:NAME`), read from their files."""
    from matrix.sweep import from_model  # most sweeps name none

    if not from_model.wanted(config):
        return config
    chosen = choose_for(backend, catalog, config, ())
    with observer_for(sys.stderr, quiet=args.quiet) as observer:
        return from_model.completed(
            config, catalog, backend=chosen.backend, home=paths.home(), say=observer.say
        )


def _resumed(args: argparse.Namespace, catalog: Catalog) -> tuple[SweepConfig, RunStore, Backend]:
    """The run as it was planned: its own sweep, cells, seed and backend."""
    if args.select or args.config != shared.DEFAULT_SWEEP or args.name or args.seed is not None:
        raise UsageError("--resume continues a run as it was planned: give no -c, --select, --name or --seed")
    folder = find_run(paths.results_dir(args.results), args.resume)
    if samples.is_imported(folder):
        raise UsageError(f"{args.resume} was imported: there is nothing to go on with")
    store = RunStore.open(folder)
    try:
        _same_kind(args.backend, store.header)
        config = sweep_from_data(store.header.config, catalog, str(store.folder / "run.json"))
        config = _with_models(args, config, catalog, store.header.backend)
        backend = choose_for(store.header.backend, catalog, config, ()).backend
    except BaseException:
        store.close()
        raise
    return config, store, backend


def _same_kind(asked: str, header: RunHeader) -> None:
    if header.comparison:
        raise UsageError(
            f"{header.id} compares two sides: `matrix upgrade --resume {header.id}` goes on with it"
        )
    if isinstance(header.config.get("foreign"), dict):
        tests = header.config["foreign"].get("tests", "onnx-tests")
        raise UsageError(
            f"{header.id} is a run of others' tests: `matrix operators {tests} --resume {header.id}` goes on"
        )
    if asked not in ("auto", header.backend):
        raise UsageError(f"--backend {asked}: this run was begun with {header.backend}")


def _show(args: argparse.Namespace, outcome: SweepOutcome, store: RunStore, catalog: Catalog) -> int:
    run = store.reader()
    records: list[Record] = records_of(run)
    header = store.header.model_dump(mode="json")
    code = outcome.exit_code
    reports: Sequence[Path] = []
    problem = outcome.error
    if problem is None:
        try:
            reports = write_all(store.folder, records, header, catalog)
        except StorageError as full:  # what was measured is shown all the same
            problem, code = full, ExitCode.INCOMPLETE
    options = Options(style=Style.detect(sys.stdout), reports=reports, run_dir=store.folder)
    text = render("json" if args.json else "table", records, header, catalog, options)
    said = [f"matrix: {problem}"] if problem is not None else []
    if outcome.resume_command:
        how = outcome.outcome.replace("_", " ")
        said.append(f"matrix: {how}; continue with: {outcome.resume_command}")
    return _tell(text, said, code)


def _tell(text: str, said: Sequence[str], code: int) -> int:
    """Print what a run has to say. A reader that is gone hides no failure of the run."""
    try:
        for line in said:
            print(line, file=sys.stderr, flush=True)
        print(text, end="", flush=True)
    except OSError:
        if code == ExitCode.OK:
            raise
    return code


def seed(text: str) -> int:
    """A whole number from 0 on. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is no seed; write a whole number from 0 on")
    return int(text)


def duration(text: str) -> float:
    """Seconds of `90s`, `20m` or `1h30m`; a bare number could mean either. Raises ArgumentTypeError."""
    found = _DURATION.fullmatch(text.strip())
    seconds = (
        sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True))
        if found
        else 0
    )
    if not 0 < seconds <= _LONGEST_BUDGET_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 90s, 20m or 1h30m (a year at most)")
    return float(seconds)
