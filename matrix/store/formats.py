"""What a run folder holds beside the cells: the header, and the attempts that are no launches."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from matrix.records import SCHEMA, EnvironmentRecord, Model, ReasonRecord
from matrix_adapters.protocol import State

Outcome = Literal["running", "complete", "interrupted", "budget_spent", "broken_off"]


class Session(Model):
    """One process that worked on the run: the first, and one for each `--resume`."""

    started: str
    ended: str = ""
    outcome: Outcome = "running"
    pid: int = 0
    command: tuple[str, ...] = ()
    load: Mapping[str, Any] = Field(default_factory=dict)  # before, after
    wall_s: float | None = None


class RunHeader(Model):
    """`run.json`: what was asked, where it ran, and how it went."""

    schema_version: int = SCHEMA
    id: str
    name: str = ""
    created: str
    ended: str = ""
    outcome: Outcome = "running"
    sweep: str = ""
    config: Mapping[str, Any] = Field(default_factory=dict)  # as resolved
    measure: Mapping[str, Any] = Field(default_factory=dict)  # the same with every default filled in
    seed: int
    blocks: int = 1  # timed launches planned for each cell
    comparison: Mapping[str, Any] = Field(default_factory=dict)  # of an A/B run: base, candidates, cut-off
    planned: int | None = None  # cells in plan.jsonl: exactly so many are reported
    backend: str = ""
    backend_why: str = ""
    machine: Mapping[str, Any] = Field(default_factory=dict)
    version: str = ""  # of this product
    versions: Mapping[str, str] = Field(default_factory=dict)  # of what it stands on
    command: tuple[str, ...] = ()
    load: Mapping[str, Any] = Field(default_factory=dict)  # before the first, after the last session
    null_adapter: Mapping[str, Any] = Field(default_factory=dict)  # median_ns, low_ns, high_ns a call
    peaks: Mapping[str, Any] = Field(default_factory=dict)  # of a run that times operators, by threads
    left_out: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)  # of from-model: nodes by reason
    totals: Mapping[str, Any] = Field(default_factory=dict)  # cells by state, wall_s, seconds by stage
    warnings: tuple[ReasonRecord, ...] = ()
    sessions: tuple[Session, ...] = ()
    consolidated_bytes: int | None = None  # length of attempts.jsonl that cells.jsonl was made from


class EnvironmentAttempt(Model):
    """One try at having an environment. `state` is ok, build_failed or interrupted."""

    environment: EnvironmentRecord
    consumes: str = ""  # which artefact its framework loads: "checkpoint" or "onnx"
    state: State
    reason: ReasonRecord | None = None
    flags: tuple[ReasonRecord, ...] = ()
    seconds: float = 0.0
    reused: bool = False
    notes: tuple[str, ...] = ()
    log: str | None = None
    at: str = ""


class ArtefactAttempt(Model):
    """One try at having what a row of cells shares: weights, inputs, reference.

    `consumes` tells the consumers of the checkpoint from those of its ONNX export, which
    can fail alone. `hashes` are SHA-256 by kind: `weights`, `onnx`, `inputs`, ...
    """

    subject: str
    batch: int
    sequence: int | None = None
    consumes: str
    state: State
    reason: ReasonRecord | None = None
    hashes: Mapping[str, str] = Field(default_factory=dict)
    facts: Mapping[str, Any] = Field(default_factory=dict)
    seconds: float = 0.0
    at: str = ""

    @property
    def key(self) -> tuple[str, int, int | None, str]:
        return (self.subject, self.batch, self.sequence, self.consumes)


def utc_now() -> str:
    """Now, in UTC, as text that sorts: 2026-11-30T20:26:40.123Z."""
    now = datetime.datetime.now(datetime.UTC)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
