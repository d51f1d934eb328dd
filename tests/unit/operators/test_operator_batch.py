"""Many cases in one launch, against toy adapters: each case answers for itself, whatever another does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters import protocol, tensors
from matrix_adapters.operators import batch, case_folder, elements, generators
from matrix_adapters.protocol import (
    Node,
    OperatorCase,
    Result,
    State,
    Task,
    TaskKind,
    TensorSpec,
    from_json,
    to_json,
)

ADAPTERS = Path(protocol.__file__).parents[1]

#: y = -x, with a fault where the case's name says so
TOY = """
import os, signal
import numpy as np
from matrix_adapters.adapter import Unavailable, Unsupported

class Adapter:
    name = "toy"
    environment = {}
    started = 0
    def __init__(self, task): self.task = task
    def start(self): Adapter.started += 1
    def probe(self): return {"version": "1.2"}
    def load(self, model, artefacts):
        assert model.format == "operator" and (artefacts["operator"] / "case.json").exists()
        does = model.name.partition("/")[2]
        if does == "unsupported": raise Unsupported("no mapping for Neg")
        if does == "raises": raise RuntimeError("planted at load")
        if does == "dies": os.kill(os.getpid(), signal.SIGKILL)
        return Runner(self.task, does, model.outputs)

class Runner:
    def __init__(self, task, does, outputs): self.task, self.does, self.outputs = task, does, outputs
    def prepare(self, feed):
        self.fed = feed["X"]
        return feed
    def compile(self, feed): return True
    def run(self, feed):
        if self.does == "run-raises": raise ZeroDivisionError("planted in the call")
        if self.does == "no-memory": raise MemoryError("planted")
        if self.does == "writes": feed["X"][...] = 0
        return -feed["X"]
    def sync(self): pass
    def fetch(self, outputs):
        if self.does == "list": return [outputs]
        if self.does == "bits": return {"Y": np.array([1.0, -2.0, np.inf, np.nan], np.float32)}
        if self.does == "no-bits": return {"Y": np.array([0.1], np.float32)}
        return {"Y": outputs}
    def effective(self):
        facts = {"device": "cuda:0" if self.does == "elsewhere" else "cpu", "started": Adapter.started}
        if self.does == "strides": facts["strides"] = self.fed.strides
        if "bits" in self.does: facts["output_dtypes"] = {"Y": "bfloat16"}
        return facts
    def close(self):
        if self.does == "close": raise OSError("planted at close")
"""


def prepared(folder: Path, name: str, layout: str = "contiguous") -> str:
    spec = TensorSpec(name="X", dtype="float32", shape=(2, 3), layout=layout)
    case = OperatorCase(
        name=name,
        dtype="float32",
        nodes=(Node(op="Neg", inputs=("X",), outputs=("Y",)),),
        inputs=(spec,),
        outputs=("Y",),
        opset=21,
    )
    case_folder.write_case(folder, case, generators.case_inputs(case))
    return str(folder)


class Lab:
    """A folder of cases and workers that run them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        for name in ("in", "out", "toys"):
            (folder / name).mkdir()
        (folder / "toys" / "toy.py").write_text(TOY)
        self.result: Result | None = None
        self.code: int | None = None

    def run(
        self, *names: str, first: int = 0, folders: list[str] | None = None, **fields: Any
    ) -> list[dict[str, Any]]:
        """The lines of cases.jsonl after one launch over cases of these names."""
        if folders is None:
            folders = [prepared(self.folder / f"case{i}", f"Neg/{name}") for i, name in enumerate(names)]
        task = Task(
            kind=TaskKind.OPERATORS,
            framework="toy",
            adapter="toy",
            options={"cases": folders, "first": first},
            **fields,
        )
        (self.folder / "in" / "task.json").write_text(to_json(task))
        result_file = self.out / "result.json"
        result_file.unlink(missing_ok=True)
        path = os.pathsep.join([str(ADAPTERS), str(self.folder / "toys")])
        self.code = subprocess.run(
            [sys.executable, "-P", "-m", "matrix_adapters.worker", str(self.folder / "in"), str(self.out)],
            env={**os.environ, "PYTHONPATH": path},
            check=False,
            timeout=120,
        ).returncode
        self.result = from_json(Result, result_file.read_text()) if result_file.exists() else None
        lines = (
            (self.out / batch.CASES_FILE).read_text().splitlines() if self.result is None or folders else []
        )
        return [json.loads(line) for line in lines]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def ended(lines: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {line["case"]: line for line in lines if "state" in line}


def test_each_case_has_a_line_at_its_begin_and_one_at_its_end(lab: Lab) -> None:
    lines = lab.run("a", "b")
    assert lines[0]["versions"]["toy"] == "1.2"  # known although the process may not live to its end
    assert [(line["case"], "begin" in line) for line in lines[1:]] == [
        (0, True),
        (0, False),
        (1, True),
        (1, False),
    ]
    assert lab.result is not None
    assert lab.result.state is State.OK
    assert lab.result.versions["toy"] == "1.2"
    last = lines[-1]
    assert last["state"] == "ok"
    assert last["reason"] is None
    assert last["outputs"] == {"Y": {"dtype": "float32", "shape": [2, 3]}}
    assert last["effective"]["device"] == "cpu"
    assert 0 < last["seconds"] < 60
    given = tensors.load(lab.folder / "case1" / "inputs.npz")["X"]
    np.testing.assert_array_equal(tensors.load(lab.out / "1.npz")["Y"], -given)


def test_the_framework_is_started_once_for_all(lab: Lab) -> None:
    lines = lab.run("a", "b", "c")
    assert [line["effective"]["started"] for line in ended(lines).values()] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "state", "code", "words"),
    [
        ("unsupported", "unsupported", "unsupported", "no mapping for Neg"),
        ("raises", "failed", "load_failed", "planted at load"),
        ("run-raises", "failed", "call_failed", "planted in the call"),
        ("no-memory", "oom", "framework_oom", "planted"),
        ("writes", "failed", "inputs_changed", "wrote into its inputs: X"),
        ("list", "failed", "adapter_contract", "non-empty mapping"),
        ("no-bits", "failed", "adapter_contract", "said to be bfloat16"),
    ],
)
def test_a_case_that_goes_wrong_is_charged_alone(
    lab: Lab, name: str, state: str, code: str, words: str
) -> None:
    lines = ended(lab.run("a", name, "b"))
    assert [lines[i]["state"] for i in range(3)] == ["ok", state, "ok"]
    assert lines[1]["reason"]["code"] == code
    assert words in lines[1]["reason"]["text"]
    assert lines[1]["outputs"] == {}
    assert lab.result is not None
    assert lab.result.state is State.OK
    assert not (lab.out / "1.npz").exists()


