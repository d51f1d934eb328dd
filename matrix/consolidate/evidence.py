"""What a run has found out, and which launches each of its cells needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matrix.consolidate import reduce
from matrix.records import OPERATOR, Cell, LaunchRecord, ReasonRecord
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt, RunHeader

#: one launch that a cell needs: its purpose, its block, and the pair it is half of
Slot = tuple[str, int, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything a run has found out."""

    environments: Mapping[str, EnvironmentAttempt]  # by environment name
    artefacts: Mapping[tuple[str, int, int | None, str], ArtefactAttempt]
    launches: Callable[[str], Sequence[LaunchRecord]]  # by cell id, in the order they ended
    samples: reduce.ReadSamples
    blocks: int
    stopped: ReasonRecord  # why what has not been done was not done
    measure: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    peaks: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what the machine can, by threads
    pairs: bool = False  # of an A/B run: its cells have a pilot, and as many blocks as it took

    def needed(self, cell: Cell, last: Mapping[Slot, LaunchRecord]) -> tuple[Slot, ...]:
        """The launches without which a cell is not done. `last` holds those that there are."""
        if not self.pairs or not cell.timed:
            return slots_of(cell, self.blocks)
        # A pilot checks the outputs; how many blocks follow depends on the other side as well.
        return tuple(last) if any(slot[0] == "pilot" for slot in last) else (("pilot", 0, ""), *last)

    def artefact(self, cell: Cell) -> ArtefactAttempt | None:
        """The weights, inputs and reference that a cell shares with its row."""
        environment = self.environments.get(cell.environment.name)
        work = cell.workload
        consumes = environment.consumes if environment else ""
        if work.level == OPERATOR:  # its files are the same for all that check it
            return self.artefacts.get(operator_artefact(work.subject, work.precision))
        return self.artefacts.get((work.subject, work.batch, work.sequence, consumes))


def operator_artefact(subject: str, precision: str) -> tuple[str, int, int | None, str]:
    """The key of what an operator case is run from: a case is another one in every type."""
    return (f"{subject} {precision}", 1, None, OPERATOR)


#: the one launch that says whether an operator case is right: a place in a correctness batch
CHECK: Slot = ("check", 0, "")


def slots(blocks: int) -> tuple[Slot, ...]:
    """The launches every timed cell needs: one for memory, one timed in each block."""
    return (("memory", 0, ""), *(("measure", block, "") for block in range(blocks)))


def slots_of(cell: Cell, blocks: int) -> tuple[Slot, ...]:
    """The launches this cell needs: of an operator its check first, and no more where it is not timed."""
    check = (CHECK,) if cell.workload.level == OPERATOR else ()
    return (*check, *slots(blocks)) if cell.timed else check


def slot_of(launch: LaunchRecord) -> Slot:
    """Which of its cell's launches this is an attempt at."""
    return (launch.purpose, launch.block, launch.pair)


def latest(launches: Sequence[LaunchRecord]) -> dict[Slot, LaunchRecord]:
    """The last attempt at each launch."""
    return {slot_of(launch): launch for launch in launches}


def evidence_of(
    header: RunHeader,
    environments: Mapping[str, EnvironmentAttempt],
    artefacts: Mapping[tuple[str, int, int | None, str], ArtefactAttempt],
    launches: Callable[[str], Sequence[LaunchRecord]],
    samples: reduce.ReadSamples,
) -> Evidence:
    """What `consolidate` needs, from a run's header and attempts."""
    return Evidence(
        environments=environments,
        artefacts=artefacts,
        launches=launches,
        samples=samples,
        blocks=header.blocks,
        stopped=_stopped(header),
        measure=header.measure,
        peaks=header.peaks,
        pairs=bool(header.comparison),
    )


def _stopped(header: RunHeader) -> ReasonRecord:
    """Why a cell was not run, and how to go on."""
    code, text = _STOPPED[header.outcome]
    if header.comparison and header.outcome == "complete":
        return ReasonRecord(code=code, text="it runs beside the other side of its pair, which did not work")
    command = "upgrade" if header.comparison else "run"
    if isinstance(foreign := header.config.get("foreign"), Mapping):  # others' tests
        command = f"operators {foreign.get('tests', '')}"
    return ReasonRecord(code=code, text=f"{text}; `matrix {command} --resume {header.id}` goes on")


_STOPPED: dict[str, tuple[str, str]] = {
    "running": ("stopped", "the run was stopped before this cell was done"),
    "interrupted": ("stopped", "the run was interrupted before this cell was done"),
    "budget_spent": ("budget", "the time budget was spent before this cell was done"),
    "broken_off": ("stopped", "the run had to be broken off before this cell was done"),
    "complete": ("stopped", "the run ended before this cell was done"),
}
