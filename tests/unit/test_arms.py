"""Both arms of every cell, the base against itself, a control; and the pairs they make."""

from __future__ import annotations

import dataclasses

import pytest

from matrix import catalog
from matrix.arms import ABPlan, Arm, Pair, ab_plan, pairs_of
from matrix.config.sweep import sweep_from_data
from matrix.plan import Plan, make_plan
from matrix.records import AA, CONTROL
from matrix_adapters.protocol import State


def plan(**more: object) -> Plan:
    data = {
        "name": "t",
        "frameworks": [{"name": "onnxruntime", "versions": ["1.31.0"]}],
        "models": ["resnet50", "distilbert", "gpt2"],
        "hardware": ["cpu"],
        **more,
    }
    known = catalog.load()
    return make_plan(sweep_from_data(data, known, "t"), known, {})


def arms(base: Arm, *candidates: Arm, seed: int = 0, **more: object) -> tuple[ABPlan, tuple[Pair, ...]]:
    made = ab_plan(plan(**more), base, candidates, seed=seed)
    return made, pairs_of(made.cells, made.comparison)


OLD, NEW = Arm(version="1.31.0"), Arm(version="1.32.0")


def test_every_workload_is_paired_with_every_candidate_and_has_a_control() -> None:
    other = Arm(version="1.32.0", changes=("numpy=2.2.0",))
    made, pairs = arms(OLD, NEW, other)
    by_name: dict[str, list[str]] = {}
    for pair in pairs:
        assert pair.base.environment.name == "onnxruntime-1.31.0-cpu"
        assert pair.base.workload == pair.candidate.workload
        by_name.setdefault(pair.name, []).append(pair.base.workload.subject)
    models = ["distilbert", "gpt2", "resnet50"]
    assert sorted(by_name["onnxruntime-1.32.0-cpu"]) == sorted([*models, CONTROL])
    assert sorted(by_name["onnxruntime-1.32.0-cpu-numpy=2.2.0"]) == sorted([*models, CONTROL])
    assert len(by_name["onnxruntime-1.31.0-cpu@aa"]) == 1
    assert made.comparison["base"] == ["onnxruntime-1.31.0-cpu"]
    assert made.comparison["candidates"] == [
        ["onnxruntime-1.32.0-cpu"],
        ["onnxruntime-1.32.0-cpu-numpy=2.2.0"],
    ]


def test_a_version_against_itself_is_measured_as_two_arms() -> None:
    made, pairs = arms(OLD, OLD)
    assert {pair.name for pair in pairs} == {"onnxruntime-1.31.0-cpu@aa"}
    assert {pair.candidate.arm for pair in pairs} == {AA}
    assert len(pairs) == 4, "three models and the control"
    assert made.comparison["candidates"] == [["onnxruntime-1.31.0-cpu@aa"]]


def test_two_variants_of_one_environment_are_two_arms_matched_by_workload() -> None:
    frameworks = [{"name": "pytorch", "versions": ["2.13.0"]}]
    base, candidate = Arm(version="2.13.0", variant="eager"), Arm(version="2.13.0", variant="compile")
    _, pairs = arms(base, candidate, frameworks=frameworks)
    real = [pair for pair in pairs if not pair.is_aa and not pair.is_control]
    assert {(pair.base.workload.variant, pair.candidate.workload.variant) for pair in real} == {
        ("eager", "compile")
    }
    assert {pair.name for pair in real} == {"pytorch-2.13.0-cpu@compile"}
    assert len({pair.candidate.id for pair in pairs} | {pair.base.id for pair in pairs}) == 3 + 3 + 1 + 2


def test_cells_that_cannot_run_keep_their_state_and_get_no_control() -> None:
    made, _ = arms(OLD, NEW, hardware=["nvidia"])
    assert {cell.state for cell in made.cells} == {State.UNAVAILABLE}
    assert len(made.cells) == 6


def test_workloads_measured_against_themselves_are_drawn_from_the_seed() -> None:
    drawn = set()
    for seed in range(12):
        first, again = (
            [p.base.workload.subject for p in arms(OLD, NEW, seed=seed)[1] if p.is_aa] for _ in range(2)
        )
        assert first == again
        drawn.update(first)
    assert len(drawn) > 1


@pytest.mark.parametrize("change", ["version", "changes"])
def test_ids_of_cells_tell_the_arms_apart(change: str) -> None:
    candidate = NEW if change == "version" else dataclasses.replace(OLD, changes=("env:X=1",))
    made, _ = arms(OLD, candidate)
    assert len({cell.id for cell in made.cells}) == len(made.cells) == 3 + 3 + 1 + 2
