"""What a translation of an OpInfo sample gives: a node's inputs and attributes, or why there is none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any


class Untold(Exception):
    """ONNX's operator cannot say this sample; the message says what it lacks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told:
    """A sample as a node: tensors (or lists of whole numbers, which become int64) and attributes."""

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


Translate = Callable[[Any, Sequence[Any], Mapping[str, Any]], Told]


def nothing(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Nothing may be left that was not told. Raises Untold with its name."""
    left = [*kwargs, *(["an argument"] if args else [])]
    if left:
        raise Untold(f"ONNX's operator has nothing like {left[0]}")
