"""Operator cases through the worker: prepared by the oracle, run in ONNX Runtime's own environment."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.environments.base import BuiltEnvironment
from matrix.execution.local import run_worker
from matrix_adapters import tensors
from matrix_adapters.operators import case_folder, elements
from matrix_adapters.protocol import (
    Measure,
    ModelSpec,
    Node,
    OperatorCase,
    Result,
    State,
    Task,
    TaskKind,
    TensorSpec,
    plain,
)

pytestmark = pytest.mark.real


def tensor(
    name: str, *shape: int, dtype: str = "float32", generator: str = "normal", **more: Any
) -> TensorSpec:
    constant, layout = more.pop("constant", False), more.pop("layout", "contiguous")
    return TensorSpec(
        name=name,
        dtype=dtype,
        shape=shape,
        generator=generator,
        options=more,
        constant=constant,
        layout=layout,
    )


def case(name: str, *inputs: TensorSpec, **more: Any) -> OperatorCase:
    op = name.partition("/")[0]
    outputs = more.pop("outputs", ("Y",))
    names = more.pop("names", tuple(spec.name for spec in inputs))
    node = Node(op=op, inputs=names, outputs=outputs, attributes=more.pop("attributes", {}))
    fields = {"dtype": inputs[0].dtype, "opset": 21} | more
    return OperatorCase(name=name, nodes=(node,), inputs=inputs, outputs=outputs, **fields)


GATES = {"hidden_size": 3}
CASES = (
    case(
        "Gelu/tanh", tensor("X", 64, generator="uniform", low=-6, high=6), attributes={"approximate": "tanh"}
    ),
    case("Tanh/half", tensor("X", 4, 5, dtype="float16")),
    case(
        "Conv/grouped",
        tensor("X", 1, 4, 6, 6),
        tensor("W", 4, 2, 3, 3, constant=True),
        attributes={"group": 2},
    ),
    case("Add/strides", tensor("X", 3, 4, layout="transposed"), tensor("B", 3, 4, layout="broadcast")),
    case("Add/wraps", tensor("X", 5, dtype="int32", generator="special"), names=("X", "X"), oracle="as-is"),
    case(
        "TopK/three",
        tensor("X", 2, 6, generator="permutation"),
        tensor("K", 1, dtype="int64", generator="values", values=[3], constant=True),
        outputs=("V", "I"),
    ),
    case(
        "LSTM/forward", tensor("X", 4, 2, 3), tensor("W", 1, 12, 3), tensor("R", 1, 12, 3), attributes=GATES
    ),
    case("IsNaN/special", tensor("X", 16, generator="special")),
    case("Relu/empty", tensor("X", 0, 3)),
    case("Transpose/bits", tensor("X", 2, 3, dtype="bfloat16"), attributes={"perm": [1, 0]}),
    case("Cast/bits", tensor("X", 8), attributes={"to": "bfloat16"}, oracle="as-is"),
)

#: no bfloat16 kernel; a size that ONNX Runtime refuses; an operator without an expected output
UNSUPPORTED = case("Relu/bits", tensor("X", 3, dtype="bfloat16"))
REFUSED = case("LRN/even", tensor("X", 1, 4, 2, 2), attributes={"size": 4})
RANDOM = case("Bernoulli/half", tensor("X", 3, generator="uniform"))
ILLEGAL = case("Celu/double", tensor("X", 3, dtype="float64"))

Prepare = Callable[..., tuple[Result, list[Path]]]
Lines = dict[int, dict[str, Any]]


@pytest.fixture
def prepare(run_task: Any, tmp_path: Path) -> Prepare:
    """Cases through the oracle, in PyTorch's environment: (result, folders)."""

    def run(*cases: OperatorCase) -> tuple[Result, list[Path]]:
        names = [str(i) for i in range(len(cases))]
        task = Task(
            kind=TaskKind.ORACLE,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            options={"cases": [plain(c) for c in cases], "folders": names},
        )
        result = run_task("pytorch", task, tmp_path / "oracle")
        return result, [tmp_path / "oracle" / name for name in names]

    return run


@dataclasses.dataclass
class WithToys:
    """A built environment in which an adapter of the test can be imported too."""

    built: BuiltEnvironment
    toys: Path

    def command(self, in_dir: Path, out_dir: Path) -> list[str]:
        return self.built.command(in_dir, out_dir)

    def environ(self) -> dict[str, str]:
        environ = dict(self.built.environ())
        environ["PYTHONPATH"] = os.pathsep.join([environ["PYTHONPATH"], str(self.toys)])
        return environ


def batch_task(folders: list[Path], adapter: str = "matrix_adapters.onnxruntime", first: int = 0) -> Task:
    return Task(
        kind=TaskKind.OPERATORS,
        framework="onnxruntime",
        adapter=adapter,
        options={"cases": [str(folder) for folder in folders], "first": first},
    )


def ended(out: Path) -> Lines:
    lines = [json.loads(line) for line in (out / "cases.jsonl").read_text().splitlines()]
    return {line["case"]: line for line in lines if "state" in line}


