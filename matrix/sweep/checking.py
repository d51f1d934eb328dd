"""Correctness of operators: before anything is timed, a few processes check all open operator cells.

One process for each environment, variant and number of threads, two at a time. Each cell's record
is stored when its case has ended, so that whatever stops the run loses nothing and `--resume`
repeats nothing. What ends a process is charged to the case it had in hand, and the rest of the
batch goes on in a new one; a process that ends before its first case would do so again, so that
all its cases end as it did. Every restart has at least one case less to do.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Sequence

from matrix.consolidate.evidence import CHECK
from matrix.errors import MatrixError, StorageError
from matrix.records import OPERATOR, Cell, Environment, LaunchRecord
from matrix.store.runs import RunStore
from matrix.sweep.batch import Batch, Running
from matrix.sweep.checked import Answer, judged, keep_evidence, record_of, record_of_end
from matrix.sweep.launching import Launcher
from matrix.sweep.ledger import Ledger
from matrix.sweep.observer import Observer, Progress
from matrix.sweep.rounds import CROWDED_OUT, TAKEN_AWAY
from matrix.sweep.stopping import StopConditions
from matrix_adapters.protocol import Reason, Result, State

#: batches at once: nothing is timed
JOBS = 2
#: processes in a row that may end in their first case; what follows is given up, `--resume` tries it again
MOST_FRUITLESS = 20
#: a worker that could be asked and said so: its other cases would end alike
_OF_THE_LAUNCH = frozenset({State.UNAVAILABLE, State.UNSUPPORTED, State.BUILD_FAILED})
#: how often it is looked for cases that have ended
_TICK_S = 0.1
#: records that are made durable in one step: to wait for the disk after each costs more than judging it
_SYNCED_AT_ONCE = 50
#: where cases cannot be seen to end, a batch may take so long for each beside the time of one launch
_CASE_S = 10.0
#: folder of their logs below `logs/`: one for each process, not for each cell
_LOGS = "checks"


@dataclasses.dataclass(frozen=True)
class _End:
    """How a process ended, as it is charged to cells."""

    state: State
    reason: Reason | None
    result: Result
    log: str | None

    @property
    def code(self) -> str:
        return self.reason.code if self.reason else ""

    def as_(self, state: State, reason: Reason | None = None) -> _End:
        return dataclasses.replace(self, state=state, reason=reason or self.reason)


class Checks:
    """Makes every check that the ledger still misses."""

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
        self._store, self._launcher, self._ledger = store, launcher, ledger
        self._observer, self._stop = observer, stop
        self._cells = [c for c in cells if c.workload.level == OPERATOR and ledger.needs(c, CHECK)]
        self._done = 0
        self._launches = 0
        self._first = store.attempts.count()  # names of logs go on where an earlier session stopped

    def run(self) -> None:
        """All of them. Raises Stop, StorageError, and what a launch raises (EngineLost)."""
        waiting = _batches(self._cells)
        running: list[Running] = []
        # The workers die with the thread that started them: the pool's threads outlive them all.
        with concurrent.futures.ThreadPoolExecutor(JOBS, thread_name_prefix="checks") as pool:
            try:
                while waiting or running:
                    self._stop.check()
                    self._begin(pool, waiting, running)
                    self._wait(running)
                    for one in [one for one in running if one.future.done()]:
                        running.remove(one)
                        waiting += self._end(one)
            except BaseException:
                self._drain(running)
                raise

    def _begin(
        self, pool: concurrent.futures.ThreadPoolExecutor, waiting: list[Batch], running: list[Running]
    ) -> None:
        """Start what there is room for: the large ones first, what has to be alone at the end."""
        while waiting and len(running) < JOBS:
            batch = min(waiting, key=lambda one: (one.alone, -len(one.cells)))
            if running and (batch.alone or any(one.batch.alone for one in running)):
                return
            waiting.remove(batch)
            for one in running:
                one.crowded = True
            one = Running(
                batch,
                self._store.scratch(),
                name=f"{self._first + self._launches}-{batch.environment.name}",
                case_s=self._launcher.timeout_s,
                crowded=bool(running),
            )
            self._launches += 1
            self._show(batch.label)
            one.future = pool.submit(
                self._launcher.run_checks,
                batch.cells,
                one.folder,
                timeout_s=self._launcher.timeout_s + _CASE_S * len(batch.cells),
                cancel=one.cancel,
            )
            running.append(one)

    def _wait(self, running: Sequence[Running]) -> None:
        concurrent.futures.wait(
            [one.future for one in running],
            timeout=_TICK_S,
            return_when=concurrent.futures.FIRST_COMPLETED,
        )
        for one in running:
            self._take(one)
            one.check_time()

    def _drain(self, running: Sequence[Running]) -> None:
        """Whatever ended the loop: end the processes, and store what they have come through."""
        for one in running:
            one.cancel.set()
        concurrent.futures.wait([one.future for one in running])
        for one in running:
            try:
                self._end(one)
            except MatrixError:  # the first one is on its way up already
                continue

    def _end(self, one: Running) -> list[Batch]:
        """A process has ended: settle its cells, and say what is still to be started in its place."""
        try:
            result = one.ending(one.future.result())
            self._take(one)
            return self._settle_rest(one, result)
        finally:
            one.close()
            self._store.drop_scratch(one.folder)

    def _settle_rest(self, one: Running, result: Result) -> list[Batch]:
        hand = None if one.in_hand is None else one.left.pop(one.in_hand)
        rest = list(one.left.values())
        unsettled = [*([hand] if hand else []), *rest]
        end = _End(result.state, result.reason, result, self._keep_log(one))
        if self._stop.cancel.is_set() or result.state is State.INTERRUPTED:
            if hand is not None and self._stop.cancel.is_set():
                self._charge([hand], end.as_(State.INTERRUPTED))
            return []
        if result.state is State.OK:
            reason = Reason(code="no_answer", text="the batch ended without a word on this case")
            self._charge(unsettled, end.as_(State.FAILED, reason))
            return []
        if result.state in _OF_THE_LAUNCH:
            self._charge(unsettled, end)
            return []
        taken = end.code in TAKEN_AWAY and not one.batch.retried
        crowded = result.state in CROWDED_OUT and one.crowded and not one.batch.alone
        if hand is None:
            return self._between_cases(one, rest, end, retried=taken, alone=crowded)
        self._charge([hand], end)
        again = one.batch.with_cells
        if taken or crowded:  # it says nothing of the case: once more, and both are recorded
            self._ledger.reopen(hand, CHECK)
            self._done -= 1
            if taken:
                return [again(unsettled, retried=True)]
            return [again([hand], alone=True), *([again(rest)] if rest else [])]
        fruitless = 0 if one.came_through else one.batch.fruitless + 1
        if fruitless >= MOST_FRUITLESS:
            why = f"not tried: {fruitless} processes in a row ended in their first case"
            self._charge(rest, end.as_(State.FAILED, Reason(code="gave_up", text=why)))
            return []
        return [again(rest, fruitless=fruitless)] if rest else []

    def _between_cases(
        self, one: Running, rest: list[Cell], end: _End, *, retried: bool, alone: bool
    ) -> list[Batch]:
        """It ended with no case in hand: go on after those that it came through, if there were any."""
        if rest and (one.came_through or retried or alone):
            return [one.batch.with_cells(rest, retried=retried, alone=alone and not one.came_through)]
        self._charge(rest, end)
        return []

    def _take(self, one: Running) -> None:
        """Judge and store the cases that have ended since, many at the price of one."""
        waiting: list[tuple[Cell, LaunchRecord]] = []
        for number, cell, answer in one.ended_cases():
            waiting.append((cell, self._settled(one, number, cell, answer)))
            if len(waiting) == _SYNCED_AT_ONCE:
                self._note(waiting)
                waiting = []
        self._note(waiting)

    def _settled(self, one: Running, number: int, cell: Cell, answer: Answer) -> LaunchRecord:
        arrays = one.arrays(number)
        found = judged(
            answer,
            arrays,
            self._launcher.case(cell),
            self._launcher.prepared(cell),
            self._launcher.catalog,
        )
        attempt = self._ledger.next_attempt(cell, CHECK)
        keep_evidence(self._store, cell, found, arrays, attempt)
        log = None if found.state in (State.OK, State.UNSUPPORTED) else self._log_path(one)
        return record_of(cell, attempt, answer, found, versions=one.versions, log=log)

    def _charge(self, cells: Sequence[Cell], end: _End) -> None:
        """What became of the process is what became of these."""
        ended = []
        for cell in cells:
            attempt = self._ledger.next_attempt(cell, CHECK)
            record = record_of_end(cell, attempt, end.state, end.reason, end.result, log=end.log)
            ended.append((cell, record))
        self._note(ended)

    def _note(self, ended: Sequence[tuple[Cell, LaunchRecord]]) -> None:
        """Raises StorageError also when the worker found the disk full."""
        if not ended:
            return
        self._store.append_all([record for _, record in ended])
        for cell, record in ended:
            self._ledger.note(record)
            self._done += 1
            self._show(cell.label, record)
        for _, record in ended:
            if record.reason is not None and record.reason.code == "disk_full":
                raise StorageError(record.reason.text)

    def _log_path(self, one: Running) -> str:
        """Where the batch's log will lie; it is moved there when the batch has ended."""
        return f"logs/{_LOGS}/{one.name}.txt"

    def _keep_log(self, one: Running) -> str | None:
        return self._store.keep_log(one.out, _LOGS, one.name)

    def _show(self, label: str, record: LaunchRecord | None = None) -> None:
        self._observer.show(
            Progress(
                stage="checks",
                label=label,
                done=self._done,
                total=len(self._cells),
                state=record.state if record else None,
                reason=record.reason.text if record and record.reason else "",
            )
        )


def _batches(cells: Sequence[Cell]) -> list[Batch]:
    groups: dict[tuple[Environment, str, int], list[Cell]] = {}
    for cell in cells:
        work = cell.workload
        groups.setdefault((cell.environment, work.variant, work.threads), []).append(cell)
    return [
        Batch(environment=environment, variant=variant, threads=threads, cells=tuple(members))
        for (environment, variant, threads), members in groups.items()
    ]
