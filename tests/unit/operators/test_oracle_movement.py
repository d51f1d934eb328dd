"""The oracle's own definitions of operators that move elements, and of cross entropy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters.operators import case_folder, oracle
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, plain


def values(name: str, given: Any, dtype: str = "float64") -> TensorSpec:
    array = np.asarray(given)
    shape = tuple(int(size) for size in array.shape)
    if not array.size:
        return TensorSpec(name=name, dtype=dtype, shape=shape, generator="zeros")
    return TensorSpec(
        name=name, dtype=dtype, shape=shape, generator="values", options={"values": array.tolist()}
    )


@pytest.fixture
def expected(tmp_path: Path) -> Any:
    def run(op: str, *inputs: TensorSpec | None, outputs: tuple[str, ...] = ("Y",), **attributes: Any) -> Any:
        names = tuple(spec.name if spec else "" for spec in inputs)
        case = OperatorCase(
            name=f"{op}/x",
            dtype="float64",
            nodes=(Node(op=op, inputs=names, outputs=outputs, attributes=attributes),),
            inputs=tuple(spec for spec in inputs if spec),
            outputs=outputs,
            opset=21,
        )
        assert oracle.prepare(plain(case), tmp_path) is None
        return case_folder.read(tmp_path).expected

    return run


X = np.arange(12.0).reshape(3, 4)


def test_negative_pads_cut_before_others_add(expected: Any) -> None:
    got = expected("Pad", values("X", X), values("pads", [-1, 0, 1, -2], "int64"))["Y"]
    np.testing.assert_array_equal(got, [[4, 5], [8, 9], [0, 0]])


def test_pads_of_some_axes_leave_the_others(expected: Any) -> None:
    pads, axes = values("pads", [1, -1], "int64"), values("axes", [-1], "int64")
    got = expected("Pad", values("X", X[:1]), pads, values("fill", 7.0), axes)["Y"]
    np.testing.assert_array_equal(got, [[7, 0, 1, 2]])


@pytest.mark.parametrize(
    ("mode", "row"),
    [("edge", [0, 0, 0, 1, 2, 3, 3]), ("reflect", [2, 1, 0, 1, 2, 3, 2]), ("wrap", [2, 3, 0, 1, 2, 3, 0])],
)
def test_each_mode_of_padding(expected: Any, mode: str, row: list[int]) -> None:
    got = expected("Pad", values("X", X[:1]), values("pads", [0, 2, 0, 1], "int64"), mode=mode)["Y"]
    np.testing.assert_array_equal(got, [row])


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 0)), (1, (0, 12)), (-1, (0, 4)), (3, (0, 1))])
def test_nothing_can_be_flattened_too(expected: Any, axis: int, shape: tuple[int, int]) -> None:
    assert expected("Flatten", values("X", np.zeros((0, 3, 4))), axis=axis)["Y"].shape == shape


def test_elements_are_gathered_along_negative_axes_by_fewer_and_negative_indices(expected: Any) -> None:
    got = expected("GatherElements", values("X", X), values("I", [[0, -1], [2, 1]], "int64"), axis=-1)["Y"]
    np.testing.assert_array_equal(got, [[0, 3], [6, 5]])
    got = expected("GatherElements", values("X", X), values("I", [[-1, 0]], "int64"), axis=0)["Y"]
    np.testing.assert_array_equal(got, [[8, 1]])


@pytest.mark.parametrize("spatial", [(5,), (2, 3), (2, 2, 2)])
def test_a_global_maximum_keeps_one_element_for_each_axis(expected: Any, spatial: tuple[int, ...]) -> None:
    x = np.arange(float(2 * math.prod(spatial))).reshape(1, 2, *spatial)
    got = expected("GlobalMaxPool", values("X", x))["Y"]
    assert got.shape == (1, 2, *[1] * len(spatial))
    assert got.ravel().tolist() == [x[0, 0].max(), x[0, 1].max()]


SCORES = [[1000.0, 0.0, -1000.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]


def test_cross_entropy_of_large_scores_is_finite(expected: Any) -> None:
    labels = values("labels", [2, 0, 1], "int64")
    got = expected("SoftmaxCrossEntropyLoss", values("X", SCORES), labels, reduction="none")["Y"]
    np.testing.assert_allclose(got, [2000.0, math.log(3), math.log(1 + 2 * math.exp(-3))], rtol=1e-14)


def test_the_mean_is_over_the_weights_of_what_is_not_ignored(expected: Any) -> None:
    labels, weights = values("labels", [2, 0, 1], "int64"), values("w", [2.0, 1.0, 5.0])
    got = expected("SoftmaxCrossEntropyLoss", values("X", SCORES), labels, weights, ignore_index=2)["Y"]
    wanted = (2 * math.log(3) + math.log(1 + 2 * math.exp(-3))) / 3
    assert got == pytest.approx(wanted, rel=1e-14)


def test_log_probabilities_are_the_second_output(expected: Any) -> None:
    labels = values("labels", [2, 0, 1], "int64")
    got = expected("SoftmaxCrossEntropyLoss", values("X", SCORES), labels, outputs=("Y", "L"))
    np.testing.assert_allclose(np.exp(got["L"]).sum(axis=1), 1.0, rtol=1e-14)
    assert got["L"][0].tolist() == [0.0, -1000.0, -2000.0]


def test_a_label_outside_the_classes_may_be_the_ignored_one(expected: Any) -> None:
    labels = values("labels", [-100, 0, 1], "int64")
    arguments = {"ignore_index": -100, "reduction": "sum"}
    got = expected("SoftmaxCrossEntropyLoss", values("X", SCORES), labels, **arguments)["Y"]
    assert got == pytest.approx(math.log(3) + math.log(1 + 2 * math.exp(-3)), rel=1e-14)


@pytest.mark.parametrize("ignored", [-1, 1])
@pytest.mark.parametrize("weights", [None, [2.0, 1.0, 5.0]])
def test_an_ignored_label_counts_in_no_mean(expected: Any, ignored: int, weights: list[float] | None) -> None:
    """An `ignore_index` of -1 is one like any other."""
    scores = [[-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0], [-7.0, -8.0, -9.0]]
    labels = values("labels", [2, ignored, 0], "int64")
    given = [values("X", scores), labels, *([values("w", weights)] if weights else [])]
    got = expected("NegativeLogLikelihoodLoss", *given, ignore_index=ignored)["Y"]
    assert got == pytest.approx((5 * 3 + 2 * 7) / 7 if weights else (3 + 7) / 2, rel=1e-15)
    each = expected("NegativeLogLikelihoodLoss", *given, ignore_index=ignored, reduction="none")["Y"]
    assert each.tolist() == ([15, 0, 14] if weights else [3, 0, 7])


def test_a_loss_of_images_has_a_label_for_each_pixel(expected: Any) -> None:
    scores = -np.arange(12.0).reshape(1, 3, 2, 2)
    labels = values("labels", [[[0, 2], [1, 0]]], "int64")
    got = expected("NegativeLogLikelihoodLoss", values("X", scores), labels, reduction="none")["Y"]
    assert got.tolist() == [[[0, 9], [6, 3]]]
