"""Strict YAML that remembers where everything stood.

PyYAML reads YAML 1.1, where `off` is a boolean, `010` is eight, `1e-3` is text and
the second of two equal keys wins silently. Only its parser is used here (`compose`);
scalars are read by the YAML 1.2 core schema, and what a person is likely to have
meant differently is an error that says how to write it. Every key and value keeps
its line and column, so that later checks (types, names) can point at them too.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from matrix.errors import ConfigError

MAX_BYTES = 1_000_000
MAX_NODES = 100_000  # after aliases are followed: a file of nested aliases grows exponentially

Loc = tuple[str | int, ...]  # the way from the root to a value: ("frameworks", 0, "name")


class Position(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One mistake in one place. `loc` says which value, so that it is reported once."""

    position: Position
    loc: Loc
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A YAML file as plain data, with positions and the mistakes found while reading it.

    Values that are mistakes themselves are present in `data` as the text that was
    written, so that checking can go on and report more in one go.
    """

    name: str  # the file, as the user named it
    data: Any
    keys: Mapping[Loc, Position]
    values: Mapping[Loc, Position]
    raw: Mapping[Loc, str]  # the text of plain (unquoted) scalars
    problems: tuple[Problem, ...]

    def place(self, loc: Sequence[str | int], *, key: bool = False) -> tuple[Loc, Position]:
        """The nearest thing that exists in the file on the way to `loc`, and where it stands."""
        found: Loc = ()
        for part in loc:
            if (*found, part) in self.values:
                found = (*found, part)
        where = self.keys.get(found) if key else None
        return found, where or self.values.get(found, Position(1, 1))

    def message(self, problem: Problem) -> str:
        """`file:line:column: key: text`."""
        dotted = path_text(problem.loc)
        prefix = f"{self.name}:{problem.position.line}:{problem.position.column}: "
        return prefix + (f"{dotted}: " if dotted else "") + problem.text


def read(path: Path, name: str | None = None, *, not_finite: bool = False) -> Document:
    """Parse the file at `path`. Raises ConfigError when it cannot be read or is not YAML at all.

    Lesser mistakes (duplicate keys, `off` for a string, ...) are in the document's `problems`.
    `not_finite`: `.nan` and `.inf` are numbers here, in a file that tests with them on purpose.
    """
    name = name or str(path)
    return parse(_text(path, name), name, not_finite=not_finite)


def parse(text: str, name: str, *, not_finite: bool = False) -> Document:
    """Parse `text`; `name` is what messages call it. See `read`."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        root = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)
        raise ConfigError([_syntax(name, position, error)]) from None
    except yaml.YAMLError as error:  # a control character, for example
        raise ConfigError([f"{name}:1:1: not YAML: {_one_line(str(error))}"]) from None
    except RecursionError:
        raise ConfigError([f"{name}:1:1: not YAML: nested too deeply"]) from None
    if root is None:
        raise ConfigError([f"{name}:1:1: the file is empty"])
    try:
        return _Builder(name, not_finite).document(root)
    except RecursionError:
        raise ConfigError([f"{name}:1:1: nested too deeply"]) from None


def from_data(data: Any, name: str) -> Document:
    """A document of data that was no YAML text: every place is line 1, but known by its path."""
    values: dict[Loc, Position] = {}

    def walk(value: Any, loc: Loc) -> None:
        values[loc] = Position(1, 1)
        inner: Any = value.items() if isinstance(value, Mapping) else ()
        for key, item in enumerate(value) if isinstance(value, list) else inner:
            walk(item, (*loc, key))

    walk(data, ())
    return Document(name=name, data=data, keys={}, values=values, raw={}, problems=())


