"""`from-model:NAME`: the operators of a model of the catalog, as its exported ONNX file has them.

They are known only when the file is: it is exported (or found) and read when a run begins, before it is
planned, in the environment that makes all artefacts.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matrix.artefacts.graph_cases import GraphFailed
from matrix.artefacts.store import ArtefactFailed, ArtefactStore
from matrix.catalog.types import Catalog, ModelEntry
from matrix.config.sweep import SweepConfig, sequences
from matrix.environments.base import Backend, BuildFailed
from matrix.errors import UsageError
from matrix.estimate import artefact_environment
from matrix.execution.dispatch import run_task
from matrix.operators import shapes
from matrix.operators.expand import CatalogCase
from matrix.operators.load import load_operators
from matrix.operators.suites import models_of
from matrix.records import Workload
from matrix_adapters.protocol import OperatorCase, ProtocolError, Result, Task, from_plain

_TIMEOUT_S = 1800.0
_STALL_S = 300.0
#: row of the tolerance table for operators that the catalog does not have
_OTHER = "composite"


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

    Raises UsageError where a model cannot be exported or read, StorageError for a full disk.
    """
    names = wanted(config)
    if not names:
        return config
    maker = artefact_environment(catalog)
    if maker is None:
        raise UsageError(f"from-model:{names[0]}: the catalog has no environment that exports models")
    say(f"operators of {', '.join(names)}: {maker.name}")
    try:
        built = backend.build(maker)
    except BuildFailed as failure:
        text = f"{maker.name} could not be built: {failure.reason.text}"
        raise UsageError(f"from-model:{names[0]}: {text}") from None
    store = ArtefactStore(home, built.key)

    def run(task: Task, out: Path) -> Result:
        with tempfile.TemporaryDirectory(prefix="framework-matrix-") as folder:
            return run_task(
                built, task, Path(folder) / "launch", out_dir=out, timeout_s=_TIMEOUT_S, stall_s=_STALL_S
            )

    found = list(config.operators)
    with backend.session("from-model"):
        for name in names:
            say(f"operators of {name}")
            found += _of_model(catalog.models[name], config, catalog, store, run)
    unique = {case.key: case for case in found}
    return dataclasses.replace(config, operators=tuple(unique.values()))


def _of_model(
    model: ModelEntry,
    config: SweepConfig,
    catalog: Catalog,
    store: ArtefactStore,
    run: Callable[[Task, Path], Result],
) -> list[CatalogCase]:
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
        told, _ = store.operators_of(model, workload, run)
        return [as_catalog_case(one, model.name, catalog) for one in told]
    except (ArtefactFailed, GraphFailed, ProtocolError) as failure:
        raise UsageError(f"from-model:{model.name}: its operators cannot be had: {failure}") from None


def as_catalog_case(told: dict[str, Any], model: str, catalog: Catalog) -> CatalogCase:
    """One line of what the worker found, with the catalog's row of tolerances for its operator.

    Raises ProtocolError for what is no case.
    """
    case = from_plain(OperatorCase, told["case"])
    op = case.nodes[0].op
    entry = load_operators(catalog.operators).entries.get(op)
    return CatalogCase(
        operator=op,
        case=case,
        kind=entry.kind if entry is not None else _OTHER,
        depth=shapes.depth(case.nodes, {spec.name: spec for spec in case.inputs}),
        timed=True,
        model=model,
        count=int(told["count"]),
    )
