"""What judging one output gives, and how places and values are told to people."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.verdict import Note, OutputError


class Failure(NamedTuple):
    """What is wrong first: a code for scripts, a sentence for people."""

    code: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One output, judged: `error` is absent where its values could not be compared."""

    rule: str
    failure: Failure | None = None
    error: OutputError | None = None
    notes: tuple[Note, ...] = ()


def place(name: str, flat: int, shape: tuple[int, ...]) -> str:
    """`Y[0, 3]`, or `Y` for a tensor without axes."""
    index = ", ".join(str(int(i)) for i in np.unravel_index(flat, shape)) if shape else ""
    return f"{name}[{index}]" if shape else name


def first(mask: npt.NDArray[np.bool_]) -> int:
    """Index of the first true element, in the flattened array."""
    return int(np.argmax(mask))


def count(number: int, of: int, word: str = "element") -> str:
    """`1 of 15 elements`."""
    return f"{number:,} of {of:,} {word}{'' if of == 1 else 's'}"


def number(value: Any, digits: int) -> str:
    """A float with so many significant digits, without trailing noise."""
    return f"{float(value):.{digits}g}"
