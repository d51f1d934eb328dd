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
from typing import Any, NoReturn, Protocol

import simpleeval

from matrix.errors import UsageError
from matrix.strict_yaml.located import did_you_mean

#: field -> what it is; also what the documentation and `--help` list
FIELDS: Mapping[str, str] = {
    "framework": "name of the framework",
    "version": 'its version, text: "2.13.0"',
    "hardware": 'hardware profile: "cpu", "nvidia"',
    "build": "the framework's build for that hardware",
    "environment": "framework-version-hardware",
    "model": "name of the model",
    "subject": "the same as model",
    "operator": 'name of the operator, "" for models; its cases are model: "Gelu/tanh"',
    "level": '"inference", "operator"',
    "batch": "batch size, a number",
    "sequence": "sequence length, a number, or None where the model has none",
    "precision": '"fp32", "bf16"; of operators also "fp64", "int32", "bool", ...',
    "threads": "number of threads",
    "variant": "the framework's own word",
    "arm": "arm of a comparison",
    "required": "True where anything but ok fails the run",
    "state": '"" for a cell that can run, else "unsupported" or "unavailable"',
    "id": "the cell's id",
}

FUNCTIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "startswith": lambda text, start: str(text).startswith(str(start)),
    "endswith": lambda text, end: str(text).endswith(str(end)),
}

_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None}
_MAX_LENGTH = 10_000
_MAX_DEPTH = 100


class Fields(Protocol):
    """A cell's fields by name: a mapping, or a view that looks them up when asked."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Selector:
    """A checked expression: call it with a cell's fields (at least those in `names`)."""

    expression: str
    names: tuple[str, ...]  # fields that the expression mentions
    wanted: tuple[tuple[str, str], ...]  # (field, text) of every comparison with a text
    _evaluate: Callable[[Mapping[str, Any]], bool]
    _known: dict[tuple[Hashable, ...], bool] = dataclasses.field(default_factory=dict, repr=False)

    def __call__(self, fields: Fields) -> bool:
        key = tuple([fields[name] for name in self.names])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._evaluate(dict(zip(self.names, key, strict=True)))
        return known


@functools.lru_cache(maxsize=256)
def selector(expression: str) -> Selector:
    """Compile `expression`. Raises UsageError that says what is wrong and lists the fields."""
    tree = _parse(expression)
    reader = _Reader(expression)
    _check_depth(tree, expression)
    reader.visit(tree)
    _check_truth(tree, expression)
    evaluator = simpleeval.EvalWithCompoundTypes(
        operators=_OPERATORS, functions=dict(FUNCTIONS), names=dict(_CONSTANTS)
    )

    def evaluate(values: Mapping[str, Any]) -> bool:
        evaluator.names = {**_CONSTANTS, **values}
        return bool(evaluator.eval(expression, previously_parsed=tree))

    return Selector(expression, tuple(reader.names), tuple(reader.wanted), evaluate)


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


def _check_depth(tree: ast.expr, expression: str) -> None:
    """Evaluation needs several calls a level: what is deeper than anybody writes is refused."""
    level: list[ast.AST] = [tree]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise _wrong(expression, "nested too deeply")


def _check_truth(node: ast.expr, expression: str) -> None:
    """`model == "a" or "b"` is always true: what stands alone must be something that is true or false."""
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            _check_truth(value, expression)
    elif isinstance(node, ast.UnaryOp):
        _check_truth(node.operand, expression)
    elif not isinstance(node, (ast.Compare, ast.Call)) and not _is_boolean(node):
        shown = ast.unparse(node)
        raise _wrong(expression, f"`{shown}` alone is neither true nor false: compare a field with it")


def _is_boolean(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    return isinstance(node, ast.Name) and (node.id == "required" or isinstance(_CONSTANTS.get(node.id), bool))


class _Reader(ast.NodeVisitor):
    """Refuses everything that is not on the short list; collects fields and texts on the way."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.names: dict[str, None] = {}
        self.wanted: list[tuple[str, str]] = []

    def generic_visit(self, node: ast.AST) -> None:
        if not isinstance(node, (ast.BoolOp, ast.List, ast.Tuple, ast.expr_context, ast.boolop)):
            self.refuse(f"{_NAMES_OF.get(type(node), type(node).__name__)} is not available here")
        super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _CONSTANTS:
            return
        if node.id not in FIELDS:
            hint = did_you_mean(node.id, FIELDS) or f' (a text needs quotes: "{node.id}")'
            self.refuse(f"there is no field `{node.id}`{hint}")
        self.names[node.id] = None

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, (str, int, float, bool, type(None))):
            self.refuse(f"{node.value!r} is not available here")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if not isinstance(node.op, ast.Not):
            self.refuse("arithmetic is not available here")
        self.visit(node.operand)

    def visit_Call(self, node: ast.Call) -> None:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
            self.refuse(f"the only functions are {', '.join(FUNCTIONS)}")
        if len(node.args) != 2 or node.keywords:
            self.refuse(f"{ast.unparse(node.func)} takes two arguments: a field and a text")
        for argument in node.args:
            self.visit(argument)

    def visit_Compare(self, node: ast.Compare) -> None:
        for side in (node.left, *node.comparators):
            self.visit(side)
        if isinstance(node.left, ast.Name) and isinstance(node.ops[0], (ast.Eq, ast.In)):
            right = node.comparators[0]
            items = right.elts if isinstance(right, (ast.List, ast.Tuple)) else [right]
            texts = [item.value for item in items if isinstance(item, ast.Constant)]
            self.wanted += [(node.left.id, text) for text in texts if isinstance(text, str)]

    def refuse(self, text: str) -> NoReturn:
        raise _wrong(self.expression, text)


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
