"""The worker's sign of life: `heartbeat.json`, so that a hang is told from slow progress.

Rewritten at every phase change and about once a second within a phase, but never
beside a timed call: in the long phases before warm-up (import, load, compile, first
call) a helper thread beats, in warm-up and steady phase the loop itself does, between
samples. A framework that hangs while it holds the interpreter's lock stops the beat.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from matrix_adapters.protocol import HEARTBEAT_FILE, Heartbeat, to_json, write_atomic

INTERVAL_S = 1.0


class Heart:
    """Writes the heartbeat of one worker into its `out/` folder."""

    def __init__(self, out_dir: Path) -> None:
        self._path = out_dir / HEARTBEAT_FILE
        self._phase = ""
        self._since = 0.0
        self._last = 0.0

    @property
    def phase(self) -> str:
        return self._phase

    def enter(self, phase: str) -> None:
        """A new phase begins now."""
        self._phase, self._since = phase, time.time()
        self._write()

    def beat(self) -> None:
        """Rewrite the file if the last beat is more than a second old; else only look at the clock."""
        if time.monotonic() - self._last > INTERVAL_S:
            self._write()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Beat from a helper thread until the block ends; the thread is joined by then.

        The first beat comes a second after the block began: shorter blocks are undisturbed.
        """
        done = threading.Event()

        def keep_beating() -> None:
            while not done.wait(INTERVAL_S):
                self._write()

        helper = threading.Thread(target=keep_beating, name="heartbeat", daemon=True)
        helper.start()
        try:
            yield
        finally:
            done.set()
            helper.join()

    def _write(self) -> None:
        self._last = time.monotonic()
        beat = Heartbeat(phase=self._phase, since=self._since, at=time.time())
        # A full disk must not end a launch here: the result file is what decides.
        with contextlib.suppress(OSError):
            write_atomic(self._path, to_json(beat))
