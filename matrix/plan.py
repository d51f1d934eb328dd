"""Planning: every combination of a sweep becomes a cell, also those that cannot be.

What cannot exist is `unsupported`, what could exist but not on this machine is
`unavailable`, each with its reason; nothing is left out silently, so that planned cells
can be compared with reported cells at the end. Planning runs nothing and imports no
framework; ten thousand cells take a fraction of a second.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from matrix.catalog.types import Catalog, Framework, ModelEntry
from matrix.config.sweep import ALL, AUTO, FrameworkChoice, SweepConfig, sequences
from matrix.errors import UsageError
from matrix.estimate import Estimate, estimate
from matrix.records import Cell, Environment, Workload, operator_of
from matrix.select import FIELDS, Selector, hints, selector
from matrix_adapters.protocol import Reason, State

#: more than that is a mistake: it would run for weeks
MOST_CELLS = 100_000
#: threads per usable CPU that are still run
MOST_PER_CPU = 8


class HardwareFound(Protocol):
    """What the host's probe says of one hardware profile."""

    @property
    def found(self) -> bool: ...
    @property
    def reason(self) -> str: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """All cells of a sweep, in a readable order (rows of the matrix together)."""

    sweep: str
    cells: tuple[Cell, ...]
    models: Mapping[str, ModelEntry]  # of the cells, by name
    environments: tuple[Environment, ...]  # of the cells that can run
    estimate: Estimate
    deselected: int = 0  # cells that --select left out
    select: str = ""

    @property
    def runnable(self) -> tuple[Cell, ...]:
        """The cells whose end planning does not know already."""
        return tuple(cell for cell in self.cells if cell.state is None)


def make_plan(
    config: SweepConfig,
    catalog: Catalog,
    hardware: Mapping[str, HardwareFound],
    select: str | None = None,
    *,
    usable_threads: int | None = None,
    built: Collection[Environment] = (),
    cached: Collection[str] = (),
    memory_limit: int | None = None,
) -> Plan:
    """Plan `config` for a machine with `hardware`.

    `usable_threads` is what `threads: all` means here; `built` environments and models
    whose artefacts are `cached` cost nothing in the estimate. `memory_limit`: bytes that one
    operator case may need; a share of what there is, where none is given. Raises UsageError for a
    wrong `select`, and for one that chooses no cell.
    """
    threads = usable_threads or _visible_cpus()
    planned = itertools.islice(_cells(config, catalog, hardware, threads, memory_limit), MOST_CELLS + 1)
    cells = [_with_rules(cell, config) for cell in planned]
    if len(cells) > MOST_CELLS:
        raise UsageError(
            f"{config.name}: more than {MOST_CELLS:,} cells, as all combinations are planned: "
            "give fewer values of batch, sequence, threads or variants"
        )
    chosen = _select(cells, selector(select)) if select else cells
    runnable = [cell for cell in chosen if cell.state is None]
    subjects = {cell.workload.subject for cell in chosen}
    models = {model.name: model for model in config.models if model.name in subjects}
    return Plan(
        sweep=config.name,
        cells=tuple(chosen),
        models=models,
        environments=tuple(dict.fromkeys(cell.environment for cell in runnable)),
        estimate=estimate(runnable, models, catalog, config.measure, built=built, cached=cached),
        deselected=len(cells) - len(chosen),
        select=select or "",
    )


def expand_hardware(
    names: Iterable[str], catalog: Catalog, hardware: Mapping[str, HardwareFound]
) -> tuple[str, ...]:
    """`auto` is what every machine has, and every accelerator found."""
    expanded: dict[str, None] = {}
    for name in names:
        if name == AUTO:
            present = [h for h, e in catalog.hardware.items() if e.always or _is_found(h, hardware)]
            expanded.update(dict.fromkeys(sorted(present, key=lambda h: not catalog.hardware[h].always)))
        else:
            expanded[name] = None
    return tuple(expanded)


def _visible_cpus() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


# --- cells --------------------------------------------------------------------------------

_Verdict = tuple[State, Reason] | None


