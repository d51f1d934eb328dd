"""Runs that never happened, for tests of comparisons: sample files, and run folders made of records."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from synthetic_runs import environment

from matrix.cli import main
from matrix.records import (
    Cell,
    Environment,
    LaunchRecord,
    MetricValue,
    Parity,
    ReasonRecord,
    Record,
    Workload,
    WorkloadRecord,
    dataclasses_dict,
)
from matrix.store import durable
from matrix.store.formats import RunHeader
from matrix.store.runs import CELLS_FILE, HEADER_FILE, PLAN_FILE, dump, dump_header
from matrix_adapters.protocol import Reason, State, plain

COLUMNS = ("environment", "workload", "metric", "block", "launch", "value")
BLOCKS = 12
MACHINE = {
    "identity": "0123456789abcdef",
    "cpu_model": "AMD EPYC",
    "architecture": "x86_64",
    "usable_threads": 2,
}


# --- files of samples ---------------------------------------------------------------------


def samples(
    environments: Mapping[str, float] = {"old": 1.0, "new": 1.0},
    workloads: Sequence[str] = ("a", "b", "c"),
    *,
    metric: str = "latency_ms",
    level: float = 10.0,
    noise: float = 0.005,
    blocks: int = BLOCKS,
    seed: int = 0,
    only: Callable[[str, str], float] | None = None,
) -> list[dict[str, Any]]:
    """Rows of a file: each environment's values are `level` times its factor, paired by block.

    `only(environment, workload)` is one more factor.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for workload, block in itertools.product(workloads, range(blocks)):
        shared = rng.normal(0, 0.05)  # what both sides of a block have in common
        for name, factor in environments.items():
            more = only(name, workload) if only else 1.0
            value = level * factor * more * float(np.exp(shared + rng.normal(0, noise)))
            rows.append(
                {
                    "environment": name,
                    "workload": workload,
                    "metric": metric,
                    "block": block,
                    "launch": 0,
                    "value": value,
                }
            )
    return rows


def write_csv(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


class Imported:
    """A results folder into which files are imported, and the commands on it."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self.folder, self.results, self._capsys = folder, folder / "results", capsys

    def add(
        self, rows: Iterable[Mapping[str, Any]], name: str = "run", columns: Sequence[str] = COLUMNS
    ) -> str:
        path = write_csv(self.folder / f"{name}.csv", rows, columns)
        code, _, err = self.run("import", str(path), "--name", name)
        assert code == 0, err
        return name

    def run(self, *arguments: str) -> tuple[int, str, str]:
        code = main([*arguments, "--results", str(self.results)])
        said = self._capsys.readouterr()
        return code, said.out, said.err

    def compare(self, base: str, candidate: str, *more: str) -> tuple[int, dict[str, Any]]:
        code, out, err = self.run("compare", base, candidate, "--json", *more)
        assert out, err
        return code, json.loads(out, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def cells(answer: Mapping[str, Any], metric: str = "latency_ms") -> dict[str, dict[str, Any]]:
    """The findings of one metric by workload."""
    return {cell["workload"]: cell for cell in answer["cells"] if cell["metric"] == metric}


def verdicts(answer: Mapping[str, Any], metric: str = "latency_ms") -> dict[str, str]:
    return {name: cell["verdict"] for name, cell in cells(answer, metric).items()}


# --- runs as this product stores them -----------------------------------------------------


def record(
    version: str = "1.31.0",
    subject: str = "resnet50",
    latencies: Sequence[float] = (),
    *,
    framework: str = "onnxruntime",
    state: State = State.OK,
    arm: str = "",
    level: str = "inference",
    pair: str = "",
    variant: str = "",
    stages: Sequence[str] = (),
    contract: Mapping[str, Any] | None = None,
    launch: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Sequence[float]] | None = None,
    **changes: Any,
) -> Record:
    """One cell with a launch for each latency, block by block."""
    place = environment(framework, version=version, **changes.pop("environment", {}))
    work = WorkloadRecord(level=level, subject=subject, batch=1, precision="fp32", threads=1, variant=variant)
    cell = Cell(
        environment=Environment(framework=framework, version=version, hardware="cpu", build="cpu"),
        workload=Workload(**work.model_dump()),
        arm=arm,
    )
    more = {name: list(values) for name, values in (metrics or {}).items()}
    launches = tuple(
        LaunchRecord(
            cell=cell.id,
            purpose="measure",
            block=block,
            pair=pair,
            stage=stages[block] if stages else "",
            state=State.OK,
            metrics={"latency_ms": ms, **{name: values[block] for name, values in more.items()}},
            started=f"2026-11-30T20:{block:02}:00.000Z",
            ended=f"2026-11-30T20:{block:02}:05.000Z",
            **(launch or {}),
        )
        for block, ms in enumerate(latencies)
    )
    fields: dict[str, Any] = {
        "id": cell.id,
        "label": cell.label,
        "arm": arm,
        "environment": place,
        "workload": work,
        "state": state,
        "reason": None if state is State.OK else ReasonRecord(code=state.value, text=f"it is {state.value}"),
        "launches": launches,
        "contract": contract or {"boundary": "host_to_host", "transfer": "included", "threads": 1},
    }
    if latencies:
        mean = sum(latencies) / len(latencies)
        fields["metrics"] = {"latency_ms": MetricValue(value=mean, unit="ms", n=len(latencies))}
    return Record(**{**fields, **changes})


def parity(error: float, top1: float = 1.0, **changes: Any) -> Parity:
    fields = {"reference": "pytorch", "passed": True, "rule": "r", "limit": 1e-4, "floor": 1e-6}
    return Parity(**{**fields, "max_scaled_error": error, "top1_agreement": top1, **changes})


def write_run(results: Path, name: str, records: Sequence[Record], **header: Any) -> Path:
    """A finished run of these records."""
    folder = results / name
    folder.mkdir(parents=True)
    fields: dict[str, Any] = {
        "id": name,
        "created": "2026-11-30T20:00:00.000Z",
        "outcome": "complete",
        "sweep": "quick",
        "seed": 1,
        "machine": MACHINE,
        "planned": len(records),
        "consolidated_bytes": 0,
    }
    plan = [
        Cell(
            environment=Environment(
                **{k: getattr(r.environment, k) for k in ("framework", "version", "hardware", "build")}
            ),
            workload=Workload(**r.workload.model_dump()),
            arm=r.arm,
            state=r.state if r.state in (State.UNSUPPORTED, State.UNAVAILABLE) else None,
            reason=Reason(code="x", text="y") if r.state in (State.UNSUPPORTED, State.UNAVAILABLE) else None,
        )
        for r in records
    ]
    assert all(dataclasses_dict(cell.workload) for cell in plan)
    durable.replace(folder / PLAN_FILE, (durable.dump_line(plain(cell)) for cell in plan))
    durable.replace(folder / CELLS_FILE, (durable.dump_line(dump(r)) for r in records))
    durable.replace(folder / HEADER_FILE, dump_header(RunHeader(**{**fields, **header})))
    return folder


def paired(
    factor: float = 1.0, *, blocks: int = BLOCKS, level: float = 10.0, noise: float = 0.005, seed: int = 0
) -> tuple[list[float], list[float]]:
    """Latencies of a base and of a candidate that is `factor` times as slow, drift in common."""
    rng = np.random.default_rng(seed)
    drift = np.exp(rng.normal(0, 0.05, blocks))
    base = level * drift * np.exp(rng.normal(0, noise, blocks))
    candidate = level * factor * drift * np.exp(rng.normal(0, noise, blocks))
    return base.tolist(), candidate.tolist()
