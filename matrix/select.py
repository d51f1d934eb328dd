"""`--select`: cells chosen by an expression over their fields.

`framework == "pytorch" and batch in [1, 8] and not startswith(model, "llama")`. The
expression is checked once against a short list of what is allowed (names of fields,
constants, comparisons, `and`/`or`/`not`, `in`), then evaluated by simpleeval; nothing
a user types is ever run as Python. Thousands of cells share few combinations of the
fields that an expression mentions, so each combination is evaluated once.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import re
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import simpleeval

from matrix.errors import UsageError
from matrix.located import did_you_mean

#: field -> what it is; also what the documentation and `--help` list
FIELDS: Mapping[str, str] = {
    "framework": "name of the framework",
    "version": 'its version, text: "2.13.0"',
    "hardware": 'hardware profile: "cpu", "nvidia"',
    "build": "the framework's build for that hardware",
    "environment": "framework-version-hardware",
    "model": "name of the model",
    "subject": "the same as model",
    "level": '"inference"',
    "batch": "batch size, a number",
    "sequence": "sequence length, a number, or None where the model has none",
    "precision": '"fp32", "bf16"',
    "threads": "number of threads",
    "variant": "the framework's own word",
    "arm": "arm of a comparison",
    "required": "True where anything but ok fails the run",
    "state": '"" for a cell that can run, else "unsupported" or "unavailable"',
    "id": "the cell's id",
}

FUNCTIONS: Mapping[str, Callable[..., bool]] = {
    "startswith": lambda text, start: isinstance(text, str) and isinstance(start, str) and text.startswith(start),
    "endswith": lambda text, end: isinstance(text, str) and isinstance(end, str) and text.endswith(end),
}

_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_MAX_LENGTH = 10_000


@dataclasses.dataclass(frozen=True, eq=False)
class Selector:
    """A checked expression: call it with a cell's fields (at least those in `names`)."""

    expression: str
    names: tuple[str, ...]  # fields that the expression mentions
    wanted: tuple[tuple[str, str], ...]  # (field, text) of every comparison with a text
    _evaluate: Callable[[Mapping[str, Any]], bool]
    _known: dict[tuple[Hashable, ...], bool] = dataclasses.field(default_factory=dict, repr=False)

    def __call__(self, fields: Mapping[str, Any]) -> bool:
        key = tuple([fields[name] for name in self.names])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._evaluate(dict(zip(self.names, key, strict=True)))
        return known


@functools.lru_cache(maxsize=256)
def selector(expression: str) -> Selector:
    """Compile `expression`. Raises UsageError that says what is wrong and lists the fields."""
    tree = _parse(expression)
    names: dict[str, None] = {}
    wanted: list[tuple[str, str]] = []
    _check(tree, expression, names, wanted)
    _check_truth(tree, expression)
    evaluator = simpleeval.EvalWithCompoundTypes(
        operators=_OPERATORS, functions=dict(FUNCTIONS), names=dict(_CONSTANTS)
    )

    def evaluate(values: Mapping[str, Any]) -> bool:
        evaluator.names = {**_CONSTANTS, **values}
        return bool(evaluator.eval(expression, previously_parsed=tree))

    return Selector(expression, tuple(names), tuple(wanted), evaluate)


def hints(select: Selector, values: Mapping[str, set[str]]) -> str:
    """Why `select` may have matched nothing: texts that no cell has, with the nearest that exists."""
    lines = []
    for field, text in select.wanted:
        known = values.get(field, set())
        if known and text not in known:
            shown = ", ".join(sorted(known)[:12])
            lines.append(f'no cell has {field} "{text}"{did_you_mean(text, known)}; there are: {shown}')
    return "; ".join(dict.fromkeys(lines))


