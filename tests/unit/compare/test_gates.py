"""A gate that is open by mistake is worse than none: what was not compared never passes unsaid."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import pytest
from comparison_runs import Imported, cells, samples, verdicts

from matrix.compare import fail_on
from matrix.errors import UsageError


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_an_empty_list_of_words_is_a_mistake_and_no_gate_that_never_closes(text: str) -> None:
    with pytest.raises(UsageError, match="write none to never fail"):
        fail_on.parse(text)


@pytest.mark.parametrize("text", ["none,regressed", "missing, NONE"])
def test_none_goes_with_no_other_word(text: str) -> None:
    with pytest.raises(UsageError, match="none goes with no other word"):
        fail_on.parse(text)


def test_a_cell_that_is_ok_is_no_reason_to_fail() -> None:
    with pytest.raises(UsageError, match="no word is 'ok'"):
        fail_on.parse("ok")


def test_none_alone_never_fails() -> None:
    assert fail_on.parse(" None ") == ()


def test_a_metric_that_neither_side_has_cannot_be_gated_on(made: Imported) -> None:
    made.add(samples())
    code, out, err = made.run("compare", "run:old", "run:new", "--metric", "load_s")
    assert (code, out) == (2, "") and "--metric load_s: neither side has a value of it" in err


def test_a_metric_without_a_margin_asks_for_one(made: Imported) -> None:
    made.add(samples(metric="loss_gap"))
    code, _, err = made.run("compare", "run:old", "run:new", "--metric", "loss_gap")
    assert code == 2 and "--margin loss_gap=0.05" in err


def test_one_of_several_metrics_is_enough(made: Imported) -> None:
    made.add(samples())
    code, answer = made.compare("run:old", "run:new", "--metric", "load_s", "--metric", "latency_ms")
    assert code == 0 and len(answer["cells"]) == 3


def test_a_size_of_the_control_that_moved_says_nothing_of_the_machine(made: Imported) -> None:
    only = lambda side, work: 1.3 if side == "new" and work == "control" else 1.0  # noqa: E731
    size = samples(workloads=("control",), metric="peak_memory_bytes", level=1e8, noise=0.001, only=only)
    slow = samples(only=lambda side, work: 1.1 if (side, work) == ("new", "a") else 1.0)
    made.add([*slow, *samples(workloads=("control",), seed=5), *size])
    code, answer = made.compare("run:old", "run:new")
    assert code == 1 and verdicts(answer)["a"] == "regressed"
    assert answer["summary"]["instrument"]["problems"] == []


def test_the_control_counts_whatever_metric_was_asked_for(made: Imported) -> None:
    times = samples({"old": 1.0, "new": 1.12}, metric="load_s")
    made.add([*times, *samples({"old": 1.0, "new": 1.12}, ("control",))])
    code, answer = made.compare("run:old", "run:new", "--metric", "load_s")
    assert code == 0 and set(verdicts(answer, "load_s").values()) == {"inconclusive"}


@pytest.mark.parametrize(("has", "name"), [("old", "base"), ("new", "candidate")])
def test_a_control_on_one_side_only_is_told(made: Imported, has: str, name: str) -> None:
    made.add([*samples(), *samples({has: 1.0}, ("control",))])
    warnings = made.compare("run:old", "run:new")[1]["summary"]["warnings"]
    assert warnings == [f"only the {name} has the control: nobody knows whether the machine moved"]


def test_that_the_machine_moved_is_said_once(made: Imported) -> None:
    made.add(samples({"old": 1.0, "new": 1.12}, ("a", "b", "c", "control")))
    (problem,) = made.compare("run:old", "run:new")[1]["summary"]["instrument"]["problems"]
    assert problem.startswith("common shift +")


def test_one_block_without_a_counterpart_is_told_in_the_singular(made: Imported) -> None:
    rows = [r for r in samples() if (r["environment"], r["workload"], r["block"]) != ("new", "a", 3)]
    made.add(rows)
    warnings = made.compare("run:old", "run:new")[1]["summary"]["warnings"]
    assert warnings == ["1 block in 1 row is on one side only: it counts for nothing"]


def test_what_no_number_of_blocks_would_settle_says_so(made: Imported) -> None:
    made.add(samples(noise=0.01))
    found = cells(made.compare("run:old", "run:new", "--margin", "latency_ms=1e-9")[1])
    assert "only a wider margin would settle it" in found["a"]["reason"]


def test_what_is_missing_is_a_failed_test_case_whatever_fails_the_command(made: Imported) -> None:
    made.add([r for r in samples() if (r["environment"], r["workload"]) != ("new", "a")])
    _, out, _ = made.run("compare", "run:old", "run:new", "--format", "junit", "--fail-on", "none")
    failed = {
        case.get("classname") for case in ET.fromstring(out).iter("testcase") if case.findall("failure")
    }
    assert failed == {"a"}


def test_a_command_that_is_suggested_can_be_pasted_into_a_shell(made: Imported) -> None:
    made.add(samples({"old one": 1.0, "old one@aa": 1.0, "new $x": 1.0}))
    code, _, err = made.run("compare", "run")
    assert code == 2 and "(matrix compare 'run:old one' 'run:new $x')" in err


def test_a_list_of_environments_stays_readable(made: Imported) -> None:
    made.add(samples({f"v{i}": 1.0 for i in range(300)}, ("a",), blocks=1))
    for arguments in (["run:v999", "run:v1"], ["run", "run"], ["run"], ["run:v1", "run:v1"]):
        code, _, err = made.run("compare", *arguments)
        assert code == 2 and "v19 and 280 more" in err


def test_the_history_of_chosen_cells_does_not_say_that_nothing_was_measured(made: Imported) -> None:
    made.add(samples())
    assert "in the cells chosen" in made.run("history", "--select", 'model == "nowhere"')[1]
    assert "one machine" not in made.run("history")[1]  # a file names none


def test_two_runs_do_not_claim_what_they_could_have_seen(made: Imported) -> None:
    made.add(samples({"old": 1.0}), "monday")
    made.add(samples({"old": 1.0}, seed=1), "tuesday")
    assert "Could have been seen" not in made.run("compare", "monday:old", "tuesday:old")[1]


def test_text_of_a_parquet_file_that_is_not_marked_as_text_is_read_as_such(made: Imported) -> None:
    path = made.folder / "bytes.parquet"
    rows = "FROM (VALUES ('v1'), ('v2')) t(name), range(4) b(n)"
    columns = "encode(name) environment, 'a' workload, 'latency_ms' metric, n block, 0 launch, 1.5 AS value"
    duckdb.sql(f"COPY (SELECT {columns} {rows}) TO '{path}' (FORMAT parquet)")
    assert made.run("import", str(path), "--name", "bytes")[0] == 0
    assert verdicts(made.compare("bytes:v1", "bytes:v2")[1]) == {"a": "no worse"}


def test_bytes_that_are_no_text_are_refused(made: Imported) -> None:
    path = made.folder / "bytes.parquet"
    columns = "'\\xff'::BLOB environment, 'a' workload, 'latency_ms' metric, 0 block, 0 launch, 1.5 AS value"
    duckdb.sql(f"COPY (SELECT {columns}) TO '{path}' (FORMAT parquet)")
    code, _, err = made.run("import", str(path), "--name", "bytes")
    assert code == 2 and "is no UTF-8 text" in err
