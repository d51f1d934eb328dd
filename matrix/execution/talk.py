"""A conversation with one half of a live pair, wherever it runs.

What a worker is (a process here, a container somewhere) is behind `Talker`; whose turn it is
and what counts as an answer is here.
"""

from __future__ import annotations

import time
from typing import Protocol

from matrix_adapters.protocol import DONE_WORD, QUIT_WORD, READY_WORD, RUN_WORD, Result


class Talker(Protocol):
    """A started worker that can be spoken to. Nothing here raises for what happens to the worker."""

    def say(self, line: str) -> None:
        """One line to the worker; whether it still lives shows when it is listened to."""

    def hear(self, wanted: str) -> bool:
        """Sleep until it has said `wanted`. False when it has ended, or was stopped for a reason."""

    def conclude(self) -> Result:
        """Sleep until it has ended; how it did."""


class Live:
    """One half, started and not waited for. Only one thread may speak to it."""

    def __init__(self, talker: Talker) -> None:
        self._talker = talker
        self._ready = self._ended = False
        self._result: Result | None = None

    def wait_ready(self) -> bool:
        """Sleep until it is warmed up and waits for its turn. False: it ended; `finish` says how."""
        self._ready = self._ready or self._hears(READY_WORD)
        return self._ready and not self._ended

    def run(self, samples: int) -> float | None:
        """One slice of so many samples: the seconds until it was done. None: it ended; `finish` says how."""
        began = time.perf_counter()
        self._say(f"{RUN_WORD} {samples}")
        return time.perf_counter() - began if self._hears(DONE_WORD) else None

    def finish(self) -> Result:
        """Let it end, and say how it did. Can be called again."""
        if self._result is None:
            self._say(QUIT_WORD)
            self._result = self._talker.conclude()
            self._ended = True
        return self._result

    def _say(self, line: str) -> None:
        if not self._ended:
            self._talker.say(line)

    def _hears(self, wanted: str) -> bool:
        if not self._ended:
            self._ended = not self._talker.hear(wanted)
        return not self._ended
