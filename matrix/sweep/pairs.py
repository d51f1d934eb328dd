"""The schedule of an A/B run: pilots, then rounds of one block of every open pair, until all is decided.

A pilot freezes what every block then keeps to on both sides (warm-up, calls a sample,
length of a slice); its own numbers are never judged. After each round of blocks the judge
says of every pair whether more blocks could decide anything, and whether they are to
screen or to confirm. What is decided costs nothing more.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from matrix.arms import Pair, pairs_of
from matrix.errors import StorageError
from matrix.execution.live import open_live as open_anywhere
from matrix.judge.rows import Stage
from matrix.records import VOID, Cell, LaunchRecord
from matrix.store.runs import StoredRun
from matrix.sweep.launching import STALL_S, Job, Purpose
from matrix.sweep.ledger import is_final
from matrix.sweep.observer import Progress
from matrix.sweep.pace import Pace
from matrix.sweep.pair import Ended, Frozen, Half, OpenLive, run_pair
from matrix.sweep.pilot import PILOT, frozen_by
from matrix.sweep.rounds import TAKEN_AWAY
from matrix.sweep.run import checks, timed
from matrix.sweep.stages import Stages
from matrix.sweep.stopping import Stop
from matrix_adapters.protocol import State

#: what the machine did to a block that says nothing of the framework; seen before the sides are compared
SPOILERS = frozenset({"throttled", "stolen"})
#: a machine that always does it is measured as it is, with a flag: of the blocks, how many are replaced
MOST_VOID = 1 / 3
#: the control and the base against itself have as many blocks as a screening takes at most
SENTINEL_BLOCKS = 16

_T = TypeVar("_T")
Open = Callable[[StoredRun, Sequence[Pair], Sequence[Pair]], Mapping[Pair, Stage]]
"""Of which pairs more blocks could still decide something, and what those blocks are for.

Given the run, those pairs, and the pairs of the base against itself (they show the noise).
"""


@dataclasses.dataclass(frozen=True)
class _Launch:
    """Which launch of each half's cell a pair is."""

    purpose: Purpose
    block: int = 0
    stage: str = ""


@dataclasses.dataclass
class _Known:
    """One pair, and what has been done of it."""

    pair: Pair
    sentinel: bool  # control, or the base against itself: measured beside the others, never waited for
    frozen: Frozen | None = None
    blocks: int = 0  # good and void ones: the number of the next
    void: int = 0
    closed: bool = False