def _parse(expression: str) -> ast.expr:
    if not expression.strip():
        raise _wrong(expression, "it is empty")
    if len(expression) > _MAX_LENGTH:
        raise UsageError(f"--select: the expression is longer than {_MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():  # Python's own remarks, such as on `is` with a text
            warnings.simplefilter("ignore")
            return ast.parse(expression.strip(), mode="eval").body
    except SyntaxError as error:
        single = re.search(r"(?<![=!<>])=(?!=)", expression)
        text = "comparison is written with `==`" if single else error.msg or "not understood"
        raise _wrong(expression, f"{text} (column {error.offset or 1})") from None
    except (ValueError, MemoryError, RecursionError):  # a null byte, too many brackets
        raise _wrong(expression, "not understood") from None


def _check_truth(node: ast.expr, expression: str) -> None:
    """`model == "a" or "b"` is always true: what stands alone must be something that is true or false."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check_truth(value, expression)
    elif isinstance(node, ast.UnaryOp):
        _check_truth(node.operand, expression)
    elif isinstance(node, ast.Name) and (node.id == "required" or isinstance(_CONSTANTS.get(node.id), bool)):
        pass
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        pass
    elif not isinstance(node, (ast.Compare, ast.Call)):
        shown = ast.unparse(node)
        raise _wrong(expression, f"`{shown}` alone is neither true nor false: compare a field with it")


_NODES = (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.Name, ast.Constant, ast.List, ast.Tuple, ast.Call)


def _check(node: ast.AST, expression: str, names: dict[str, None], wanted: list[tuple[str, str]]) -> None:
    if isinstance(node, (ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop)):
        if not isinstance(node, (ast.expr_context, ast.boolop)) and type(node) not in _OPERATORS:
            raise _wrong(expression, f"`{type(node).__name__}` is not available here")
        return
    if not isinstance(node, _NODES):
        raise _wrong(expression, f"{_NAMES_OF.get(type(node), type(node).__name__)} is not available here")
    if isinstance(node, ast.Name):
        if node.id not in _CONSTANTS:
            if node.id not in FIELDS:
                raise _wrong(expression, _unknown(node.id))
            names[node.id] = None
        return
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (str, int, float, bool, type(None))):
            raise _wrong(expression, f"{node.value!r} is not available here")
        return
    if isinstance(node, ast.Call):
        _check_call(node, expression, names, wanted)
        return
    if isinstance(node, ast.Compare):
        wanted += _texts(node)
    for child in ast.iter_child_nodes(node):
        _check(child, expression, names, wanted)


def _check_call(
    node: ast.Call, expression: str, names: dict[str, None], wanted: list[tuple[str, str]]
) -> None:
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise _wrong(expression, f"the only functions are {', '.join(FUNCTIONS)}")
    if len(node.args) != 2 or node.keywords:
        raise _wrong(expression, f"{node.func.id} takes two arguments: a field and a text")
    for argument in node.args:
        _check(argument, expression, names, wanted)


def _texts(node: ast.Compare) -> list[tuple[str, str]]:
    """Field and text of `field == "text"` and `field in ["text", ...]`."""
    if not isinstance(node.left, ast.Name) or len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.In)):
        return []
    right = node.comparators[0]
    items = right.elts if isinstance(right, (ast.List, ast.Tuple)) else [right]
    return [(node.left.id, i.value) for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)]


def _unknown(name: str) -> str:
    near = did_you_mean(name, FIELDS)
    return f"there is no field `{name}`" + (near or f' (a text needs quotes: "{name}")')


def _wrong(expression: str, text: str) -> UsageError:
    shown = expression if len(expression) <= 120 else f"{expression[:117]}..."
    return UsageError(f"--select {shown!r}: {text}\nfields: {', '.join(FIELDS)}")


def _lenient(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], bool]:
    """Types that do not compare (a number with a text, nothing with a number) are just not so."""

    def compared(left: Any, right: Any) -> bool:
        try:
            return bool(compare(left, right))
        except TypeError:
            return False

    return compared


_OPERATORS: Mapping[type, Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: _lenient(operator.lt),
    ast.LtE: _lenient(operator.le),
    ast.Gt: _lenient(operator.gt),
    ast.GtE: _lenient(operator.ge),
    ast.In: _lenient(lambda item, container: item in container),
    ast.NotIn: lambda item, container: not _lenient(lambda i, c: i in c)(item, container),
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
    ast.Not: operator.not_,
}

_NAMES_OF: Mapping[type, str] = {
    ast.Attribute: "a dot",
    ast.BinOp: "arithmetic",
    ast.Subscript: "a subscript",
    ast.Lambda: "a lambda",
    ast.IfExp: "an inline if",
    ast.JoinedStr: "an f-string",
    ast.ListComp: "a comprehension",
    ast.NamedExpr: "an assignment",
    ast.Dict: "a mapping",
}