def path_text(loc: Sequence[str | int]) -> str:
    """`frameworks[0].name`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _text(path: Path, name: str) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError([f"{name}: larger than {MAX_BYTES // 1000} kB; is this the right file?"])
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise ConfigError([f"{name}: no such file"]) from None
    except IsADirectoryError:
        raise ConfigError([f"{name}: a folder, not a file"]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError([f"{name}:{line}:1: not UTF-8 text (byte {error.start})"]) from None
    except OSError as error:
        raise ConfigError([f"{name}: cannot be read: {error.strerror or error}"]) from None


def _syntax(name: str, position: Position, error: yaml.MarkedYAMLError) -> str:
    text = _one_line(error.problem or error.context or "not understood")
    if "cannot start any token" in text:
        text += " (a tab? indent with spaces)"
    elif "mapping values are not allowed" in text:
        text += ' (a text that holds ": " needs quotes)'
    elif "another document" in text:
        text = "a second document begins here; one file holds one"
    return f"{name}:{position.line}:{position.column}: not YAML: {text}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEAN = {"true": True, "false": False}
# Booleans to YAML 1.1, text to YAML 1.2: whoever wrote one of them may have meant either.
_TRUE_WORDS = {"yes", "on", "true"}
_DOUBTFUL = {
    f(w) for w in ("yes", "no", "on", "off", "true", "false") for f in (str.lower, str.title, str.upper)
}


def _scalar(text: str) -> tuple[Any, str | None]:
    """(value, what is wrong with it). YAML 1.2 core schema, minus what is easily misread."""
    wrong: str | None = None
    value: Any = text
    if text in _BOOLEAN:
        value = _BOOLEAN[text]
    elif text in _NULL:
        value = None
    elif text in _DOUBTFUL:
        boolean = "true" if text.lower() in _TRUE_WORDS else "false"
        wrong = f'`{text}` is unclear: write {boolean} for the boolean, or "{text}" in quotes for the text'
    elif _LEADING_ZERO.fullmatch(text):
        number = text.lstrip("+-0") or "0"
        wrong = f'`{text}` is unclear: write {number} for the number, or "{text}" in quotes for the text'
    elif _NOT_FINITE.fullmatch(text):
        wrong = f"`{text}` is not a finite number"
    elif _BASED.fullmatch(text):
        value = int(text, 0)
    elif _INT.fullmatch(text) or _FLOAT.fullmatch(text):
        value, wrong = _number(text)
    return value, wrong


def _number(text: str) -> tuple[Any, str | None]:
    if len(text) > 40 or abs(float(text)) == float("inf"):
        return text, f"`{text[:20]}...` is too long or too large for a number"
    return (int(text) if _INT.fullmatch(text) else float(text)), None


class _Builder:
    """Walks the node graph once; aliases are followed, within limits."""

    def __init__(self, name: str, not_finite: bool) -> None:
        self.name, self.not_finite = name, not_finite
        self.keys: dict[Loc, Position] = {}
        self.values: dict[Loc, Position] = {}
        self.raw: dict[Loc, str] = {}
        self.problems: list[Problem] = []
        self.open: set[int] = set()  # nodes being walked: meeting one again is a cycle
        self.count = 0

    def document(self, root: yaml.Node) -> Document:
        data = self.value(root, ())
        return Document(
            name=self.name,
            data=data,
            keys=self.keys,
            values=self.values,
            raw=self.raw,
            problems=tuple(self.problems),
        )

    def value(self, node: yaml.Node, loc: Loc) -> Any:
        position = _position(node)
        self.values[loc] = position
        self.count += 1
        if self.count > MAX_NODES:
            where = f"{self.name}:{position.line}:{position.column}"
            raise ConfigError([f"{where}: more than {MAX_NODES} values (aliases that multiply?)"])
        if id(node) in self.open:
            self.problem(position, loc, "an alias that contains itself")
            return None
        standard = {"str", "seq", "map"} | {"null", "bool", "int", "float"}
        tag = str(node.tag)
        if tag.removeprefix("tag:yaml.org,2002:") not in standard:
            self.problem(position, loc, f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} is not allowed")
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, loc, position)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, loc)
            return [self.value(item, (*loc, i)) for i, item in enumerate(node.value)]
        finally:
            self.open.discard(id(node))

    def scalar(self, node: yaml.ScalarNode, loc: Loc, position: Position) -> Any:
        text = str(node.value)
        if node.style:  # quoted, or a block: text, whatever it looks like
            return text
        self.raw[loc] = text
        if self.not_finite and _NOT_FINITE.fullmatch(text):
            return float(text.replace(".", "", 1))
        value, wrong = _scalar(text)
        if wrong:
            self.problem(position, loc, wrong)
        return value

    def mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            position = _position(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self.problem(position, loc, "a key must be plain text")
                continue
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                self.problem(position, loc, "merge keys (<<) are not supported: write the keys out")
                continue
            where = (*loc, key)
            if key in result:
                first = self.keys[where]
                self.problem(position, where, f"given twice (first at line {first.line})")
                continue
            self.keys[where] = position
            result[key] = self.value(value_node, where)
        return result

    def problem(self, position: Position, loc: Loc, text: str) -> None:
        self.problems.append(Problem(position=position, loc=loc, text=text))


def _position(node: yaml.Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)
