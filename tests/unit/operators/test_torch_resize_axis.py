"""Places and weights of a Resize, worked out before any framework is asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix_adapters.operators.torch_resize_axis import Axis, Rule, axis_taps, native, plan_axes

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")


def axis(size: int, made: int) -> Axis:
    return Axis(place=2, size=size, made=made, scale=made / size)


@given(
    st.integers(1, 9),
    st.integers(1, 20),
    st.sampled_from(["linear", "cubic"]),
    st.sampled_from(COORDINATES),
    st.booleans(),
    st.booleans(),
)
def test_weights_sum_to_one_and_places_lie_in_the_input(
    size: int, made: int, mode: str, coordinates: str, antialias: bool, outside: bool
) -> None:
    rule = Rule(mode=mode, coordinates=coordinates, antialias=antialias, exclude_outside=outside)
    taps = axis_taps(rule, axis(size, made))
    assert taps.weights is not None
    np.testing.assert_allclose(taps.weights.sum(1), 1, atol=1e-12)
    assert taps.index.min() >= 0
    assert taps.index.max() < size


@given(st.integers(1, 9), st.sampled_from(COORDINATES))
def test_an_axis_of_the_same_size_takes_each_element_once(size: int, coordinates: str) -> None:
    taps = axis_taps(Rule(mode="nearest", coordinates=coordinates), axis(size, size))
    assert taps.index[:, 0].tolist() == list(range(size))


@pytest.mark.parametrize(
    ("rounding", "places"),
    [
        ("round_prefer_floor", [0, 2]),
        ("round_prefer_ceil", [1, 3]),
        ("floor", [0, 2]),
        ("ceil", [1, 3]),
    ],
)
def test_halves_go_the_way_that_nearest_mode_says(rounding: str, places: list[int]) -> None:
    taps = axis_taps(Rule(mode="nearest", coordinates="half_pixel", nearest=rounding), axis(4, 2))
    assert taps.index[:, 0].tolist() == places


@pytest.mark.parametrize(
    ("rule", "size", "made", "word"),
    [
        (Rule(mode="linear", coordinates="half_pixel"), 4, 7, "sizes"),
        (Rule(mode="linear", coordinates="align_corners"), 4, 7, "corners"),
        (Rule(mode="linear", coordinates="asymmetric"), 4, 7, None),
        (Rule(mode="cubic", coordinates="half_pixel", cubic=-0.5), 4, 7, None),
        (Rule(mode="cubic", coordinates="half_pixel", exclude_outside=True), 4, 7, None),
        (Rule(mode="linear", coordinates="half_pixel", antialias=True), 7, 4, None),
        (Rule(mode="nearest", coordinates="asymmetric", nearest="floor"), 4, 8, "nearest"),
        (Rule(mode="nearest", coordinates="half_pixel", nearest="round_prefer_ceil"), 4, 2, "nearest-exact"),
        (Rule(mode="nearest", coordinates="half_pixel", nearest="ceil"), 4, 8, None),
    ],
)
def test_interpolate_is_used_only_where_it_says_the_same(
    rule: Rule, size: int, made: int, word: str | None
) -> None:
    assert native(rule, [axis(size, made)]) == word


def test_an_aspect_ratio_is_kept_by_the_smaller_or_the_larger_scale() -> None:
    shape = (1, 1, 6, 8)
    smaller = plan_axes(shape, [2, 3], None, [9, 9], "not_larger")
    larger = plan_axes(shape, [2, 3], None, [9, 9], "not_smaller")
    assert [a.made for a in smaller] == [1, 1, 7, 9]  # 6 x 9/8 = 6.75
    assert [a.made for a in larger] == [1, 1, 9, 12]


def test_a_crop_outside_the_input_takes_the_extrapolation_value() -> None:
    (cropped,) = plan_axes((4,), [0], None, [3], "stretch")
    taps = axis_taps(Rule(mode="nearest", coordinates="tf_crop_and_resize"), cropped.cropped([0.0, 2.0], [0]))
    assert taps.outside.tolist() == [False, False, True]
