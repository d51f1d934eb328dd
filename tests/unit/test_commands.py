"""What a user types and what comes back: messages, exit codes, formats."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from toy_sweep import ToySweep

from matrix.cli import main
from matrix.errors import ExitCode


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished toy run: one ok cell, one incorrect one."""
    sweep = ToySweep(tmp_path_factory.mktemp("toy"), models=["good", "wrong"], launches=1)
    return sweep.run().folder.parent


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_bare_call_explains_itself_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys)
    assert code == ExitCode.USAGE
    assert "exit codes: 0 all well" in out


def test_a_mistyped_command_gets_the_nearest_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "matrix", "rnu"], capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.USAGE
    assert "did you mean 'run'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["plan", "-c", "qiuck"], "quick"),
        (["plan", "-c", "missing.yaml"], "missing.yaml"),
        (["plan", "--select", "modle == 'gpt2'"], "model"),
        (["plan", "--select", "model == 'resnet5'"], "resnet50"),
        (["plan", "--select", "model =="], "--select"),
        (["run", "--resume", "nothing"], "no run"),
        (["run", "--resume", "latest", "--seed", "3"], "--resume"),
        (["run", "--name", "a/b"], "--name"),
        (["report", "nothing"], "no run"),
        (["query", "SELECT 1"], "no runs"),
    ],
)
def test_a_users_mistake_is_a_message_with_a_hint_and_exit_code_2(
    arguments: list[str],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = said(capsys, *arguments)
    assert code == ExitCode.USAGE
    assert hint in err
    assert "Traceback" not in err and out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["0", "5", "-5", "soon", "1h 3x", ""])
def test_a_budget_that_is_no_duration_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--budget={text}"])
    assert ended.value.code == ExitCode.USAGE
    assert "write 90s, 20m or 1h30m" in capsys.readouterr().err


def test_the_plan_as_json_holds_every_cell_with_its_state(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "plan", "--json")
    plan = json.loads(out)
    assert code == 0
    assert all(c["state"] in ("", None, "unavailable", "unsupported") for c in plan["cells"])
    assert {c["environment"]["framework"] for c in plan["cells"]} >= {"pytorch", "tensorflow", "onnxruntime"}


@pytest.mark.parametrize("form", ["table", "markdown", "html", "csv", "json", "junit", "svg"])
def test_every_format_of_a_stored_run_shows_both_cells(
    form: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, "report", "--results", str(results), "--format", form)
    assert code == 0
    assert "good" in out and "wrong" in out


def test_a_report_can_be_written_to_a_file(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.csv"
    code, out, err = said(
        capsys, "report", "latest", "--results", str(results), "--format", "csv", "-o", str(target)
    )
    assert (code, out) == (0, "")
    assert str(target) in err
    assert {row["subject"] for row in csv.DictReader(io.StringIO(target.read_text()))} == {"good", "wrong"}


def test_one_cell_cannot_stand_twice_in_one_matrix(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "report", "latest", "latest", "--results", str(results))
    assert code == ExitCode.USAGE
    assert "two of these runs hold the cell" in err


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_stored_runs_answer_in_sql(form: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT model, state FROM cells ORDER BY model"
    code, out, _ = said(capsys, "query", sql, "--results", str(results), "--format", form)
    assert code == 0
    assert "incorrect" in out
    if form == "json":
        assert json.loads(out) == [{"model": "good", "state": "ok"}, {"model": "wrong", "state": "incorrect"}]


def test_sql_cannot_read_other_files(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "query", "SELECT * FROM read_text('/etc/passwd')", "--results", str(results))
    assert code == ExitCode.USAGE
    assert "root:" not in err


def test_the_catalog_lists_what_a_sweep_can_name(capsys: pytest.CaptureFixture[str]) -> None:
    names = json.loads(said(capsys, "catalog", "--json")[1])
    assert {f["framework"] for f in names["frameworks"]} >= {
        "pytorch",
        "tensorflow",
        "onnxruntime",
        "tensorrt",
    }
    assert {"distilbert", "distilbert_tiny"} <= {m["model"] for m in names["models"]}
    assert "quick" in said(capsys, "catalog")[1]


def test_clean_lists_and_removes_nothing_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(tmp_path))
    (tmp_path / "artefacts" / "checkpoints" / "half").mkdir(parents=True)
    code, _, _ = said(capsys, "clean")
    assert code == 0
    assert (tmp_path / "artefacts" / "checkpoints" / "half").exists()


def test_a_closed_pipe_is_no_error_of_ours(results: Path) -> None:
    command = f"{sys.executable} -m matrix report --results {results} --format csv | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout.count("\n") == 1