class PairSchedule:
    """Makes the launches of an A/B run; called once a session."""

    def __init__(
        self, open_pairs: Open, *, budget_s: float | None = None, open_live: OpenLive = open_anywhere
    ) -> None:
        self._open_pairs, self._budget_s, self._open_live = open_pairs, budget_s, open_live
        self._pace = Pace()
        self._deadline: float | None = None

    def __call__(self, stages: Stages, seconds: dict[str, float]) -> None:
        """All launches of a session. Raises Stop, StorageError, EngineLost."""
        header = stages.store.header
        self._stages = stages
        self._chance = random.Random(f"{header.seed}:{len(header.sessions)}")  # noqa: S311 (order, not secrecy)
        checks(stages, seconds)
        with timed(seconds, "overhead"):
            stages.null_adapter()
        if self._budget_s is not None:
            self._deadline = time.monotonic() + self._budget_s
        asked = {side for sides in header.comparison["candidates"] for side in sides}
        self._pairs = [
            self._recalled(pair, pair.is_control or (pair.is_aa and pair.name not in asked))
            for pair in pairs_of([cell for cell in stages.runnable if cell.timed], header.comparison)
        ]
        with timed(seconds, "pilots"):
            self._pilots()
        with timed(seconds, "timed"):
            self._rounds()

    def _pilots(self) -> None:
        wanted = [known for known in self._pairs if not known.closed and known.frozen is None]
        for done, known in enumerate(self._shuffled(wanted)):
            self._show("pilots", known.pair, done, len(wanted))
            self._pilot(known)

    def _rounds(self) -> None:
        number = 1 + max((known.blocks for known in self._pairs), default=0)
        while wanted := self._wanted():
            still_open = sum(not known.sentinel for known, _ in wanted)
            for done, (known, stage) in enumerate(self._shuffled(wanted)):
                if not known.closed:
                    self._show(f"round {number}, {still_open} open", known.pair, done, len(wanted))
                    self._block(known, stage)
            number += 1

    def _wanted(self) -> list[tuple[_Known, Stage]]:
        """A block of each pair that is still open; of the sentinels too, as long as there is any."""
        live = [known for known in self._pairs if not known.closed]
        judged = [known for known in live if not known.sentinel]
        found = self._open_pairs(
            self._stages.store.reader(),
            [known.pair for known in judged],
            [known.pair for known in self._pairs if known.sentinel and known.pair.is_aa],
        )
        asked = [(known, found[known.pair]) for known in judged if known.pair in found]
        if not asked:
            return []
        beside = [known for known in live if known.sentinel and known.blocks - known.void < SENTINEL_BLOCKS]
        return [*asked, *((known, Stage.SCREEN) for known in beside)]

    def _pilot(self, known: _Known) -> None:
        launch = _Launch("pilot")
        if not self._piloted(known, launch) and self._may_try_again(known, launch):
            self._piloted(known, launch)

    def _piloted(self, known: _Known, launch: _Launch) -> bool:
        ended, scratch = self._run(known.pair, launch, None)
        facts: dict[str, Any] = {}
        if ended.sample_s is not None:
            known.frozen = frozen_by(ended, scratch)
            facts["frozen"] = dataclasses.asdict(known.frozen)
        return self._settle(known, ended, scratch, launch, **facts)

    def _block(self, known: _Known, stage: Stage) -> None:
        launch = _Launch("measure", known.blocks, stage.value)
        ended, scratch = self._run(known.pair, launch, known.frozen)
        if _spoiled(ended) and known.void < MOST_VOID * (known.blocks + 1):
            launch = dataclasses.replace(launch, stage=VOID)
            known.void += 1
        if not self._settle(known, ended, scratch, launch) and self._may_try_again(known, launch):
            ended, scratch = self._run(known.pair, launch, known.frozen)
            self._settle(known, ended, scratch, launch)

    def _may_try_again(self, known: _Known, launch: _Launch) -> bool:
        """Open a pair again whose container was taken away; not where everything is being stopped."""
        if self._stages.stop.cancel.is_set():
            return False
        for cell in (known.pair.base, known.pair.candidate):
            self._stages.ledger.reopen(cell, (launch.purpose, launch.block, known.pair.name))
        known.closed = False
        return True

    def _run(self, pair: Pair, launch: _Launch, frozen: Frozen | None) -> tuple[Ended, tuple[Path, Path]]:
        """One live pair, nothing else beside it. Raises Stop when there is no time left for it."""
        self._stages.stop.check()
        kind = (pair, launch.purpose)
        if self._deadline is not None:
            expected = self._pace.left([kind]) or 0.0
            if time.monotonic() + expected / 2 > self._deadline:  # late by half a block, or early
                raise Stop("budget_spent")
        store = self._stages.store
        scratch = (store.scratch(), store.scratch())
        began = time.monotonic()
        with self._stages.observer.still():
            ended = run_pair(
                self._half(pair.base, pair, launch, frozen, scratch[0]),
                self._half(pair.candidate, pair, launch, frozen, scratch[1]),
                frozen,
                chance=self._chance,
                open_live=self._open_live,
                timeout_s=self._stages.launcher.timeout_s,
                stall_s=STALL_S,
                cancel=self._stages.stop.cancel,
            )
        self._pace.note(kind, time.monotonic() - began)
        return ended, scratch

    def _half(self, cell: Cell, pair: Pair, launch: _Launch, frozen: Frozen | None, folder: Path) -> Half:
        launcher = self._stages.launcher
        options = {"pilot": PILOT} if frozen is None else frozen.options()
        task = dataclasses.replace(launcher.task(self._job(cell, pair, launch)), options=options)
        return Half(built=launcher.environments[cell.environment], task=task, folder=folder)

    def _settle(
        self, known: _Known, ended: Ended, scratch: Sequence[Path], launch: _Launch, **facts: Any
    ) -> bool:
        """Store both halves. False when the pair was taken away and may be tried again."""
        pair, store = known.pair, self._stages.store
        records: list[LaunchRecord] = []
        halves = zip((pair.base, pair.candidate), ended.results, scratch, strict=True)
        for cell, result, folder in halves:
            sampling = {**result.sampling, **ended.facts, **facts, "block_s": round(ended.seconds, 3)}
            record = self._stages.launcher.settle(
                self._job(cell, pair, launch), dataclasses.replace(result, sampling=sampling), folder
            )
            store.append(record)
            self._stages.ledger.note(record)
            records.append(record)
        bad = [record for record in records if record.state is not State.OK]
        for record in bad:
            if record.reason is not None and record.reason.code == "disk_full":
                raise StorageError(record.reason.text)
            self._show(f"block {launch.block + 1}", pair, 0, 1, record)
        known.closed = bool(bad)
        if launch.purpose == "measure" and not bad:
            known.blocks += 1
        return not any(r.reason is not None and r.reason.code in TAKEN_AWAY for r in bad)

    def _recalled(self, pair: Pair, sentinel: bool) -> _Known:
        """What an earlier session has done."""
        known = _Known(pair=pair, sentinel=sentinel)
        halves = [
            [launch for launch in self._stages.store.attempts.launches(cell.id) if launch.pair == pair.name]
            for cell in (pair.base, pair.candidate)
        ]
        for launches in halves:
            known.closed = known.closed or any(
                launch.state is not State.OK and is_final(launch) for launch in launches
            )
            for launch in launches:
                if launch.purpose == "pilot" and launch.state is State.OK and "frozen" in launch.sampling:
                    known.frozen = Frozen(**launch.sampling["frozen"])
        done = [
            {launch.block for launch in launches if launch.purpose == "measure" and launch.state is State.OK}
            for launches in halves
        ]
        known.blocks = 1 + max(done[0] & done[1], default=-1)
        known.void = sum(launch.stage == VOID for launch in halves[0])
        if not all(self._stages.ledger.may_run(cell) for cell in (pair.base, pair.candidate)):
            known.closed = True
        return known

    def _job(self, cell: Cell, pair: Pair, launch: _Launch) -> Job:
        return Job(
            cell=cell,
            purpose=launch.purpose,
            block=launch.block,
            attempt=self._stages.ledger.next_attempt(cell, (launch.purpose, launch.block, pair.name)),
            pair=pair.name,
            stage=launch.stage,
        )

    def _shuffled(self, items: Iterable[_T]) -> list[_T]:
        found = list(items)
        self._chance.shuffle(found)
        return found

    def _show(
        self, stage: str, pair: Pair, done: int, total: int, record: LaunchRecord | None = None
    ) -> None:
        self._stages.observer.show(
            Progress(
                stage=stage,
                label=pair.label,
                done=done,
                total=total,
                state=record.state if record else None,
                reason=record.reason.text if record and record.reason else "",
            )
        )


def _spoiled(ended: Ended) -> bool:
    return any(flag.code in SPOILERS for result in ended.results for flag in result.flags)
