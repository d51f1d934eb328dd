"""The half of TensorRT that runs without a GPU: parse and build, with TensorRT-RTX from its wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphs as graphs
import pytest
from onnx_graphs import node, value

from matrix import catalog, paths
from matrix.environments.base import BuiltEnvironment
from matrix.environments.venv import VenvBackend
from matrix.execution.local import run_worker
from matrix.records import Environment
from matrix_adapters import tensors
from matrix_adapters.protocol import Measure, ModelSpec, Result, State, Task, TaskKind

pytestmark = pytest.mark.real

TARGET = {"compute_capability": "SM89"}
CANNOT_LOAD = "cannot be loaded here"


@pytest.fixture(scope="session")
def rtx() -> BuiltEnvironment:
    """The catalog's `rtx` build of TensorRT."""
    facts = catalog.load()
    version = facts.frameworks["tensorrt"].builds["rtx"].versions[0]
    wanted = Environment(framework="tensorrt", version=version, hardware="nvidia", build="rtx")
    return VenvBackend(facts.frameworks, paths.home()).build(wanted)


@pytest.fixture
def launch(rtx: BuiltEnvironment, tmp_path: Path) -> Callable[..., Result]:
    """Run one model file at the feed's shapes, for a device that is not here unless told otherwise."""
    count = 0

    def run(path: Path | None, feed: dict[str, np.ndarray], **fields: Any) -> Result:
        nonlocal count
        count += 1
        inputs = tmp_path / f"inputs{count}.npz"
        tensors.save(inputs, feed)
        task: dict[str, Any] = {
            "kind": TaskKind.MEASURE,
            "framework": "tensorrt",
            "adapter": "matrix_adapters.tensorrt",
            "device": "cuda",
            "model": ModelSpec(name="user", format="onnx", task="onnx"),
            "artefacts": {"onnx": str(path)} if path else {},
            "inputs": str(inputs),
            "measure": Measure(samples=3, max_steady_s=0.1, max_warmup_s=0.1),
            "options": TARGET,
        }
        folder = tmp_path / f"launch{count}"
        return run_worker(rtx, Task(**(task | fields)), folder, timeout_s=300, stall_s=300)

    return run


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": np.ones((count, 4), np.float32)}


def test_the_real_module_has_every_name_that_the_adapter_uses(launch: Any) -> None:
    result = launch(None, {}, kind=TaskKind.PROBE)
    assert result.state is State.OK, result.reason  # `start` ends as unsupported, naming what is missing
    assert result.probes["framework"]["build"] == "tensorrt_rtx"


def test_without_a_gpu_the_launch_is_unavailable_and_says_what_is_missing(
    launch: Any, tmp_path: Path
) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("this machine has an NVIDIA GPU")
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), options={})
    assert result.state is State.UNAVAILABLE
    assert "no NVIDIA driver" in result.reason.text


def test_another_device_than_an_nvidia_gpu_is_unsupported(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), device="cpu")
    assert result.state is State.UNSUPPORTED


@pytest.mark.parametrize(
    "made",
    [graphs.linear(), graphs.relu((2, 4)), graphs.relu(("batch", 4))],
    ids=["free batch", "fixed", "free, one node"],
)
def test_an_engine_is_built_on_the_cpu_and_only_loading_it_needs_a_gpu(
    launch: Any, tmp_path: Path, made: Any
) -> None:
    result = launch(graphs.write(tmp_path, made), rows(2))
    assert result.state is State.UNAVAILABLE
    assert "was built for SM89" in result.reason.text
    assert CANNOT_LOAD in result.reason.text
    assert "Cuda Runtime" in result.reason.text


def test_control_flow_and_integers_are_parsed_and_built(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.lookup()), {"ids": np.array([[1, 2]])})
    assert CANNOT_LOAD in result.reason.text


def test_weights_in_a_side_file_are_found(launch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    result = launch(graphs.with_side_file(folder, graphs.linear()), rows(2))
    assert CANNOT_LOAD in result.reason.text


def test_a_device_that_the_builder_does_not_know_is_unsupported_with_those_it_does(
    launch: Any, tmp_path: Path
) -> None:
    options = {"compute_capability": "SM90"}
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), options=options)
    assert result.state is State.UNSUPPORTED
    assert "SM90" in result.reason.text
    assert "SM89" in result.reason.text


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            graphs.model(
                [node("Foo", ["x"], ["y"], name="f", domain="acme")],
                [value("x", [2, 4])],
                [value("y", [2, 4])],
            ),
            ("'f'", "Foo"),
        ),
        (graphs.text_in_and_out(), ("the file as a whole", "type")),
    ],
    ids=["operator", "text"],
)
def test_what_the_parser_refuses_is_unsupported_with_the_node(
    launch: Any, tmp_path: Path, made: Any, words: tuple[str, ...]
) -> None:
    result = launch(graphs.write(tmp_path, made), rows(2))
    assert result.state is State.UNSUPPORTED, result.reason
    assert all(word in result.reason.text for word in words), result.reason.text


def test_a_file_that_is_no_model_is_a_failure(launch: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a model")
    assert launch(path, rows(2)).state is State.FAILED


def profile(low: int, best: int, high: int) -> dict[str, Any]:
    shapes = {"min": [low, 4], "opt": [best, 4], "max": [high, 4]}
    return TARGET | {"profile": {"x": shapes}}


def test_a_wider_profile_admits_the_measured_shape(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), options=profile(1, 2, 8))
    assert CANNOT_LOAD in result.reason.text


def test_a_shape_outside_the_profile_is_unsupported_with_both(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(16), options=profile(1, 2, 4))
    assert result.state is State.UNSUPPORTED
    assert "dimension 0 is 16, outside profile 1..4" in result.reason.text


@pytest.mark.parametrize(
    ("low", "best", "high", "words"),
    [(1, 8, 4, "min <= opt <= max"), (4, 2, 8, "min <= opt <= max"), (0, 2, 4, "min 0")],
)
def test_a_profile_that_cannot_be_is_told_before_tensorrt_takes_it(
    launch: Any, tmp_path: Path, low: int, best: int, high: int, words: str
) -> None:
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), options=profile(low, best, high))
    assert result.state is State.FAILED
    assert words in result.reason.text


def test_a_shape_that_the_file_rules_out_is_unsupported(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.relu((1, 4))), rows(2))
    assert result.state is State.UNSUPPORTED
    assert "[1, 4] in the file, [2, 4] is measured" in result.reason.text


def test_a_precision_that_the_file_has_not_is_unsupported(launch: Any, tmp_path: Path) -> None:
    result = launch(graphs.write(tmp_path, graphs.linear()), rows(2), precision="fp16")
    assert result.state is State.UNSUPPORTED
    assert "strongly typed" in result.reason.text


@pytest.mark.gpu
def test_an_engine_runs_and_gives_the_right_numbers(launch: Any, tmp_path: Path) -> None:
    if not Path("/dev/nvidia0").exists():
        pytest.skip("no NVIDIA GPU: loading and running an engine is not tested")
    result = launch(graphs.write(tmp_path, graphs.relu(("batch", 4))), rows(2), options={})
    assert result.state is State.OK, result.reason