def test_diverse_cases_agree_with_the_oracle(prepare: Prepare, run_task: Any, tmp_path: Path) -> None:
    result, folders = prepare(*CASES)
    assert result.state is State.OK, result.reason
    assert result.artefacts["failed"] == {}
    result = run_task("onnxruntime", batch_task(folders), tmp_path / "batch")
    assert result.state is State.OK, result.reason
    lines = ended(tmp_path / "batch")
    for number, (made, folder) in enumerate(zip(CASES, folders, strict=True)):
        line = lines[number]
        assert line["state"] == "ok", (made.name, line["reason"])
        expected = case_folder.read(folder).expected
        assert expected is not None
        oracle = json.loads((folder / "oracle.json").read_text())["outputs"]
        assert line["outputs"] == oracle, made.name
        for name, array in tensors.load(tmp_path / "batch" / f"{number}.npz").items():
            got = elements.widened(array, oracle[name]["dtype"]).astype(np.float64)
            tolerance = 2e-3 if oracle[name]["dtype"] == "float16" else 2e-6
            np.testing.assert_allclose(got, expected[name], tolerance, tolerance, err_msg=made.name)


def test_cases_without_an_oracle_do_not_stop_the_others(
    prepare: Prepare, run_task: Any, tmp_path: Path
) -> None:
    result, folders = prepare(RANDOM, CASES[0], ILLEGAL)
    assert result.state is State.OK
    assert set(result.artefacts["failed"]) == {"0", "2"}
    codes = [case_folder.read(f).oracle.get("failed", {}).get("code") for f in (folders[0], folders[1])]
    assert codes == ["random", None]
    assert json.loads((folders[2] / "oracle.json").read_text())["failed"]["code"] == "illegal_case"
    run_task("onnxruntime", batch_task(folders), tmp_path / "batch")
    states = [line["state"] for line in ended(tmp_path / "batch").values()]
    assert states == ["ok", "ok", "failed"]  # what is random can be run; what is no model cannot


def test_what_onnx_runtime_has_no_kernel_for_is_unsupported_and_a_broken_file_failed(
    prepare: Prepare, run_task: Any, tmp_path: Path
) -> None:
    _, folders = prepare(UNSUPPORTED, REFUSED, CASES[0], CASES[1])
    (folders[3] / "model.onnx").write_bytes(b"no model")
    run_task("onnxruntime", batch_task(folders), tmp_path / "batch")
    lines = ended(tmp_path / "batch")
    assert [line["state"] for line in lines.values()] == ["unsupported", "failed", "ok", "failed"]
    assert "Could not find an implementation for Relu" in lines[0]["reason"]["text"]
    assert "size_ % 2 == 1 was false" in lines[1]["reason"]["text"]


DEADLY = """
import os, signal
from matrix_adapters import onnxruntime

class Adapter(onnxruntime.Adapter):
    def load(self, model, artefacts):
        if model.name == "Tanh/half":
            os.kill(os.getpid(), signal.SIGSEGV)
        if model.name == "Add/strides":
            raise KeyError("planted")
        return super().load(model, artefacts)
"""


def test_a_case_that_kills_the_process_costs_itself_only(
    prepare: Prepare, built: Callable[[str], BuiltEnvironment], tmp_path: Path
) -> None:
    _, folders = prepare(*CASES[:4])
    toys = tmp_path / "toys"
    toys.mkdir()
    (toys / "deadly.py").write_text(DEADLY)
    environment = WithToys(built("onnxruntime"), toys)
    launches = []
    for first in (0, 2):
        launch = tmp_path / f"launch{first}"
        task = batch_task(folders, "deadly", first)
        launches.append(run_worker(environment, task, launch, timeout_s=120, stall_s=120))
    assert launches[0].state is State.FAILED
    assert "SIGSEGV" in (launches[0].reason.text if launches[0].reason else "")
    lines = (tmp_path / "launch0" / "out" / "cases.jsonl").read_text().splitlines()
    assert json.loads(lines[-1]) == {"case": 1, "begin": True}
    assert ended(tmp_path / "launch0" / "out").keys() == {0}
    assert launches[1].state is State.OK
    rest = ended(tmp_path / "launch2" / "out")
    assert {number: line["state"] for number, line in rest.items()} == {2: "ok", 3: "failed"}
    assert "planted" in rest[3]["reason"]["text"]


def test_a_case_is_timed_like_a_model(prepare: Prepare, run_task: Any, tmp_path: Path) -> None:
    _, (folder,) = prepare(case("MatMul/small", tensor("X", 32, 32), tensor("B", 32, 32)))
    task = Task(
        kind=TaskKind.MEASURE,
        framework="onnxruntime",
        adapter="matrix_adapters.onnxruntime",
        precision="fp32",
        model=ModelSpec(
            name="MatMul/small", format="operator", task="operator", inputs=("X", "B"), outputs=("Y",)
        ),
        artefacts={"operator": str(folder)},
        inputs=str(folder / "inputs.npz"),
        measure=Measure(samples=3, max_steady_s=0.1, warmup_calls=1, max_warmup_s=0.1),
    )
    result = run_task("onnxruntime", task, tmp_path / "timed")
    assert result.state is State.OK, result.reason
    assert result.metrics["latency_ms"] > 0
    assert result.effective["output_dtypes"] == {"Y": "float32"}
    expected = case_folder.read(folder).expected
    assert expected is not None
    np.testing.assert_allclose(
        tensors.load(tmp_path / "timed" / "outputs.npz")["Y"], expected["Y"], rtol=1e-4, atol=1e-5
    )
