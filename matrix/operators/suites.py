"""Which cases a word of a sweep's `operators:` chooses.

standard            every case of every operator, edge cases too
edges               the edge cases alone
Gelu                all cases of one operator
Gelu/tanh           one case, in all its types
speed               shapes of real models, which are timed too; MatMul/gemm_2048 is one of them
from-model:NAME     the operators of a model, as its ONNX file has them, timed; known once that file is read
"""

from __future__ import annotations

from collections.abc import Iterable

from matrix.operators.expand import CatalogCase
from matrix.operators.load import Operators
from matrix.strict_yaml.located import did_you_mean

STANDARD, EDGES, SPEED, FROM_MODEL = "standard", "edges", "speed", "from-model:"
SUITES = (STANDARD, EDGES, SPEED)
#: square products, whose best one is what a machine can: they are part of the suite speed
PEAK_CASES = ("MatMul/gemm_512", "MatMul/gemm_1024", "MatMul/gemm_2048")
#: one element: what it takes is what a call costs
DISPATCH_CASE = "Relu/size_1"


def chosen(words: Iterable[str], operators: Operators) -> tuple[CatalogCase, ...]:
    """The cases of all words together, each once, in the catalog's order within a word.

    Only for words that have no `problem`. What is in a model is not known here: its word
    chooses nothing.
    """
    found: dict[tuple[str, str], CatalogCase] = {}
    for word in words:
        for case in _cases(word, operators):
            found.setdefault(case.key, case)
    return tuple(found.values())


def models_of(words: Iterable[str]) -> tuple[str, ...]:
    """The models whose own operators are asked for, each once."""
    return tuple(dict.fromkeys(w.removeprefix(FROM_MODEL) for w in words if w.startswith(FROM_MODEL)))


def dispatch_cases(operators: Operators) -> tuple[CatalogCase, ...]:
    """The call of one element; none in a catalog without it."""
    return tuple(c for cases in operators.speed.values() for c in cases if c.case.name == DISPATCH_CASE)


def peak_cases(operators: Operators) -> tuple[CatalogCase, ...]:
    """The products that say what the machine can, in all their types."""
    return tuple(c for cases in operators.speed.values() for c in cases if c.case.name in PEAK_CASES)


def problem(word: str, operators: Operators, models: Iterable[str] = ()) -> str:
    """What is wrong with a word; "" when it chooses something. `models`: names of the catalog's."""
    if word.startswith(FROM_MODEL):
        known, name = list(models), word.removeprefix(FROM_MODEL)
        return (
            "" if name in known else f"there is no model {name!r}{did_you_mean(name, known) or _some(known)}"
        )
    if word in SUITES:
        return "" if _cases(word, operators) else f"the catalog has no case for the suite {word}"
    operator, slash, case = word.partition("/")
    if operator not in operators.cases and operator not in operators.speed:
        known = [*SUITES, *operators.cases]
        return f"there is no operator or suite {operator!r}{did_you_mean(operator, known) or _some(known)}"
    if slash and not _cases(word, operators):
        names = list(dict.fromkeys(c.case.name.partition("/")[2] for c in _named(operator, operators)))
        return f"{operator} has no case {case!r}{did_you_mean(case, names) or _some(names)}"
    return ""


def _cases(word: str, operators: Operators) -> list[CatalogCase]:
    if word == STANDARD:
        return list(operators)
    if word == EDGES:
        return [case for case in operators if case.edge]
    if word == SPEED:
        return [case for cases in operators.speed.values() for case in cases]
    operator, slash, _ = word.partition("/")
    if not slash:
        return list(operators.cases.get(operator, ()) or operators.speed.get(operator, ()))
    return [case for case in _named(operator, operators) if case.case.name == word]


def _named(operator: str, operators: Operators) -> tuple[CatalogCase, ...]:
    return (*operators.cases.get(operator, ()), *operators.speed.get(operator, ()))


def _some(names: Iterable[str]) -> str:
    return f"; there are: {', '.join(list(names)[:12])}"
