"""Which launches a run still needs. Kept up to date as they end; nothing is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from matrix.consolidate.evidence import CHECK, Slot, latest, slot_of, slots_of
from matrix.records import OPERATOR, Cell, LaunchRecord
from matrix_adapters.protocol import State

#: failures that came from outside and say nothing about the cell: `--resume` tries again
TRANSIENT = frozenset(
    {"killed", "disk_full", "cannot_start", "engine_lost", "container_removed", "image_gone", "gave_up"}
)


def is_final(launch: LaunchRecord) -> bool:
    """Whether a launch of an earlier session counts, so that it is not repeated.

    Within a session nothing is tried again after a failure: one that a second try hides
    would not be seen. The exception is in `rounds`: memory launches that ran side by side.
    """
    if launch.state is State.FAILED and launch.reason is not None:
        return launch.reason.code not in TRANSIENT
    return launch.state is not State.INTERRUPTED


class Ledger:
    """What has been done of each cell."""

    def __init__(
        self, cells: Iterable[Cell], launches: Callable[[str], Sequence[LaunchRecord]], blocks: int
    ) -> None:
        self._blocks = blocks
        self._done: dict[str, set[Slot]] = {}
        self._attempts: Counter[tuple[str, Slot]] = Counter()
        self._closed: set[str] = set()
        for cell in cells:
            if cell.state is not None:
                self._closed.add(cell.id)
                continue
            known = launches(cell.id)
            self._attempts.update((cell.id, slot_of(launch)) for launch in known)
            for launch in latest(known).values():
                if is_final(launch):
                    self._take(launch)

    def note(self, launch: LaunchRecord) -> None:
        """A launch has ended. Anything but a number closes the cell for this session."""
        self._attempts[launch.cell, slot_of(launch)] += 1
        self._take(launch)

    def reopen(self, cell: Cell, slot: Slot) -> None:
        """Let one launch be tried again."""
        self._done[cell.id].discard(slot)
        self._closed.discard(cell.id)

    def close(self, cell: Cell) -> None:
        """This cell cannot be launched (no environment, no artefact)."""
        self._closed.add(cell.id)

    def needs(self, cell: Cell, slot: Slot) -> bool:
        """Whether this launch is still to be made."""
        if not (cell.workload.level == OPERATOR if slot == CHECK else cell.timed):
            return False
        return cell.id not in self._closed and slot not in self._done.get(cell.id, ())

    def is_open(self, cell: Cell) -> bool:
        """Whether any launch of the cell is still to be made."""
        return any(self.needs(cell, slot) for slot in slots_of(cell, self._blocks))

    def may_run(self, cell: Cell) -> bool:
        """Whether nothing speaks against another launch of the cell."""
        return cell.id not in self._closed

    def next_attempt(self, cell: Cell, slot: Slot) -> int:
        """The number of the next attempt at a launch, from 1."""
        return self._attempts[cell.id, slot] + 1

    def _take(self, launch: LaunchRecord) -> None:
        self._done.setdefault(launch.cell, set()).add(slot_of(launch))
        if launch.state not in (State.OK, State.INCORRECT):
            self._closed.add(launch.cell)
