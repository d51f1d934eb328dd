"""Cases that are known to fail, and whose fault each is: `catalog/operators/known/FRAMEWORK.yaml`.

A known failure stays a failure: its cell is `incorrect` or `failed` as before. What the file adds is
the reason, which the report shows beside it, and a failure without one is told as such. A release
that no longer fails is told too, so that an explanation does not outlive what it explains.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from matrix.catalog.types import Entry
from matrix.errors import ConfigError
from matrix.operators.dtypes import Dtype
from matrix.operators.load import Operators
from matrix.strict_yaml.located import Checker
from matrix.strict_yaml.source import read

KNOWN_FOLDER = "known"
#: whose fault a failure is. A mapping's and the oracle's are ours: they stand there until they are mended
Fault = Literal["framework", "definition", "mapping", "oracle"]
#: in the words of reports
WHOSE: Mapping[Fault, str] = {
    "framework": "the framework's",
    "definition": "nobody's: the standard can be read in two ways",
    "mapping": "our mapping's",
    "oracle": "our reference's",
}
End = Literal["incorrect", "failed"]
Text = Annotated[str, Field(min_length=1)]


class KnownFailure(Entry):
    """Cases that fail for one reason.

    `cases`: names, or patterns such as `MaxPool/*`. `dtypes`: of those cases; none: all.
    `seen`: versions in which every one of these cases was seen to fail.
    """

    cases: list[Text] = Field(min_length=1)
    dtypes: list[Dtype] = Field(default=[], description="none: every type of the cases")
    ends: End = "incorrect"
    fault: Fault
    because: Text
    seen: list[Text] = Field(min_length=1, description="versions of the framework")

    def covers(self, case: str, dtype: str) -> bool:
        """Whether this is about the case of that name in that type."""
        if self.dtypes and dtype not in self.dtypes:
            return False
        return any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)

    @property
    def words(self) -> str:
        """One sentence for a report: whose, why, and in which versions."""
        return f"{WHOSE[self.fault]}: {self.because} (seen in {', '.join(self.seen)})"


@dataclasses.dataclass(frozen=True, slots=True)
class KnownFailures:
    """By framework what is known of it, in the file's order; the first that covers a case explains it."""

    by_framework: Mapping[str, tuple[KnownFailure, ...]] = dataclasses.field(default_factory=dict)

    def __contains__(self, framework: str) -> bool:
        return framework in self.by_framework

    def of(self, framework: str) -> tuple[KnownFailure, ...]:
        return self.by_framework.get(framework, ())

    def explain(self, framework: str, case: str, dtype: str, ends: str) -> KnownFailure | None:
        """Why this case ends so in this framework; None where nobody knows."""
        return next((one for one in self.of(framework) if one.ends == ends and one.covers(case, dtype)), None)


def load_known(folder: Path, operators: Operators) -> KnownFailures:
    """Every file of `folder/known`, checked against the cases that there are.

    Raises ConfigError with every mistake in the files: a pattern that no case has, a type that no
    case of the pattern has.
    """
    problems: list[str] = []
    found = {}
    types: dict[str, frozenset[str]] = {}
    for case in operators:
        types[case.case.name] = types.get(case.case.name, frozenset()) | {case.case.dtype}
    for path in sorted((folder / KNOWN_FOLDER).glob("*.yaml")):
        try:
            found[path.stem] = _read(path, types)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return KnownFailures(found)


def _read(path: Path, types: Mapping[str, frozenset[str]]) -> tuple[KnownFailure, ...]:
    """A list of entries. `types`: of each case those that it has."""
    checker = Checker(read(path))
    data = checker.document.data
    if not isinstance(data, list):
        checker.add((), "a list of known failures is needed")
        checker.finish()
    found = []
    for i in range(len(data)):
        entry = checker.validate(KnownFailure, (i,))
        if entry is None:
            continue
        found.append(entry)
        _check(checker, i, entry, types)
    checker.finish()
    return tuple(found)


def _check(checker: Checker, i: int, entry: KnownFailure, types: Mapping[str, frozenset[str]]) -> None:
    """Patterns and types that no case has."""
    had: set[str] = set()
    for j, pattern in enumerate(entry.cases):
        own = {dtype for case in fnmatch.filter(types, pattern) for dtype in types[case]}
        if not own:
            checker.add((i, "cases", j), f"no case is called {pattern}")
        elif entry.dtypes and not own & set(entry.dtypes):
            checker.add((i, "cases", j), f"{pattern} has none of the types {', '.join(entry.dtypes)}")
        had |= own
    for j, dtype in enumerate(entry.dtypes):
        if dtype not in had:
            checker.add((i, "dtypes", j), f"none of these cases has the type {dtype}")
