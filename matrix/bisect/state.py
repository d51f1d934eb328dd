"""What a bisection knows: what was asked, and the answer of every test. One file, replaced as a whole.

It lies beside the runs that it refers to; a search that was stopped goes on from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from matrix.environments.releases import Candidate
from matrix.errors import StorageError, UsageError
from matrix.judge.bisection import Answer
from matrix.records import Model
from matrix.store.durable import storage
from matrix.store.names import LATEST
from matrix_adapters.protocol import write_atomic

SCHEMA = 1
FOLDER = "bisections"


class Version(Model):
    """A candidate, as the file keeps it."""

    label: str
    version: str
    changes: tuple[str, ...] = ()

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.label, self.version, self.changes)


class Target(Model):
    """The one thing that is followed through all versions: the worst at the bad end."""

    workload: str
    metric: str


class Tested(Model):
    """What a comparison of the good version with another one said."""

    answer: Answer
    verdict: str  # a sentence
    run: str = ""  # the id of the run that measured it
    effect: float | None = None  # a fraction, worse positive
    low: float | None = None
    high: float | None = None
    lock: tuple[str, ...] = ()  # of the version that was tested
    good_lock: tuple[str, ...] = ()  # of the good one in the same run
    target: Target | None = None  # of the first test: what is followed from there on
    also: tuple[str, ...] = ()  # of the first test: what else is worse, in sentences
    unfinished: bool = False  # its budget was spent before it was decided


class State(Model):
    """Everything of one bisection. `versions` are in order, the good end first."""

    schema_version: int = SCHEMA
    id: str
    created: str
    framework: str
    versions: tuple[Version, ...]
    config: str
    select: str | None = None
    metric: str = ""
    variant: str = ""
    changes: tuple[str, ...] = ()  # of all versions alike
    backend: str = "auto"
    as_of: str = ""
    seed: int | None = None
    margins: Mapping[str, float] = Field(default_factory=dict)
    target: Target | None = None
    tested: Mapping[str, Tested] = Field(default_factory=dict)  # by label; crossed environments too
    running: Mapping[str, str] = Field(default_factory=dict)  # label -> id of a run that is not finished

    def with_test(self, label: str, tested: Tested) -> State:
        """The same, with one answer more."""
        running = {name: run for name, run in self.running.items() if name != label}
        changed = {"tested": {**self.tested, label: tested}, "running": running}
        if tested.target is not None and self.target is None:
            changed["target"] = tested.target
        return self.model_copy(update=changed)

    def with_run(self, label: str, run: str) -> State:
        """The same, with a run that was begun for `label`."""
        return self.model_copy(update={"running": {**self.running, label: run}})

    def reopened(self) -> State:
        """The same, with the runs whose budget was spent undecided still to be gone on with."""
        spent = {label: t.run for label, t in self.tested.items() if t.unfinished}
        tested = {label: t for label, t in self.tested.items() if label not in spent}
        return self.model_copy(update={"tested": tested, "running": {**self.running, **spent}})

    def answers(self) -> dict[str, Answer]:
        """By label, of those versions that are searched through."""
        labels = {version.label for version in self.versions}
        return {label: tested.answer for label, tested in self.tested.items() if label in labels}


def path_of(results: Path, name: str) -> Path:
    """Where the file of a bisection lies."""
    return results / FOLDER / f"{name}.json"


def save(results: Path, state: State) -> None:
    """Write it. Raises StorageError for a full disk."""
    path = path_of(results, state.id)
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(state.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n")


def load(results: Path, text: str) -> State:
    """The bisection that `text` names: an id, a unique beginning of one, or `latest`. Raises UsageError."""
    known = sorted(path.stem for path in (results / FOLDER).glob("*.json"))
    found = known[-1:] if text == LATEST else [name for name in known if name == text]
    found = found or [name for name in known if text and name.startswith(text)]
    if len(found) != 1:
        what = f"{text!r} names {len(found)}" if found else f"none is called {text!r}"
        there = ", ".join(known[-5:]) or "none"
        raise UsageError(f"no one bisection: {what}; in {results / FOLDER} there are: {there}")
    path = path_of(results, found[0])
    try:
        return State.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        said = str(error).splitlines()[0]
        raise StorageError(f"{path} cannot be read: {said}") from None


def versions_of(candidates: Sequence[Candidate]) -> Iterator[Version]:
    """As the file keeps them."""
    for candidate in candidates:
        yield Version(label=candidate.label, version=candidate.version, changes=candidate.changes)
