"""What a live worker answers, as it comes: one bare line after the other."""

from __future__ import annotations

import contextlib
import os

_LONGEST = 64  # bytes; the words are shorter


class Answers:
    """The end of a pipe that holds a worker's answers. Reading never waits."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._rest = b""
        self._open = True

    def next(self) -> str | None:
        """A line, without its end; None when there is none yet. What is no line comes as it is."""
        if self._open and b"\n" not in self._rest:
            with contextlib.suppress(BlockingIOError):
                piece = os.read(self.fd, 4096)
                self._open = bool(piece)
                self._rest += piece
        if b"\n" not in self._rest and len(self._rest) <= _LONGEST:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("ascii", errors="backslashreplace")

    @property
    def is_open(self) -> bool:
        """Whether anything may still come: a closed pipe stays readable for ever, so nobody waits for it."""
        return self._open

    def close(self) -> None:
        """Give the pipe back. Can be called again."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd, self._open = -1, False
