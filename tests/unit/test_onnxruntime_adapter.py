"""The ONNX Runtime adapter against a stand-in that behaves like its GPU build, in both bad ways."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters import onnxruntime as adapter_module
from matrix_adapters.adapter import Unavailable
from matrix_adapters.protocol import ModelSpec, Task, TaskKind

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class Session:
    """Answers with fixed providers, one float input `x` and one output `y`."""

    def __init__(self, providers: list[str], options: Any, nodes: dict[str, int]) -> None:
        self.providers, self.options, self.nodes = providers, options, nodes
        self.ran = 0

    def get_providers(self) -> list[str]:
        return self.providers

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {CUDA: {"device_id": "0", "use_tf32": self.options.tf32}, CPU: {}}

    def get_session_options(self) -> Any:
        return self.options

    def get_inputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="x", type="tensor(float)")]

    def get_outputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="y", type="tensor(float)")]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return [
            types.SimpleNamespace(ep_name=name, get_nodes=lambda n=count: [None] * n)
            for name, count in self.nodes.items()
        ]

    def run(self, outputs: Any, feed: Any) -> list[np.ndarray]:
        self.ran += 1
        return [feed["x"]]


class Options:
    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.tf32 = "?"

    def add_session_config_entry(self, key: str, value: str) -> None:
        self.entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        return self.entries[key]


def stand_in(how: str, nodes: dict[str, int] | None = None) -> Any:
    """`onnxruntime` of a GPU build: `works`, falls back quietly, or raises."""
    module = types.ModuleType("onnxruntime")
    sessions: list[Session] = []

    def session(model: Any, options: Options, providers: list[Any]) -> Session:
        strict = options.entries.get("session.disable_cpu_ep_fallback") == "1"
        if how == "raises" or (how == "raises when strict" and strict):
            raise RuntimeError("libcublasLt.so.13: cannot open shared object file\nsecond line")
        options.tf32 = next((p[1]["use_tf32"] for p in providers if isinstance(p, tuple)), "?")
        late = how == "quiet for the model" and not isinstance(model, bytes)
        active = [CPU] if how == "quiet" or late else [CUDA, CPU]
        sessions.append(Session(active, options, nodes or {CUDA: 3}))
        return sessions[-1]

    module.__dict__.update(
        __version__="1.31.1",
        InferenceSession=session,
        SessionOptions=Options,
        sessions=sessions,
        ExecutionMode=types.SimpleNamespace(ORT_SEQUENTIAL=0),
        GraphOptimizationLevel=types.SimpleNamespace(ORT_ENABLE_ALL=types.SimpleNamespace(name="all")),
        get_available_providers=lambda: ["TensorrtExecutionProvider", CUDA, CPU],
    )
    return module


def start(monkeypatch: pytest.MonkeyPatch, module: Any, **task: Any) -> adapter_module.Adapter:
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    kind = {"kind": TaskKind.MEASURE, "framework": "onnxruntime", "adapter": "a", "device": "cuda"}
    adapter = adapter_module.Adapter(Task(**(kind | task)))
    adapter.start()
    return adapter


def load(adapter: adapter_module.Adapter) -> adapter_module.OnnxRuntimeRunner:
    return adapter.load(ModelSpec(name="m", format="onnx", task="onnx"), {"onnx": Path("m.onnx")})


@pytest.mark.parametrize("how", ["quiet", "raises", "raises when strict"])
def test_both_shapes_of_a_failed_provider_end_as_the_same_reason(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    with pytest.raises(Unavailable) as caught:
        start(monkeypatch, stand_in(how))
    assert str(caught.value).startswith(f"provider {CUDA} requested, {CPU} active (onnxruntime 1.31.1")
    assert "second line" not in str(caught.value)


def test_a_list_of_available_providers_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = stand_in("works")
    start(monkeypatch, module)
    (probe,) = module.sessions
    assert probe.ran == 1
    assert probe.options.entries["session.disable_cpu_ep_fallback"] == "1"


def test_a_model_session_that_falls_back_after_the_probe_worked_gives_no_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adapter = start(monkeypatch, stand_in("quiet for the model"))
    with pytest.raises(Unavailable, match=f"{CUDA} requested, {CPU} active"):
        load(adapter)


@pytest.mark.parametrize(("math_mode", "asked"), [("fp32", "0"), ("tf32", "1")])
def test_tf32_is_used_only_where_it_was_asked(
    monkeypatch: pytest.MonkeyPatch, math_mode: str, asked: str
) -> None:
    module = stand_in("works")
    effective = load(start(monkeypatch, module, math_mode=math_mode)).effective()
    assert module.sessions[-1].options.tf32 == asked
    assert effective["math_mode"] == math_mode
    assert effective["device"] == "cuda:0"


def test_nodes_left_on_the_cpu_are_counted_and_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = start(monkeypatch, stand_in("works", {CUDA: 7, CPU: 2}))
    (flag,) = load(adapter).effective()["flags"]
    assert flag == {"code": "partial_fallback", "text": "partial fallback: 2 of 9 nodes on the CPU"}


def test_a_session_all_on_the_device_has_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "flags" not in load(start(monkeypatch, stand_in("works"))).effective()
