"""The host's own records: what a cell is, and what is known of it when it has ended.

`Cell` is what planning makes (thousands of them, so a plain frozen dataclass);
`Record` is what a run stores and every view reads (pydantic, so that its JSON
Schema is generated from the one definition).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from matrix_adapters.protocol import Reason, State, content_hash

SCHEMA = 1

Backend = Literal["docker", "venv", "host"]

#: level and subject of the fixed workload that tells "the machine moved" from "the framework moved"
CONTROL = "control"
#: level of what was measured elsewhere and imported: only names of environment and workload are known
IMPORTED = "imported"
#: level of single operators: a cell's subject is then a case, "Gelu/tanh"
OPERATOR = "operator"
#: how the variant of a user's own implementation of an operator begins: "candidate:fused_gelu"
CANDIDATE = "candidate:"
#: the arm of an environment that is measured against itself
AA = "aa"
#: the stage of a block that the machine spoiled, on whichever side: it was replaced and says nothing
VOID = "void"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """Framework x version x hardware: what is built once and shared by many cells."""

    framework: str
    version: str
    hardware: str
    build: str = ""  # the framework's build for that hardware: "cpu", "cuda"
    changes: tuple[str, ...] = ()  # "numpy=2.2.0", "python=3.12": in what it differs from the usual one

    @property
    def name(self) -> str:
        """Readable, unique, and fit for file names: what a change holds beyond that is abridged."""
        parts = [self.framework, self.version, self.hardware, *map(_plain, self.changes)]
        return "-".join([part for part in parts if part])  # an imported one is a name and nothing else


_LONGEST_CHANGE = 40


@functools.cache
def _plain(change: str) -> str:
    """A change as a part of a name: env.X=1, python=python3.12~1a2b3c for a path."""
    key, _, value = change.partition("=")
    key = key.replace(":", ".", 1)
    if re.fullmatch(r"[A-Za-z0-9._+-]*", value) and len(value) <= _LONGEST_CHANGE:
        return f"{key}={value}"
    last = re.sub(r"[^A-Za-z0-9._+-]+", "_", value.rstrip("/").rpartition("/")[2])
    return f"{key}={last[:_LONGEST_CHANGE]}~{content_hash(change, 6)}"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What is computed. Cells of two environments are matched by these fields, never by id."""

    level: str
    subject: str  # a model's name; at level "operator" a case's: "Gelu/tanh"
    batch: int
    sequence: int | None  # None where the model has no such axis
    precision: str
    threads: int
    variant: str  # the framework's own word; "" where nothing was chosen

    @property
    def label(self) -> str:
        if self.level in (CONTROL, IMPORTED):
            return self.subject
        if self.level == OPERATOR:
            return f"{self.subject} {self.precision} {self.threads}t"
        parts = [self.subject, f"b{self.batch}"]
        if self.sequence is not None:
            parts.append(f"s{self.sequence}")
        parts += [self.precision, f"{self.threads}t"]
        return " ".join(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One workload in one environment. `state` is set when planning already knows the end.

    `timed` is False for a cell that is right or wrong and nothing more: it has one launch, its check.
    """

    environment: Environment
    workload: Workload
    arm: str = ""
    required: bool = False
    xfail: str = ""
    timed: bool = True
    state: State | None = None
    reason: Reason | None = None

    @functools.cached_property
    def id(self) -> str:
        """A hash of every field that says what the cell is; never parse a label instead."""
        environment = tuple(dataclasses_dict(self.environment).values())
        if not self.environment.changes:  # ids of the usual environments do not depend on the field
            environment = environment[:-1]
        return content_hash([environment, tuple(dataclasses_dict(self.workload).values()), self.arm], 12)

    @property
    def side(self) -> str:
        """The environment, and the arm where it has one: NAME, NAME@aa."""
        return f"{self.environment.name}@{self.arm}" if self.arm else self.environment.name

    @property
    def label(self) -> str:
        variant = f" [{self.workload.variant}]" if self.workload.variant else ""
        return f"{self.side}{variant} {self.workload.label}"

    def fields(self) -> dict[str, Any]:
        """Flat names for `--select`: `model`, `framework`, `hardware`, `batch`, ..."""
        return {
            **dataclasses_dict(self.environment),
            **dataclasses_dict(self.workload),
            "model": self.workload.subject,
            "operator": operator_of(self.workload),
            "environment": self.environment.name,
            "arm": self.arm,
            "required": self.required,
            "state": self.state.value if self.state else "",
            "id": self.id,
        }


def operator_of(work: Workload | WorkloadRecord) -> str:
    """The operator that a workload tests, "Gelu"; "" at other levels."""
    return work.subject.partition("/")[0] if work.level == OPERATOR else ""


def dataclasses_dict(value: Any) -> dict[str, Any]:
    """One level of a dataclass as a dict (asdict copies deeply, and is slow for 10,000 cells)."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


class Model(BaseModel):
    """Strict base of everything stored: unknown fields are errors, NaN cannot be written."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="null", allow_inf_nan=False)


class ReasonRecord(Model):
    """A code for scripts and a sentence for people (states and flags alike)."""

    code: str
    text: str


class MetricValue(Model):
    """One number of one cell. `low` and `high` are the range over launches, not an interval."""

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    n: int = 1  # launches, or samples for pooled percentiles
    derived: bool = False


class Parity(Model):
    """Numerics of one launch or cell against the reference, with the rule that decided."""

    reference: str  # e.g. "pytorch 2.13.0 float64"
    passed: bool
    rule: str  # e.g. "max|d|/max|ref| <= clamp(4 x 5.4e-07, 1e-05, 0.0001) = 1e-05"
    limit: float | None = None
    floor: float | None = None
    max_scaled_error: float | None = None
    max_ulps: float | None = None  # of operators: in units of the last place of the case's dtype
    cosine: float | None = None
    top1_agreement: float | None = None
    least_passing: float | None = None
    unit: str = ""  # of `limit` and `least_passing`: "ulp", "absolute"; "" where they are shares of max|ref|
    worst: str = ""  # "logits[0, 17]: got 0.1, reference 0.2"
    failure: str = ""  # what failed first, in words; empty when it passed
    failure_code: str = ""  # shape | dtype | non_finite | tolerance | top1 | constant_reference ...


class EnvironmentRecord(Model):
    """Which environment, how it was built, and what was really in it."""

    name: str
    framework: str
    version: str
    hardware: str
    build: str = ""
    changes: tuple[str, ...] = ()
    backend: str = ""
    key: str = ""
    python: str = ""
    lock: tuple[str, ...] = ()  # what was really installed, "name==version"
    size_bytes: int | None = None


class WorkloadRecord(Model):
    """What was computed; the fields by which two environments' cells are matched."""

    level: str
    subject: str
    batch: int
    sequence: int | None = None
    precision: str
    threads: int
    variant: str = ""


class LaunchRecord(Model):
    """One fresh process, as the store keeps it (one line per attempt)."""

    cell: str
    purpose: Literal["measure", "memory", "pilot", "check"]  # check: a place in a correctness batch
    block: int
    attempt: int = 1
    pair: str = ""  # of a live pair: its name, which is the candidate's (see `matrix.sweep.pairs`)
    stage: str = ""  # of a live pair: "screen", "confirm" or "void"
    state: State
    reason: ReasonRecord | None = None
    phases: Mapping[str, float] = Field(default_factory=dict)
    metrics: Mapping[str, float] = Field(default_factory=dict)
    absent: Mapping[str, str] = Field(default_factory=dict)
    effective: Mapping[str, Any] = Field(default_factory=dict)
    probes: Mapping[str, Any] = Field(default_factory=dict)
    versions: Mapping[str, str] = Field(default_factory=dict)
    flags: tuple[ReasonRecord, ...] = ()
    sampling: Mapping[str, Any] = Field(default_factory=dict)
    outputs: Mapping[str, Any] = Field(default_factory=dict)
    artefacts: Mapping[str, Any] = Field(default_factory=dict)  # as the worker saw them
    parity: Parity | None = None
    samples: str | None = None  # path of the raw samples, relative to the run folder
    log: str | None = None
    position: int = 0  # place in the randomised order of its block
    started: str = ""
    ended: str = ""


class Record(Model):
    """Everything known of one cell: what `report --format json` prints per cell."""

    schema_version: int = SCHEMA
    id: str
    label: str
    arm: str = ""
    environment: EnvironmentRecord
    workload: WorkloadRecord
    required: bool = False
    xfail: str = ""
    state: State
    reason: ReasonRecord | None = None
    flags: tuple[ReasonRecord, ...] = ()
    metrics: Mapping[str, MetricValue] = Field(default_factory=dict)
    absent: Mapping[str, str] = Field(default_factory=dict)
    parity: Parity | None = None
    artefacts: Mapping[str, Any] = Field(default_factory=dict)  # weights/onnx/input hashes
    contract: Mapping[str, Any] = Field(default_factory=dict)
    contract_hash: str = ""
    effective: Mapping[str, Any] = Field(default_factory=dict)
    versions: Mapping[str, str] = Field(default_factory=dict)
    work: Mapping[str, Any] = Field(default_factory=dict)  # of a timed operator: flops, bytes a call, ...
    launches: tuple[LaunchRecord, ...] = ()
    attempts: int = 0
    started: str = ""
    ended: str = ""
