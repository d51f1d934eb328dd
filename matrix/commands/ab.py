"""What `upgrade` and `bisect` share: from two arms to a measured A/B run in the results folder."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix import paths
from matrix.arms import Arm, ab_plan
from matrix.artefacts.store import ArtefactStore
from matrix.catalog.types import Catalog, Framework
from matrix.commands import shared
from matrix.commands.backends import choose_for
from matrix.compare.undecided import undecided
from matrix.config.sweep import SweepConfig, load_sweep, sweep_from_data
from matrix.environments import changes
from matrix.environments.base import Backend
from matrix.environments.cutoff import CutOff, cut_off
from matrix.errors import UsageError
from matrix.machine import fingerprint as machine
from matrix.records import Environment
from matrix.store.formats import RunHeader
from matrix.store.names import check_new_name
from matrix.store.runs import RunStore
from matrix.strict_yaml.located import did_you_mean
from matrix.sweep.observer import Observer
from matrix.sweep.outcome import SweepOutcome
from matrix.sweep.pairs import PairSchedule
from matrix.sweep.run import run_sweep
from matrix.sweep.session import new_header
from matrix_adapters.protocol import plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be compared, where, and for how long."""

    framework: Framework
    base: Arm
    candidates: tuple[Arm, ...]
    config: str = shared.DEFAULT_SWEEP
    select: str | None = None
    backend: str = "auto"
    results: str | None = None
    name: str = ""
    seed: int | None = None
    as_of: str = ""  # what --as-of says: neither side takes anything published later; "": see `cutoff`
    cutoff: CutOff | None = None  # the moment where it is known already
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # more for the run's header


def framework_of(name: str, catalog: Catalog) -> Framework:
    """The framework of that name. Raises UsageError with the nearest one."""
    if name not in catalog.frameworks:
        known = ", ".join(catalog.frameworks)
        raise UsageError(f"there is no framework {name!r}{did_you_mean(name, catalog.frameworks)}: {known}")
    return catalog.frameworks[name]


def arm_of(version: str, texts: Sequence[str], framework: Framework, option: str) -> Arm:
    """One side, from its version and what `option` (`--candidate-with`) says of it. Raises UsageError."""
    side = changes.parse(texts, framework, option)
    return Arm(version=version, changes=side.changes, variant=side.variant)


def begin(asked: Asked, catalog: Catalog) -> tuple[SweepConfig, RunStore, Backend]:
    """Plan an A/B run and make its folder. Raises UsageError, ConfigError, StorageError."""
    config = for_framework(load_sweep(asked.config, catalog), asked.framework, asked.base.version, catalog)
    plan = shared.plan_for_this_machine(config, catalog, asked.select)
    results = paths.results_dir(asked.results)
    if asked.name:
        check_new_name(results, asked.name)
    seed = config.seed if asked.seed is None else asked.seed
    arms = ab_plan(plan, asked.base, asked.candidates, seed=seed)
    wanted = {cell.environment for cell in arms.cells if cell.state is None}
    cutoff = asked.cutoff or cut_off(asked.as_of, asked.framework, wanted)
    chosen = choose_for(asked.backend, catalog, config, wanted, cutoff)
    for arm, option in (
        (asked.base, "--base-with"),
        *((arm, "--candidate-with") for arm in asked.candidates),
    ):
        changes.check(arm.changes, chosen.backend.name, option)
    header = new_header(
        config,
        backend=chosen.backend.name,
        backend_why=chosen.why,
        machine=plain(machine.fingerprint()),
        name=asked.name,
        seed=seed,
    ).model_copy(
        update={"comparison": {**arms.comparison, **asked.facts, "as_of": cutoff.at if cutoff else ""}}
    )
    return config, RunStore.create(results, header, arms.cells), chosen.backend


def again(folder: Path, catalog: Catalog) -> tuple[SweepConfig, RunStore, Backend]:
    """An A/B run that was stopped, as it was planned. Raises UsageError, RunLocked, StorageError."""
    store = RunStore.open(folder)
    try:
        _must_compare(store.header)
        config = sweep_from_data(store.header.config, catalog, str(folder / "run.json"))
        wanted = {cell.environment for cell in store.cells() if cell.state is None}
        cutoff = _cutoff_of(store.header, wanted)
        backend = choose_for(store.header.backend, catalog, config, wanted, cutoff).backend
    except BaseException:
        store.close()
        raise
    return config, store, backend


def measure(
    config: SweepConfig,
    catalog: Catalog,
    store: RunStore,
    backend: Backend,
    *,
    observer: Observer,
    budget_s: float | None = None,
    margins: Mapping[str, float] | None = None,
    metrics: Sequence[str] = (),
) -> SweepOutcome:
    """Measure until every verdict (on `metrics`; on all where empty) is settled, or the budget is spent."""
    return run_sweep(
        config,
        catalog,
        store=store,
        backend=backend,
        artefacts=lambda key: ArtefactStore(paths.home(), key),
        observer=observer,
        schedule=PairSchedule(undecided(catalog, margins or {}, metrics), budget_s=budget_s),
    )


def for_framework(config: SweepConfig, framework: Framework, version: str, catalog: Catalog) -> SweepConfig:
    """The sweep with this framework in this version, with the variants and hardware it names for it."""
    own = next((choice for choice in config.frameworks if choice.name == framework.name), None)
    choice: dict[str, Any] = {"name": framework.name, "versions": [version]}
    if own is not None and own.variants:
        choice["variants"] = list(own.variants)
    if own is not None and own.hardware:
        choice["hardware"] = list(own.hardware)
    return sweep_from_data({**config.data, "frameworks": [choice]}, catalog, config.name)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that every command has that measures two arms."""
    shared.add_sweep_arguments(parser)
    parser.add_argument(
        "--backend",
        choices=("auto", "docker", "venv", "host"),
        default="auto",
        help="how environments are realised; auto takes containers where an engine answers",
    )
    parser.add_argument(
        "--as-of",
        metavar="DATE",
        default="",
        help="neither side takes anything published later (2026-11-30, or a moment in UTC); default: now, "
        "where a version has no pinned set in the catalog",
    )
    shared.add_results_argument(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def _cutoff_of(header: RunHeader, environments: Iterable[Environment]) -> CutOff | None:
    """The moment that a run was begun with; all of an A/B run's own environments are of one framework."""
    at = str(header.comparison.get("as_of") or "")
    framework = next((environment.framework for environment in environments), "")
    return CutOff(framework, at) if at else None


def _must_compare(header: RunHeader) -> None:
    if not header.comparison:
        raise UsageError(f"{header.id} compares nothing: `matrix run --resume {header.id}` goes on with it")
