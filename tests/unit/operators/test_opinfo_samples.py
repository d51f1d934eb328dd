"""Samples of OpInfo as nodes of ONNX: each argument is told or the sample is refused, none is dropped.

Stand-ins take the place of tensors: what is translated are arguments.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix_adapters.operators.opinfo_table import ENTRIES
from matrix_adapters.operators.opinfo_told import Told, Untold


@dataclasses.dataclass(frozen=True)
class Tensor:
    """As much of a tensor as a translation looks at."""

    shape: tuple[int, ...]
    floating: bool = True

    def dim(self) -> int:
        return len(self.shape)

    def is_floating_point(self) -> bool:
        return self.floating


X, W, B = Tensor((2, 4, 9)), Tensor((6, 2, 4)), Tensor((6,))


def told(name: str, given: Any, *args: Any, **kwargs: Any) -> Told:
    return ENTRIES[name].translate(given, args, kwargs)


def test_a_convolution_is_told_with_all_its_arguments() -> None:
    found = told("nn.functional.conv1d", X, W, B, 2, (1,), dilation=3, groups=2)
    assert list(found.inputs) == [X, W, B]
    assert found.attributes == {"strides": [2], "dilations": [3], "pads": [1, 1], "group": 2}


def test_padding_to_the_same_size_puts_the_odd_one_at_the_end() -> None:
    assert told("nn.functional.conv1d", X, W, padding="same", dilation=1).attributes["pads"] == [1, 2]
    assert told("nn.functional.conv1d", X, W, padding="valid").attributes["pads"] == [0, 0]


def test_what_torch_has_by_default_is_told() -> None:
    assert told("topk", X, 3).attributes == {"axis": -1, "largest": 1, "sorted": 1}
    assert told("nn.functional.gelu", X).attributes == {"approximate": "none"}
    assert told("sum", X).inputs[1] == [0, 1, 2]
    assert told("tile", X, (2,)).inputs[1] == [1, 1, 2]
    assert told("softmax", X, 1).attributes == {"axis": 1}


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("add", (W,), {"alpha": 2}),
        ("sum", (), {"dtype": "float64"}),
        ("softmax", (1,), {"dtype": "float64"}),
        ("nn.functional.conv1d", (W, B), {"unheard_of": 1}),
        ("nn.functional.conv1d", (Tensor((6, 4, 3, 3)),), {}),
        ("nn.functional.batch_norm", (B, B, B, B), {"training": True}),
        ("nn.functional.group_norm", (2,), {}),
        ("nn.functional.rms_norm", ((9,), B), {}),
        ("nn.functional.embedding", (B,), {"max_norm": 1.0}),
        ("nn.functional.softplus", (), {"beta": 2}),
        ("topk", (3,), {"sorted": False}),
        ("expand", ((2, -1),), {}),
        ("argmax", (), {}),
        ("tile", ((2, 2, 2, 2),), {}),
    ],
)
def test_what_onnx_has_no_words_for_is_refused(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(Untold):
        told(name, X, *args, **kwargs)


def test_integers_are_refused_where_onnx_takes_floats_only() -> None:
    with pytest.raises(Untold, match="whole numbers"):
        told("nn.functional.conv1d", Tensor((2, 4, 9), floating=False), W)
    with pytest.raises(Untold, match="ONNX takes the first"):
        told("topk", Tensor((2, 4, 9), floating=False), 3)
