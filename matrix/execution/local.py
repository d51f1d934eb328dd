"""One launch on this machine: start the worker, watch it from afar, say how it ended.

While a worker is timed, nothing of ours runs: the orchestrator sleeps in one system
call that returns when the process ends or answers, and wakes once in `tick_s` for the heartbeat.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from matrix.execution.cancel import Cancel
from matrix.execution.ending import Ending, Stop, conclude
from matrix.execution.environ import clean, shaken
from matrix.execution.folders import prepare, write_task
from matrix.execution.oom import memory_limit, read_counters
from matrix.execution.process import ProcessGroup
from matrix.execution.watch import Watch
from matrix.store.durable import storage_error
from matrix_adapters.protocol import LOG_FILE, Reason, Result, State, Task

TICK_S = 1.0
GRACE_S = 2.0


class Startable(Protocol):
    """What is needed of a built environment to start a worker in it."""

    def command(self, in_dir: Path, out_dir: Path) -> list[str]: ...
    def environ(self) -> dict[str, str]: ...


def run_worker(
    built: Startable,
    task: Task,
    folder: Path,
    *,
    timeout_s: float,
    stall_s: float,
    on_phase: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
    out_dir: Path | None = None,
    tick_s: float = TICK_S,
) -> Result:
    """Run `task` in a fresh process; `folder` gets `in/` and `out/` (or `out_dir`, where given).

    Always returns a result. Stops the worker after `timeout_s`, or when for `stall_s` it
    gave no sign of life (neither a new heartbeat nor processor time), or when `cancel` is
    set. Whatever it started is dead on return. `result.probes["orchestrator"]` says what
    was seen from outside. Raises StorageError when the task cannot be written.
    """
    with LocalWorker(
        built,
        task,
        folder,
        timeout_s=timeout_s,
        stall_s=stall_s,
        on_phase=on_phase,
        cancel=cancel,
        out_dir=out_dir,
        tick_s=tick_s,
    ) as worker:
        return worker.conclude()


class LocalWorker:
    """A worker in a process of this machine. As a context manager: leaving it ends what still runs.

    With `talking` it is one half of a live pair, which can be spoken to (`execution.talk.Talker`).
    Raises StorageError when the task cannot be written.
    """

    def __init__(
        self,
        built: Startable,
        task: Task,
        folder: Path,
        *,
        timeout_s: float,
        stall_s: float,
        on_phase: Callable[[str], None] | None = None,
        cancel: Cancel | None = None,
        out_dir: Path | None = None,
        tick_s: float = TICK_S,
        talking: bool = False,
    ) -> None:
        self._folder, self._out = folder, out_dir or folder / "out"
        self._cancel, self._tick_s = cancel, tick_s
        self._stopped: Stop | None = None
        in_dir = prepare(folder, self._out)
        write_task(task, in_dir)
        environ, self._seen = clean(os.environ, built.environ())
        if talking:
            shake, noted = shaken()
            environ |= shake
            self._seen |= noted
        self._counters = read_counters()
        self._began, self._own_cpu = time.monotonic(), time.process_time()
        self._group: ProcessGroup | OSError
        try:
            self._group = ProcessGroup(
                built.command(in_dir, self._out),
                environ=environ,
                cwd=self._out,
                log=self._out / LOG_FILE,
                talking=talking,
            )
        except OSError as error:
            self._group = error
            return
        self._watch = Watch(
            self._out, self._group.cpu_seconds, timeout_s=timeout_s, stall_s=stall_s, on_phase=on_phase
        )

    def __enter__(self) -> LocalWorker:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._group, ProcessGroup):
            self._group.end()

    def say(self, line: str) -> None:
        """One line to the worker; whether it still lives shows when it is listened to."""
        if isinstance(self._group, ProcessGroup):
            self._watch.expect_nothing_until_now()
            self._group.say(line)

    def hear(self, wanted: str) -> bool:
        """Sleep until it has said `wanted`. False when it has ended, or was stopped for a reason."""
        return isinstance(self._group, ProcessGroup) and self._until(self._group, wanted)

    def conclude(self) -> Result:
        """Sleep until it has ended; how it did, in a result."""
        if not isinstance(self._group, ProcessGroup):
            return _could_not_start(self._group, self._folder)
        if self._stopped is None:
            self._until(self._group, None)
        seconds, own_cpu = time.monotonic() - self._began, time.process_time() - self._own_cpu
        if self._stopped is not None:
            self._group.stop(GRACE_S)
        status = self._group.end()
        ending = Ending(
            status=status,
            phase=self._watch.look(),
            seconds=seconds,
            stopped=self._stopped,
            silent_s=self._watch.silent_s,
            oom=read_counters().grew_since(self._counters),
            memory_limit=memory_limit(),
        )
        result = conclude(ending, self._out)
        seen = {
            "exit_status": status,
            "wall_s": seconds,
            "own_cpu_s": own_cpu,
            "environment": self._seen,
            "killed_afterwards": self._group.strays,
        }
        return dataclasses.replace(result, probes={**result.probes, "orchestrator": seen})

    def _until(self, group: ProcessGroup, wanted: str | None) -> bool:
        """Sleep until it says `wanted` (True), ends, or must be stopped (`_stopped` says why)."""
        while self._stopped is None:
            said = group.answer() if wanted is not None else None
            if said is not None:
                if said != wanted:
                    self._stopped = Stop.NONSENSE
                return said == wanted
            if group.wait(min(self._tick_s, self._watch.left_s()), self._cancel, answers=wanted is not None):
                return False
            if self._cancel is not None and self._cancel.is_set():
                self._stopped = Stop.CANCEL
            else:
                self._stopped = self._watch.verdict()
        return False


def _could_not_start(error: OSError, folder: Path) -> Result:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise storage_error(error, folder) from error
    what = error.filename or "the worker"
    reason = Reason(code="cannot_start", text=f"{what} could not be started: {error.strerror or error}")
    return Result(state=State.FAILED, reason=reason)
