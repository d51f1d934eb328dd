"""What one half of a live pair hears and answers: bare lines that say whose turn it is, nothing else.

It hears `run K` and `quit` on what was its standard input, and answers on a file of its
own: neither can be reached by what a framework, its native code or its children print
or read, since both numbers are known here only and no child inherits them. Standard
library only; `take` is called before anything else runs.
"""

from __future__ import annotations

import os
import select
from collections.abc import MutableMapping

from matrix_adapters.failures import Interrupted, Misunderstood
from matrix_adapters.protocol import ANSWERS_VARIABLE, QUIT_WORD, RUN_WORD

_LONGEST = 64  # bytes of a word and its number
_MOST = 1_000_000  # samples in one slice


class Words:
    """Both directions of the conversation."""

    def __init__(self, heard: int, answers: int) -> None:
        self._heard, self._answers = heard, answers
        self._rest = b""

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something was said, or it is clear that nothing will be (True), or no longer."""
        if b"\n" in self._rest:
            return True
        poll = select.poll()
        poll.register(self._heard, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))

    def samples_wanted(self) -> int | None:
        """How many samples the next slice has; None to end. Sleeps until it is said.

        Raises Misunderstood for any other word, Interrupted when nobody can say one.
        """
        line = self._line()
        if line == QUIT_WORD:
            return None
        word, _, number = line.partition(" ")
        if word != RUN_WORD or not (number.isascii() and number.isdigit() and 0 < int(number) <= _MOST):
            raise Misunderstood(f"{line!r} is no word that a live worker knows")
        return int(number)

    def answer(self, word: str) -> None:
        """Raises Interrupted when nobody listens."""
        try:
            os.write(self._answers, f"{word}\n".encode("ascii"))
        except BrokenPipeError:
            raise _gone() from None

    def _line(self) -> str:
        while b"\n" not in self._rest:
            piece = os.read(self._heard, 4096)
            if not piece:
                raise _gone()
            self._rest += piece
            if len(self._rest) > _LONGEST:
                raise Misunderstood(f"{self._rest[:_LONGEST]!r} is no word that a live worker knows")
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("ascii", errors="backslashreplace")


def take(environ: MutableMapping[str, str] | None = None) -> Words | None:
    """The conversation that was opened for this process; None where there is none.

    Moves it out of everybody else's reach: standard input is empty from here on.
    """
    number = (os.environ if environ is None else environ).pop(ANSWERS_VARIABLE, "")
    if not number.isdigit():
        return None
    try:
        os.set_inheritable(int(number), False)
        heard = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    except OSError:
        return None
    return Words(heard, int(number))


def _gone() -> Interrupted:
    return Interrupted("orchestrator_gone", "the orchestrator went away without a word")
