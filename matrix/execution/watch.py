"""When does a worker have to be stopped? By its heartbeat, its processor time, its log and the clock.

Looked at about once a second and from afar: a `stat` of two files.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from matrix.execution.ending import MAX_LOG_BYTES, Stop, read_heartbeat
from matrix_adapters.protocol import HEARTBEAT_FILE, LOG_FILE

#: a silent worker that uses more than this share of a core is slow, not hung
BUSY_SHARE = 0.05


class Watch:
    """Follows one worker that writes into `out`; `cpu_seconds` says how much it has computed."""

    def __init__(
        self,
        out: Path,
        cpu_seconds: Callable[[], float],
        *,
        timeout_s: float,
        stall_s: float,
        on_phase: Callable[[str], None] | None = None,
    ) -> None:
        self._out, self._cpu_seconds, self._on_phase = out, cpu_seconds, on_phase
        self._stall_s = stall_s
        self._phase = ""
        self._beat: tuple[int, int] | None = None  # inode and time of the heartbeat file last seen
        self._alive_at = time.monotonic()
        self._cpu_then = 0.0
        self._deadline = self._alive_at + timeout_s
        self.silent_s = 0.0

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def verdict(self) -> Stop | None:
        """Why it must be stopped now, if it must."""
        now = time.monotonic()
        if now >= self._deadline:
            return Stop.DEADLINE
        self.look()
        if self._hangs(now):
            return Stop.SILENCE
        if _size(self._out / LOG_FILE) > MAX_LOG_BYTES:
            return Stop.LOG_FLOOD
        return None

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

    def expect_nothing_until_now(self) -> None:
        """It was not asked for anything so far: silence counts from here."""
        self._mark_alive(time.monotonic())

    def _hangs(self, now: float) -> bool:
        self.silent_s = now - self._alive_at
        if self.silent_s < self._stall_s:
            return False
        busy = self._cpu_seconds() - self._cpu_then
        if busy >= BUSY_SHARE * self.silent_s:  # e.g. a long compilation that lets no beat through
            self._mark_alive(now)
            return False
        return True

    def _mark_alive(self, now: float) -> None:
        self._alive_at = now
        self._cpu_then = self._cpu_seconds()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
