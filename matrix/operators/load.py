"""The catalog's operators, read when a sweep names one: they are many, and other sweeps need none of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from matrix.errors import ConfigError
from matrix.operators.expand import CatalogCase, expand, input_names
from matrix.operators.types import CaseEntry, OperatorEntry
from matrix.strict_yaml.located import Checker, did_you_mean
from matrix.strict_yaml.source import Loc, read

#: where the timed cases are, below the folder of operators
SPEED_FOLDER = "speed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operators:
    """All operators of a catalog with their cases, and where each was read."""

    entries: Mapping[str, OperatorEntry]
    cases: Mapping[str, tuple[CatalogCase, ...]]  # by operator
    files: Mapping[str, Path]
    speed: Mapping[str, tuple[CatalogCase, ...]] = dataclasses.field(default_factory=dict)  # the timed ones

    def __iter__(self) -> Iterator[CatalogCase]:
        return itertools.chain.from_iterable(self.cases.values())


@functools.cache
def load_operators(folder: Path) -> Operators:
    """Everything in `folder`, once per process; timed cases are in `folder/speed`.

    Raises ConfigError with every mistake in the files.
    """
    problems: list[str] = []
    checked, timed = _read_all(folder, problems), _read_all(folder / SPEED_FOLDER, problems)
    cases = {name: made for name, (_, made, _) in checked.items()}
    speed = {
        name: tuple(dataclasses.replace(case, timed=True) for case in made)
        for name, (_, made, _) in timed.items()
    }
    known = {case.case.name for made in cases.values() for case in made}
    for name, made in speed.items():
        problems += [
            f"{timed[name][2]}: {case.case.name} is the name of a case in {checked[name][2].name} already"
            for case in made
            if case.case.name in known
        ]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return Operators(
        entries={name: entry for name, (entry, _, _) in checked.items()},
        cases=cases,
        files={name: path for name, (_, _, path) in checked.items()},
        speed=speed,
    )


_Read = dict[str, tuple[OperatorEntry, tuple[CatalogCase, ...], Path]]


def _read_all(folder: Path, problems: list[str]) -> _Read:
    found: _Read = {}
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.yaml")):
        try:
            for name, entry, made in _entries(path, files):
                found[name], files[name] = (entry, made, path), path
        except ConfigError as error:
            problems += error.problems
    return found


def _entries(
    path: Path, known: Mapping[str, Path]
) -> list[tuple[str, OperatorEntry, tuple[CatalogCase, ...]]]:
    checker = Checker(read(path, not_finite=True))
    data = checker.document.data
    if not isinstance(data, dict):
        checker.add((), "a mapping from operators to their entries is needed")
        checker.finish()
    found = []
    for name in data:
        loc: Loc = (name,)
        if name in known:
            checker.add(loc, f"{name} is in {known[name].name} already", key=True)
        if not name.replace("_", "").isalnum():
            checker.add(loc, "letters, digits and '_' are possible in the name of an operator", key=True)
        entry = checker.validate(OperatorEntry, loc)
        if entry is None:
            continue
        _check_names(checker, loc, entry)
        if not checker.has_problem(loc):
            found.append((name, entry, expand(name, entry)))
    checker.finish()
    return found


def _check_names(checker: Checker, loc: Loc, entry: OperatorEntry) -> None:
    """Tensors that nothing reads, and nodes that read what nobody makes."""
    for case_name, case in entry.cases.items():
        if case_name.startswith("edge-"):
            text = "names that begin with edge- are made by `edges`"
            checker.add((*loc, "cases", case_name), text, key=True)
        names = input_names(entry, case)
        for tensor in case.feed:
            if tensor not in names:
                has = did_you_mean(tensor, names) or f" (it has: {', '.join(n for n in names if n)})"
                checker.add(
                    (*loc, "cases", case_name, "in", tensor), f"there is no such input{has}", key=True
                )
        if case.attributes and entry.nodes:
            checker.add((*loc, "cases", case_name, "attributes"), "attributes belong to the nodes here")
        _check_outputs(checker, (*loc, "cases", case_name), entry, case)
    for tensor in entry.in_defaults:
        if not any(tensor in input_names(entry, case) for case in entry.cases.values()):
            checker.add((*loc, "in_defaults", tensor), "no case has such an input", key=True)
    made: set[str] = set()
    fed = {name for case in entry.cases.values() for name in (*entry.in_defaults, *case.feed)}
    for i, node in enumerate(entry.nodes):
        later = {o for other in entry.nodes[i:] for o in other.outputs} - made
        for j, name in enumerate(node.inputs):
            if name in later:
                checker.add((*loc, "nodes", i, "inputs", j), f"{name} is made by a later node")
            elif name and name not in made and name not in fed:
                hint = did_you_mean(name, made | fed)
                checker.add((*loc, "nodes", i, "inputs", j), f"no case gives {name}, no node makes it{hint}")
        made |= set(node.outputs)


def _check_outputs(checker: Checker, loc: Loc, entry: OperatorEntry, case: CaseEntry) -> None:
    if not entry.nodes:
        return
    made = [output for node in entry.nodes for output in node.outputs]
    at = (*loc, "outputs") if case.outputs else (loc[0], "outputs")
    for name in case.outputs or entry.outputs:
        if name and name not in made:
            checker.add(at, f"no node makes {name}{did_you_mean(name, made)}")
