"""The history of a metric: planted steps are told, noise is not, and a hint is no verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison_runs import MACHINE, Imported, record, samples, write_run

from matrix.catalog import load
from matrix.history import Point, steps
from matrix_adapters.protocol import State

LATENCY = load().metrics["latency_ms"]


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def points(values: Sequence[float | None], spread: float = 0.01) -> list[Point]:
    return [
        Point(
            run=f"r{i}",
            name="",
            created=f"2026-11-{i + 1:02}",
            version=f"1.{i}",
            state=State.OK if value else State.FAILED,
            value=value,
            low=value * (1 - spread) if value else None,
            high=value * (1 + spread) if value else None,
        )
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([10, 10.1, 9.9, 10, 12, 12.1, 11.9, 12], [("r4", 0.2)]),
        ([10, 10.1, 9.9, 10, 8, 8.1, 7.9], [("r4", -0.2)]),
        ([10, 10, 12, 12, 12, 9, 9, 9], [("r2", 0.2), ("r5", -0.25)]),
        ([10, 10.1, 9.9, 10, 10.05, 9.95], []),
        ([10, 10, 10, 15, 10, 10, 10], []),  # one bad run is no step
        ([10, 10, 10, 12], []),  # and one run alone is not known to stay
        ([10, 10.1, 10.2, 10.1], []),  # apart, and too small to matter
        ([10, None, 10, 12, None, 12], [("r3", 0.2)]),
        ([], []),
        ([10], []),
        ([0.0, 0.0, 1.0, 1.0], []),
    ],
)
def test_a_step_is_told_where_it_was_planted(values: Any, told: list[tuple[str, float]]) -> None:
    found = steps(points(values), LATENCY)
    assert [(step.run, round(step.change, 3)) for step in found] == told


def test_ranges_that_touch_are_no_step() -> None:
    assert steps(points([10, 10, 10, 12, 12, 12], spread=0.15), LATENCY) == ()


def test_runs_of_one_machine_make_a_series_and_others_are_left_out(made: Imported) -> None:
    for day, ms in enumerate((10.0, 10.1, 13.0, 13.1)):
        records = [record(f"1.{30 + day}.0", "resnet50", [ms, ms * 1.001])]
        write_run(made.results, f"day{day}", records, created=f"2026-11-0{day + 1}T00:00:00Z")
    other = {**MACHINE, "identity": "another"}
    write_run(
        made.results, "away", [record("1.31.0", "resnet50", [99.0])], created="2026-10-01", machine=other
    )
    code, out, _ = made.run("history", "--json")
    found = json.loads(out)
    assert code == 0 and found["left_out"] == 1 and found["runs"] == 4
    (series,) = found["series"]
    assert (series["environment"], series["workload"]) == ("onnxruntime-cpu", "resnet50 b1 fp32 1t")
    assert [point["version"] for point in series["points"]] == ["1.30.0", "1.31.0", "1.32.0", "1.33.0"]
    (step,) = series["steps"]
    assert step["run"] == "day2" and step["change"] == pytest.approx(0.3, abs=0.01)
    code, out, _ = made.run("history")
    assert code == 0 and "+29.9 % in day2 (1.32.0)" in out and "left out" in out and "verdict" not in out


def test_a_cell_that_failed_is_a_gap_and_no_number(made: Imported) -> None:
    write_run(made.results, "a", [record("1.31.0", "resnet50", [10.0])], created="2026-11-01")
    write_run(made.results, "b", [record("1.32.0", "resnet50", state=State.OOM)], created="2026-11-02")
    code, out, _ = made.run("history")
    assert code == 0 and "oom" in out and "@x" not in out and "+x" in out


def test_imported_runs_have_a_history(made: Imported) -> None:
    for i, factor in enumerate((1.0, 1.0, 1.5, 1.5)):
        made.add(samples({"mine": factor}, ("w",), seed=i, noise=0.001), f"n{i}")
    code, out, _ = made.run("history", "--select", "model == 'w'")
    assert code == 0 and "mine" in out and "in 20" in out


def test_a_damaged_run_hides_no_other(made: Imported) -> None:
    write_run(made.results, "good", [record("1.31.0", "resnet50", [10.0])])
    for name in ("header", "cells"):
        write_run(made.results, name, [record("1.31.0", "resnet50", [10.0])])
    (made.results / "header" / "run.json").write_text("{")
    (made.results / "cells" / "cells.jsonl").write_text("{}\n")
    code, out, err = made.run("history", "--json")
    assert code == 0 and json.loads(out)["runs"] == 2
    assert err.count("left out") == 2


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--metric", "latency"], "latency_ms"),
        (["--select", "modle == 'x'"], "model"),
        (["nothing"], "no run"),
    ],
)
def test_a_mistake_is_a_message(made: Imported, arguments: list[str], hint: str) -> None:
    write_run(made.results, "good", [record("1.31.0", "resnet50", [10.0])])
    code, _, err = made.run("history", *arguments)
    assert code == 2 and hint in err


def test_no_runs_is_a_message_and_no_value_is_said(made: Imported) -> None:
    assert made.run("history")[0] == 2
    write_run(made.results, "good", [record("1.31.0", "resnet50", [10.0])])
    code, out, _ = made.run("history", "--metric", "ttft_ms")
    assert code == 0 and "no stored run has a value of ttft_ms" in out
