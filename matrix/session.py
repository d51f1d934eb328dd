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
from typing import Any

import matrix
from matrix.catalog.types import Catalog
from matrix.config import SweepConfig
from matrix.consolidate import consolidate, evidence_of
from matrix.errors import MatrixError, StorageError
from matrix.machine import usable_threads
from matrix.outcome import CellEnd, SweepOutcome, count_states, exit_code
from matrix.records import ReasonRecord, Record
from matrix.run_names import new_id
from matrix.run_records import Outcome, RunHeader, Session, utc_now
from matrix.store import RunStore

#: packages whose version may explain a difference on the host side
_STANDS_ON = ("numpy", "pydantic", "psutil")
#: a load average above this share of the CPUs is worth a warning
_BUSY_SHARE = 0.5


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
        backend=backend,
        backend_why=backend_why,
        machine=machine,
        version=matrix.__version__,
        versions={name: importlib.metadata.version(name) for name in _STANDS_ON}
        | {"python": platform.python_version()},
        command=tuple(sys.argv),
    )


def begin_session(store: RunStore) -> None:
    """Write down that this process works on the run from now on. Raises StorageError."""
    load = load_average()
    session = Session(started=utc_now(), pid=os.getpid(), command=tuple(sys.argv), load={"before": load})
    first = store.header.load or {"before": load}
    store.update_header(outcome="running", ended="", load=first, sessions=(*store.header.sessions, session))


def end_session(
    store: RunStore,
    catalog: Catalog,
    outcome: Outcome,
    *,
    wall_s: float,
    stages: dict[str, float],
    error: MatrixError | None = None,
) -> SweepOutcome:
    """Make the records and close the session. Never raises StorageError: it becomes the outcome's error."""
    store.header = store.header.model_copy(update={"outcome": outcome})  # it says why cells were not run
    ends: list[CellEnd] = []
    try:
        store.write_records(_watched(store, catalog, ends))
        _close_header(store, outcome, ends, wall_s=wall_s, stages=stages)
    except StorageError as full:
        if error is None:
            outcome, error = "broken_off", full
        store.header = store.header.model_copy(update={"outcome": outcome})
        ends.clear()
        for _ in _watched(store, catalog, ends):
            pass
        with contextlib.suppress(StorageError):
            _close_header(store, outcome, ends, wall_s=wall_s, stages=stages)
    return SweepOutcome(
        folder=store.folder,
        run=store.header.id,
        outcome=outcome,
        exit_code=exit_code(outcome, ends),
        states=count_states(ends),
        error=error,
    )


def load_average() -> dict[str, Any]:
    """How busy the machine is: processes that run or want to, over 1, 5 and 15 minutes."""
    try:
        return {"load_average": [round(value, 2) for value in os.getloadavg()]}
    except (AttributeError, OSError):
        return {}


def _busy(load: Mapping[str, Any]) -> list[ReasonRecord]:
    """A warning when others use the machine before anything of ours does."""
    average, cpus = load.get("load_average", [0.0])[0], usable_threads()
    if average <= _BUSY_SHARE * cpus:
        return []
    text = f"the machine was busy when the session began: load average {average:g} on {cpus} usable CPUs"
    return [ReasonRecord(code="busy_machine", text=text)]


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
    store: RunStore, outcome: Outcome, ends: list[CellEnd], *, wall_s: float, stages: dict[str, float]
) -> None:
    load = load_average()
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
