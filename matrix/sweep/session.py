"""The beginning and the end of a session on a run: header, load, records, exit code.

The end holds whatever ended the session: every planned cell is in the records, in one
state. Where they cannot be written (disk full), readers make them from the attempts.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matrix
from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig
from matrix.consolidate import flags as cell_flags
from matrix.consolidate.cells import consolidate
from matrix.consolidate.evidence import evidence_of
from matrix.errors import MatrixError, StorageError
from matrix.machine import doctor
from matrix.machine.fingerprint import fingerprint
from matrix.machine.load import LoadSnapshot, between, snapshot
from matrix.records import ReasonRecord, Record
from matrix.store.formats import Outcome, RunHeader, Session, utc_now
from matrix.store.names import new_id
from matrix.store.runs import RunStore
from matrix.sweep.outcome import CellEnd, SweepOutcome, count_states, exit_code

#: packages whose version may explain a difference on the host side
_STANDS_ON = ("numpy", "pydantic", "psutil")
#: what a run says of the machine's load; `matrix doctor` says the rest
_SAID_BY_RUNS = ("load_high", "pressure")


def new_header(
    config: SweepConfig,
    *,
    backend: str,
    backend_why: str,
    machine: Mapping[str, Any],
    name: str = "",
    seed: int | None = None,
) -> RunHeader:
    """The header of a run that begins now. `seed` orders the launches; None takes the sweep's own."""
    return RunHeader(
        id=new_id(config.name),
        name=name,
        created=utc_now(),
        sweep=config.name,
        config=config.data,
        measure=config.measure.model_dump(),
        seed=config.seed if seed is None else seed,
        blocks=config.measure.launches,
        left_out=config.left_out,
        backend=backend,
        backend_why=backend_why,
        machine=machine,
        version=matrix.__version__,
        versions={name: importlib.metadata.version(name) for name in _STANDS_ON}
        | {"python": platform.python_version()},
        command=tuple(sys.argv),
    )


def begin_session(store: RunStore, now: LoadSnapshot) -> None:
    """Write down that this process works on the run from now on. Raises StorageError."""
    load = {"before": _load_facts(now)}
    session = Session(started=utc_now(), pid=os.getpid(), command=tuple(sys.argv), load=load)
    known = store.header
    store.update_header(
        outcome="running",
        ended="",
        load=known.load or load,
        sessions=(*known.sessions, session),
        warnings=cell_flags.merge([known.warnings, _busy(now)]),
    )


def end_session(
    store: RunStore,
    catalog: Catalog,
    outcome: Outcome,
    *,
    began: LoadSnapshot,
    stages: dict[str, float],
    error: MatrixError | None = None,
) -> SweepOutcome:
    """Make the records and close the session. Never raises StorageError: it becomes the outcome's error."""
    store.header = store.header.model_copy(update={"outcome": outcome})  # it says why cells were not run
    ends: list[CellEnd] = []
    try:
        store.write_records(_watched(store, catalog, ends))
        _close_header(store, outcome, ends, began=began, stages=stages)
    except StorageError as full:
        if error is None:
            outcome, error = "broken_off", full
        store.header = store.header.model_copy(update={"outcome": outcome})
        ends.clear()
        for _ in _watched(store, catalog, ends):
            pass
        with contextlib.suppress(StorageError):
            _close_header(store, outcome, ends, began=began, stages=stages)
    return SweepOutcome(
        folder=store.folder,
        run=store.header.id,
        outcome=outcome,
        exit_code=exit_code(outcome, ends),
        states=count_states(ends),
        error=error,
    )


def _load_facts(now: LoadSnapshot, since: LoadSnapshot | None = None) -> dict[str, Any]:
    """How busy the machine is, and was since another look at it."""
    facts: dict[str, Any] = {"pressure": now.pressure}
    if now.load_average is not None:
        facts["load_average"] = [round(value, 2) for value in now.load_average]
    if since is not None:
        passed = between(since, now)
        facts |= {"busy": passed.busy, "steal": passed.steal, "text": passed.text}
    return {name: value for name, value in facts.items() if value is not None}


def _busy(now: LoadSnapshot) -> list[ReasonRecord]:
    """Warnings when others use the machine before anything of ours does."""
    machine = fingerprint()
    spoilers = doctor.warnings(machine, now, Path.cwd())
    return [ReasonRecord(code=s.code, text=s.text) for s in spoilers if s.code in _SAID_BY_RUNS]


def _watched(store: RunStore, catalog: Catalog, ends: list[CellEnd]) -> Iterator[Record]:
    """The records, each noted in `ends`. Raises AssertionError unless planned cells = reported cells."""
    cells = store.cells()
    attempts = store.attempts
    evidence = evidence_of(
        store.header, attempts.environments, attempts.artefacts, attempts.launches, store.reader().samples
    )
    for record in consolidate(cells, evidence, catalog.metrics):
        ends.append(CellEnd(id=record.id, state=record.state, required=record.required, xfail=record.xfail))
        yield record
    if [end.id for end in ends] != [cell.id for cell in cells]:
        raise AssertionError(f"{len(cells)} cells were planned, {len(ends)} are reported")


def _close_header(
    store: RunStore,
    outcome: Outcome,
    ends: list[CellEnd],
    *,
    began: LoadSnapshot,
    stages: dict[str, float],
) -> None:
    now = snapshot()
    load, wall_s = _load_facts(now, began), now.at - began.at
    known = store.header
    before = dict(known.totals)
    totals = {
        **before,
        "cells": len(ends),
        "states": {state.value: count for state, count in count_states(ends).items()},
        "launches": store.attempts.count(),
        "wall_s": round(float(before.get("wall_s", 0.0)) + wall_s, 3),
        "stages_s": {
            name: round(float(before.get("stages_s", {}).get(name, 0.0)) + stages.get(name, 0.0), 3)
            for name in dict.fromkeys([*before.get("stages_s", {}), *stages])
        },
    }
    *earlier, last = known.sessions
    session = last.model_copy(
        update={
            "ended": utc_now(),
            "outcome": outcome,
            "wall_s": round(wall_s, 3),
            "load": {**last.load, "after": load},
        }
    )
    store.update_header(
        outcome=outcome,
        ended=session.ended,
        load={**known.load, "after": load},
        totals=totals,
        sessions=(*earlier, session),
    )
