"""The command line against what nobody should type, and against streams that are gone."""

from __future__ import annotations

import argparse
import errno
import io
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from toy_sweep import ToySweep

from matrix import cli
from matrix.cli import main
from matrix.commands import run
from matrix.commands.progress import observer_for
from matrix.commands.shared import load_catalog
from matrix.errors import ExitCode, StorageError, UsageError
from matrix.select import selector
from matrix.store.runs import RunStore, StoredRun
from matrix.sweep.observer import Progress
from matrix_adapters.protocol import State

LONG = "a" * 5000


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one finished toy run."""
    sweep = ToySweep(tmp_path_factory.mktemp("toy"), models=["good"], launches=1)
    return sweep.run().folder.parent


def code_of(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # argparse
        return int(str(ended.code))


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "-c", LONG],
        ["plan", "-c", f"{LONG}.yaml"],
        ["plan", "-c", "~nobody-of-this-name/sweep.yaml"],
        ["plan", "-c", "a\0b.yaml"],
        ["report", LONG],
        ["report", "--results", LONG],
        ["report", "--results", "~nobody-of-this-name/runs"],
        ["run", "--resume", LONG],
        ["run", f"--budget={'9' * 400}h"],
        ["run", "--budget=٣m"],
        ["run", "--seed=-1"],
        ["plan", "--select", "not " * 1500 + "(batch == 1)"],
        ["clean", "--older-than=-1"],
        ["clean", "--older-than=nan"],
        ["clean", "--framework", "nosuch"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40].replace("\0", "NUL"),
)
def test_a_hostile_argument_is_a_short_message_and_exit_code_2(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(tmp_path / "home"))
    assert code_of(arguments) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "Traceback" not in said.err and said.err
    assert len(said.err) < 1200


@pytest.mark.parametrize("home", [LONG, "~nobody-of-this-name/cache"])
def test_a_cache_folder_that_is_no_path_is_a_usage_error(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", home)
    assert main(["plan"]) == ExitCode.USAGE
    assert "FRAMEWORK_MATRIX_HOME" in capsys.readouterr().err


def test_a_current_folder_that_was_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["report"]) == ExitCode.USAGE
    assert "current folder" in capsys.readouterr().err


def test_an_expression_as_deep_as_people_write_them_still_works() -> None:
    deep = "batch == 1 and not (" * 41 + "batch == 2" + ")" * 41
    assert selector(deep)({"batch": 1}) is True
    with pytest.raises(UsageError, match="nested too deeply"):
        selector("not " * 150 + "(batch == 1)")


@pytest.mark.parametrize("environment", ["nosuch", "onnxruntime-9.9-cpu"])
def test_an_environment_the_run_has_not_is_an_error_that_lists_what_it_has(
    results: Path, environment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", f"latest:{environment}", "--results", str(results)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert "it has toy" in said.err and said.out == ""


@pytest.mark.parametrize("target", [".", "nowhere/report.txt"])
def test_an_output_that_cannot_be_written_is_named_as_it_was_typed(
    results: Path,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--results", str(results), "-o", target]) == ExitCode.USAGE
    assert str((tmp_path / target).absolute().parent).split("/")[-1] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_pipe_given_as_output_is_written_to_and_stays_a_pipe(results: Path, tmp_path: Path) -> None:
    """`-o /dev/stdout`, or /dev/null as root: replacing the node would break the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert main(["report", "--results", str(results), "-o", str(pipe)]) == ExitCode.OK
        assert "good" in (reader.communicate(timeout=30)[0])
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_link_given_as_output_is_followed(results: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    link.symlink_to(real)
    assert main(["report", "--results", str(results), "-o", str(link)]) == ExitCode.OK
    assert link.is_symlink() and real.read_text(encoding="utf-8")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    line = command.replace("MATRIX", f"{sys.executable} -m matrix")
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_an_output_device_that_is_full_is_said_and_is_no_verdict(results: Path) -> None:
    done = shell(f"MATRIX report --results {results} >/dev/full")
    assert done.returncode == ExitCode.INCOMPLETE
    assert "standard output: No space left" in done.stderr and "Traceback" not in done.stderr


def test_closed_streams_are_no_crash(results: Path) -> None:
    done = shell(f"MATRIX report --results {results} >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert shell("MATRIX report nothing 2>&-").returncode == ExitCode.USAGE


def test_a_defect_is_no_verdict_and_asks_for_a_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_args: object) -> int:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("matrix.commands.plan.execute", broken)
    assert cli.main(["plan"]) == ExitCode.INCOMPLETE
    said = capsys.readouterr().err
    assert "please report it" in said and "planted" in said


def test_a_wrong_choice_of_an_option_gets_no_command_as_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of(["report", "--format", "x"]) == ExitCode.USAGE
    assert "did you mean" not in capsys.readouterr().err


def test_resume_with_another_backend_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--resume", "latest", "--backend", "docker", "--results", str(results)]) == 2
    assert "--backend docker" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["table", "markdown", "html", "csv", "json", "svg", "junit"])
def test_every_format_prints_in_a_locale_that_knows_ascii_only(results: Path, kind: str) -> None:
    line = [sys.executable, "-m", "matrix", "report", "--results", str(results), "--format", kind]
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(line, capture_output=True, check=False, timeout=60, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode("utf-8")
    assert "good" in shown and (kind == "table" or "\\x" not in shown)


def test_a_disk_that_is_full_when_reports_are_written_still_shows_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> list[Path]:
        raise StorageError("disk full at reports")

    monkeypatch.setattr(run, "write_all", full)
    sweep = ToySweep(tmp_path, models=["good"], launches=1)
    outcome = sweep.run()
    assert outcome.exit_code == ExitCode.OK
    store = SimpleNamespace(
        folder=outcome.folder, header=sweep.stored().header, reader=lambda: StoredRun(outcome.folder)
    )
    code = run._show(argparse.Namespace(json=False), outcome, cast(RunStore, store), load_catalog())
    said = capsys.readouterr()
    assert code == ExitCode.INCOMPLETE and "disk full at reports" in said.err
    assert "1 ok" in said.out


class Gone(io.StringIO):
    """A terminal that was closed: every write fails as the kernel lets it fail."""

    def isatty(self) -> bool:
        return True

    def write(self, _text: str, /) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_progress_on_a_terminal_that_was_closed_ends_nothing(tmp_path: Path) -> None:
    with observer_for(Gone()) as observer:
        observer.say("something")
        observer.show(Progress(stage="memory", label="x", done=1, total=2, state=State.FAILED, reason="y"))
        outcome = ToySweep(tmp_path, models=["good"], launches=1).run(observer=observer)
    assert outcome.exit_code == ExitCode.OK


@pytest.mark.parametrize("code", [ExitCode.VERDICT, ExitCode.INTERRUPTED, ExitCode.INCOMPLETE])
def test_a_reader_that_is_gone_hides_no_failure_of_the_run(
    code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Gone())
    assert run._tell("the matrix", [], code) == code
    with pytest.raises(OSError, match="Input/output"):
        run._tell("the matrix", [], ExitCode.OK)