def _cells(
    config: SweepConfig,
    catalog: Catalog,
    hardware: Mapping[str, HardwareFound],
    threads: int,
    memory_limit: int | None,
) -> Iterator[Cell]:
    """The product, duplicates removed. Reasons are shared objects: many cells, few reasons."""
    columns = _columns(config, catalog, hardware)
    yield from _model_cells(config, columns, threads)
    if config.operators:
        from matrix.operators.planning import operator_cells, with_candidates  # where a sweep has some

        counts = [threads if t == ALL else t for t in config.threads]
        usable = functools.partial(_crowded, usable=threads)
        yield from operator_cells(config.operators, columns, counts, usable, memory_limit=memory_limit)
        for cases, own in with_candidates(config.candidates, config.operators, columns):
            yield from operator_cells(cases, own, counts, usable, memory_limit=memory_limit)


def _model_cells(config: SweepConfig, columns: Sequence[_Column], threads: int) -> Iterator[Cell]:
    seen: set[tuple[Environment, Workload]] = set()
    for model in config.models:
        for batch, sequence, precision, count in _points(config, model, threads):
            crowded = _crowded(count, threads)
            for column in columns:
                verdict = column.verdict(model, batch, sequence, precision) or crowded
                state, reason = verdict or (None, None)
                for variant in column.variants:
                    workload = Workload(
                        level="inference",
                        subject=model.name,
                        batch=batch,
                        sequence=sequence,
                        precision=precision,
                        threads=count,
                        variant=variant,
                    )
                    key = (column.environment, workload)
                    if key not in seen:
                        seen.add(key)
                        yield Cell(
                            environment=column.environment, workload=workload, state=state, reason=reason
                        )


def _points(
    config: SweepConfig, model: ModelEntry, threads: int
) -> Iterator[tuple[int, int | None, str, int]]:
    """(batch, sequence, precision, threads) of one model, in order, each once."""
    counts = dict.fromkeys(threads if t == ALL else t for t in config.threads)
    return itertools.product(config.batch, sequences(model, config.sequence), config.precisions, counts)


class _Column:
    """One environment of the sweep, with what is known of it before any workload."""

    def __init__(
        self,
        framework: Framework,
        environment: Environment,
        variants: tuple[str, ...],
        hardware_title: str,
        absent: str | None,
    ) -> None:
        self.framework, self.environment, self.variants = framework, environment, variants
        self.title = f"{framework.title} on {hardware_title}"
        self.support = framework.hardware.get(environment.hardware)
        self.fixed: _Verdict = None
        if self.support is None:
            has = ", ".join(framework.hardware)
            text = f"{framework.title} does not run on {hardware_title} (it has: {has})"
            self.fixed = _unsupported("hardware", text)
        self.absent: _Verdict = None
        if absent is not None:
            self.absent = (State.UNAVAILABLE, Reason(code="no_device", text=absent))
        self.known: dict[tuple[str, int, int | None, str], _Verdict] = {}

    def verdict(self, model: ModelEntry, batch: int, sequence: int | None, precision: str) -> _Verdict:
        """How such a cell ends, where planning knows it; None for one that can run."""
        key = (model.name, batch, sequence, precision)
        if key not in self.known:
            self.known[key] = self._verdict(model, batch, sequence, precision)
        return self.known[key]

    def _verdict(self, model: ModelEntry, batch: int, sequence: int | None, precision: str) -> _Verdict:
        if self.fixed or self.support is None:
            return self.fixed
        if precision not in self.support.precisions:
            has = ", ".join(self.support.precisions)
            text = f"no {precision} for {self.title} in this tool's catalog (it has {has})"
            return _unsupported("precision", text)
        if model.format == "onnx" and self.framework.consumes == "checkpoint":
            text = (
                f"needs a checkpoint: {model.name} is an ONNX file, {self.framework.title} loads "
                "checkpoint folders"
            )
            return _unsupported("needs_checkpoint", text)
        limit = _beyond(model, batch, sequence)
        return _unsupported("shape", limit) if limit else self.absent


