"""Runs that never happened, for tests of the views: records, header, and a folder of samples.

The values are of the size that real runs have. Nothing here is ever shown as a measurement.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix.records import (
    EnvironmentRecord,
    LaunchRecord,
    MetricValue,
    Parity,
    ReasonRecord,
    Record,
    WorkloadRecord,
)
from matrix_adapters.protocol import State, content_hash

UNITS = {
    "import_s": "s",
    "load_s": "s",
    "compile_s": "s",
    "first_call_ms": "ms",
    "time_to_first_output_s": "s",
    "latency_ms": "ms",
    "latency_ms_p90": "ms",
    "throughput_items_s": "items/s",
    "cpu_time_ms": "ms",
    "peak_memory_bytes": "bytes",
    "image_bytes": "bytes",
    "max_scaled_error": "1",
    "cosine": "1",
    "top1_agreement": "1",
}
VERSIONS = {"pytorch": "2.13.0", "tensorflow": "2.21.0", "onnxruntime": "1.32.0", "tensorrt": "11.4.0.106"}
NO_GPU = ReasonRecord(
    code="no_device", text="no NVIDIA GPU on this machine: none of /dev/nvidia0, /dev/dxg exists"
)
LIMIT_RULE = "max|d|/max|ref| <= clamp(4 x {floor:.1e}, 1e-05, 0.0001) = {limit:.1e}"


def environment(framework: str, hardware: str = "cpu", **changes: Any) -> EnvironmentRecord:
    version = changes.pop("version", VERSIONS.get(framework, "1.0"))
    fields: dict[str, Any] = {
        "name": f"{framework}-{version}-{hardware}",
        "framework": framework,
        "version": version,
        "hardware": hardware,
        "build": "cpu" if hardware == "cpu" else "cuda",
        "backend": "venv",
        "key": content_hash([framework, version, hardware]),
        "python": "3.11.7",
        "lock": tuple(f"package-{i}=={i}.0" for i in range(12)),
        "size_bytes": 1_255_000_000,
    }
    return EnvironmentRecord(**{**fields, **changes})


def record(
    framework: str = "pytorch",
    subject: str = "resnet50",
    metrics: Mapping[str, Any] | None = None,
    *,
    hardware: str = "cpu",
    state: State = State.OK,
    reason: ReasonRecord | None = None,
    **changes: Any,
) -> Record:
    """One cell. `metrics` maps an id to a value, or to (value, low, high) over three launches."""
    workload = WorkloadRecord(
        level="inference",
        subject=subject,
        batch=changes.pop("batch", 1),
        sequence=changes.pop("sequence", None),
        precision=changes.pop("precision", "fp32"),
        threads=changes.pop("threads", 1),
        variant=changes.pop("variant", ""),
    )
    place = environment(framework, hardware, **changes.pop("environment", {}))
    key = content_hash([place.name, workload.model_dump(), changes.get("arm", "")], 12)
    fields: dict[str, Any] = {
        "id": key,
        "label": f"{place.name} {subject}",
        "environment": place,
        "workload": workload,
        "state": state,
        "reason": reason
        or (None if state is State.OK else ReasonRecord(code=state.value, text="as planned")),
        "metrics": {name: metric(name, value) for name, value in (metrics or {}).items()},
    }
    return Record(**{**fields, **changes})


def metric(name: str, value: Any) -> MetricValue:
    if isinstance(value, MetricValue):
        return value
    derived = name in ("time_to_first_output_s", "throughput_items_s")
    if isinstance(value, tuple):
        return MetricValue(
            value=value[0], low=value[1], high=value[2], n=3, unit=UNITS[name], derived=derived
        )
    return MetricValue(value=value, unit=UNITS[name], derived=derived)


# latency ms, import s, load s, compile s, first call ms, memory MiB, error
MEASURED = {
    ("resnet50", "pytorch"): (46.1, 2.21, 0.14, 0.0, 62, 612, 1.8e-5),
    ("resnet50", "tensorflow"): (41.7, 2.09, 0.92, 0.71, 640, 983, 1.7e-5),
    ("resnet50", "onnxruntime"): (33.4, 0.02, 0.16, 0.0, 41, 298, 2.2e-5),
    ("efficientnet_b0", "pytorch"): (17.9, 2.24, 0.11, 0.0, 44, 451, 3.2e-6),
    ("efficientnet_b0", "tensorflow"): (14.6, 2.11, 1.41, 1.02, 890, 861, 8.4e-6),
    ("efficientnet_b0", "onnxruntime"): (5.83, 0.02, 0.07, 0.0, 11, 133, 2.4e-6),
    ("distilbert", "pytorch"): (69.0, 2.93, 0.18, 0.0, 98, 721, 4.4e-7),
    ("distilbert", "tensorflow"): (58.2, 2.10, 1.33, 0.63, 720, 1320, 4.6e-7),
    ("distilbert", "onnxruntime"): (57.5, 0.02, 0.31, 0.0, 66, 560, 6.0e-7),
    ("llama_small", "pytorch"): (77.4, 2.88, 0.19, 0.0, 120, 690, 6.7e-7),
    ("llama_small", "tensorflow"): (52.6, 2.12, 2.28, 0.94, 1350, 1490, 1.0e-6),
    ("llama_small", "onnxruntime"): (49.9, 0.02, 0.48, 0.0, 62, 520, 9.6e-7),
}
SEQUENCES = {"distilbert": 128, "llama_small": 128}
FLAGS = {
    ("efficientnet_b0", "tensorflow"): ReasonRecord(
        code="noisy", text="the middle half of the samples spans 14 % of the median"
    ),
}


def quick_records(run_dir: Path | None = None, spread: float = 0.012) -> list[Record]:
    """The default sweep as it might end on a machine without a GPU: 12 ok, 4 unavailable."""
    found = []
    for subject in dict.fromkeys(model for model, _ in MEASURED):
        for framework in ("pytorch", "tensorflow", "onnxruntime"):
            found.append(measured(subject, framework, run_dir, spread))
        found.append(
            record(
                "tensorrt",
                subject,
                hardware="nvidia",
                state=State.UNAVAILABLE,
                reason=NO_GPU,
                sequence=SEQUENCES.get(subject),
            )
        )
    return found


def measured(
    subject: str, framework: str, run_dir: Path | None = None, spread: float = 0.012, **changes: Any
) -> Record:
    """One ok cell with everything a real one has."""
    latency, imported, load, compiled, first, memory, error = MEASURED[subject, framework]
    scale = changes.pop("scale", 1.0)
    latency *= scale
    rng = random.Random(f"{subject}{framework}{scale}")
    medians = [latency * (1 + rng.uniform(-spread, spread)) for _ in range(3)]
    first_output = imported + load + compiled + first / 1e3
    floor = error / 1.4
    limit = min(max(4 * floor, 1e-5), 1e-4)
    values: dict[str, Any] = {
        "import_s": imported,
        "load_s": load,
        "compile_s": compiled,
        "first_call_ms": float(first),
        "time_to_first_output_s": (first_output, first_output * 0.98, first_output * 1.03),
        "latency_ms": (sum(medians) / 3, min(medians), max(medians)),
        "latency_ms_p90": MetricValue(value=latency * 1.06, unit="ms", n=66),
        "throughput_items_s": 1e3 / latency,
        "cpu_time_ms": (latency * 0.998, latency * 0.99, latency * 1.004),
        "peak_memory_bytes": float(memory * 2**20),
        "max_scaled_error": error,
        "cosine": 1 - error**2,
        "top1_agreement": 1.0,
    }
    base = record(framework, subject, values, sequence=SEQUENCES.get(subject), **changes)
    effective = {
        "device": "cpu",
        "threads": 1,
        "precision": "fp32",
        "math_mode": "fp32",
        "layout": "NHWC" if framework == "tensorflow" else "NCHW",
    }
    probes = {
        "before": {"load_average": [0.6, 0.5, 0.3], "steal": 0.0},
        "after": {"load_average": [1.1, 0.7, 0.4]},
    }
    launches = []
    for block, median in enumerate(medians):
        samples = _write_samples(run_dir, base.id, block, median, rng) if run_dir else None
        log = _write_log(run_dir, base.id, block) if run_dir else None
        launches.append(
            LaunchRecord(
                cell=base.id,
                purpose="measure",
                block=block,
                state=State.OK,
                phases={
                    "import_s": imported,
                    "load_s": load,
                    "compile_s": compiled,
                    "first_call_s": first / 1e3,
                    "warmup_s": 3 * latency / 1e3,
                    "steady_s": 22 * latency / 1e3,
                },
                metrics={"latency_ms": median},
                effective=effective,
                probes=probes,
                sampling={"samples": 22, "calls_per_sample": 1},
                samples=samples,
                log=log,
                position=(block * 2 + len(framework)) % 3,
                started=f"2026-11-30T20:2{block}:03+00:00",
                ended=f"2026-11-30T20:2{block}:11+00:00",
            )
        )
    memory_launch = LaunchRecord(
        cell=base.id,
        purpose="memory",
        block=0,
        state=State.OK,
        metrics={"peak_memory_bytes": float(memory * 2**20)},
    )
    flag = FLAGS.get((subject, framework))
    return base.model_copy(
        update={
            "flags": (flag,) if flag else (),
            "absent": {
                "latency_ms_p99": "66 samples, p99 needs 662",
                "energy_j_per_item": "this machine has no readable energy counter",
            },
            "parity": Parity(
                reference="pytorch 2.13.0 float64",
                passed=True,
                rule=LIMIT_RULE.format(floor=floor, limit=limit),
                limit=limit,
                floor=floor,
                max_scaled_error=error,
                cosine=1 - error**2,
                top1_agreement=1.0,
                least_passing=error,
                worst="logits[0, 17]: got 0.10312, reference 0.10313",
            ),
            "artefacts": {
                "weights": content_hash(["weights", subject], 64),
                "inputs": content_hash(["inputs", subject], 64),
            },
            "contract": {
                "boundary": "host_to_host",
                "threads": 1,
                "math_mode": "fp32",
                "transfer": "included",
                "device": "cpu",
                "precision": "fp32",
                "cache": "warm: the same inputs in every call",
                "layout": effective["layout"],
                "warmup": {"warmup_calls": 3, "max_warmup_s": 2.0},
                "sampling": {"launches": 3, "samples": 22, "max_steady_s": 3.0},
                "inputs": content_hash(["inputs", subject], 64),
                "weights": content_hash(["weights", subject], 64),
            },
            "contract_hash": content_hash(["contract", subject, framework]),
            "effective": effective,
            "versions": {framework: VERSIONS[framework], "numpy": "2.4.6"},
            "launches": (*launches, memory_launch),
            "attempts": 4,
            "started": "2026-11-30T20:20:03+00:00",
            "ended": "2026-11-30T20:24:11+00:00",
        }
    )


def eventful_records(run_dir: Path | None = None) -> list[Record]:
    """A sweep in which everything that can happen has happened, variants and two batches included."""
    found = quick_records(run_dir)
    compiled = [
        measured(subject, "pytorch", run_dir, variant="compile", scale=scale)
        for subject, scale in (("resnet50", 0.78), ("efficientnet_b0", 0.51), ("llama_small", 0.655))
    ]
    wrong = measured("distilbert", "pytorch", run_dir, variant="compile", scale=0.7)
    parity = wrong.parity
    assert parity is not None
    wrong = wrong.model_copy(
        update={
            "state": State.INCORRECT,
            "reason": ReasonRecord(
                code="tolerance",
                text="max|d|/max|ref| is 0.0031, limit 1.0e-05; worst at last_hidden_state[0, 99, 412]",
            ),
            "parity": parity.model_copy(
                update={
                    "passed": False,
                    "max_scaled_error": 3.1e-3,
                    "least_passing": 3.1e-3,
                    "failure_code": "tolerance",
                    "failure": "error 0.0031 is above the limit 1.0e-05",
                }
            ),
            "metrics": {**wrong.metrics, "max_scaled_error": MetricValue(value=3.1e-3, unit="1")},
        }
    )
    batch = [
        measured("resnet50", framework, run_dir, batch=8, scale=7.4)
        for framework in ("pytorch", "tensorflow", "onnxruntime")
    ]
    fallback = batch[2].model_copy(
        update={
            "flags": (
                ReasonRecord(code="partial_fallback", text="partial fallback: 3 of 122 nodes off the device"),
            )
        }
    )
    ends = [
        ("vit_base", "pytorch", State.OOM, "killed by the kernel: the cgroup's 24 GiB were used up"),
        ("vit_base", "tensorflow", State.TIMEOUT, "no progress for 300 s in phase compile"),
        ("vit_base", "onnxruntime", State.FAILED, "the worker died of signal 11 (SIGSEGV) in phase load"),
        ("gpt2", "pytorch", State.BUILD_FAILED, "no wheel of torch 2.13.0 for Python 3.15"),
        ("gpt2", "tensorflow", State.INTERRUPTED, "Ctrl-C after 2 of 3 launches"),
        ("gpt2", "onnxruntime", State.NOT_RUN, "the budget of 20 min was spent"),
    ]
    broken = [
        record(framework, subject, state=state, reason=ReasonRecord(code=state.value, text=text))
        for subject, framework, state, text in ends
    ]
    crashed = broken[2]
    if run_dir is not None:
        log = _write_log(run_dir, crashed.id, 0, "Fatal error: Segmentation fault\n<script>alert(1)</script>")
        launch = LaunchRecord(
            cell=crashed.id, purpose="measure", block=0, state=State.FAILED, reason=crashed.reason, log=log
        )
        broken[2] = crashed.model_copy(update={"launches": (launch,)})
    return [*found, *compiled, wrong, batch[0], batch[1], fallback, *broken]


def many_records(cells: int, run_dir: Path | None = None) -> list[Record]:
    """As many cells as a `full` sweep, each with its launches."""
    found: list[Record] = []
    kinds: Sequence[tuple[str, str]] = list(MEASURED)
    batch = 1
    while len(found) < cells:
        for subject, framework in kinds:
            for variant in ("", "compiled"):
                found.append(
                    measured(subject, framework, run_dir, batch=batch, variant=variant, scale=batch * 0.97)
                )
        batch *= 2
    return found[:cells]


def header(**changes: Any) -> dict[str, Any]:
    """A run header with everything in it."""
    fields: dict[str, Any] = {
        "id": "20261130-202103-quick-7f3a",
        "name": "quick",
        "created": "2026-11-30T20:21:03+00:00",
        "sweep": "quick",
        "seed": 20261130,
        "command": ["matrix", "run"],
        "backend": "venv",
        "backend_why": "virtualenvs, because no container engine answered at /var/run/docker.sock",
        "machine": {
            "cpu": "AMD EPYC 9R14 96-Core Processor",
            "cores": 2,
            "memory_bytes": 24 * 2**30,
            "os": "Debian GNU/Linux 12",
            "kernel": "6.12.4",
            "python": "3.11.7",
        },
        "load": {"before": [0.31, 0.22, 0.18], "after": [1.04, 0.71, 0.40]},
        "null_adapter": {"median_ns": 61.0, "low_ns": 58.0, "high_ns": 66.0},
        "warnings": ["load average 2.8 on 2 cores when block 2 began: something else was running"],
        "totals": {"wall_s": 268.0, "cells": 16, "launches": 48},
    }
    return {**fields, **changes}


def _write_samples(run_dir: Path, cell: str, block: int, median: float, rng: random.Random) -> str:
    name = f"samples/{cell}-{block}.npz"
    path = run_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(rng.getrandbits(32)).gamma(2.0, 0.006, 22)
    wall = (median * 1e6 * (0.985 + noise)).astype(np.int64)
    starts = np.cumsum(np.concatenate([[0], wall[:-1]]))
    np.savez(path, wall_ns=wall, calls=np.ones(22, np.int64), start_ns=starts)
    return name


def _write_log(run_dir: Path, cell: str, block: int, text: str = "") -> str:
    name = f"logs/{cell}-{block}.txt"
    path = run_dir / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or "worker started\nall well\n", encoding="utf-8")
    return name


def write_header(run_dir: Path, values: Mapping[str, Any]) -> None:
    (run_dir / "run.json").write_text(json.dumps(values), encoding="utf-8")
