"""Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends everything at once.

An orderly stop ends the workers, stores what is known and exits 130. At a second
request every worker is killed and the process ends where it stands: whatever was
appended to the run is on the disk already, and the system gives its lock back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from matrix.errors import ExitCode
from matrix.execution.cancel import Cancel
from matrix.execution.process import kill_all

SIGNALS = tuple(s for name in ("SIGINT", "SIGTERM", "SIGHUP") if (s := getattr(signal, name, None)))
#: a wrapper may pass on the key press that the terminal has sent us already: one request, not two
_SAME_REQUEST_S = 0.3


class Interrupts:
    """While entered, signals set `cancel`. Does nothing outside the main thread."""

    def __init__(self, cancel: Cancel, before_exit: Callable[[], None]) -> None:
        self._cancel, self._before_exit = cancel, before_exit
        self._previous: dict[int, Any] = {}
        self._raises = False
        self._asked_at = 0.0

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # `nohup` means that SIGHUP stays ignored. A shell's `&` ignores SIGINT as well, but
                # whoever sends one to this very process means it.
                if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Inside, the first request raises KeyboardInterrupt in the main thread as well."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._cancel.is_set():
            if now - self._asked_at > _SAME_REQUEST_S:
                self._end_now()
            return
        self._asked_at = now
        self._cancel.set()
        if self._raises:
            raise KeyboardInterrupt

    def _end_now(self) -> None:
        kill_all()
        with contextlib.suppress(Exception):
            self._before_exit()
        os._exit(ExitCode.INTERRUPTED)
