"""Progress on a terminal: stage, cell, how far, how long still. Nothing at all elsewhere.

Drawn only when something happens, never by a timer: while a launch is timed no thread of
ours may wake up.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import IO, Any, TextIO, cast

from matrix.report.plan_view import duration
from matrix.sweep.observer import Observer, Progress, Silent
from matrix_adapters.protocol import State

#: ends that are worth a line of their own while the run goes on
_LOUD = frozenset({State.INCORRECT, State.BUILD_FAILED, State.FAILED, State.OOM, State.TIMEOUT})


@contextlib.contextmanager
def observer_for(stream: TextIO, *, quiet: bool = False) -> Iterator[Observer]:
    """A live view where `stream` is a terminal and progress is wanted, else silence."""
    observer: Observer = Silent() if quiet or not stream.isatty() else Live(stream)
    try:
        yield observer
    finally:
        observer.close()


class _MayVanish:
    """A terminal that may be closed at any time: the run goes on, or ends, without it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Live:
    """One status line that is redrawn in place, and a line that stays for each bad end."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        self._console = Console(file=cast(IO[str], _MayVanish(stream)))
        self._bar = Bar(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[stage]}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}"),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", stage="starting", left="", total=1)
        self._lock = threading.Lock()
        self._bar.start()

    def show(self, progress: Progress) -> None:
        """Redraw; keep a line for what ended badly."""
        with self._lock:
            if progress.state in _LOUD:
                self._console.print(
                    f"[red]{progress.state}[/red] {_literal(progress.label)}: {_literal(progress.reason)}",
                    highlight=False,
                )
            left = f"about {duration(progress.eta_s)} left" if progress.eta_s is not None else ""
            self._bar.update(
                self._task,
                completed=progress.done,
                total=progress.total,
                description=_literal(progress.label),
                stage=progress.stage,
                left=left,
                refresh=True,
            )

    def say(self, text: str) -> None:
        """Show what is being done now, in place of the label."""
        with self._lock:
            self._bar.update(self._task, description=_literal(text), refresh=True)

    def still(self) -> AbstractContextManager[None]:
        """Nothing is drawn between events anyway."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Leave the terminal as it was. Can be called again."""
        self._bar.stop()


def _literal(text: str) -> str:
    """Names come from outside: square brackets in them are no markup."""
    return text.replace("[", r"\[")
