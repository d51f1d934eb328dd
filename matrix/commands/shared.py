"""What several commands need: the sweep as asked, the plan for this machine, stored runs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Collection
from pathlib import Path

from matrix import catalog as catalog_data
from matrix import paths
from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig, load_sweep
from matrix.environments import ready
from matrix.environments.base import BuildFailed
from matrix.environments.recipe import recipe_for
from matrix.errors import UsageError
from matrix.estimate import artefact_environment
from matrix.machine import fingerprint as machine
from matrix.machine import hardware
from matrix.plan import Plan, make_plan
from matrix.records import Environment
from matrix.store import durable

DEFAULT_SWEEP = "quick"


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """`-c` and `--select`: which cells."""
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        default=DEFAULT_SWEEP,
        help="a sweep of one's own (YAML), or a shipped one by name: quick (the default), full, operators",
    )
    parser.add_argument(
        "--select",
        metavar="EXPR",
        help="only the cells for which this holds, e.g. 'model == \"resnet50\" and batch == 1'",
    )


def add_results_argument(parser: argparse.ArgumentParser) -> None:
    """`--results`: where runs lie."""
    parser.add_argument(
        "--results",
        metavar="DIR",
        help="folder of runs (default: results/ of the checkout or of the current folder)",
    )


def check_output(target: Path) -> None:
    """Whether `-o` names what can be written, known before the work is done. Raises UsageError."""
    if target.is_dir():
        raise UsageError(f"-o {target} is a folder: name a file in it")
    if not target.parent.is_dir():
        raise UsageError(f"-o {target}: there is no folder {target.parent}")


def write_output(target: Path, text: str) -> None:
    """Write what `-o` asked for, whole or not at all. Raises UsageError, StorageError."""
    check_output(target)
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe: written to, never replaced
        with durable.storage(target):
            target.write_text(text, encoding="utf-8")
    else:
        durable.replace(target.resolve(), text)


def load_catalog() -> Catalog:
    """The catalog, with what the testing hook FRAMEWORK_MATRIX_ASSUME_HARDWARE changes in it."""
    return hardware.assume(catalog_data.load())


def plan_for_this_machine(config: SweepConfig, catalog: Catalog, select: str | None) -> Plan:
    """The plan of `config` here: devices found, threads usable, environments already built."""
    if names := ", ".join(_unread(config)):
        raise UsageError(f"the operators of {names} are read from its file: only `matrix run` does that")
    found = hardware.probe(catalog.hardware)
    threads = machine.usable_threads()
    plan = make_plan(config, catalog, found, select, usable_threads=threads)
    wanted = {cell.environment for cell in plan.runnable}
    if maker := artefact_environment(catalog):
        wanted.add(maker)
    built = _already_built(wanted, catalog, paths.home())
    if not built:
        return plan
    return make_plan(config, catalog, found, select, usable_threads=threads, built=built)


def sweep_and_plan(args: argparse.Namespace, catalog: Catalog) -> tuple[SweepConfig, Plan]:
    """What `-c` and `--select` ask for. Raises ConfigError or UsageError."""
    config = load_sweep(args.config, catalog)
    if _unread(config):
        from matrix.sweep import from_model  # many imports: most sweeps name no model's operators

        config = from_model.known(config, catalog, paths.home())
    return config, plan_for_this_machine(config, catalog, args.select)


def _unread(config: SweepConfig) -> list[str]:
    """The models that `from-model:NAME` asks for and nobody has read the operators of."""
    words = [str(word) for word in config.data.get("operators", ())]
    if not words:
        return []
    from matrix.operators.suites import models_of  # many imports: only for a sweep that has some

    read = {case.model for case in config.operators}
    return [name for name in models_of(words) if name not in read]


def _already_built(environments: Collection[Environment], catalog: Catalog, home: Path) -> set[Environment]:
    folder = home / "environments"
    found = set()
    for environment in environments:
        with contextlib.suppress(BuildFailed):  # it has no recipe: its build will say why
            recipe = recipe_for(catalog.frameworks[environment.framework], environment)
            if ready.read(folder / recipe.key):
                found.add(environment)
    return found
