"""What a sweep tells whoever watches it. Views of it are elsewhere; nothing here draws."""

from __future__ import annotations

import contextlib
import dataclasses
from contextlib import AbstractContextManager
from typing import Protocol

from matrix_adapters.protocol import State


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """Where the sweep is. `state` is set when `label` has just ended, else it has just begun."""

    stage: str  # "environments", "models", "memory", "block 1 of 3"
    label: str
    done: int
    total: int
    state: State | None = None
    reason: str = ""
    eta_s: float | None = None  # of the whole sweep; None while it cannot be known


class Observer(Protocol):
    """May be called from several threads, never for long."""

    def show(self, progress: Progress) -> None:
        """Something began or ended."""

    def say(self, text: str) -> None:
        """A remark on what is being done now; the next one may replace it."""

    def still(self) -> AbstractContextManager[None]:
        """Inside, something is timed: use no processor time at all, draw nothing."""

    def close(self) -> None:
        """The sweep is over, or the process is about to end: leave the terminal as it was."""


class Silent:
    """Watches and says nothing."""

    def show(self, progress: Progress) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def still(self) -> AbstractContextManager[None]:
        """Nothing to keep still."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Nothing to close."""
