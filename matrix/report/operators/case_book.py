"""What the catalog knows of the cases that records name: their family, their inputs, why they are open.

A run may be older than the catalog, and its cases gone from it: nothing here raises for that.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.errors import ConfigError
from matrix.operators.known import KnownFailures, load_known
from matrix.records import WorkloadRecord
from matrix.report.operators.case_words import in_words

#: the family of operators that the catalog does not have
OTHER = "other"
_GONE = "not in this version's catalog"


@dataclasses.dataclass(frozen=True, slots=True)
class CaseBook:
    """By operator its family; by subject and precision of a workload what the case is."""

    families: Mapping[str, str] = dataclasses.field(default_factory=dict)
    inputs: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    opens: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    known: KnownFailures = dataclasses.field(default_factory=KnownFailures)
    unread: str = ""  # the first mistake in the files of known failures: then none of them is used

    def family(self, operator: str) -> str:
        return self.families.get(operator, OTHER)

    def inputs_of(self, work: WorkloadRecord) -> str:
        return self.inputs.get((work.subject, work.precision), _GONE)

    def open(self, work: WorkloadRecord) -> str:
        """Why the standard leaves the answer open; "" where it does not."""
        return self.opens.get((work.subject, work.precision), "")


def case_book(catalog: Any) -> CaseBook:
    """From the folder `catalog.operators`; an empty book where there is none, or it cannot be read."""
    folder = getattr(catalog, "operators", None)
    if not isinstance(folder, Path):
        return CaseBook()
    from matrix.operators.load import load_operators  # many entries: only for runs that have operators

    try:
        known = load_operators(folder)
    except ConfigError:
        return CaseBook()
    unread = ""
    try:
        failures = load_known(folder, known)
    except ConfigError as error:
        failures, unread = KnownFailures(), error.problems[0]
    return CaseBook(
        families={name: path.stem for name, path in known.files.items()},
        inputs={case.key: in_words(case.case) for case in itertools.chain(known, *known.speed.values())},
        opens={case.key: case.open for case in known if case.open},
        known=failures,
        unread=unread,
    )
