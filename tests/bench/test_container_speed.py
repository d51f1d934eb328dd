"""Is a matrix product as fast in a container as outside? CPU time per product, in interleaved pairs.

The same wheels in a virtualenv and in an image, the product's own launches, one thread: NumPy through a small
adapter, ONNX Runtime through the shipped one. The ratio and its 95 % interval are printed; 3 % is the bar.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphs
import pytest
from private_engine import BASE_TAG, PrivateEngine, an_engine

from matrix import catalog, paths
from matrix.environments.bundle import Bundle
from matrix.environments.docker import DockerBackend
from matrix.environments.images import ImageOptions
from matrix.environments.venv import VenvBackend
from matrix.execution.dispatch import run_task
from matrix.records import Environment
from matrix_adapters.protocol import Measure, ModelSpec, Result, State, Task, TaskKind

pytestmark = pytest.mark.real
PAIRS = 12
T_975 = 2.201  # Student's t for 11 degrees of freedom
BAR = 0.03
SIZE = 1024
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with an_engine(Path(tempfile.mkdtemp(prefix="fmx-speed-"))) as private:
        yield private


@pytest.fixture(scope="module")
def places(engine: PrivateEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The same ONNX Runtime environment, as a virtualenv and as an image, with our adapter beside."""
    facts = catalog.load_from(catalog.folder(), third_parties=False)
    framework = facts.frameworks["onnxruntime"]
    environment = Environment(
        framework="onnxruntime", version=framework.version_for("cpu"), hardware="cpu", build="cpu"
    )
    bundle = Bundle(tmp_path_factory.mktemp("home"), [HERE / "matmul_adapter"])
    worker = bundle.stage()
    venvs = VenvBackend(facts.frameworks, paths.home())
    with engine.client() as client:
        images = DockerBackend(
            facts.frameworks,
            facts.hardware,
            paths.home(),
            client,
            options=ImageOptions(bases={"cpu": BASE_TAG}),
        )
        with images.session("bench"):
            outside, inside = venvs.build(environment), images.build(environment)
            assert outside.lock == inside.lock
            yield {
                "process": dataclasses.replace(outside, worker_path=worker),
                "container": dataclasses.replace(
                    inside, plan=dataclasses.replace(inside.plan, worker=worker)
                ),
            }
    venvs.close()
    bundle.close()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    x = np.random.default_rng(0).standard_normal((SIZE, SIZE), dtype=np.float32)
    np.savez(folder / "inputs.npz", x=x)
    onnx_graphs.write(folder, onnx_graphs.linear(SIZE, SIZE))
    return folder


@pytest.mark.parametrize("kind", ["NumPy", "ONNX Runtime"])
def test_a_product_costs_the_same_cpu_time_inside_and_outside(
    kind: str,
    places: dict[str, Any],
    inputs: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    benchmark: Any,
) -> None:
    spec = ModelSpec(name="product", format="onnx", task="onnx", inputs=("x",), outputs=("y",))
    task = Task(
        kind=TaskKind.MEASURE,
        framework="onnxruntime",
        adapter="matmul_adapter" if kind == "NumPy" else "matrix_adapters.onnxruntime",
        model=spec,
        artefacts={"onnx": str(inputs / "model.onnx")},
        inputs=str(inputs / "inputs.npz"),
        measure=Measure(samples=60, max_steady_s=4.0, warmup_calls=5),
    )

    def cpu_ms(place: str) -> float:
        result: Result = run_task(places[place], task, tmp_path / place, timeout_s=120, stall_s=120)
        assert result.state is State.OK, result.reason
        return float(result.metrics["cpu_time_ms"])

    pairs = []
    for number in range(1 if benchmark.disabled else PAIRS):
        first, second = ("process", "container") if number % 2 else ("container", "process")
        told = {first: cpu_ms(first), second: cpu_ms(second)}
        pairs.append((told["container"], told["process"]))
    benchmark.pedantic(lambda: cpu_ms("process"), rounds=1)
    if benchmark.disabled:  # one pair among other tests judges nothing
        return
    ratio, low, high = _ratio(pairs)
    medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
    benchmark.extra_info.update({"ratio": ratio, "low": low, "high": high})
    with capsys.disabled():
        print(
            f"\n{kind}, {SIZE} x {SIZE} x {SIZE}: container / process {ratio:.4f}, 95 % interval {low:.4f} "
            f"to {high:.4f} over {len(pairs)} pairs ({medians[0]:.2f} and {medians[1]:.2f} ms of CPU time)"
        )
    assert abs(ratio - 1) <= BAR


def _ratio(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Geometric mean of the pairs' ratios, and its interval."""
    logs = [math.log(inside / outside) for inside, outside in pairs]
    mean, half = statistics.mean(logs), T_975 * statistics.stdev(logs) / math.sqrt(len(logs))
    to_ratio: Callable[[float], float] = math.exp
    return to_ratio(mean), to_ratio(mean - half), to_ratio(mean + half)
