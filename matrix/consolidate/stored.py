"""The records of a stored run: as they were written, or made afresh where they could not be."""

from __future__ import annotations

import dataclasses

from matrix.catalog import load
from matrix.consolidate.cells import consolidate
from matrix.consolidate.evidence import evidence_of
from matrix.imported import records as imported
from matrix.imported import samples
from matrix.records import ReasonRecord, Record
from matrix.store.runs import StoredRun, is_running


def records_of(run: StoredRun) -> list[Record]:
    """One record per planned cell, also of a run whose last session was killed."""
    if run.is_consolidated():
        return list(run.stored_records())
    if samples.is_imported(run.folder):
        return list(imported.records_of(samples.load(run.folder), load().metrics))
    attempts = run.attempts()
    evidence = evidence_of(
        run.header, attempts.environments, attempts.artefacts, attempts.launches, run.samples
    )
    if pid := is_running(run.folder):
        going_on = ReasonRecord(code="running", text=f"process {pid} has not come to this cell yet")
        evidence = dataclasses.replace(evidence, stopped=going_on)
    return list(consolidate(run.cells(), evidence, load().metrics))
