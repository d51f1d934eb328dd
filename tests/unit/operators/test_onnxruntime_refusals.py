"""What ONNX Runtime's kernels say they cannot do is told from what fails; no ONNX Runtime needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from matrix_adapters.adapter import Unsupported
from matrix_adapters.onnxruntime_operator import runner
from matrix_adapters.protocol import ModelSpec, Task, TaskKind

_STATUS = "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running GRU node."


class Value:
    name, type = "X", "tensor(float)"


class Result(Value):
    name = "Y"


class Session:
    """Raises an exception of that class and message at every call; answers where there is none."""

    def __init__(self, kind: str = "", message: str = "") -> None:
        self.error = type(kind, (Exception,), {})(message) if kind else None

    def get_inputs(self) -> list[Any]:
        return [Value]

    def get_outputs(self) -> list[Any]:
        return [Result]

    def run(self, names: list[str], feed: dict[str, Any]) -> list[Any]:
        if self.error is not None:
            raise self.error
        return [feed["X"] for _ in names]


def call(session: Session) -> dict[str, np.ndarray]:
    task = Task(kind=TaskKind.OPERATORS, framework="onnxruntime", adapter="matrix_adapters.onnxruntime")
    spec = ModelSpec(name="GRU/case", format="operator", task="operator", outputs=("Y",))
    made = runner(session, spec, task, None)
    return made.fetch(made.run(made.prepare({"X": np.ones(2, np.float32)})))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            "RuntimeException",
            f"{_STATUS} Name:'GRU_Y' Status Message: GRU operator does not support double yet",
        ),
        ("NotImplemented", "Could not find an implementation for Erf(13) node with name ''"),
        ("Fail", "this attribute is not supported"),
    ],
)
def test_what_a_kernel_says_it_does_not_do_is_unsupported_in_its_words(kind: str, message: str) -> None:
    with pytest.raises(Unsupported, match=r"^ONNX Runtime: ") as caught:
        call(Session(kind, message))
    assert message[-20:] in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("RuntimeException", f"{_STATUS} Status Message: indices element out of data bounds"),
        ("InvalidGraph", "This is an invalid model: type 'tensor(bfloat16)' is not supported here"),
    ],
)
def test_other_errors_stay_what_they_are(kind: str, message: str) -> None:
    with pytest.raises(Exception, match=message[-20:]) as caught:
        call(Session(kind, message))
    assert type(caught.value).__name__ == kind


def test_a_session_that_answers_is_passed_through() -> None:
    assert call(Session())["Y"].tolist() == [1, 1]
