"""Typed loading with located errors: a YAML document checked against a pydantic model.

Mistakes of the text (duplicate keys), of the types (a number for a text) and of
meaning (a name that does not exist) are collected into one list, each as
`file:line:column: key: what is wrong (did you mean ...?)`.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from matrix.errors import ConfigError
from matrix.strict_yaml.source import Document, Loc, Problem

_Model = TypeVar("_Model", bound=BaseModel)
_Details = Any  # pydantic's ErrorDetails


class Checker:
    """Collects the problems of one document; `finish` raises them all, in the file's order."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems = list(document.problems)

    def add(self, loc: Sequence[str | int], text: str, *, key: bool = False) -> None:
        """Report `text` at `loc` (at its key when `key`), unless something there was reported already."""
        found, position = self.document.place(loc, key=key)
        if any(found[: len(p.loc)] == p.loc and p.loc for p in self.problems):
            return
        self.problems.append(Problem(position=position, loc=found, text=text))

    def also(self, loc: Sequence[str | int], text: str) -> None:
        """Report `text` at `loc` beside what was reported there: one list has several things wrong."""
        found, position = self.document.place(loc)
        problem = Problem(position=position, loc=found, text=text)
        if problem not in self.problems:
            self.problems.append(problem)

    def has_problem(self, loc: Sequence[str | int]) -> bool:
        """Whether anything at `loc`, below it or above it was reported."""
        loc = tuple(loc)
        return any(p.loc[: len(loc)] == loc or (p.loc and loc[: len(p.loc)] == p.loc) for p in self.problems)

    def validate(self, model: type[_Model], at: Loc = ()) -> _Model | None:
        """The document, or the value at `at` in it, as a `model`; None with the problems recorded."""
        data = self.document.data
        for part in at:
            data = data[part]
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                self._explain(details, model, at)
            return None

    def finish(self) -> None:
        """Raise ConfigError when anything was found."""
        if self.problems:
            problems = sorted(self.problems, key=lambda p: p.position)
            raise ConfigError([self.document.message(p) for p in problems])

    def _explain(self, details: _Details, model: type[BaseModel], at: Loc) -> None:
        loc: Loc = (*at, *details["loc"])
        kind: str = details["type"]
        found, _ = self.document.place(loc)
        parent = found[:-1] if found and found[-1] == loc[-1] else found
        if kind == "extra_forbidden":
            known = _keys(model, parent[len(at) :])
            self.add(loc, "unknown key" + did_you_mean(str(loc[-1]), known), key=True)
        elif kind == "missing":
            self.add(loc, f"`{loc[-1]}` is missing")
        else:
            self.add(loc, self._value(details, found))

    def _value(self, details: _Details, found: Loc) -> str:
        kind: str = details["type"]
        given = details["input"]
        raw = self.document.raw.get(found)
        shown = raw if raw is not None else _short(given)
        context: dict[str, Any] = details.get("ctx") or {}
        if kind == "string_type" and raw is not None and given is not None:
            return f'text is needed: write "{raw}" in quotes'
        if kind in _WANTED:
            return f"{_WANTED[kind]} is needed, got {'nothing' if given is None else shown}"
        if kind == "literal_error":
            words = [w.strip("'") for w in str(context.get("expected", "")).replace(" or ", ", ").split(", ")]
            return f"{shown} is not one of {', '.join(words)}{did_you_mean(str(given), words)}"
        if kind in _RULES:
            limits = {n: int(v) if isinstance(v, float) and v.is_integer() else v for n, v in context.items()}
            return f"{_RULES[kind].format(**limits)}, got {shown[:80]}"
        if kind == "value_error":
            return str(context.get("error", details["msg"]))
        message = str(details["msg"])
        return f"{message[:1].lower()}{message[1:]}, got {shown}"


#: pydantic's rules in the words of the file; {…} are its own parameters
_RULES = {
    "greater_than_equal": "at least {ge} is needed",
    "greater_than": "more than {gt} is needed",
    "less_than_equal": "at most {le} is possible",
    "too_short": "at least one entry is needed",
    "string_too_short": "text is needed",
    "string_too_long": "at most {max_length} characters are possible",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-' are possible, a letter or digit first",
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "path_type": "a path",
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean "pytorch"?)`, or the empty string when nothing is near."""
    known = list(known)
    by_folded = {k.lower().replace("-", "_"): k for k in known}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return f' (did you mean "{by_folded[near[0]]}"?)' if near else ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _keys(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys that would have been right at `loc`, found by walking the type annotations."""
    kinds: list[Any] = [model]
    for part in loc:
        kinds = [inner for kind in kinds for inner in _descend(kind, part)]
    return [
        field.alias or name for kind in kinds if _is_model(kind) for name, field in kind.model_fields.items()
    ]


def _descend(kind: Any, part: str | int) -> Iterator[Any]:
    if _is_model(kind):
        fields = kind.model_fields
        field = fields.get(str(part)) or next((f for f in fields.values() if f.alias == part), None)
        if field is not None:
            yield from _alternatives(field.annotation)
    elif typing.get_origin(kind) in (list, tuple, dict):
        yield from _alternatives(typing.get_args(kind)[-1])


def _alternatives(kind: Any) -> Iterator[Any]:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        yield from _alternatives(typing.get_args(kind)[0])
    elif origin in (typing.Union, types.UnionType):
        for option in typing.get_args(kind):
            yield from _alternatives(option)
    else:
        yield kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
