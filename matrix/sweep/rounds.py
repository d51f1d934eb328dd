"""The launches of a run: memory launches side by side, then block after block of timed ones.

What ends is judged and on the disk before the next thing begins. A failed launch is not
tried again in the same session: a second try would hide the first. Only a memory launch
that ran out of memory or time beside another one gets a second try, alone, and so does a
launch whose container, or the engine under it, was taken away.
"""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Sequence
from pathlib import Path

from matrix.consolidate.evidence import Slot, slots_of
from matrix.errors import StorageError
from matrix.records import Cell, LaunchRecord
from matrix.store.runs import RunStore
from matrix.sweep.launching import Job, Launcher, Purpose
from matrix.sweep.ledger import Ledger
from matrix.sweep.observer import Observer, Progress
from matrix.sweep.order import block_order
from matrix.sweep.pace import Pace
from matrix.sweep.stopping import Stop, StopConditions
from matrix_adapters.protocol import Result, State

#: memory launches at the same time: they are not timed
MEMORY_JOBS = 2
#: how a memory launch can end because another one ran beside it
CROWDED_OUT = frozenset({State.OOM, State.TIMEOUT})
#: what took a launch's container away says nothing of the cell: one more attempt, and both are recorded
TAKEN_AWAY = frozenset({"engine_lost", "container_removed"})
_ESTIMATE_EVERY_S = 5.0


class Rounds:
    """Makes every launch that the ledger still misses."""

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        store: RunStore,
        launcher: Launcher,
        ledger: Ledger,
        observer: Observer,
        stop: StopConditions,
    ) -> None:
        self._cells, self._store, self._launcher = cells, store, launcher
        self._ledger, self._observer, self._stop = ledger, observer, stop
        self._seed, self._blocks = store.header.seed, store.header.blocks
        self._pace = Pace()
        self._done = self._total = 0  # of the stage in hand
        self._stage = ""
        self._left: float | None = None  # seconds, as estimated at `_left_at`
        self._left_at = 0.0

    def memory(self) -> None:
        """One memory launch a cell, two at a time. They warm the page cache for what follows."""
        self._enter("memory", ("memory", 0, ""))
        jobs = self._jobs("memory", 0)
        again: list[Job] = []
        running: dict[concurrent.futures.Future[tuple[Result, Path]], tuple[Job, float]] = {}
        # The workers die with the thread that started them: the pool's threads outlive them all.
        with concurrent.futures.ThreadPoolExecutor(MEMORY_JOBS, thread_name_prefix="memory") as pool:
            try:
                while jobs or running:
                    while jobs and len(running) < MEMORY_JOBS:
                        self._stop.check()
                        job = jobs.pop(0)
                        running[pool.submit(self._launcher.run, job)] = (job, time.monotonic())
                    ended, _ = concurrent.futures.wait(
                        running, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in ended:
                        job, began = running.pop(future)
                        record = self._settle(job, *future.result(), began=began)
                        if record.state in CROWDED_OUT or _taken_away(record):
                            again.append(job)
            except Stop:
                raise
            except BaseException:
                self._stop.cancel.set()  # what runs beside it is ended, not waited for
                raise
            finally:
                self._drain(running)
        for job in again:
            self._ledger.reopen(job.cell, job.slot)
            self._alone(self._job(job.cell, job.purpose, job.block, job.position))

    def block(self, block: int) -> None:
        """One timed launch of every open cell, strictly one at a time."""
        self._enter(f"block {block + 1} of {self._blocks}", ("measure", block, ""))
        for job in self._jobs("measure", block):
            if _taken_away(self._alone(job)):
                self._ledger.reopen(job.cell, job.slot)
                self._alone(self._job(job.cell, job.purpose, job.block, job.position))

    def _alone(self, job: Job) -> LaunchRecord:
        self._stop.check()
        self._show(job)
        began = time.monotonic()
        with self._observer.still():
            result, folder = self._launcher.run(job)
        return self._settle(job, result, folder, began=began)

    def _settle(self, job: Job, result: Result, folder: Path, *, began: float) -> LaunchRecord:
        """Judge and store. Raises StorageError when the worker found the disk full."""
        record = self._launcher.settle(job, result, folder)
        self._store.append(record)
        self._ledger.note(record)
        self._pace.note((job.cell.environment, job.purpose), time.monotonic() - began)
        self._done += 1
        self._show(job, record)
        if record.reason is not None and record.reason.code == "disk_full":
            raise StorageError(record.reason.text)
        return record

    def _drain(
        self, running: dict[concurrent.futures.Future[tuple[Result, Path]], tuple[Job, float]]
    ) -> None:
        """Whatever ended the loop: what still runs is waited for (a stop request ends it) and stored."""
        for future, (job, began) in running.items():
            try:
                result, folder = future.result()
                self._settle(job, result, folder, began=began)
            except StorageError:  # the first one is on its way up already
                continue

    def _jobs(self, purpose: Purpose, block: int) -> list[Job]:
        """What is missing of one block, in its random order."""
        order = block_order(self._cells, self._seed, -1 if purpose == "memory" else block)
        return [
            self._job(cell, purpose, block, position)
            for position, cell in enumerate(order)
            if self._ledger.needs(cell, (purpose, block, ""))
        ]

    def _job(self, cell: Cell, purpose: Purpose, block: int, position: int) -> Job:
        attempt = self._ledger.next_attempt(cell, (purpose, block, ""))
        return Job(cell=cell, purpose=purpose, block=block, attempt=attempt, position=position)

    def _enter(self, stage: str, slot: Slot) -> None:
        self._stage, self._done = stage, 0
        self._total = sum(self._ledger.needs(cell, slot) for cell in self._cells)

    def _show(self, job: Job, record: LaunchRecord | None = None) -> None:
        self._observer.show(
            Progress(
                stage=self._stage,
                label=job.cell.label,
                done=self._done,
                total=self._total,
                state=record.state if record else None,
                reason=record.reason.text if record and record.reason else "",
                eta_s=self._seconds_left(),
            )
        )

    def _seconds_left(self) -> float | None:
        now = time.monotonic()
        if self._left is not None and now - self._left_at < _ESTIMATE_EVERY_S:
            return max(0.0, self._left - (now - self._left_at))
        kinds = [
            (cell.environment, slot[0])
            for cell in self._cells
            for slot in slots_of(cell, self._blocks)
            if self._ledger.needs(cell, slot)
        ]
        self._left, self._left_at = self._pace.left(kinds), now
        return self._left


def _taken_away(record: LaunchRecord) -> bool:
    return record.reason is not None and record.reason.code in TAKEN_AWAY
