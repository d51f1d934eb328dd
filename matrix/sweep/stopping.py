"""When a sweep has to stop before it is done."""

from __future__ import annotations

import time

from matrix.execution.cancel import Cancel
from matrix.store.formats import Outcome


class Stop(Exception):
    """The rest is left undone, and this is why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome: Outcome = outcome


class StopConditions:
    """A request to stop, and a time budget. Asked before anything new is begun."""

    def __init__(self, cancel: Cancel, budget_s: float | None = None) -> None:
        self.cancel = cancel
        self._deadline = None if budget_s is None else time.monotonic() + budget_s

    def check(self) -> None:
        """Raises Stop when nothing more may be begun."""
        if self.cancel.is_set():
            raise Stop("interrupted")
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise Stop("budget_spent")
