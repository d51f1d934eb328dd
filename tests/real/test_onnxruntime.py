"""ONNX Runtime through the worker: users' files of every kind, and devices that are not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphs as graphs
import pytest
from onnx_graphs import node, value

from matrix_adapters import tensors
from matrix_adapters.protocol import Measure, ModelSpec, Result, State, Task, TaskKind

pytestmark = pytest.mark.real

LEVELS = ("all", "extended", "basic", "disabled")


@pytest.fixture
def launch(run_task: Any, tmp_path: Path) -> Any:
    """Run one model file on a feed; (result, outputs)."""
    count = 0

    def run(path: Path, feed: dict[str, np.ndarray], **options: Any) -> tuple[Result, dict[str, np.ndarray]]:
        nonlocal count
        count += 1
        inputs = tmp_path / f"inputs{count}.npz"
        tensors.save(inputs, feed)
        outputs = options.pop("outputs", ())
        task = Task(
            kind=TaskKind.MEASURE,
            framework="onnxruntime",
            adapter="matrix_adapters.onnxruntime",
            model=ModelSpec(name="user", format="onnx", task="onnx", inputs=tuple(feed), outputs=outputs),
            artefacts={"onnx": str(path)},
            inputs=str(inputs),
            measure=Measure(samples=3, max_steady_s=0.1, warmup_calls=1, max_warmup_s=0.1),
            **options,
        )
        out = tmp_path / f"out{count}"
        result = run_task("onnxruntime", task, out)
        kept = out / "outputs.npz"
        return result, tensors.load(kept) if kept.exists() else {}

    return run


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((2, 4), np.float32)


@pytest.mark.parametrize("level", LEVELS)
def test_every_optimisation_level_gives_the_same_numbers(
    launch: Any, tmp_path: Path, x: np.ndarray, level: str
) -> None:
    path = graphs.write(tmp_path, graphs.linear())
    result, outputs = launch(path, {"x": x}, variant=level)
    assert result.state is State.OK, result.reason
    weights = {t.name: graphs.numpy_helper.to_array(t) for t in graphs.onnx.load(path).graph.initializer}
    np.testing.assert_allclose(outputs["y"], x @ weights["w"] + weights["b"], rtol=1e-5, atol=1e-6)
    names = {"all": "ORT_ENABLE_ALL", "extended": "ORT_ENABLE_EXTENDED"} | {
        "basic": "ORT_ENABLE_BASIC",
        "disabled": "ORT_DISABLE_ALL",
    }
    assert result.effective["graph_optimization"] == names[level]


def test_a_level_that_does_not_exist_is_unsupported(launch: Any, tmp_path: Path, x: np.ndarray) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, variant="al")
    assert result.state is State.UNSUPPORTED
    assert "'al'" in result.reason.text


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_counted_after_the_session_has_started_them(
    launch: Any, tmp_path: Path, x: np.ndarray, threads: int
) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, threads=threads)
    assert result.effective["threads"] == threads
    assert result.effective["spinning"] is False
    assert result.effective["device"] == "cpu"
    assert result.effective["providers"] == ["CPUExecutionProvider"]


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_cuda_asked_where_only_the_cpu_is_gives_no_number(
    launch: Any, tmp_path: Path, x: np.ndarray, device: str
) -> None:
    result, outputs = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, device=device)
    assert result.state is State.UNAVAILABLE
    assert result.reason.text.startswith(
        "provider CUDAExecutionProvider requested, CPUExecutionProvider active"
    )
    assert not outputs
    assert not result.metrics


def test_a_device_without_a_provider_is_unsupported(launch: Any, tmp_path: Path, x: np.ndarray) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, device="tpu")
    assert result.state is State.UNSUPPORTED


def test_a_precision_that_the_file_has_not_is_unsupported(launch: Any, tmp_path: Path, x: np.ndarray) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, precision="bf16")
    assert result.state is State.UNSUPPORTED
    assert "bf16" in result.reason.text


def test_control_flow_with_integers_and_booleans(launch: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.if_and_loop())
    feed = {"x": np.ones((3, 2), np.float32), "count": np.array(4), "flip": np.array(True)}
    result, outputs = launch(path, feed)
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(outputs["y"], np.full((3, 2), -16, np.float32))


def test_text_goes_in_and_comes_out(launch: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.text_in_and_out())
    result, outputs = launch(path, {"words": np.array(["w1", "wörd"])})
    assert result.state is State.OK, result.reason
    assert outputs["joined"].tolist() == ["w1!", "wörd!"]
    assert outputs["same"].tolist() == [True, False]


def test_weights_in_a_side_file(launch: Any, tmp_path: Path, x: np.ndarray) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = graphs.with_side_file(folder, graphs.linear())
    _, inside = launch(graphs.write(tmp_path, graphs.linear()), {"x": x})
    result, beside = launch(path, {"x": x})
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(beside["y"], inside["y"])


def test_indices_as_int64(launch: Any, tmp_path: Path) -> None:
    result, outputs = launch(graphs.write(tmp_path, graphs.lookup()), {"ids": np.array([[0, 9]])})
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(outputs["vectors"], [[[0, 1], [18, 19]]])


def test_only_the_outputs_that_were_named_are_computed(launch: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.text_in_and_out())
    _, outputs = launch(path, {"words": np.array(["w1"])}, outputs=("same",))
    assert list(outputs) == ["same"]


def test_an_output_that_the_file_lacks_is_named(launch: Any, tmp_path: Path, x: np.ndarray) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), {"x": x}, outputs=("z",))
    assert result.state is State.FAILED
    assert "no output 'z'" in result.reason.text


@pytest.mark.parametrize(
    ("feed", "words"),
    [
        ({"z": np.ones((1, 4), np.float32)}, "no array for input 'x'"),
        ({"x": np.ones((1, 4), np.float64)}, "float64"),
        ({"x": np.ones((1, 5), np.float32)}, "Got: 5 Expected: 4"),
    ],
    ids=["missing", "dtype", "shape"],
)
def test_a_feed_that_does_not_fit_fails_with_the_input_named(
    launch: Any, tmp_path: Path, feed: dict[str, np.ndarray], words: str
) -> None:
    result, _ = launch(graphs.write(tmp_path, graphs.linear()), feed)
    assert result.state is State.FAILED
    assert "x" in result.reason.text
    if words.startswith("Got"):  # its message has several lines; the log holds all of them
        assert "invalid dimensions" in result.reason.text
    else:
        assert words in result.reason.text


REFUSED = {
    "opset": (graphs.relu(opsets={"": 99}), ("opset 99 of domain ai.onnx", "offers up to")),
    "other domain": (graphs.relu(opsets={"": 20, "ai.onnx.ml": 99}), ("99 of domain ai.onnx.ml", "up to")),
    "ir": (graphs.relu(ir_version=99), ("IR version is 99", "takes up to")),
    "old": (graphs.relu(opsets={"": 3}, ir_version=3), ("operator Relu (version 1)", "node 'r'")),
    "unknown operator": (
        graphs.model(
            [node("Foo", ["x"], ["y"], name="f", domain="acme")],
            [value("x", [1, 4])],
            [value("y", [1, 4])],
            opsets={"": 20, "acme": 1},
        ),
        ("operator Foo of domain acme", "unknown"),
    ),
    "bfloat16": (
        graphs.model(
            [node("Identity", ["x"], ["y"])],
            [value("x", [1, 4], graphs.BFLOAT16)],
            [value("y", [1, 4], graphs.BFLOAT16)],
        ),
        ("'x' is tensor(bfloat16)",),
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_this_version_cannot_run_is_unsupported_with_the_culprit(
    launch: Any, tmp_path: Path, kind: str
) -> None:
    made, words = REFUSED[kind]
    result, _ = launch(graphs.write(tmp_path, made), {"x": np.ones((1, 4), np.float32)})
    assert result.state is State.UNSUPPORTED, result.reason
    assert all(word in result.reason.text for word in words), result.reason.text


def test_a_broken_graph_is_a_failure_not_unsupported(launch: Any, tmp_path: Path) -> None:
    made = graphs.model([node("Relu", ["q"], ["y"])], [value("x", [1, 4])], [value("y", [1, 4])])
    result, _ = launch(graphs.write(tmp_path, made), {"x": np.ones((1, 4), np.float32)})
    assert result.state is State.FAILED
    assert "'q'" in result.reason.text