def test_a_runner_that_cannot_be_closed_has_answered_all_the_same(lab: Lab) -> None:
    lines = ended(lab.run("close"))
    assert lines[0]["state"] == "ok"


def test_what_kills_the_process_costs_itself_only(lab: Lab) -> None:
    names = ("a", "dies", "b")
    lines = lab.run(*names)
    assert lab.code == -signal.SIGKILL
    assert lab.result is None
    assert ended(lines).keys() == {0}
    assert lines[-1] == {"case": 1, "begin": True}  # the case in hand
    folders = [str(lab.folder / f"case{i}") for i in range(3)]
    lines = lab.run(first=2, folders=folders)
    assert ended(lines)[2]["state"] == "ok"
    assert lab.result is not None
    assert lab.result.state is State.OK


def test_bfloat16_is_kept_as_bits_under_its_name(lab: Lab) -> None:
    lines = ended(lab.run("bits"))
    assert lines[0]["outputs"]["Y"] == {"dtype": "bfloat16", "shape": [4]}
    kept = tensors.load(lab.out / "0.npz")["Y"]
    assert kept.dtype == np.uint16
    assert kept.tolist()[:3] == [0x3F80, 0xC000, 0x7F80]
    assert np.isnan(elements.from_bits(kept)[3])


def test_another_device_than_asked_answers_no_case(lab: Lab) -> None:
    lines = lab.run("elsewhere", "a")
    assert lab.result is not None
    assert lab.result.state is State.UNAVAILABLE
    assert "cpu asked, cuda:0 used" in (lab.result.reason.text if lab.result.reason else "")
    assert not ended(lines)


def test_the_adapter_sees_the_strides_of_the_case(lab: Lab) -> None:
    folder = prepared(lab.folder / "case", "Neg/strides", "transposed")
    lines = ended(lab.run(folders=[folder]))
    assert lines[0]["effective"]["strides"] == [4, 8]
    assert lines[0]["state"] == "ok"


def test_a_folder_that_is_not_there_fails_its_case(lab: Lab) -> None:
    good = prepared(lab.folder / "good", "Neg/a")
    lines = ended(lab.run(folders=[str(lab.folder / "gone"), good]))
    assert [line["state"] for line in lines.values()] == ["failed", "ok"]
    assert "case.json" in lines[0]["reason"]["text"]


@pytest.mark.parametrize("options", [{"cases": "all"}, {"cases": [], "first": 1}, {"cases": [], "first": -1}])
def test_options_that_are_none_fail_the_launch(lab: Lab, options: dict[str, Any]) -> None:
    task = Task(kind=TaskKind.OPERATORS, framework="toy", adapter="toy", options=options)
    with pytest.raises(ValueError, match="needs options `cases`"):
        batch._options(task)
