"""What a plan will cost, from the figures in the catalog: minutes and megabytes.

A rough figure that is right within a factor of two or so on a machine like the one the
catalog's costs were measured on; `matrix plan` prints it as an estimate.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from matrix.catalog.types import DEFAULT_SEQUENCE, Catalog, ModelEntry
from matrix.config.sweep import MeasureChoice
from matrix.records import OPERATOR, Cell, Environment

ARTEFACT_FRAMEWORK = "pytorch"  # whose environment makes checkpoints, exports and references
ARTEFACT_HARDWARE = "cpu"
PARALLEL = 2  # builds, artefacts, memory launches and correctness batches at once
#: operator cases: seconds that checking one takes, and making its files, measured on 2 cores
CHECK_S, ORACLE_S = 0.02, 0.02
OPERATOR_CALL_S = 0.005  # of a timed one: the middle of the suite speed, on one thread
ORACLE_BATCH = 100  # cases whose files one task makes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """Seconds by stage, megabytes by kind; what is already there costs nothing."""

    build_s: float = 0
    artefacts_s: float = 0
    launches_s: float = 0
    environments_mb: float = 0
    models_mb: float = 0
    to_build: tuple[Environment, ...] = ()
    to_make: tuple[str, ...] = ()

    @property
    def minutes(self) -> float:
        return (self.build_s + self.artefacts_s + self.launches_s) / 60

    @property
    def disk_mb(self) -> float:
        return self.environments_mb + self.models_mb


def estimate(
    runnable: Iterable[Cell],
    models: Mapping[str, ModelEntry],
    catalog: Catalog,
    measure: MeasureChoice,
    *,
    built: Collection[Environment] = (),
    cached: Collection[str] = (),
) -> Estimate:
    """The cost of running the cells in `runnable`. Nothing runnable costs nothing."""
    cells = list(runnable)
    if not cells:
        return Estimate()
    environments = dict.fromkeys(cell.environment for cell in cells)
    maker = artefact_environment(catalog)
    if maker is not None:
        environments[maker] = None
    to_build = tuple(e for e in environments if e not in built)
    subjects = dict.fromkeys(c.workload.subject for c in cells if c.workload.level != OPERATOR)
    to_make = tuple(m for m in subjects if m not in cached)
    builds = [catalog.frameworks[e.framework].builds[e.build].cost for e in to_build]
    makes = [models[name].cost for name in to_make]
    return Estimate(
        build_s=_parallel([cost.build_s for cost in builds]),
        artefacts_s=_parallel([cost.make_s for cost in makes]) + _oracle(cells, catalog),
        launches_s=_launches(cells, models, catalog, measure) + _checks(cells, catalog),
        environments_mb=sum(cost.disk_mb for cost in builds),
        models_mb=sum(cost.disk_mb for cost in makes),
        to_build=to_build,
        to_make=to_make,
    )


def artefact_environment(catalog: Catalog) -> Environment | None:
    """The environment that makes what all others load; None in a catalog without one."""
    framework = catalog.frameworks.get(ARTEFACT_FRAMEWORK)
    support = framework.hardware.get(ARTEFACT_HARDWARE) if framework else None
    if framework is None or support is None:
        return None
    return Environment(
        framework=framework.name,
        version=framework.version_for(ARTEFACT_HARDWARE),
        hardware=ARTEFACT_HARDWARE,
        build=support.build,
    )


def _launches(
    cells: list[Cell], models: Mapping[str, ModelEntry], catalog: Catalog, measure: MeasureChoice
) -> float:
    """Timed launches one after another; memory launches two at once; one discarded launch per environment."""
    cells = [cell for cell in cells if cell.timed]
    start = {e: _start(e, catalog) for e in dict.fromkeys(cell.environment for cell in cells)}
    total = sum(start.values())
    for cell in cells:
        of_operator = cell.workload.level == OPERATOR
        call_s = OPERATOR_CALL_S if of_operator else _call_s(cell, models[cell.workload.subject])
        warm_s = min(max(call_s, measure.max_warmup_s), measure.warmup_calls * call_s)
        least_s = measure.min_samples * call_s
        steady_s = max(
            least_s, min(measure.max_steady_s, measure.samples * max(call_s, measure.min_sample_s))
        )
        launch_s = start[cell.environment]
        total += measure.launches * (launch_s + call_s + warm_s + steady_s)
        total += (launch_s + (1 + measure.warmup_calls) * call_s) / PARALLEL
    return total


def _checks(cells: list[Cell], catalog: Catalog) -> float:
    """Correctness batches, two at once: one start for each environment, variant and number of threads."""
    batches = Counter(
        (c.environment, c.workload.variant, c.workload.threads) for c in cells if c.workload.level == OPERATOR
    )
    return _parallel([_start(b[0], catalog) + count * CHECK_S for b, count in batches.items()])


def _oracle(cells: list[Cell], catalog: Catalog) -> float:
    """Their files, some of which may be in the cache: planning does not look."""
    cases = {(c.workload.subject, c.workload.precision) for c in cells if c.workload.level == OPERATOR}
    maker = artefact_environment(catalog)
    if not cases or maker is None:
        return 0
    batches = -(-len(cases) // ORACLE_BATCH)
    return _parallel([_start(maker, catalog) + len(cases) / batches * ORACLE_S] * batches)


def _start(environment: Environment, catalog: Catalog) -> float:
    return catalog.frameworks[environment.framework].builds[environment.build].cost.launch_s


def _call_s(cell: Cell, model: ModelEntry) -> float:
    workload = cell.workload
    longer = (workload.sequence or DEFAULT_SEQUENCE) / (model.sequence or DEFAULT_SEQUENCE)
    return model.cost.call_ms / 1000 * workload.batch * longer / workload.threads


def _parallel(seconds: list[float]) -> float:
    return max(sum(seconds) / PARALLEL, max(seconds, default=0))
