"""From what a worker wrote of one operator case to the record that is kept: judged, with its evidence."""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix.artefacts.operator_store import EXPECTED_FILE, PreparedCase
from matrix.catalog.types import Catalog
from matrix.consolidate.evidence import CHECK
from matrix.judge import operators as judge
from matrix.judge.operators.archive import open_arrays
from matrix.judge.operators.formats import FORMATS, decoded
from matrix.operators.expand import CatalogCase
from matrix.records import Cell, LaunchRecord, Parity, ReasonRecord
from matrix.store.formats import utc_now
from matrix.store.runs import RunStore
from matrix_adapters.protocol import Reason, Result, State, from_plain

#: values of an output that are kept in the record itself, where several answers are shown side by side
SHOWN = 16
DIFFERS = "differs_by_definition"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What a worker said of a case that it came through: one line of cases.jsonl."""

    state: State
    reason: Reason | None = None
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # name -> {"dtype", "shape"}
    effective: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


def answer_of(line: Mapping[str, Any]) -> Answer:
    """Raises ProtocolError for a line that is none."""
    names = {field.name for field in dataclasses.fields(Answer)}
    return from_plain(Answer, {name: value for name, value in line.items() if name in names})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged:
    """The end of one case. `outputs`: as the worker described them; of open cases with their values."""

    state: State
    reason: Reason | None = None
    parity: Parity | None = None
    flags: tuple[ReasonRecord, ...] = ()
    outputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def judged(
    answer: Answer, arrays: Path, case: CatalogCase, prepared: PreparedCase, catalog: Catalog
) -> Judged:
    """The verdict on a case. `arrays`: the .npz with its outputs. Never raises for what a worker left."""
    if answer.state is not State.OK:
        return Judged(state=answer.state, reason=answer.reason, outputs=answer.outputs)
    rule = catalog.tolerances.operators.get(case.kind)
    if rule is None:
        text = f"the tolerance table has no row for operators of the kind {case.kind}"
        return Judged(state=State.FAILED, reason=Reason(code="no_tolerance", text=text))
    try:
        outputs, expected = open_arrays(arrays), open_arrays(prepared.folder / EXPECTED_FILE)
        verdict = judge.judge(
            outputs,
            {name: str(facts["dtype"]) for name, facts in answer.outputs.items()},
            expected,
            prepared.dtypes,
            rule,
            depth=case.depth,
            scales=None if case.terms is None else dict.fromkeys(expected, np.asarray(case.terms)),
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        text = f"its outputs cannot be judged: {error}"
        return Judged(state=State.FAILED, reason=Reason(code="not_judged", text=text), outputs=answer.outputs)
    described = dict(answer.outputs)
    if case.open:
        described = {n: {**f, **_shown(n, str(f["dtype"]), outputs, expected)} for n, f in described.items()}
    parity = verdict.parity(prepared.source)
    gradient = answer.effective.get("gradient")  # of a candidate that has one
    if verdict.passed and isinstance(gradient, Mapping) and not gradient.get("passed"):
        reason = Reason(code="gradient", text=str(gradient.get("text", "its gradient is wrong")))
        return Judged(state=State.INCORRECT, reason=reason, parity=parity, outputs=described)
    flags = tuple(ReasonRecord(code=note.code, text=note.text) for note in verdict.notes)
    if verdict.passed:
        return Judged(state=State.OK, parity=parity, flags=flags, outputs=described)
    if case.open:
        text = f"differs by definition: {case.open}; {verdict.failure}"
        flags = (*flags, ReasonRecord(code=DIFFERS, text=text))
        return Judged(state=State.OK, parity=parity, flags=flags, outputs=described)
    reason = Reason(code=verdict.failure_code, text=verdict.failure)
    return Judged(state=State.INCORRECT, reason=reason, parity=parity, flags=flags, outputs=described)


def record_of(
    cell: Cell,
    attempt: int,
    answer: Answer,
    found: Judged,
    *,
    versions: Mapping[str, str],
    log: str | None = None,
) -> LaunchRecord:
    """The check as the store keeps it."""
    return LaunchRecord(
        cell=cell.id,
        purpose="check",
        block=CHECK[1],
        attempt=attempt,
        state=found.state,
        reason=_reason(found.reason),
        phases={"check_s": answer.seconds},
        effective=answer.effective,
        versions=versions,
        flags=found.flags,
        outputs=found.outputs,
        parity=found.parity,
        log=log,
        ended=utc_now(),
    )


def record_of_end(
    cell: Cell, attempt: int, state: State, reason: Reason | None, result: Result, *, log: str | None
) -> LaunchRecord:
    """A case that its batch ended with: what became of the process is what became of it."""
    return LaunchRecord(
        cell=cell.id,
        purpose="check",
        block=CHECK[1],
        attempt=attempt,
        state=state,
        reason=_reason(reason),
        effective=result.effective,
        probes=result.probes,
        versions=result.versions,
        log=log,
        ended=utc_now(),
    )


def keep_evidence(store: RunStore, cell: Cell, found: Judged, arrays: Path, attempt: int) -> None:
    """Wrong outputs, and those of cases that several answers are right for; others are not kept."""
    wrong = found.state is State.INCORRECT or any(flag.code == DIFFERS for flag in found.flags)
    if wrong:
        name = "check" if attempt == 1 else f"check-attempt{attempt}"
        store.keep_file(arrays, cell.id, f"{name}-outputs.npz")
    else:
        arrays.unlink(missing_ok=True)


def _shown(
    name: str, dtype: str, outputs: Mapping[str, Any], expected: Mapping[str, Any]
) -> dict[str, list[str]]:
    """The first values of an output as text: NaN and infinities are no JSON."""
    shown = {}
    for key, array in (("values", outputs.get(name)), ("reference", expected.get(name))):
        if array is not None:
            first = np.ravel(array)[:SHOWN]
            shown[key] = [str(value) for value in (decoded(first, dtype) if dtype in FORMATS else first)]
    return shown


def _reason(reason: Reason | None) -> ReasonRecord | None:
    return None if reason is None else ReasonRecord(code=reason.code, text=reason.text)
