"""Live pairs of real frameworks: a pilot, then a block that keeps to what the pilot froze."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_lab import ModelLab

from matrix import catalog
from matrix.execution.live import open_live
from matrix.judge.parity import judge, load_arrays, load_reference
from matrix_adapters.protocol import Result, State, Task, TaskKind

pytestmark = pytest.mark.real

FROZEN = {"warmup_calls": 10, "calls": 1}


@pytest.fixture(scope="module")
def lab(built: Any, run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelLab:
    return ModelLab(built, run_task, tmp_path_factory.mktemp("lab"))


@pytest.mark.parametrize("framework", ["onnxruntime", "pytorch", "tensorflow"])
def test_a_pilot_and_a_block_of_a_real_framework_are_timed_and_right(
    framework: str, lab: ModelLab, built: Any, tmp_path: Path
) -> None:
    model = catalog.load().models["distilbert_tiny"]
    kind = catalog.load().frameworks[framework].consumes
    shared = lab.artefacts(model, (kind,))

    def pair(name: str, options: dict[str, Any]) -> list[Result]:
        task = Task(
            kind=TaskKind.SLICES,
            framework=framework,
            adapter=f"matrix_adapters.{framework}",
            model=model.spec(),
            artefacts={kind: str(shared.paths[kind])},
            inputs=str(shared.paths["inputs"]),
            options=options,
        )
        a, b = (
            open_live(built(framework), task, tmp_path / name / side, timeout_s=600, stall_s=300)
            for side in "ab"
        )
        with a as one, b as two:
            assert one.wait_ready()
            assert two.wait_ready()
            for live in (one, two, two, one):
                assert live.run(5) is not None
            return [one.finish(), two.finish()]

    pilots = pair("pilot", {"pilot": {"calls": 30, "seconds": 5}})
    blocks = pair("block", FROZEN)
    assert [result.state for result in [*pilots, *blocks]] == [State.OK] * 4
    for result, side in zip(pilots, "ab", strict=True):
        with np.load(tmp_path / "pilot" / side / "out/samples.npz") as archive:
            assert len(archive["warmup_ns"]) == result.sampling["warmup_calls"] >= 3
            assert (archive["warmup_ns"] > 0).all()
    reference, rule = load_reference(shared.paths["reference"]), catalog.load().tolerances.inference["fp32"]
    for result, side in zip(blocks, "ab", strict=True):
        assert result.sampling["warmup_calls"] == FROZEN["warmup_calls"]
        assert (result.sampling["slices"], result.sampling["samples"]) == (2, 8)
        assert result.metrics["latency_ms"] > 0
        assert result.metrics["peak_memory_bytes"] > 10e6
        assert result.effective["threads"] == 1
        outputs = load_arrays(tmp_path / "block" / side / "out/outputs.npz")
        assert judge(outputs, reference, rule, top1=False).passed
