"""Two versions of a framework on the same operator cases: what changed is told, what did not is quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from comparison_runs import Imported, cells, parity, record, write_run

from matrix.records import OPERATOR, LaunchRecord, Parity, ReasonRecord, Record
from matrix_adapters.protocol import State

CASE = "Gelu/tanh fp32 1t"


def checked(version: str, *, ulps: float = 1.0, state: State = State.OK, **changes: Any) -> Record:
    launch = LaunchRecord(cell="c", purpose="check", block=0, state=state)
    verdict: Parity | None = parity(1e-7, floor=None, max_ulps=ulps, **changes.pop("parity", {}))
    return record(
        version, "Gelu/tanh", level=OPERATOR, state=state, launches=(launch,), parity=verdict, **changes
    )


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def compared(made: Imported, old: Record, new: Record) -> tuple[int, dict[str, Any]]:
    write_run(made.results, "ops", [old, new])
    return made.compare("ops:onnxruntime-1.31.0-cpu", "ops:onnxruntime-1.32.0-cpu")


def test_a_case_that_is_right_on_both_sides_is_no_worse_and_nothing_was_missed(made: Imported) -> None:
    code, answer = compared(made, checked("1.31.0"), checked("1.32.0", ulps=2.0))
    assert code == 0
    assert cells(answer, "state") == {}
    assert cells(answer, "parity")[CASE]["verdict"] == "no worse"
    assert cells(answer, "parity")[CASE]["reason"] == ""


def test_a_case_that_became_wrong_is_regressed(made: Imported) -> None:
    reason = ReasonRecord(code="tolerance", text="an error of 1e-3 at Y[0]")
    new = checked("1.32.0", ulps=9000, state=State.INCORRECT, reason=reason)
    code, answer = compared(made, checked("1.31.0"), new)
    assert code == 1
    assert cells(answer, "state")[CASE]["verdict"] == "regressed"
    assert "an error of 1e-3 at Y[0]" in cells(answer, "state")[CASE]["reason"]


def test_an_error_that_grew_is_told_in_units_of_the_last_place(made: Imported) -> None:
    _, answer = compared(made, checked("1.31.0", ulps=0.5), checked("1.32.0", ulps=30.0))
    assert cells(answer, "parity")[CASE]["reason"] == "the error grew from 0.5 to 30 ulp"


def test_another_answer_where_the_standard_leaves_it_open_is_told(made: Imported) -> None:
    other = {"passed": False, "failure": "Y[0] is nan where the answer is 42"}
    _, answer = compared(made, checked("1.31.0"), checked("1.32.0", parity=other))
    assert "answers otherwise where the standard leaves it open" in cells(answer, "parity")[CASE]["reason"]
    assert cells(answer, "parity")[CASE]["verdict"] == "no worse"


def test_cases_are_selected_by_their_operator(made: Imported) -> None:
    write_run(made.results, "ops", [checked("1.31.0"), checked("1.32.0"), record("1.31.0"), record("1.32.0")])
    sides = ("ops:onnxruntime-1.31.0-cpu", "ops:onnxruntime-1.32.0-cpu")
    _, answer = made.compare(*sides, "--select", 'operator == "Gelu"')
    assert {cell["workload"] for cell in answer["cells"] if cell["metric"] in ("parity", "state")} == {CASE}
