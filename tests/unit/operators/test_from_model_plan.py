"""`from-model:` before a run is planned: what the worker found becomes timed cases, or a reason."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from matrix.artefacts.graph_cases import GraphFailed
from matrix.artefacts.store import ArtefactFailed
from matrix.catalog import load
from matrix.catalog.types import Catalog
from matrix.commands import shared
from matrix.config.sweep import SweepConfig, sweep_from_data
from matrix.environments.base import BuildFailed
from matrix.errors import ExitCode, UsageError
from matrix.sweep import from_model
from matrix_adapters.protocol import Node, OperatorCase, ProtocolError, Reason, TensorSpec, plain


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


def told(op: str, dtype: str = "float32", count: int = 1, **attributes: Any) -> dict[str, Any]:
    """One line of what the worker leaves."""
    node = Node(op=op, inputs=("X0",), outputs=("Y0",), attributes=attributes)
    spec = TensorSpec(name="X0", dtype=dtype, shape=(2, 3))
    case = OperatorCase(
        name=f"{op}/resnet50_01",
        dtype=dtype,
        nodes=(node,),
        inputs=(spec,),
        outputs=("Y0",),
        opset=18,
        oracle="float64",
    )
    return {"case": plain(case), "count": count}


def sweep(catalog: Catalog, *words: str) -> SweepConfig:
    data = {"name": "x", "frameworks": ["pytorch"], "operators": list(words)}
    return sweep_from_data(data, catalog, "sweep.yaml")


@dataclasses.dataclass
class Backend:
    """Builds at once, or not at all."""

    fails: bool = False
    name: str = "venv"

    def build(self, environment: Any) -> Any:
        if self.fails:
            raise BuildFailed(Reason(code="planted", text="no index here"))
        return SimpleNamespace(environment=environment, key="k")

    def session(self, run: str) -> contextlib.AbstractContextManager[None]:
        del run
        return contextlib.nullcontext()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the artefact store answers, one entry for each model: lines and reasons, or an exception."""
    answers: list[Any] = []

    class Store:
        def __init__(self, home: Path, key: str) -> None: ...

        def operators_of(self, model: Any, workload: Any, run: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(from_model, "ArtefactStore", Store)
    return answers


def completed(config: SweepConfig, catalog: Catalog, **backend: Any) -> SweepConfig:
    given: Any = Backend(**backend)
    return from_model.completed(config, catalog, backend=given, home=Path(), say=lambda _: None)


def test_a_models_operators_are_timed_cases_with_the_call_of_one_element(
    catalog: Catalog, store: list[Any]
) -> None:
    store.append(
        ([told("Relu", count=9), told("MaxPool", kernel_shape=[1, 1])], {"If: it holds a subgraph": 2})
    )
    config = completed(sweep(catalog, "from-model:resnet50"), catalog)
    assert [(c.case.name, c.model, c.count, c.timed) for c in config.operators] == [
        ("Relu/size_1", "", 1, True),
        ("Relu/resnet50_01", "resnet50", 9, True),
        ("MaxPool/resnet50_01", "resnet50", 1, True),
    ]
    assert config.left_out == {"resnet50": {"If: it holds a subgraph": 2}}


def test_a_sweep_without_models_is_as_it_was(catalog: Catalog) -> None:
    config = sweep(catalog, "Relu/size_1")
    assert completed(config, catalog, fails=True) is config
    assert from_model.known(config, catalog, Path()) is config


def test_types_that_are_the_meaning_are_not_promoted(catalog: Catalog) -> None:
    cast = from_model.as_catalog_case(told("Cast", to="float16"), "m", catalog)
    relu = from_model.as_catalog_case(told("Relu"), "m", catalog)
    unknown = from_model.as_catalog_case(told("Zebra"), "m", catalog)
    assert (cast.case.oracle, relu.case.oracle) == ("as-is", "float64")
    assert unknown.kind == "composite"
    assert {cast.kind, relu.kind, unknown.kind} <= set(catalog.tolerances.operators)


@pytest.mark.parametrize(
    "failure",
    [
        ArtefactFailed(Reason(code="planted", text="the export broke")),
        GraphFailed("the export broke"),
        ProtocolError("the export broke"),
    ],
)
def test_a_file_that_cannot_be_had_ends_the_command_with_its_reason(
    catalog: Catalog, store: list[Any], failure: Exception
) -> None:
    store.append(failure)
    with pytest.raises(from_model.NotRead, match=r"from-model:resnet50: .*the export broke") as ended:
        completed(sweep(catalog, "from-model:resnet50"), catalog)
    assert ended.value.exit_code is ExitCode.INCOMPLETE


def test_an_environment_that_cannot_be_built_is_named(catalog: Catalog) -> None:
    with pytest.raises(from_model.NotRead, match=r"pytorch-.* could not be built: no index here"):
        completed(sweep(catalog, "from-model:resnet50"), catalog, fails=True)


def test_a_plan_takes_what_was_read_and_makes_nothing(catalog: Catalog, store: list[Any]) -> None:
    config = sweep(catalog, "from-model:resnet50")
    store.append(([told("Relu")], {}))
    assert "Relu/resnet50_01" in {c.case.name for c in from_model.known(config, catalog, Path()).operators}
    store.append(ArtefactFailed(Reason(code="not_made", text="x")))
    with pytest.raises(UsageError, match="`matrix run` does so before it plans"):
        from_model.known(config, catalog, Path())


def test_a_command_that_cannot_read_them_says_which_can(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match=r"the operators of resnet50 .*only `matrix run` does that"):
        shared.plan_for_this_machine(sweep(catalog, "from-model:resnet50"), catalog, None)