@functools.cache
def _crowded(count: int, usable: int) -> _Verdict:
    """Some more threads than CPUs is a question to be measured (and flagged); thousands stop the machine."""
    if count <= MOST_PER_CPU * usable:
        return None
    text = f"{count} threads were asked, {usable} are usable here: more than {MOST_PER_CPU} a CPU are not run"
    return (State.UNAVAILABLE, Reason(code="threads", text=text))


def _beyond(model: ModelEntry, batch: int, sequence: int | None) -> str:
    """Which limit of the model a workload is beyond, in words; empty when it is within all."""
    longest = model.longest_sequence
    if sequence is not None and longest is not None and sequence > longest:
        return f"{model.name} has room for {longest} positions, {sequence} were asked"
    if model.batch is not None and batch != model.batch:
        return f"{model.name} has a fixed batch of {model.batch}"
    if model.max_batch is not None and batch > model.max_batch:
        return f"{model.name} takes batches up to {model.max_batch}"
    return ""


def _columns(config: SweepConfig, catalog: Catalog, hardware: Mapping[str, HardwareFound]) -> list[_Column]:
    columns = []
    for choice in config.frameworks:
        framework = catalog.frameworks[choice.name]
        for profile in expand_hardware(choice.hardware or config.hardware, catalog, hardware):
            title = catalog.hardware[profile].title
            always = catalog.hardware[profile].always
            absent = None if always or _is_found(profile, hardware) else _absence(profile, hardware)
            for environment in _environments(framework, choice, profile):
                variants = tuple(choice.variants) or (framework.default_variant,)
                columns.append(_Column(framework, environment, variants, title, absent))
    return columns


def _environments(framework: Framework, choice: FrameworkChoice, profile: str) -> list[Environment]:
    support = framework.hardware.get(profile)
    default = framework.version_for(profile) if support else framework.default_version
    return [
        Environment(
            framework=framework.name,
            version=version,
            hardware=profile,
            build=support.build if support else "",
        )
        for version in choice.versions or [default]
    ]


def _unsupported(code: str, text: str) -> _Verdict:
    return State.UNSUPPORTED, Reason(code=code, text=text)


def _is_found(profile: str, hardware: Mapping[str, HardwareFound]) -> bool:
    return profile in hardware and hardware[profile].found


def _absence(profile: str, hardware: Mapping[str, HardwareFound]) -> str:
    if profile not in hardware:
        return f"this machine was not probed for {profile}"
    return hardware[profile].reason


# --- rules and selection ------------------------------------------------------------------


class CellView:
    """A cell's fields by name, each looked up when an expression asks for it."""

    __slots__ = ("cell",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell

    def __getitem__(self, name: str) -> Any:
        return _FIELD[name](self.cell)


def _with_rules(cell: Cell, config: SweepConfig) -> Cell:
    required, xfail = cell.required, cell.xfail
    for rule in config.rules:
        if rule.select(CellView(cell)):
            required, xfail = required or rule.required, rule.xfail or xfail
    if (required, xfail) == (cell.required, cell.xfail):
        return cell
    return dataclasses.replace(cell, required=required, xfail=xfail)


def _select(cells: list[Cell], select: Selector) -> list[Cell]:
    chosen = [cell for cell in cells if select(CellView(cell))]
    if not chosen:
        fields = {name for name, _ in select.wanted}
        values = {name: {str(CellView(cell)[name]) for cell in cells} for name in fields}
        why = hints(select, values) or f"the sweep has {len(cells)} cells"
        raise UsageError(f"--select {select.expression!r} chooses no cell: {why}")
    return chosen


def _getter(name: str) -> Callable[[Cell], Any]:
    special: dict[str, Callable[[Cell], Any]] = {
        "model": operator.attrgetter("workload.subject"),
        "operator": lambda cell: operator_of(cell.workload),
        "environment": operator.attrgetter("environment.name"),
        "state": lambda cell: cell.state.value if cell.state else "",
    }
    if name in special:
        return special[name]
    for part, kind in (("environment", Environment), ("workload", Workload)):
        if name in kind.__dataclass_fields__:
            return operator.attrgetter(f"{part}.{name}")
    return operator.attrgetter(name)


_FIELD: Mapping[str, Callable[[Cell], Any]] = {name: _getter(name) for name in FIELDS}
