"""Which cases a word of a sweep's `operators:` chooses.

standard            every case of every operator, edge cases too
edges               the edge cases alone
Gelu                all cases of one operator
Gelu/tanh           one case, in all its types
speed               timed shapes of real models        (not yet)
from-model:NAME     the operators of a model, as its ONNX file has them (not yet)
"""

from __future__ import annotations

from collections.abc import Iterable

from matrix.operators.expand import CatalogCase
from matrix.operators.load import Operators
from matrix.strict_yaml.located import did_you_mean

STANDARD, EDGES, SPEED, FROM_MODEL = "standard", "edges", "speed", "from-model:"
SUITES = (STANDARD, EDGES, SPEED)


def chosen(words: Iterable[str], operators: Operators) -> tuple[CatalogCase, ...]:
    """The cases of all words together, each once, in the catalog's order within a word.

    Only for words that have no `problem`.
    """
    found: dict[tuple[str, str], CatalogCase] = {}
    for word in words:
        for case in _cases(word, operators):
            found.setdefault(case.key, case)
    return tuple(found.values())


def problem(word: str, operators: Operators) -> str:
    """What is wrong with a word; "" when it chooses something."""
    if word == SPEED or word.startswith(FROM_MODEL):
        return f"the suite {word!r} is not available yet: {STANDARD} and {EDGES} are, and names of operators"
    if word in (STANDARD, EDGES):
        return "" if _cases(word, operators) else f"the catalog has no case for the suite {word}"
    operator, slash, case = word.partition("/")
    if operator not in operators.cases:
        known = [*SUITES, *operators.cases]
        return f"there is no operator or suite {operator!r}{did_you_mean(operator, known) or _some(known)}"
    if slash and not _cases(word, operators):
        names = list(dict.fromkeys(c.case.name.partition("/")[2] for c in operators.cases[operator]))
        return f"{operator} has no case {case!r}{did_you_mean(case, names) or _some(names)}"
    return ""


def _cases(word: str, operators: Operators) -> list[CatalogCase]:
    if word == STANDARD:
        return list(operators)
    if word == EDGES:
        return [case for case in operators if case.edge]
    operator, slash, _ = word.partition("/")
    cases = operators.cases.get(operator, ())
    return [case for case in cases if not slash or case.case.name == word]


def _some(names: Iterable[str]) -> str:
    return f"; there are: {', '.join(list(names)[:12])}"
