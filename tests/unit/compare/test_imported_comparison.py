"""From a file of samples to an exit code: what was planted is found, and nothing else."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from comparison_runs import COLUMNS, Imported, cells, samples, verdicts, write_csv


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def slow(which: str, factor: float) -> Any:
    return lambda environment, workload: factor if (environment, workload) == ("new", which) else 1.0


def test_a_planted_regression_is_found_and_fails_the_command(made: Imported) -> None:
    made.add(samples(only=slow("b", 1.10)))
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    assert verdicts(answer) == {"a": "no worse", "b": "regressed", "c": "no worse"}
    found = cells(answer)["b"]
    assert found["effect"] == pytest.approx(0.10, abs=0.01)
    assert found["low"] < found["effect"] < found["high"]
    assert found["log_effect"] == pytest.approx(math.log1p(found["effect"]))
    assert found["n"] == 12 and found["unit"] == "ms" and found["margin"] == 0.03
    assert answer["summary"]["failing"] == {"regressed": 1}
    assert "ms -> " in found["sentence"] and "95 % interval" in found["sentence"]


def test_a_planted_improvement_is_found_and_fails_nothing(made: Imported) -> None:
    made.add(samples(only=slow("b", 0.80)))
    code, answer = made.compare("run:old", "run:new")
    assert code == 0
    assert verdicts(answer) == {"a": "no worse", "b": "improved", "c": "no worse"}
    assert cells(answer)["b"]["effect"] == pytest.approx(-0.20, abs=0.01)


def test_nothing_planted_is_certified_with_what_could_have_been_seen(made: Imported) -> None:
    made.add(samples())
    code, answer = made.compare("run:old", "run:new")
    assert code == 0
    assert set(verdicts(answer).values()) == {"no worse"}
    assert all(0 < cell["mde"] < 0.03 for cell in cells(answer).values())


def test_swapped_sides_negate_every_effect_exactly(made: Imported) -> None:
    made.add(samples(only=slow("b", 1.10)))
    there, back = made.compare("run:old", "run:new")[1], made.compare("run:new", "run:old")[1]
    mirror = {"regressed": "improved", "improved": "regressed"}
    for name, cell in cells(there).items():
        other = cells(back)[name]
        assert other["log_effect"] == -cell["log_effect"]
        assert (other["log_low"], other["log_high"]) == (-cell["log_high"], -cell["log_low"])
        if cell["verdict"] in mirror:
            assert other["verdict"] == mirror[cell["verdict"]]
    means = [answer["summary"]["geometric_mean"][0]["ratio"] for answer in (there, back)]
    assert means[0] * means[1] == pytest.approx(1.0)


def test_the_order_of_rows_and_the_labels_of_blocks_mean_nothing(made: Imported) -> None:
    rows = samples(only=slow("b", 1.10))
    made.add(rows, "plain")
    shuffled = [{**row, "block": f"block {row['block'] * 7 % 12}"} for row in rows]
    random.Random(3).shuffle(shuffled)
    made.add(shuffled, "shuffled")
    results = [cells(made.compare(f"{name}:old", f"{name}:new")[1]) for name in ("plain", "shuffled")]
    for name, cell in results[0].items():
        numbers = ("effect", "low", "high", "base", "candidate", "mde", "verdict")
        assert [cell[n] for n in numbers] == [results[1][name][n] for n in numbers]


@pytest.mark.parametrize(("unit", "factor"), [("us", 1e3), ("s", 1e-3), ("ns", 1e6), ("µs", 1e3)])
def test_units_are_converted_and_change_no_verdict(made: Imported, unit: str, factor: float) -> None:
    rows = samples(only=slow("b", 1.10))
    made.add(rows, "ms")
    other = [{**row, "value": row["value"] * factor, "unit": unit} for row in rows]
    made.add(other, "other", (*COLUMNS, "unit"))
    plain, converted = (cells(made.compare(f"{n}:old", f"{n}:new")[1]) for n in ("ms", "other"))
    for name, cell in plain.items():
        assert converted[name]["verdict"] == cell["verdict"]
        assert converted[name]["base"] == pytest.approx(cell["base"])
        assert converted[name]["effect"] == pytest.approx(cell["effect"], rel=1e-9)


def test_units_may_be_mixed_within_one_file(made: Imported) -> None:
    rows = [
        {**row, "value": row["value"] / 1e3, "unit": "s"}
        if row["environment"] == "new"
        else {**row, "unit": ""}
        for row in samples()
    ]
    made.add(rows, columns=(*COLUMNS, "unit"))
    assert set(verdicts(made.compare("run:old", "run:new")[1]).values()) == {"no worse"}


def test_throughput_that_falls_is_worse_and_latency_that_falls_is_better(made: Imported) -> None:
    rows = samples(metric="throughput_items_s", only=slow("a", 0.80))
    rows += samples(metric="latency_ms", only=slow("a", 0.80), seed=1)
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    assert cells(answer, "throughput_items_s")["a"]["verdict"] == "regressed"
    assert cells(answer, "throughput_items_s")["a"]["effect"] == pytest.approx(0.25, abs=0.01)
    assert cells(answer, "latency_ms")["a"]["verdict"] == "improved"
    assert "x0.80" in cells(answer, "throughput_items_s")["a"]["sentence"]


def test_throughput_of_a_file_is_judged_by_itself_not_by_its_latency(made: Imported) -> None:
    made.add(samples() + samples(metric="throughput_items_s", only=slow("a", 0.80), seed=1))
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    assert cells(answer)["a"]["verdict"] == "no worse"
    assert cells(answer, "throughput_items_s")["a"]["verdict"] == "regressed"


def test_several_samples_of_a_launch_are_one_median_and_launches_of_a_block_one_mean(made: Imported) -> None:
    rows = [
        {"environment": e, "workload": "w", "metric": "latency_ms", "block": b, "launch": k, "value": v}
        for e in ("old", "new")
        for b in range(6)
        for k, values in enumerate([[1.0, 2.0, 90.0], [4.0]])
        for v in values
    ]
    made.add(rows)
    _, answer = made.compare("run:old", "run:new")
    assert cells(answer)["w"]["base"] == pytest.approx(3.0)  # mean of the medians 2 and 4


def test_everything_that_shifts_with_the_control_is_one_line_and_no_verdict(made: Imported) -> None:
    made.add(samples({"old": 1.0, "new": 1.12}, ("a", "b", "c", "control")))
    code, answer = made.compare("run:old", "run:new")
    assert code == 0
    assert set(verdicts(answer).values()) == {"inconclusive"}
    assert "control" not in verdicts(answer)
    summary = answer["summary"]
    assert summary["common_shift"] == pytest.approx(0.12, abs=0.02)
    assert summary["instrument"]["control_effect"] == pytest.approx(0.12, abs=0.02)
    assert any("common shift +1" in problem for problem in summary["instrument"]["problems"])


def test_a_shift_that_the_control_does_not_share_is_a_regression(made: Imported) -> None:
    rows = samples({"old": 1.0, "new": 1.12}) + samples(workloads=("control",), seed=4)
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    assert set(verdicts(answer).values()) == {"regressed"}


def test_the_baseline_against_itself_takes_verdicts_back_when_it_alarms(made: Imported) -> None:
    names = tuple("abcdefgh")
    made.add(samples({"old": 1.0, "old@aa": 1.08, "new": 1.08}, names))
    code, answer = made.compare("run:old", "run:new")
    assert code == 0
    assert answer["summary"]["instrument"]["aa_rows"] == len(names)
    assert answer["summary"]["instrument"]["aa_alarms"] == len(names)
    assert set(verdicts(answer).values()) == {"inconclusive"}
    assert all("A/A" in cell["reason"] for cell in cells(answer).values())


def test_a_quiet_baseline_against_itself_lets_verdicts_stand(made: Imported) -> None:
    made.add(samples({"old": 1.0, "old@aa": 1.0, "new": 1.08}, tuple("abcdefgh")))
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    assert answer["summary"]["instrument"]["aa_alarms"] <= 1
    assert set(verdicts(answer).values()) == {"regressed"}


def test_the_arm_itself_can_be_compared(made: Imported) -> None:
    made.add(samples({"old": 1.0, "old@aa": 1.0}))
    code, answer = made.compare("run:old", "run:old@aa")
    assert code == 0 and set(verdicts(answer).values()) == {"no worse"}
    assert answer["summary"]["instrument"]["aa_rows"] == 0, "no sample is evidence of itself"


def test_a_cell_that_is_gone_is_missing_and_a_new_one_is_not(made: Imported) -> None:
    rows = [
        row for row in samples() if (row["environment"], row["workload"]) not in (("new", "a"), ("old", "b"))
    ]
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    assert code == 1
    found = cells(answer)
    assert (found["a"]["verdict"], found["a"]["missing"]) == ("not comparable", True)
    assert (found["b"]["verdict"], found["b"]["missing"]) == ("not comparable", False)
    assert found["a"]["reason"] and found["b"]["reason"]
    assert answer["summary"]["failing"] == {"missing": 1}
    assert made.compare("run:old", "run:new", "--fail-on", "regressed")[0] == 0


def test_without_common_blocks_nothing_is_decided(made: Imported) -> None:
    rows = [
        {**row, "block": row["block"] + (100 if row["environment"] == "new" else 0)}
        for row in samples({"old": 1.0, "new": 1.5})
    ]
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    assert code == 0
    assert set(verdicts(answer).values()) == {"inconclusive"}
    assert all("not interleaved" in cell["reason"] for cell in cells(answer).values())


def test_blocks_of_one_side_only_are_left_out_and_that_is_said(made: Imported) -> None:
    rows = [row for row in samples() if (row["environment"], row["block"]) != ("new", 3)]
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    assert code == 0 and {cell["n"] for cell in cells(answer).values()} == {11}
    assert answer["summary"]["warnings"] == [
        "3 blocks in 3 rows are on one side only: they count for nothing"
    ]


def test_what_was_imported_is_said_as_json_too(made: Imported) -> None:
    path = write_csv(made.folder / "x.csv", samples())
    code, out, _ = made.run("import", str(path), "--name", "x", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["samples"] == 72 and answer["environments"] == ["old", "new"]
    assert answer["workloads"] == ["a", "b", "c"] and answer["metrics"] == ["latency_ms"]


def test_two_runs_show_an_effect_and_no_verdict(made: Imported) -> None:
    made.add(samples({"old": 1.0}), "first")
    made.add(samples({"new": 1.5}), "second")
    code, answer = made.compare("first", "second")
    assert code == 0
    for cell in cells(answer).values():
        assert cell["verdict"] == "inconclusive"
        assert cell["reason"].startswith("not interleaved: ")
        assert cell["low"] < cell["effect"] < cell["high"]
        assert cell["effect"] == pytest.approx(0.5, abs=0.1)
        assert cell["layout"] == "separate-runs"


def test_a_size_of_zero_is_a_reason_and_no_crash(made: Imported) -> None:
    rows = samples(metric="peak_device_memory_bytes", workloads=("a",))
    rows = [{**row, "value": 0 if row["environment"] == "old" else row["value"]} for row in rows]
    made.add(rows)
    code, answer = made.compare("run:old", "run:new")
    found = cells(answer, "peak_device_memory_bytes")["a"]
    assert code == 0
    assert found["verdict"] == "not comparable"
    assert "above zero" in found["reason"]


def test_margins_can_be_set_and_make_a_verdict_of_a_metric_that_has_none(made: Imported) -> None:
    made.add(samples(only=slow("a", 1.04)) + samples(metric="loss_gap", only=slow("a", 1.5), seed=1))
    code, answer = made.compare("run:old", "run:new")
    assert code == 1 and cells(answer, "loss_gap") == {}
    assert answer["summary"]["metrics_without_margin"] == ["loss_gap"]
    code, answer = made.compare("run:old", "run:new", "--margin", "latency_ms=10%")
    assert code == 0 and cells(answer)["a"]["verdict"] == "no worse"
    code, answer = made.compare(
        "run:old", "run:new", "--margin", "latency_ms=0.1", "--margin", "loss_gap=0.2"
    )
    assert code == 1 and cells(answer, "loss_gap")["a"]["verdict"] == "regressed"


def test_metric_and_select_choose_rows(made: Imported) -> None:
    made.add(samples() + samples(metric="import_s", seed=1))
    _, answer = made.compare("run:old", "run:new", "--metric", "import_s", "--select", "model in ['a', 'c']")
    assert {(cell["workload"], cell["metric"]) for cell in answer["cells"]} == {
        ("a", "import_s"),
        ("c", "import_s"),
    }


def test_an_imported_run_is_shown_and_asked_like_any_other(made: Imported) -> None:
    made.add(samples())
    for report_format in ("table", "markdown", "html", "csv", "json", "junit", "svg"):
        code, out, err = made.run("report", "run", "--format", report_format)
        assert code == 0, err
        assert "old" in out and "batch 0" not in out and "0 threads" not in out
    code, out, _ = made.run("query", "SELECT count(*) AS n, min(value) > 1 AS sane FROM metrics")
    assert code == 0 and "6  True" in out
    code, out, _ = made.run("report", "run:new")
    assert code == 0 and "old" not in out


def test_a_terminal_is_not_flooded_with_reasons_and_all_has_them(made: Imported) -> None:
    """Twenty workloads, each noisy in its own way: no two reasons are the same."""
    rows = samples(workloads=[f"w{i}" for i in range(20)], noise=0.2)
    made.add(rows)
    short = made.run("compare", "run:old", "run:new")[1]
    whole = made.run("compare", "run:old", "run:new", "--all")[1]
    assert "more reasons: --all, or the reports, have them" in short
    assert whole.count("not precise enough") > short.count("not precise enough") >= 10
    assert "more reasons" not in whole
