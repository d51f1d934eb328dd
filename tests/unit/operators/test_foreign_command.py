"""`matrix operators`: a wrong command is told what is wrong with it before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.cli import main
from matrix.commands import operators
from matrix.errors import ExitCode
from matrix.report.operators.foreign import Change, Changes, Passes, Summary
from matrix_adapters.protocol import State


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["onnx-tests"], "say in which framework"),
        (["onnx-tests", "pytorch"], "cannot run the ONNX project's backend node tests"),
        (["onnx-tests", "onnxruntim"], "did you mean"),
        (["onnx-tests", "onnxruntime", "newest"], "is no version"),
        (["onnx-tests", "onnxruntime", "--hardware", "cuda"], "no hardware is called"),
        (["onnx-tests", "onnxruntime", "--resume", "latest"], "--resume continues a run as it was planned"),
        (["opinfo", "onnxruntime"], "cannot run PyTorch's OpInfo samples"),
        (["candidates", "latest", "--share", "m"], "write MODEL=SHARE"),
        (["candidates", "latest", "--share", "m=2"], "write MODEL=SHARE"),
    ],
)
def test_a_wrong_command_is_told_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code = main(["operators", *arguments, "--results", str(tmp_path)])
    shown = capsys.readouterr()
    assert code == ExitCode.USAGE, shown
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert list(tmp_path.iterdir()) == []


def passes(**states: int) -> Passes:
    counted = {State(name): count for name, count in states.items()}
    total = sum(counted.values())
    return Passes(environment="toy", total=total, passed=states.get("ok", 0), open=0, states=counted, why=())


def changes(*failing: str) -> Changes:
    listed = tuple(Change(test=test, before="ok", after="failed", reason="") for test in failing)
    return Changes(base="a", candidate="b", newly_failing=listed, newly_passing=(), no_longer_run=())


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Summary(source="", passes=(passes(ok=3, unsupported=2),), changes=()), ExitCode.OK),
        (Summary(source="", passes=(passes(ok=3, failed=1),), changes=()), ExitCode.VERDICT),
        (Summary(source="", passes=(passes(ok=3, incorrect=1),) * 2, changes=(changes(),)), ExitCode.OK),
        (Summary(source="", passes=(passes(ok=3),) * 2, changes=(changes("A/1"),)), ExitCode.VERDICT),
        (Summary(source="", passes=(passes(unsupported=2),), changes=()), ExitCode.INCOMPLETE),
    ],
)
def test_the_exit_code_is_a_gate(found: Summary, code: ExitCode) -> None:
    assert operators._code(found) == code
