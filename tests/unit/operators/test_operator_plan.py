"""Planning of operator cells: every case in every column, and those that cannot be say why."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import small_catalog

from matrix import catalog
from matrix.config.sweep import FrameworkChoice, Rule, SweepConfig
from matrix.operators import suites
from matrix.operators.load import load_operators
from matrix.plan import Plan, make_plan
from matrix.records import OPERATOR, Cell
from matrix.report.plan_view import plan_json, plan_text
from matrix.select import selector
from matrix_adapters.protocol import State, from_plain, plain

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


@dataclasses.dataclass(frozen=True)
class Found:
    """What a probe says."""

    found: bool
    reason: str = ""


NO_GPU = {"cpu": Found(True), "nvidia": Found(False, "no /dev/nvidia0")}
ROOMY = 10**15


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_catalog.write(tmp_path)


def sweep(folder: Path, words: list[str], **changes: object) -> SweepConfig:
    frameworks = changes.pop("frameworks", ["pytorch", "onnxruntime"])
    assert isinstance(frameworks, list)
    return SweepConfig(
        name="test",
        frameworks=tuple(FrameworkChoice(name=f) if isinstance(f, str) else f for f in frameworks),
        operators=suites.chosen(words, load_operators(folder)),
        **{"hardware": ("cpu",), **changes},  # type: ignore[arg-type]
    )


def plan(config: SweepConfig, select: str | None = None, limit: int = ROOMY) -> Plan:
    return make_plan(config, SHIPPED, NO_GPU, select, usable_threads=4, memory_limit=limit)


def reasons(result: Plan) -> set[tuple[str, str, str]]:
    return {(c.state.value, c.reason.code, c.reason.text) for c in result.cells if c.state and c.reason}


def test_every_case_is_a_cell_of_every_column_in_its_own_precision(folder: Path) -> None:
    result = plan(sweep(folder, ["Add"]))
    cases = load_operators(folder).cases["Add"]
    found = {(c.workload.subject, c.workload.precision, c.environment.framework) for c in result.cells}
    assert found == {
        (case.case.name, case.precision, framework)
        for case in cases
        for framework in ("pytorch", "onnxruntime")
    }
    assert len(result.cells) == len(found)
    assert {c.workload.level for c in result.cells} == {OPERATOR}
    assert {c.workload.precision for c in result.cells} == {"fp32", "int32"}
    assert not any(c.timed for c in result.cells)


def test_precisions_batch_and_sequence_are_those_of_models_only(folder: Path) -> None:
    config = sweep(folder, ["Add/basic"], precisions=("bf16",), batch=(1, 8), sequence=(64,))
    assert {(c.workload.precision, c.workload.batch, c.workload.sequence) for c in plan(config).cells} == {
        ("fp32", 1, None),
        ("int32", 1, None),
    }


def test_models_and_operators_are_planned_together(folder: Path) -> None:
    config = sweep(folder, ["Add/basic"], models=(SHIPPED.models["distilbert_tiny"],))
    levels = [cell.workload.level for cell in plan(config).cells]
    assert levels == ["inference"] * 2 + [OPERATOR] * 4
    assert {c.timed for c in plan(config).cells if c.workload.level == "inference"} == {True}


def test_variants_and_threads_are_axes(folder: Path) -> None:
    choice = FrameworkChoice(name="pytorch", variants=["eager", "compile"])
    config = sweep(folder, ["MatMul/square"], frameworks=[choice], threads=(1, "all"))
    assert [(c.workload.threads, c.workload.variant) for c in plan(config).cells] == [
        (1, "eager"),
        (1, "compile"),
        (4, "eager"),
        (4, "compile"),
    ]


def test_a_column_that_is_named_twice_is_planned_once(folder: Path) -> None:
    both = FrameworkChoice(name="pytorch", variants=["eager", "compile"])
    config = sweep(folder, ["MatMul/square"], frameworks=["pytorch", both])
    cells = plan(config).cells
    assert [c.workload.variant for c in cells] == ["eager", "compile"]
    assert len({c.id for c in cells}) == len(cells)


def test_columns_that_cannot_be_say_why(folder: Path) -> None:
    result = plan(sweep(folder, ["Add/basic"], frameworks=["tensorrt"], hardware=("cpu", "nvidia")))
    assert {(state, code) for state, code, _ in reasons(result)} == {
        ("unsupported", "hardware"),
        ("unavailable", "no_device"),
    }
    assert result.estimate.minutes == 0


def test_a_framework_without_operators_is_unsupported(folder: Path) -> None:
    bare = SHIPPED.frameworks["pytorch"].model_copy(update={"levels": ["inference"]})
    known = dataclasses.replace(SHIPPED, frameworks={**SHIPPED.frameworks, "pytorch": bare})
    result = make_plan(sweep(folder, ["Add/basic"]), known, NO_GPU, usable_threads=4, memory_limit=ROOMY)
    states = {c.environment.framework: (c.state, c.reason.code if c.reason else "") for c in result.cells}
    assert states == {"pytorch": (State.UNSUPPORTED, "level"), "onnxruntime": (None, "")}


def test_a_case_that_does_not_fit_is_unavailable_and_says_both_numbers(folder: Path) -> None:
    result = plan(sweep(folder, ["MatMul"], frameworks=["pytorch"]), limit=10**9)
    ends = {c.workload.subject: c.reason for c in result.cells}
    assert ends["MatMul/square"] is None
    reason = ends["MatMul/huge"]
    assert reason is not None
    assert (reason.code, reason.text) == ("memory", "needs 75.8 GB with its copies, limit 1.0 GB")


def test_too_many_threads_are_not_run(folder: Path) -> None:
    result = plan(sweep(folder, ["Add/basic"], threads=(1, 4000)))
    assert {code for _, code, _ in reasons(result)} == {"threads"}


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        ('operator == "MatMul"', 4),
        ('subject == "MatMul/square"', 2),
        ('model == "MatMul/square" and framework == "pytorch"', 1),
        ('level == "operator" and precision == "int32"', 6),
        ('operator == "" or model == "Gelu/values"', 2),
    ],
)
def test_operator_cells_are_selected_by_their_fields(folder: Path, expression: str, count: int) -> None:
    assert len(plan(sweep(folder, ["standard"]), expression).cells) == count


def test_rules_reach_operator_cells(folder: Path) -> None:
    rule = Rule(select=selector('operator == "Add" and framework == "pytorch"'), required=True, xfail="")
    cells = plan(sweep(folder, ["Add/basic", "MatMul/square"], rules=(rule,))).cells
    assert {(c.workload.subject, c.environment.framework) for c in cells if c.required} == {
        ("Add/basic", "pytorch")
    }


def test_a_cell_is_read_back_as_it_was_planned(folder: Path) -> None:
    for cell in plan(sweep(folder, ["standard"]), limit=10**9).cells:
        assert from_plain(Cell, plain(cell)) == cell


def test_the_view_of_a_plan_and_its_estimate_have_them(folder: Path) -> None:
    result = plan(sweep(folder, ["standard"]))
    assert f"{len(result.cells)} cells" in plan_text(result)
    assert plan_json(result)["models"] == []
    assert 0 < result.estimate.launches_s < 60
    assert result.estimate.artefacts_s > 0
    assert result.estimate.to_make == ()


def test_ten_thousand_operator_cells_are_planned_with_few_objects(folder: Path) -> None:
    """This counts, so that it cannot depend on the machine's load; figures are the bench's."""
    config = sweep(
        folder,
        ["standard"],
        frameworks=[FrameworkChoice(name="pytorch", variants=["eager", "compile"]), "tensorrt"],
        hardware=("cpu", "nvidia"),
        threads=tuple(range(1, 65)),
    )
    result = plan(config)
    assert len(result.cells) > 10_000
    assert len({id(c.environment) for c in result.cells}) == 4
    assert len({id(c.reason) for c in result.cells if c.reason}) < len(result.cells) / 4
    assert not any("id" in vars(c) for c in result.cells), "hashes are made when they are asked for"
