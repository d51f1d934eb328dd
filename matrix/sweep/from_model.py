"""`from-model:NAME`: the operators of a model of the catalog, as its exported ONNX file has them.

They are known only when the file is: it is exported (or found) and read when a run begins, before it is
planned, in the environment that makes all artefacts. `known` looks without making anything.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matrix.artefacts.graph_cases import GraphFailed
from matrix.artefacts.store import ArtefactFailed, ArtefactStore
from matrix.catalog.types import Catalog, ModelEntry
from matrix.config.sweep import SweepConfig, sequences
from matrix.environments.base import Backend, BuildFailed
from matrix.environments.recipe import recipe_for
from matrix.errors import MatrixError, UsageError
from matrix.estimate import artefact_environment
from matrix.execution.dispatch import run_task
from matrix.execution.local import Startable
from matrix.operators import shapes
from matrix.operators.expand import CatalogCase, default_oracle
from matrix.operators.load import load_operators
from matrix.operators.suites import dispatch_cases, models_of
from matrix.records import Environment, Workload
from matrix_adapters.protocol import OperatorCase, ProtocolError, Reason, Result, State, Task, from_plain

_TIMEOUT_S = 1800.0
_STALL_S = 300.0
#: row of the tolerance table for operators that the catalog does not have
_OTHER = "composite"

Run = Callable[[Task, Path], Result]


class NotRead(MatrixError):
    """The file of a model, or its environment, cannot be had: nothing was planned."""


def wanted(config: SweepConfig) -> tuple[str, ...]:
    """The models whose operators a sweep asks for."""
    return models_of(str(word) for word in config.data.get("operators", ()))


def completed(
    config: SweepConfig,
    catalog: Catalog,
    *,
    backend: Backend,
    home: Path,
    say: Callable[[str], None],
) -> SweepConfig:
    """`config` with the operators of its models; as it is where it asks for none.

    Raises NotRead where a model cannot be exported or read, StorageError for a full disk.
    """
    names = wanted(config)
    if not names:
        return config
    maker = _maker(catalog, names[0])
    say(f"operators of {', '.join(names)}: {maker.name}")
    try:
        built = backend.build(maker)
    except BuildFailed as failure:
        text = f"{maker.name} could not be built: {failure.reason.text}"
        raise NotRead(f"from-model:{names[0]}: {text}") from None
    with backend.session("from-model"):
        return _with_operators(config, catalog, ArtefactStore(home, built.key), _runner(built, say))


def known(config: SweepConfig, catalog: Catalog, home: Path) -> SweepConfig:
    """The same from files that an earlier run left in the cache. Raises UsageError where there are none."""
    names = wanted(config)
    if not names:
        return config
    maker = _maker(catalog, names[0])
    key = recipe_for(catalog.frameworks[maker.framework], maker).key
    reason = Reason(code="not_made", text="it was not read yet")

    def nothing(task: Task, out: Path) -> Result:
        return Result(state=State.FAILED, reason=reason)

    try:
        return _with_operators(config, catalog, ArtefactStore(home, key), nothing)
    except NotRead:
        text = "are known when a run has exported and read its file: `matrix run` does so before it plans"
        raise UsageError(f"the operators of {', '.join(names)} {text}") from None


def as_catalog_case(told: Mapping[str, Any], model: str, catalog: Catalog) -> CatalogCase:
    """One line of what the worker found, with the catalog's row of tolerances for its operator.

    Raises ProtocolError for what is no case.
    """
    case = from_plain(OperatorCase, told["case"])
    op = case.nodes[0].op
    entry = load_operators(catalog.operators).entries.get(op)
    kind = entry.kind if entry is not None else _OTHER
    oracle = (entry.oracle if entry is not None else None) or default_oracle(kind, case.dtype)
    return CatalogCase(
        operator=op,
        case=dataclasses.replace(case, oracle=oracle),
        kind=kind,
        depth=shapes.depth(case.nodes, {spec.name: spec for spec in case.inputs}),
        timed=True,
        model=model,
        count=int(told["count"]),
    )


def _maker(catalog: Catalog, model: str) -> Environment:
    maker = artefact_environment(catalog)
    if maker is None:
        raise UsageError(f"from-model:{model}: the catalog has no environment that exports models")
    return maker


def _runner(built: Startable, say: Callable[[str], None]) -> Run:
    """Runs one task after the other in `built`, each in a folder that is gone afterwards."""

    def run(task: Task, out: Path) -> Result:
        with tempfile.TemporaryDirectory(prefix="framework-matrix-") as folder:
            return run_task(
                built,
                task,
                Path(folder) / "launch",
                out_dir=out,
                timeout_s=_TIMEOUT_S,
                stall_s=_STALL_S,
                on_phase=lambda phase: say(f"{task.kind.value}: {phase}"),
            )

    return run


def _with_operators(config: SweepConfig, catalog: Catalog, store: ArtefactStore, run: Run) -> SweepConfig:
    """With the call of one element, which every other is held against."""
    found = [*config.operators, *dispatch_cases(load_operators(catalog.operators))]
    left_out: dict[str, Mapping[str, int]] = {}
    for name in wanted(config):
        cases, left_out[name] = _of_model(catalog.models[name], config, catalog, store, run)
        found += cases
    unique = {case.key: case for case in found}
    return dataclasses.replace(config, operators=tuple(unique.values()), left_out=left_out)


def _of_model(
    model: ModelEntry, config: SweepConfig, catalog: Catalog, store: ArtefactStore, run: Run
) -> tuple[list[CatalogCase], Mapping[str, int]]:
    workload = Workload(
        level="inference",
        subject=model.name,
        batch=config.batch[0] if model.batch is None else model.batch,
        sequence=sequences(model, config.sequence)[0],
        precision="fp32",
        threads=1,
        variant="",
    )
    try:
        told, left_out = store.operators_of(model, workload, run)
        return [as_catalog_case(one, model.name, catalog) for one in told], left_out
    except (ArtefactFailed, GraphFailed, ProtocolError) as failure:
        raise NotRead(f"from-model:{model.name}: its operators cannot be had: {failure}") from None
