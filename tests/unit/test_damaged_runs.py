"""Run folders that were damaged, cut short or tampered with: no cell vanishes, nothing is followed out."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_sweep import ToySweep

from matrix.cli import main
from matrix.consolidate.stored import records_of
from matrix.errors import ExitCode, StorageError
from matrix.store.runs import RunStore, StoredRun
from matrix_adapters.protocol import State


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of two cells."""
    return ToySweep(tmp_path_factory.mktemp("toy"), models=["good", "wrong"], launches=1).run().folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(finished, tmp_path / "results" / finished.name))


def change(path: Path, edit: Callable[[list[str]], list[str]]) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(edit(lines)), encoding="utf-8")


@pytest.mark.parametrize(
    "edit",
    [
        lambda _: [],
        lambda lines: lines[:1],
        lambda lines: [*lines[:1], lines[1][:-20]],
        lambda lines: lines + lines[:1],
        lambda lines: [lines[0], lines[0]],
    ],
    ids=["empty", "one gone", "torn", "one more", "one twice"],
)
def test_a_plan_that_lost_or_gained_cells_is_an_error_never_a_smaller_run(
    run: Path, edit: Callable[[list[str]], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    header = (run / "run.json").read_bytes()
    change(run / "plan.jsonl", edit)
    with pytest.raises(StorageError, match="2 cells were planned"):
        StoredRun(run).cells()
    with pytest.raises(StorageError, match=r"plan\.jsonl is damaged"):
        RunStore.open(run)
    assert main(["run", "--resume", "latest", "--results", str(run.parent)]) == ExitCode.INCOMPLETE
    assert "plan.jsonl is damaged" in capsys.readouterr().err
    assert (run / "run.json").read_bytes() == header  # nothing was begun


@pytest.mark.parametrize("edit", [lambda _: [], lambda lines: lines[:1]], ids=["empty", "one gone"])
def test_records_that_lost_cells_are_made_afresh_from_the_attempts(
    run: Path, edit: Callable[[list[str]], list[str]]
) -> None:
    whole = [record.model_dump() for record in records_of(StoredRun(run))]
    change(run / "cells.jsonl", edit)
    assert not StoredRun(run).is_consolidated()
    assert [record.model_dump() for record in records_of(StoredRun(run))] == whole
    assert {record["state"] for record in whole} == {State.OK, State.INCORRECT}


def test_a_missing_plan_is_no_empty_run(run: Path) -> None:
    (run / "plan.jsonl").unlink()
    with pytest.raises(StorageError, match="it holds 0"):
        StoredRun(run).cells()


@pytest.mark.parametrize("name", ["run.json", "attempts.jsonl"])
def test_a_file_nested_without_end_is_damaged_not_a_crash(
    run: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (run / name).open("ab" if name.endswith("l") else "wb") as stream:
        stream.write(b"[" * 100_000 + b"\n" + b'{"kind": "launch"}\n')
    assert main(["report", "--results", str(run.parent)]) == ExitCode.INCOMPLETE
    said = capsys.readouterr().err
    assert "is damaged" in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("word", "said"), [('"good"', "the plan has a model"), ('"framework":"toy"', "there is no framework")]
)
def test_a_plan_of_another_sweep_is_broken_off_with_all_its_cells(
    run: Path, word: str, said: str, tmp_path: Path
) -> None:
    change(run / "plan.jsonl", lambda lines: [line.replace(word, word[:-2] + 'x"') for line in lines])
    sweep = ToySweep(tmp_path / "other", models=["good", "wrong"], launches=1)
    with RunStore.open(run) as store:
        outcome = sweep.run(store=store)
    assert outcome.exit_code == ExitCode.INCOMPLETE
    assert said in str(outcome.error)
    assert sum(outcome.states.values()) == 2


def test_samples_are_never_unpickled_nor_read_from_outside_the_run(run: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "exploded",))  # type: ignore[return-value]

    launch = next(
        launch
        for cell in StoredRun(run).cells()
        for launch in StoredRun(run).attempts().launches(cell.id)
        if launch.samples
    )
    (run / str(launch.samples)).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StorageError, match="holds no arrays"):
        StoredRun(run).samples(launch)
    assert not (tmp_path / "exploded").exists()
    outside = launch.model_copy(update={"samples": "../../../../etc/passwd"})
    with pytest.raises(StorageError, match="not in the run's folder"):
        StoredRun(run).samples(outside)


def test_the_header_says_how_many_cells_there_are(run: Path) -> None:
    header = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert header["planned"] == len(re.findall("\n", (run / "plan.jsonl").read_text(encoding="utf-8"))) == 2
