"""A stop request that wakes every waiter at once, whatever thread it waits in."""

from __future__ import annotations

import os
import threading


class Cancel:
    """Set once (from a signal handler, too), never cleared.

    `fileno` becomes readable when it is set and stays so: a launch waits for its
    process and for this at the same time, in one system call.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._read, self._write = os.pipe()

    def set(self) -> None:
        """Ask for a stop. Safe to call again."""
        if not self._event.is_set():
            self._event.set()
            os.write(self._write, b"!")

    def is_set(self) -> bool:
        """Whether a stop was asked for."""
        return self._event.is_set()

    def wait(self, timeout: float) -> bool:
        """Sleep for `timeout` seconds, or less when a stop is asked for."""
        return self._event.wait(timeout)

    def fileno(self) -> int:
        """Readable once `set` was called."""
        return self._read

    def close(self) -> None:
        """Give the pipe back. Nothing may be waiting any more."""
        os.close(self._read)
        os.close(self._write)
