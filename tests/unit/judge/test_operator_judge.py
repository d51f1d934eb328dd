"""The judge of operators: the exactly rounded answer passes, and each planted fault is caught by name."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrix import catalog
from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.judge.operators import OperatorVerdict, judge
from matrix.judge.operators.formats import FORMATS, decoded, encoded
from matrix.records import Parity
from matrix_adapters.protocol import to_json

ROWS = catalog.load().tolerances.operators
EXACT, ELEMENTWISE, TRANSCENDENTAL, MATMUL = (
    ROWS[kind] for kind in ("exact", "elementwise", "transcendental", "matmul")
)
NUMPY = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
FLOATS = list(NUMPY)


def ulps(number: float) -> OperatorRule:
    limits = {dtype: OperatorLimit(ulps=number) for dtype in FORMATS}
    return OperatorRule(formula="ulps", dtypes=limits, source="test")


def judged(
    got: Any, exact: Any, rule: OperatorRule = TRANSCENDENTAL, dtype: str = "float32", **more: Any
) -> OperatorVerdict:
    """One output Y; `got` in float64 is rounded to `dtype` first."""
    got = np.asarray(got)
    if got.dtype == np.float64 and dtype in FORMATS:
        got = encoded(got, dtype)
    return judge({"Y": got}, {"Y": dtype}, {"Y": np.asarray(exact)}, {"Y": dtype}, rule, **more)


def integers(got: Any, exact: Any, dtype: str) -> OperatorVerdict:
    return judge(
        {"Y": np.asarray(got, dtype)}, {"Y": dtype}, {"Y": np.asarray(exact, dtype)}, {"Y": dtype}, EXACT
    )


# --- formats ------------------------------------------------------------------------------

DOUBLES = hnp.arrays(
    np.float64, hnp.array_shapes(max_dims=2, max_side=8), elements=st.floats(width=64, allow_subnormal=True)
)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@given(values=DOUBLES)
def test_rounding_agrees_with_numpy(dtype: str, values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        wanted = values.astype(NUMPY[dtype]).astype(np.float64)
    np.testing.assert_array_equal(FORMATS[dtype].rounded(values), wanted)


@given(values=hnp.arrays(np.float32, 20, elements=st.floats(width=32, allow_subnormal=True)))
def test_bfloat16_rounding_and_bits_agree_with_an_independent_implementation(values: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        wanted = values.astype(ml_dtypes.bfloat16)
    bits = encoded(values.astype(np.float64), "bfloat16")
    assert bits.dtype == np.uint16
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(bits[finite], wanted.view(np.uint16)[finite])
    np.testing.assert_array_equal(decoded(bits, "bfloat16"), wanted.astype(np.float64))


def test_bfloat16_is_rounded_once_and_not_by_way_of_float32() -> None:
    just_above_a_tie = 1 + 2.0**-8 + 2.0**-40  # float32 makes it the tie, which goes to even: 1
    assert FORMATS["bfloat16"].rounded(np.array([just_above_a_tie]))[0] == 1 + 2.0**-7


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_last_place_is_the_distance_to_the_next_number(dtype: str) -> None:
    form = FORMATS[dtype]
    near = np.array([1.0, 1.5, 2.0, 0.1, 1000.0, form.smallest_normal, form.smallest_normal / 4, 0.0])
    near = form.rounded(near)
    following = np.nextafter(near.astype(NUMPY[dtype]), NUMPY[dtype].type(np.inf)).astype(np.float64)
    np.testing.assert_array_equal(form.last_place(near), following - near)


# --- what is right passes -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", list(ROWS))
@given(exact=DOUBLES)
@settings(max_examples=25)
def test_the_exactly_rounded_answer_always_passes(dtype: str, kind: str, exact: np.ndarray) -> None:
    verdict = judged(encoded(exact, dtype), exact, ROWS[kind], dtype)
    assert verdict.passed, verdict.failure
    assert verdict.max_ulps is not None and verdict.max_ulps <= 0.5
    assert not verdict.notes


@pytest.mark.parametrize("dtype", FLOATS)
@given(exact=DOUBLES, shift=st.integers(-6, 6))
@settings(max_examples=50)
def test_a_verdict_never_raises_and_is_always_storable(dtype: str, exact: np.ndarray, shift: int) -> None:
    wrong = np.roll(exact.ravel(), shift).reshape(exact.shape) * 0.7
    verdict = judged(encoded(wrong, dtype), exact, dtype=dtype)
    assert verdict.passed == (not verdict.failure) == (not verdict.failure_code)
    parity = verdict.parity("onnx float64")
    assert json.loads(parity.model_dump_json())["passed"] is verdict.passed
    assert to_json(verdict)  # no NaN, no infinity anywhere


def test_bfloat16_may_come_widened() -> None:
    exact = np.array([0.1, -3.0])
    widened = decoded(encoded(exact, "bfloat16"), "bfloat16").astype(np.float32)
    assert judged(widened, exact, ELEMENTWISE, "bfloat16").passed


def test_empty_outputs_pass_by_shape_and_dtype() -> None:
    verdict = judged(np.zeros((0, 3), np.float32), np.zeros((0, 3)))
    assert verdict.passed and verdict.max_ulps == 0
    assert judged(np.zeros((3, 0), np.float32), np.zeros((0, 3))).failure_code == "shape"


def test_a_finite_answer_beyond_the_range_means_infinity() -> None:
    exact = np.array([90000.0, -90000.0, 2.0])
    assert judged(np.array([np.inf, -np.inf, 2], np.float16), exact, ELEMENTWISE, "float16").passed
    largest = judged(np.array([65504, -np.inf, 2], np.float16), exact, ELEMENTWISE, "float16")
    assert largest.failure_code == "non_finite"
    assert "Y[0] is 65504 where the answer is inf (90000, and float16 ends at 65504)" in largest.failure
    wrong_sign = judged(np.array([-np.inf, -np.inf, 2], np.float16), exact, ELEMENTWISE, "float16")
    assert wrong_sign.failure_code == "non_finite"


def test_at_the_end_of_the_range_a_neighbour_may_be_infinity() -> None:
    end = 65519.0  # half an ulp below what rounds to infinity
    assert judged(np.array([np.inf], np.float16), [end], ELEMENTWISE, "float16").passed
    assert judged(np.array([65504], np.float16), [65521.0], ELEMENTWISE, "float16").passed
    assert not judged(np.array([np.inf], np.float16), [65000.0], ELEMENTWISE, "float16").passed


# --- the order of checks ------------------------------------------------------------------


def test_names_shape_and_dtype_come_before_values() -> None:
    wanted = {"Y": np.array([1.0, 2.0])}
    words = {"Y": "float32"}
    good = np.array([1, 2], np.float32)
    missing = judge({"Z": good}, {"Z": "float32"}, wanted, words, ELEMENTWISE)
    assert missing.failure_code == "outputs" and "Y" in missing.failure and "Z" in missing.failure
    shape = judge({"Y": good[None]}, {"Y": "float64"}, wanted, words, ELEMENTWISE)
    assert shape.failure == "Y has shape [1, 2], the exact answer [2]"
    dtype = judge({"Y": good.astype(np.float64)}, {"Y": "float64"}, wanted, words, ELEMENTWISE)
    assert dtype.failure == "Y: dtype differs float64/float32 (got/exact)"


def test_a_float_output_in_bfloat16_is_not_float16() -> None:
    bits = encoded(np.array([1.0]), "bfloat16")
    verdict = judge({"Y": bits}, {"Y": "bfloat16"}, {"Y": np.array([1.0])}, {"Y": "float16"}, ELEMENTWISE)
    assert verdict.failure_code == "dtype"


def test_non_finite_values_are_named_before_a_tolerance() -> None:
    exact = np.array([1.0, 2.0, 90.0])
    verdict = judged(np.array([5.0, 2.0, np.inf]), exact, dtype="float16")
    assert verdict.failure_code == "non_finite"
    assert "non-finite output in float16: Y[2] is inf where the answer is 90" in verdict.failure


def test_several_wrong_outputs_are_counted() -> None:
    wanted = {name: np.array([1.0]) for name in "ABC"}
    got = {
        "A": np.array([9], np.float32),
        "B": np.array([np.nan], np.float32),
        "C": np.array([1], np.float32),
    }
    words = dict.fromkeys("ABC", "float32")
    verdict = judge(got, words, wanted, words, ELEMENTWISE)
    assert verdict.failure_code == "non_finite"
    assert verdict.failure.endswith("(and 1 more of 3 outputs)")


# --- planted faults -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tanh_with_an_error_of_a_thousandth_is_caught(dtype: str) -> None:
    x = decoded(encoded(np.linspace(-3, 3, 64), dtype), dtype)
    assert judged(np.tanh(x), np.tanh(x), TRANSCENDENTAL, dtype).passed
    verdict = judged(np.tanh(x) + 1e-3, np.tanh(x), TRANSCENDENTAL, dtype)
    assert verdict.failure_code == "tolerance"
    assert "ulp is above" in verdict.failure and "times the tolerance would pass" in verdict.failure


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_tanh_form_of_gelu_is_not_the_exact_one(dtype: str) -> None:
    x = np.linspace(-6, 6, 64)
    exact = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert judged(exact, exact, ROWS["activation"], dtype).passed
    verdict = judged(tanh, exact, ROWS["activation"], dtype)
    assert verdict.failure_code == "tolerance"
    assert verdict.worst is not None and 1e-4 < verdict.worst.max_error < 5e-4


def test_a_wrapped_integer_is_named() -> None:
    exact = np.array([2**30, 2**31, 2**31 + 5])
    assert integers(exact, exact, "int64").passed
    verdict = integers(exact.astype(np.int32), exact, "int64")
    assert verdict.failure_code == "wrapped"
    assert "equal modulo 2^32" in verdict.failure
    assert "Y[1]: got -2147483648, exact 2147483648" in verdict.failure
    other = integers(exact + 1, exact, "int64")
    assert other.failure_code == "values" and "wrapped" not in other.failure


def test_a_narrower_integer_is_a_dtype_first_and_then_wrapped() -> None:
    exact = np.array([2**30, 2**31, 2**31 + 5])
    verdict = judge({"Y": exact.astype(np.int32)}, {"Y": "int32"}, {"Y": exact}, {"Y": "int64"}, EXACT)
    assert verdict.failure_code == "dtype"
    assert "dtype differs int32/int64" in verdict.failure and "modulo 2^32" in verdict.failure
    fits = judge({"Y": exact[:1].astype(np.int32)}, {"Y": "int32"}, {"Y": exact[:1]}, {"Y": "int64"}, EXACT)
    assert fits.failure == "Y: dtype differs int32/int64 (got/exact)"


def test_integers_and_booleans_get_no_tolerance() -> None:
    assert integers([1, 2, 4], [1, 2, 3], "int32").failure_code == "values"
    assert integers([True, False], [True, True], "bool").failure_code == "values"
    assert integers([2**63 - 1], [2**63 - 2], "int64").failure_code == "values"  # equal in float64
    assert integers([2**64 - 1], [2**64 - 2], "uint64").failure_code == "values"


def test_an_unsigned_integer_read_as_signed_is_wrapped() -> None:
    verdict = judge(
        {"Y": np.array([-1], np.int64)},
        {"Y": "int64"},
        {"Y": np.array([2**64 - 1], np.uint64)},
        {"Y": "uint64"},
        EXACT,
    )
    assert verdict.failure_code == "dtype" and "modulo 2^64" in verdict.failure


def test_a_swallowed_nan_is_named() -> None:
    exact = np.array([[1.0, np.nan], [2.0, 3.0]])
    assert judged(exact, exact).passed
    for planted in (0.0, 42.0, np.inf):
        verdict = judged(np.nan_to_num(exact, nan=planted, posinf=np.inf), exact)
        assert verdict.failure_code == "non_finite"
        assert "Y[0, 1]" in verdict.failure and "the NaN was swallowed" in verdict.failure


def test_a_nan_that_should_not_be_there_never_passes() -> None:
    exact = np.array([1.0, 2.0])
    generous = OperatorRule(formula="ulps", dtypes={"float32": OperatorLimit(ulps=1e30)}, source="test")
    for kind in (generous, *(row for row in ROWS.values())):
        verdict = judged(np.array([1.0, np.nan]), exact, kind)
        assert verdict.failure_code == "non_finite", kind


def test_an_off_by_one_pad_is_caught() -> None:
    data = np.arange(12.0).reshape(3, 4)
    exact, off = np.pad(data, ((1, 1), (2, 0))), np.pad(data, ((1, 1), (1, 1)))
    assert judged(exact, exact, EXACT).passed
    verdict = judged(off, exact, EXACT)
    assert verdict.failure_code == "values"
    assert judged(np.pad(data, ((1, 1), (1, 0))), exact, EXACT).failure_code == "shape"


@pytest.mark.parametrize("kind", ["reduction", "matmul", "convolution", "normalisation", "softmax"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_missing_term_of_a_sum_is_caught(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 64)), rng.standard_normal((64, 16))
    assert judged(a @ b, a @ b, ROWS[kind], dtype, depth=64).passed
    assert judged(a[:, 1:] @ b[1:], a @ b, ROWS[kind], dtype, depth=64).failure_code == "tolerance"


def test_float32_sums_pass_in_any_order_and_bfloat16_accumulators_do_not() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 1, (8, 4000)).astype(np.float32)
    exact = x.astype(np.float64).sum(axis=1)
    for terms in (x, x[:, ::-1], np.sort(x, axis=1)):
        in_order = np.array([np.add.accumulate(row, dtype=np.float32)[-1] for row in terms])
        assert judged(in_order, exact, ROWS["reduction"], depth=4000).passed
    short = np.zeros(8)
    for column in decoded(encoded(x, "bfloat16"), "bfloat16").T:
        short = FORMATS["bfloat16"].rounded(short + column)
    verdict = judged(short, exact, ROWS["reduction"], "bfloat16", depth=4000)
    assert verdict.failure_code == "tolerance"


def test_sums_that_cancel_are_held_to_their_terms_where_those_are_known() -> None:
    terms = np.array([1e6, 1.0, -1e6, 1e-3])
    exact, got = terms.sum(keepdims=True), np.array([1.0], np.float32)
    assert not judged(got, exact, ROWS["reduction"], depth=4).passed
    scales = {"Y": np.abs(terms).sum(keepdims=True)}
    verdict = judged(got, exact, ROWS["reduction"], depth=4, scales=scales)
    assert verdict.passed and "sum|terms|" in verdict.rule


# --- zeros and subnormal numbers ----------------------------------------------------------


def test_a_zero_of_the_other_sign_is_a_note_unless_the_rule_is_exact() -> None:
    got, exact = np.array([0.0, 1.0]), np.array([-0.0, 1.0])
    verdict = judged(got, exact, ELEMENTWISE)
    assert verdict.passed
    assert [note.code for note in verdict.notes] == ["signed_zero"]
    strict = judged(got, exact, EXACT)
    assert strict.failure_code == "signed_zero" and "Y[0]" in strict.failure
    assert judged(exact, exact, EXACT).passed


def test_subnormal_answers_are_measured_in_the_smallest_subnormal() -> None:
    least = 2.0**-24
    verdict = judged(np.array([3 * least]), np.array([5 * least]), ELEMENTWISE, "float16")
    assert verdict.max_ulps == 2 and not verdict.passed
    assert judged(np.array([4 * least]), np.array([5 * least]), ELEMENTWISE, "float16").passed


def test_zero_for_a_subnormal_number_passes_with_a_note_in_wide_formats_only() -> None:
    exact = np.array([1e-40, 1.0])
    for dtype in ("float32", "bfloat16"):
        verdict = judged(np.array([0.0, 1.0]), exact, ELEMENTWISE, dtype)
        assert verdict.passed and [note.code for note in verdict.notes] == ["underflow"]
        assert verdict.max_ulps == 0
        assert not judged(np.array([0.0, 1.0]), exact, EXACT, dtype).passed
    assert judged(
        np.array([1.17549827e-38]), np.array([1.17549421e-38]), TRANSCENDENTAL
    ).passed  # a step of it
    assert not judged(np.array([0.0]), np.array([3e-5]), ELEMENTWISE, "float16").passed
    assert not judged(np.array([0.0]), np.array([1e-37]), ELEMENTWISE, "float32").passed


# --- the numbers that are reported --------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@given(factor=st.floats(0.5, 2), seed=st.integers(0, 20))
def test_the_least_tolerance_that_would_pass_does_pass(dtype: str, factor: float, seed: int) -> None:
    exact = np.random.default_rng(seed).standard_normal(20)
    wrong = encoded(exact * factor, dtype)
    worst = judged(wrong, exact, ulps(1), dtype).worst
    assert worst is not None and worst.unit == "ulp"
    if worst.least == 0:
        return
    assert judged(wrong, exact, ulps(worst.least), dtype).passed
    assert not judged(wrong, exact, ulps(worst.least * 0.999), dtype).passed


def test_the_share_of_a_rule_with_several_parts_scales_it_to_the_edge() -> None:
    exact, wrong = np.array([1.0, -1.0, 0.5, 3.0]), np.array([1.0001, -1.0, 0.50002, 3.0])

    def rule(times: float) -> OperatorRule:
        limit = OperatorLimit(ulps=2 * times, scaled=4 * times, growth="sqrt")
        return OperatorRule(formula="depth", dtypes={"float32": limit}, source="test")

    worst = judged(wrong, exact, rule(1), depth=9).worst
    assert worst is not None and worst.share is not None and worst.share > 1
    assert worst.unit == "absolute" and worst.least > worst.limit
    assert judged(wrong, exact, rule(worst.share * 1.0001), depth=9).passed
    assert not judged(wrong, exact, rule(worst.share * 0.9999), depth=9).passed


@given(extra=st.floats(0, 1), seed=st.integers(0, 20))
def test_a_larger_error_never_passes_where_a_smaller_one_failed(extra: float, seed: int) -> None:
    exact = np.random.default_rng(seed).standard_normal(30)
    near = encoded(exact, "float32").astype(np.float64)
    small, large = near + extra * 1e-6, near + extra * 2e-6
    if judged(large, exact, MATMUL, "float64").passed:
        assert judged(small, exact, MATMUL, "float64").passed


def test_the_worst_element_is_named_with_both_values_and_in_all_units() -> None:
    exact = np.array([[1.0, 2.0], [3.0, 4.0]])
    wrong = exact.copy()
    wrong[1, 0] = 3.5
    verdict = judged(wrong, exact)
    worst = verdict.worst
    assert worst is not None
    assert worst.worst == "Y[1, 0]: got 3.5, exact 3"
    assert (worst.max_error, worst.max_scaled_error, worst.wrong) == (0.5, 0.125, 1)
    assert worst.max_ulps == 0.5 / 2.0**-22
    assert verdict.rule == "error <= 5 ulp of float32"


def test_an_ulp_error_is_measured_from_the_unrounded_answer() -> None:
    third = np.array([1 / 3])
    above = np.nextafter(np.float32(1 / 3), np.float32(1))
    exact_ulps = abs(float(above) - 1 / 3) / 2.0**-25
    assert judged(np.array([above]), third, ulps(1)).max_ulps == exact_ulps
    assert 0.5 < exact_ulps < 1.5


def test_the_rule_is_told_with_its_numbers() -> None:
    exact = np.array([1.0])
    assert judged(exact, exact, MATMUL, depth=64).rule == (
        "error <= 1 ulp of float32 + 4 x sqrt(64) x 6e-08 x max|exact|"
    )
    assert judged(exact, exact, EXACT).rule == "equal to the exact answer rounded to float32"
    assert integers([1], [1], "int8").rule == "int8 is exact"


def test_outputs_of_several_dtypes_are_each_held_to_their_own_rule() -> None:
    wanted = {"y": np.array([1, 2], np.uint8), "scale": np.array(0.1), "zero": np.array(3, np.uint8)}
    words = {"y": "uint8", "scale": "float32", "zero": "uint8"}
    got = {**wanted, "scale": np.array(0.1, np.float32)}
    verdict = judge(got, words, wanted, words, ROWS["quantise"])
    assert verdict.passed
    assert verdict.rule == "uint8 is exact; error <= 1 ulp of float32"
    assert verdict.worst is not None and verdict.worst.name == "scale"


def test_a_dtype_without_numbers_in_the_table_is_said_and_does_not_pass() -> None:
    only = OperatorRule(formula="ulps", dtypes={"float32": OperatorLimit(ulps=1)}, source="test")
    verdict = judged(np.array([1.0]), np.array([1.0]), only, "float16")
    assert verdict.failure_code == "no_rule" and "float16" in verdict.failure


def test_the_record_keeps_what_was_judged() -> None:
    verdict = judged(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    parity = verdict.parity("onnx 1.23 float64")
    assert parity == Parity(
        reference="onnx 1.23 float64",
        passed=False,
        rule="error <= 5 ulp of float32",
        limit=5.0,
        least_passing=verdict.max_ulps,
        max_ulps=0.5 / 2.0**-22,
        max_scaled_error=0.25,
        unit="ulp",
        worst="Y[1]: got 2.5, exact 2",
        failure=verdict.failure,
        failure_code="tolerance",
    )
    nan = judged(np.array([np.nan]), np.array([1.0])).parity("r")
    assert (nan.max_ulps, nan.least_passing, nan.passed) == (None, None, False)


def test_text_outputs_are_compared_as_they_are() -> None:
    words = {"Y": "string"}
    wanted = {"Y": np.array(["a", "bc"])}
    assert judge({"Y": np.array(["a", "bc"], "U9")}, words, wanted, words, EXACT).passed
    assert judge({"Y": np.array(["a", "b"])}, words, wanted, words, EXACT).failure_code == "values"


def test_equal_integers_are_compared_without_widening_them() -> None:
    many = np.zeros(20_000_000, np.int8)
    tracemalloc.start()
    try:
        assert integers(many, many, "int8").passed
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * many.nbytes  # the comparison, a byte each; float64 alone would take eight


def test_six_hundred_small_cases_are_judged_in_well_under_two_seconds() -> None:
    exact = np.random.default_rng(0).standard_normal((4, 16))
    got = encoded(exact, "float16")
    judged(got, exact, MATMUL, "float16")
    start = time.process_time()  # of this process: a busy machine does not count
    for _ in range(600):
        judged(got, exact, MATMUL, "float16")
    assert time.process_time() - start < 2
