"""`matrix upgrade` around its measuring: what is refused before it, and what its exit code says after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison_runs import Imported, paired, record, write_run

from matrix import cli
from matrix.commands import upgrade
from matrix.consolidate.evidence import evidence_of
from matrix.errors import ExitCode
from matrix.records import Record
from matrix.store.formats import RunHeader
from matrix.sweep.outcome import SweepOutcome
from matrix_adapters.protocol import State

COMPARISON = {"base": ["onnxruntime-1.31.0-cpu"], "candidates": [["onnxruntime-1.32.0-cpu"]]}
ASKED = ("upgrade", "onnxruntime", "1.31.0", "1.32.0")


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def pair(base: State = State.OK, candidate: State = State.OK, factor: float = 1.0) -> list[Record]:
    values = zip((base, candidate), ("1.31.0", "1.32.0"), paired(factor), strict=True)
    return [
        record(version, latencies=ms if state is State.OK else (), state=state)
        for state, version, ms in values
    ]


def measured(
    made: Imported, monkeypatch: pytest.MonkeyPatch, records: Sequence[Record], **ended: Any
) -> None:
    """An upgrade whose measuring left these records."""
    folder = write_run(made.results, "nightly", records, comparison=COMPARISON)
    facts = {"outcome": "complete", "exit_code": ExitCode.OK, "states": {}, **ended}
    outcome = SweepOutcome(folder=folder, run="nightly", **facts)
    monkeypatch.setattr(upgrade, "_measured", lambda *_: outcome)


@pytest.mark.parametrize("candidate", [State.BUILD_FAILED, State.NOT_RUN, State.OK])
@pytest.mark.parametrize("fail_on", ["regressed,incorrect,missing", "none"])
def test_a_base_that_never_worked_is_not_completed_and_no_pass(
    made: Imported, monkeypatch: pytest.MonkeyPatch, candidate: State, fail_on: str
) -> None:
    measured(made, monkeypatch, pair(State.BUILD_FAILED, candidate))
    code, _, err = made.run(*ASKED, "--fail-on", fail_on)
    assert code == 3 and "nothing could be compared: no cell of the base is ok" in err


def test_a_verdict_of_fail_on_goes_before_that(made: Imported, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(made, monkeypatch, pair(State.BUILD_FAILED, State.BUILD_FAILED))
    assert made.run(*ASKED, "--fail-on", "build_failed")[0] == 1


def test_an_upgrade_that_is_no_worse_ends_with_zero_and_says_where_its_page_is(
    made: Imported, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(made, monkeypatch, pair())
    code, _, err = made.run(*ASKED)
    assert code == 0 and "comparison.html" in err and "nothing could be compared" not in err


def test_an_interrupted_upgrade_says_how_to_go_on_in_a_way_that_a_shell_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Imported(tmp_path / "my results", capsys)
    measured(made, monkeypatch, pair(), outcome="interrupted", exit_code=ExitCode.INTERRUPTED)
    code, _, err = made.run(*ASKED)
    assert code == 130 and f"matrix upgrade --resume nightly --results '{made.results}'" in err


@pytest.mark.parametrize(
    ("outcome", "comparison", "said"),
    [
        ("budget_spent", COMPARISON, "`matrix upgrade --resume ab` goes on"),
        ("budget_spent", {}, "`matrix run --resume ab` goes on"),
        ("complete", COMPARISON, "it runs beside the other side of its pair, which did not work"),
    ],
)
def test_a_cell_that_was_not_run_names_the_command_that_goes_on(
    outcome: Any, comparison: dict[str, Any], said: str
) -> None:
    header = RunHeader(id="ab", created="", sweep="s", seed=1, planned=2, outcome=outcome)
    header = header.model_copy(update={"comparison": comparison})
    assert said in evidence_of(header, {}, {}, lambda _: (), lambda *_: None).stopped.text


def test_where_to_write_is_checked_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr(upgrade, "_measured", measured)
    wanted = str(tmp_path / "nowhere" / "report.html")
    assert cli.main(["upgrade", "onnxruntime", "1.31.0", "1.32.0", "-o", wanted]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_another_backend_cannot_be_asked_for_when_going_on(made: Imported) -> None:
    write_run(made.results, "nightly", pair(), comparison=COMPARISON)
    code, _, err = made.run("upgrade", "--resume", "nightly", "--backend", "docker")
    assert code == 2 and "goes on with an upgrade as it was planned" in err
