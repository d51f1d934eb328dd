"""One launch on this machine: start the worker, watch it from afar, say how it ended.

While a worker is timed, nothing of ours runs: the orchestrator sleeps in one system
call that returns when the process ends, and wakes once in `tick_s` for the heartbeat.
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
from matrix.execution.ending import MAX_LOG_BYTES, Ending, Stop, conclude, read_heartbeat
from matrix.execution.environ import clean
from matrix.execution.oom import memory_limit, read_counters
from matrix.execution.process import ProcessGroup
from matrix.store.durable import storage, storage_error
from matrix_adapters.protocol import (
    HEARTBEAT_FILE,
    LOG_FILE,
    RESULT_FILE,
    TASK_FILE,
    Reason,
    Result,
    State,
    Task,
    to_json,
)

TICK_S = 1.0
GRACE_S = 2.0
#: a silent worker that uses more than this share of a core is slow, not hung
BUSY_SHARE = 0.05


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
    in_dir, out_dir = folder / "in", out_dir or folder / "out"
    with storage(folder):
        in_dir.mkdir(parents=True, exist_ok=True)
        out_dir.mkdir(parents=True, exist_ok=True)
        (out_dir / RESULT_FILE).unlink(missing_ok=True)
        (out_dir / HEARTBEAT_FILE).unlink(missing_ok=True)
        (in_dir / TASK_FILE).write_text(to_json(task), encoding="utf-8")
    environ, changed = clean(os.environ, built.environ())
    before, began, own_cpu = read_counters(), time.monotonic(), time.process_time()
    try:
        group = ProcessGroup(
            built.command(in_dir, out_dir), environ=environ, cwd=out_dir, log=out_dir / LOG_FILE
        )
    except OSError as error:
        return _could_not_start(error, folder)
    with group:
        watch = _Watch(group, out_dir, timeout_s=timeout_s, stall_s=stall_s, on_phase=on_phase)
        stopped = watch.until_end(cancel, tick_s)
        seconds, own_cpu = time.monotonic() - began, time.process_time() - own_cpu
        if stopped is not None:
            group.stop(GRACE_S)
        status = group.end()
    ending = Ending(
        status=status,
        phase=watch.look() or "",
        seconds=seconds,
        stopped=stopped,
        silent_s=watch.silent_s,
        oom=read_counters().grew_since(before),
        memory_limit=memory_limit(),
    )
    result = conclude(ending, out_dir)
    seen = {
        "exit_status": status,
        "wall_s": seconds,
        "own_cpu_s": own_cpu,
        "environment": changed,
        "killed_afterwards": group.strays,
    }
    return dataclasses.replace(result, probes={**result.probes, "orchestrator": seen})


class _Watch:
    """Looks at the worker's heartbeat now and then, and decides when it has to be stopped."""

    def __init__(
        self,
        group: ProcessGroup,
        out: Path,
        *,
        timeout_s: float,
        stall_s: float,
        on_phase: Callable[[str], None] | None,
    ) -> None:
        self._group, self._out, self._on_phase = group, out, on_phase
        self._stall_s = stall_s
        self._phase = ""
        self._beat: tuple[int, int] | None = None  # inode and time of the heartbeat file last seen
        self._alive_at = time.monotonic()
        self._cpu_then = 0.0
        self._deadline = self._alive_at + timeout_s
        self.silent_s = 0.0

    def until_end(self, cancel: Cancel | None, tick_s: float) -> Stop | None:
        """Wait for the end. None when it came by itself, else why the worker must be stopped."""
        while True:
            now = time.monotonic()
            if self._group.wait(min(tick_s, self._deadline - now), cancel):
                return None
            if cancel is not None and cancel.is_set():
                return Stop.CANCEL
            now = time.monotonic()
            if now >= self._deadline:
                return Stop.DEADLINE
            self.look()
            if self._hangs(now):
                return Stop.SILENCE
            if _size(self._out / LOG_FILE) > MAX_LOG_BYTES:
                return Stop.LOG_FLOOD

    def look(self) -> str:
        """The phase by the newest heartbeat."""
        try:
            stat = (self._out / HEARTBEAT_FILE).stat()
        except OSError:
            return self._phase
        if (stat.st_ino, stat.st_mtime_ns) == self._beat:
            return self._phase
        heartbeat = read_heartbeat(self._out)
        if heartbeat is not None:
            self._beat = (stat.st_ino, stat.st_mtime_ns)
            self._mark_alive(time.monotonic())
            if heartbeat.phase != self._phase:
                self._phase = heartbeat.phase
                if self._on_phase is not None:
                    self._on_phase(heartbeat.phase)
        return self._phase

    def _hangs(self, now: float) -> bool:
        self.silent_s = now - self._alive_at
        if self.silent_s < self._stall_s:
            return False
        busy = self._group.cpu_seconds() - self._cpu_then
        if busy >= BUSY_SHARE * self.silent_s:  # e.g. a long compilation that lets no beat through
            self._mark_alive(now)
            return False
        return True

    def _mark_alive(self, now: float) -> None:
        self._alive_at = now
        self._cpu_then = self._group.cpu_seconds()


def _could_not_start(error: OSError, folder: Path) -> Result:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise storage_error(error, folder) from error
    what = error.filename or "the worker"
    reason = Reason(code="cannot_start", text=f"{what} could not be started: {error.strerror or error}")
    return Result(state=State.FAILED, reason=reason)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
