"""One moment for both sides of a comparison: neither takes anything that was published later.

Where the catalog pins everything on every side, there is nothing to resolve and no moment is
needed. Where one side is a version without a pinned set, all sides are resolved afresh by the
same rule, so that the catalog's older pins are not one more difference between them.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from matrix.catalog.types import Framework
from matrix.environments import pip_tool
from matrix.environments.base import BuildFailed
from matrix.errors import UsageError
from matrix.records import Environment

_SOURCES = ("index-url", "extra-index-url", "find-links")


@dataclasses.dataclass(frozen=True, slots=True)
class CutOff:
    """Environments of `framework` are resolved with what was published before `at` (UTC, ISO 8601)."""

    framework: str
    at: str

    def of(self, environment: Environment) -> str:
        """The moment for `environment`; "" for those of other frameworks."""
        return self.at if environment.framework == self.framework else ""


def cut_off(
    asked: str,
    framework: Framework,
    environments: Iterable[Environment],
    now: datetime.datetime | None = None,
) -> CutOff | None:
    """The moment of a comparison of `environments`. None where the catalog pins all of them.

    `asked` is what `--as-of` says; without it the end of the current day (UTC), so that all that is
    published by now counts and environments are shared by the comparisons of a day.
    """
    moment = now or datetime.datetime.now(datetime.UTC)
    if asked:
        return CutOff(framework.name, parse(asked, moment))
    if all(_is_pinned(framework, environment) for environment in environments):
        return None
    return CutOff(framework.name, _written(_next_day(moment.date())))


def parse(text: str, now: datetime.datetime) -> str:
    """`--as-of`: a day (that day counts to its end, UTC) or a moment. Raises UsageError."""
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            day = datetime.date.fromisoformat(text)
            future, found = day > now.date(), _next_day(day)
        else:
            found = datetime.datetime.fromisoformat(text)
            found = found.astimezone(datetime.UTC) if found.tzinfo else found.replace(tzinfo=datetime.UTC)
            future = found > now
    except (ValueError, OverflowError):
        raise UsageError(
            f"--as-of {text!r} is no date: write 2026-11-30, or a moment like 2026-11-30T12:00:00Z"
        ) from None
    if future:
        raise UsageError(f"--as-of {text}: that is still to come (now: {_written(now)})")
    return _written(found)


def _next_day(day: datetime.date) -> datetime.datetime:
    return datetime.datetime.combine(day + datetime.timedelta(days=1), datetime.time(), datetime.UTC)


def _written(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_pinned(framework: Framework, environment: Environment) -> bool:
    path: Path | None = framework.constraints(environment.build, environment.version)
    return path is not None and path.is_file()


class Cut:
    """The pip of one build, and the moment it cuts off at for as long as the indexes can tell.

    `notes` says in words where and why they cannot.
    """

    def __init__(self, as_of: str, home: Path, log: Path, cancelled: threading.Event | None) -> None:
        self._as_of = as_of
        self.notes: list[str] = []
        self.pip: list[str] = []
        if as_of:
            try:
                self.pip = pip_tool.cutting_pip(home, log, cancelled)
                self._note_local_sources()
            except BuildFailed as failure:
                self._give_up(f"a pip that can do it could not be had: {failure.reason.text}")
        self.pip = self.pip or pip_tool.host_pip(home, log, cancelled)

    def run(self, step: Callable[[str], None]) -> None:
        """Call `step` with the moment; again without where an index has no dates. Raises what it raises."""
        try:
            step(self._as_of)
        except BuildFailed as failure:
            if failure.reason.code != "no_upload_times":
                raise
            self._give_up(failure.reason.text)
            step("")

    def _give_up(self, why: str) -> None:
        today = datetime.datetime.now(datetime.UTC)
        why = why.partition(" Full output:")[0]
        self.notes.append(
            f"not cut off at {self._as_of}: {why.rstrip('.')}; it holds what there was at {_written(today)}"
        )
        self._as_of = ""

    def _note_local_sources(self) -> None:
        """pip exempts files on disk: they carry no date."""
        named = pip_tool.configured().items()
        values = [value for name, value in named if name.rpartition(".")[2] in _SOURCES]
        local = [part for part in " ".join(values).split() if not part.startswith(("http:", "https:"))]
        if local:
            names = ", ".join(dict.fromkeys(local))
            self.notes.append(f"cut off at {self._as_of}, but for files of {names}, which carry no date")
