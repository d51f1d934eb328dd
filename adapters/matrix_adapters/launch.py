"""One launch as it grows: what is known so far, kept so that a failure loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matrix_adapters.heartbeat import Heart
from matrix_adapters.protocol import Flag, Reason, Result, State, Task, TensorFacts


def timestamp() -> str:
    """Now, UTC, ISO 8601 to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


@dataclasses.dataclass
class Launch:
    """The notes of one launch. Standard library only: it exists before NumPy is imported."""

    out_dir: Path
    heart: Heart
    started: str = dataclasses.field(default_factory=timestamp)
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    absent: dict[str, str] = dataclasses.field(default_factory=dict)
    effective: dict[str, Any] = dataclasses.field(default_factory=dict)
    probes: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    flags: list[Flag] = dataclasses.field(default_factory=list)
    outputs: dict[str, TensorFacts] = dataclasses.field(default_factory=dict)
    sampling: dict[str, Any] = dataclasses.field(default_factory=dict)
    artefacts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def phase(self, name: str, *, beating: bool = True) -> Iterator[None]:
        """A timed phase, stored as `NAME_s` when it succeeds. The helper thread's start is not in it."""
        self.heart.enter(name)
        with self.heart.beating() if beating else contextlib.nullcontext():
            begin = time.perf_counter_ns()
            yield
            self.phases[f"{name}_s"] = (time.perf_counter_ns() - begin) / 1e9

    def flag(self, code: str, text: str) -> None:
        self.flags.append(Flag(code=code, text=text))

    def result(self, state: State, reason: Reason | None = None) -> Result:
        """The record of this launch. Numbers are kept only where the state is ok."""
        ok = state is State.OK
        return Result(
            state=state,
            reason=reason,
            phases=self.phases,
            metrics=self.metrics if ok else {},
            absent=self.absent,
            effective=jsonable(self.effective),
            probes=jsonable(self.probes),
            versions=self.versions,
            flags=tuple(self.flags),
            outputs=self.outputs,
            sampling=jsonable(self.sampling),
            artefacts=jsonable(self.artefacts),
            started=self.started,
            ended=timestamp(),
        )


def resolved(task: Task, in_dir: Path) -> Task:
    """The task with every path absolute: paths in it are absolute or relative to `in/`."""
    return dataclasses.replace(
        task,
        artefacts={kind: str(in_dir / path) for kind, path in task.artefacts.items()},
        inputs=None if task.inputs is None else str(in_dir / task.inputs),
    )


def jsonable(value: Any) -> Any:
    """Whatever an adapter or a probe reported, as JSON can hold it: NaN and objects become words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return jsonable(value.tolist())
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
