"""The values of a case's tensors: the same for the same seed, in range, and what their name says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from matrix_adapters.operators import elements, generators
from matrix_adapters.protocol import TensorSpec, from_json, to_json

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
TYPES = (*FLOATS, *INTEGERS, "bool")

#: options that a generator needs
NEEDED: dict[str, dict[str, Any]] = {"values": {"values": 1}, "indices": {"size": 7}}


def made(dtype: str, shape: tuple[int, ...], generator: str = "normal", seed: int = 1, **options: Any) -> Any:
    spec = TensorSpec(name="X", dtype=dtype, shape=shape, generator=generator, options=options)
    return elements.widened(generators.tensor(spec, seed), dtype)


#: nothing to be made: two values are no sequence
IMPOSSIBLE = {("arange", "bool"), ("permutation", "bool")}


@pytest.mark.parametrize(
    ("generator", "dtype"),
    [
        (generator, dtype)
        for generator in generators.names()
        for dtype in TYPES
        if generator != "nan_at" and (generator, dtype) not in IMPOSSIBLE
    ],
)
def test_every_generator_makes_every_type_twice_alike(generator: str, dtype: str) -> None:
    needed = dict(NEEDED.get(generator, {}))
    if (generator, dtype) == ("indices", "bool"):
        needed["size"] = 2
    spec = TensorSpec(name="X", dtype=dtype, shape=(3, 4), generator=generator, options=needed)
    first, again = generators.tensor(spec, 5), generators.tensor(spec, 5)
    assert first.dtype == elements.storage(dtype)
    assert first.shape == (3, 4)
    assert first.flags.c_contiguous
    assert first.tobytes() == again.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2)])
@pytest.mark.parametrize("generator", [n for n in generators.names() if n not in ("nan_at", "onehot")])
def test_scalars_and_empty_tensors_are_made_too(generator: str, shape: tuple[int, ...]) -> None:
    assert made("float32", shape, generator, **NEEDED.get(generator, {})).shape == shape


def test_the_seed_and_the_name_make_the_values() -> None:
    one = generators.tensor(TensorSpec(name="X", dtype="float32", shape=(8,)), 1)
    other_name = generators.tensor(TensorSpec(name="Y", dtype="float32", shape=(8,)), 1)
    other_seed = generators.tensor(TensorSpec(name="X", dtype="float32", shape=(8,)), 2)
    assert not np.array_equal(one, other_name)
    assert not np.array_equal(one, other_seed)


def test_another_input_leaves_the_first_as_it_was() -> None:
    """Values never depend on what else a case has: a cached oracle of one stays comparable."""
    alone = generators.tensor(TensorSpec(name="X", dtype="float16", shape=(4,)), 9)
    generators.tensor(TensorSpec(name="A", dtype="float16", shape=(999,)), 9)
    assert np.array_equal(alone, generators.tensor(TensorSpec(name="X", dtype="float16", shape=(4,)), 9))


def test_the_stream_itself_does_not_change() -> None:
    """A new stream is new inputs under an old name: then every content key has to change with it."""
    np.testing.assert_allclose(
        made("float64", (3,)), [1.0730078023167164, -0.3021638513975951, -1.468950417993555], rtol=1e-12
    )


# --- bfloat16 --------------------------------------------------------------------------------


@given(hypothesis_numpy.arrays(np.float32, 16, elements=st.floats(width=32)))
def test_bfloat16_rounds_to_the_nearest_and_ties_to_even(values: np.ndarray) -> None:
    """Against the definition: no other bfloat16 is nearer, and of two equally near the even one is taken."""
    bits = elements.to_bits(values)
    for value, bit in zip(values, bits, strict=True):
        rounded = float(elements.from_bits(np.array(bit)))
        if math.isnan(value):
            assert math.isnan(rounded)
            continue
        # On the line of ordered bits the infinities stand for 2^128, as IEEE 754 rounds.
        exact = float(value)
        near = [_on_line(bit, step) for step in (-1, 0, 1)]
        if math.isinf(exact):
            assert rounded == exact
            continue
        distances = [abs(exact - number) for number in near]
        assert distances[1] == min(distances)
        if distances[1] in (distances[0], distances[2]) and distances[1] > 0:
            assert bit % 2 == 0


def _on_line(bit: int, step: int) -> float:
    """The neighbour `step` places up in magnitude; beyond the largest lies 2^128."""
    magnitude = (int(bit) & 0x7FFF) + step
    sign = -1.0 if int(bit) & 0x8000 else 1.0
    if magnitude < 0:
        return -sign * 2.0**-133
    if magnitude >= 0x7F80:
        return sign * 2.0**128 * (1 if magnitude == 0x7F80 else 2)
    return sign * float(elements.from_bits(np.array(magnitude, np.uint16)))


@given(st.integers(0, 0xFFFF))
def test_every_bfloat16_survives_being_widened(bits: int) -> None:
    wide = elements.from_bits(np.array(bits, np.uint16))
    if np.isnan(wide):
        assert np.isnan(elements.from_bits(elements.to_bits(wide)))
    else:
        assert int(elements.to_bits(wide)) == bits


def test_a_value_above_the_middle_of_the_last_step_becomes_infinity() -> None:
    largest = elements.limits("bfloat16").max
    middle = largest + 2.0**119
    assert np.isinf(elements.from_bits(elements.to_bits(middle)))
    below = np.nextafter(np.float32(middle), np.float32(0))
    assert float(elements.from_bits(elements.to_bits(below))) == largest


# --- what each name promises -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_holds_every_edge_of_its_type(dtype: str) -> None:
    values = made(dtype, (30,), "special").astype(np.float64)
    edges = elements.limits(dtype)
    assert np.isnan(values).any()
    for edge in (math.inf, edges.max, edges.min_normal, edges.min_subnormal, 1.0):
        assert edge in values
        assert -edge in values
    zeros = values[values == 0]
    assert np.signbit(zeros).any()
    assert not np.signbit(zeros).all()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_special_holds_the_ends_of_an_integer_type(dtype: str) -> None:
    info = np.iinfo(dtype)
    assert {info.min, info.max, 0, 1} <= set(made(dtype, (20,), "special").tolist())


@pytest.mark.parametrize("dtype", FLOATS)
def test_wide_covers_the_normal_range_with_both_signs_and_nothing_else(dtype: str) -> None:
    values = made(dtype, (4000,), "wide").astype(np.float64)
    edges = elements.limits(dtype)
    magnitudes = np.abs(values)
    assert np.isfinite(values).all()
    assert magnitudes.min() >= edges.min_normal
    span = math.log2(edges.max) - math.log2(edges.min_normal)
    assert math.log2(magnitudes.max()) - math.log2(magnitudes.min()) > 0.95 * span
    assert 0.4 < (values > 0).mean() < 0.6


@pytest.mark.parametrize("dtype", FLOATS)
def test_positive_is_never_zero(dtype: str) -> None:
    values = made(dtype, (500,), "positive", low=1e-3, high=2.0)
    assert values.min() > 0
    assert values.max() <= 2.01


def test_integers_stop_below_high() -> None:
    values = made("int32", (2000,), "integers", low=-3, high=4)
    assert set(values.tolist()) == set(range(-3, 4))


def test_integers_reach_the_ends_of_uint64() -> None:
    values = made("uint64", (200,), "integers", low=2**64 - 2)
    assert set(values.tolist()) == {2**64 - 2, 2**64 - 1}


def test_permutation_has_no_value_twice() -> None:
    values = made("float16", (40, 50), "permutation", start=-1000)
    assert len(np.unique(values)) == 2000


def test_permutation_refuses_a_type_that_cannot_tell_its_values_apart() -> None:
    with pytest.raises(ValueError, match="bfloat16 cannot tell 300 values"):
        made("bfloat16", (300,), "permutation")


def test_nan_stands_where_it_was_asked_and_nowhere_else() -> None:
    for index in range(6):
        values = made("float32", (2, 3), "nan_at", index=index)
        assert np.flatnonzero(np.isnan(values)).tolist() == [index]
    assert np.isnan(made("bfloat16", (2, 3), "nan_at", index=[1, 2])[1, 2])


def test_given_values_keep_the_sign_of_zero_and_infinity() -> None:
    values = made("float32", (2, 2), "values", values=[["nan", 1.5], [-0.0, "-inf"]])
    assert np.isnan(values[0, 0])
    assert values[0, 1] == 1.5
    assert np.signbit(values[1, 0])
    assert values[1, 1] == -np.inf


def test_given_64_bit_integers_stay_exact() -> None:
    assert made("int64", (2,), "values", values=[2**63 - 1, -(2**63)]).tolist() == [2**63 - 1, -(2**63)]


def test_onehot_has_one_1_in_each_row() -> None:
    values = made("float16", (5, 7), "onehot")
    assert (values.sum(axis=1) == 1).all()
    assert set(np.unique(values)) == {0.0, 1.0}


@given(st.integers(1, 9), st.booleans())
def test_indices_address_the_axis(size: int, negative: bool) -> None:
    values = made("int64", (30,), "indices", size=size, negative=negative)
    np.arange(size)[values]  # raises for an index that is none
    assert negative or values.min() >= 0


def test_unique_indices_hit_no_element_twice() -> None:
    rows = made("int64", (6, 2), "indices", size=[3, 2], unique=True)
    assert len({tuple(row) for row in rows.tolist()}) == 6
    columns = made("int64", (4, 5), "indices", size=9, unique_axis=0)
    assert all(len(set(column)) == 4 for column in columns.T.tolist())


def test_a_broadcast_layout_repeats_its_first_entry() -> None:
    spec = TensorSpec(name="X", dtype="float32", shape=(4, 3), layout="broadcast")
    values = generators.tensor(spec, 1)
    assert (values == values[:1]).all()


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "generator", "options", "words"),
    [
        ("float32", "gaussian", {}, r"generator 'gaussian': there is no such generator: use arange"),
        ("float32", "normal", {"sigma": 2}, r"no option 'sigma': it takes mean, std"),
        ("float8", "normal", {}, r"no way to keep a tensor of 'float8'"),
        ("int8", "integers", {"low": 0, "high": 300}, r"0\.\.299 does not fit int8"),
        ("int8", "arange", {"start": 120}, r"values that are no int8: \[128, 129, 130\]"),
        ("int32", "nan_at", {}, r"int32 has no NaN"),
        ("float32", "nan_at", {"index": 99}, r"out of bounds"),
        ("float32", "values", {"values": [1, 2]}, r"2 values for a tensor of \[3, 4\]"),
        ("int32", "values", {"values": 1.5}, r"1\.5 is no int32"),
        ("float32", "values", {"values": "one"}, r"'one' is no number"),
        ("int64", "indices", {"size": 3, "unique": True}, r"12 different indices below 3"),
        ("float32", "positive", {"low": 0}, r"0 < low < high"),
        ("float32", "indices", {}, r"size"),
    ],
)
def test_what_cannot_be_made_names_tensor_and_reason(
    dtype: str, generator: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=r"tensor 'X'.*" + words):
        made(dtype, (3, 4), generator, **options)


def test_a_spec_survives_being_written() -> None:
    spec = TensorSpec(name="X", dtype="bfloat16", shape=(2, 3), options={"std": 2.0}, layout="strided")
    assert from_json(TensorSpec, to_json(spec)) == spec
