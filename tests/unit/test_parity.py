"""The parity gate: what is right passes, and every planted fault is caught by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.judge.parity import Override, Reference, cosine, judge, load_reference, scaled_error


@dataclasses.dataclass(frozen=True)
class Rule:
    floor_factor: float = 4
    least: float = 1e-5
    most: float = 1e-4
    top1: float = 1.0


RULE = Rule()


def reference(noise: float = 5e-7, shape: tuple[int, ...] = (4, 100), seed: int = 0) -> Reference:
    """Random logits in float64, and a float32 run that is `noise` away from them."""
    rng = np.random.default_rng(seed)
    wanted = rng.standard_normal(shape)
    near = (wanted + noise * rng.uniform(-1, 1, shape)).astype(np.float32)
    return Reference(
        source="test float64",
        float64={"logits": wanted},
        float32={"logits": near},
        float32_again={"logits": near.copy()},
    )


def good(ref: Reference) -> np.ndarray:
    return ref.float64["logits"].astype(np.float32)


def test_a_correct_port_passes_and_says_by_which_rule() -> None:
    ref = reference()
    parity = judge({"logits": good(ref)}, ref, RULE, top1=True)
    assert parity.passed
    assert parity.failure == ""
    assert parity.limit == 1e-5
    assert "max|d|/max|ref| <= clamp(4 x " in parity.rule
    assert parity.top1_agreement == 1.0
    assert parity.cosine is not None and parity.cosine > 0.999999


def test_the_limit_follows_the_models_own_noise_between_its_bounds() -> None:
    for noise, low, high in [(1e-8, 1e-5, 1e-5), (1e-5, 1.0e-5, 4.1e-5), (1e-3, 1e-4, 1e-4)]:
        ref = reference(noise)
        limit = judge({"logits": good(ref)}, ref, RULE).limit
        assert limit is not None
        assert low <= limit <= high


def nan_at(index: int):
    def plant(a: np.ndarray) -> np.ndarray:
        a = a.copy()
        a.flat[index] = np.nan
        return a

    return plant


@pytest.mark.parametrize(
    ("plant", "code"),
    [
        (nan_at(0), "non_finite"),
        (nan_at(-1), "non_finite"),
        (lambda a: np.where(a > 2, np.inf, a).astype(np.float32), "non_finite"),
        (lambda a: a[:, :-1], "shape"),
        (lambda a: a.T.copy(), "shape"),
        (lambda a: a.astype(np.float64), "dtype"),
        (lambda a: a.astype(np.float16), "dtype"),
        (np.zeros_like, "tolerance"),
        (lambda a: np.full_like(a, a.mean()), "tolerance"),
        (lambda a: a + np.float32(1e-3), "tolerance"),  # a dropped bias
        (lambda a: a * np.float32(1.001), "tolerance"),  # a wrong scale: the cosine stays 1
        (lambda a: -a, "tolerance"),
    ],
)
def test_each_planted_fault_is_caught_by_its_own_name(plant, code: str) -> None:
    ref = reference()
    parity = judge({"logits": plant(good(ref))}, ref, RULE, top1=True)
    assert not parity.passed
    assert parity.failure_code == code
    assert parity.failure


def test_a_missing_and_an_extra_output_are_named() -> None:
    ref = reference()
    parity = judge({"other": good(ref)}, ref, RULE)
    assert parity.failure_code == "outputs"
    assert "logits" in parity.failure and "other" in parity.failure


def test_a_wrong_scale_that_the_cosine_cannot_see_fails_by_its_error() -> None:
    ref = reference()
    parity = judge({"logits": good(ref) * np.float32(1.01)}, ref, RULE)
    assert parity.cosine is not None and parity.cosine > 0.99999999
    assert not parity.passed


def test_the_least_tolerance_that_would_have_passed_does_pass() -> None:
    ref = reference()
    wrong = good(ref) + np.float32(0.01)
    least = judge({"logits": wrong}, ref, RULE).least_passing
    assert least is not None
    assert judge({"logits": wrong}, ref, RULE, override=Override(limit=least, reason="test")).passed
    assert not judge(
        {"logits": wrong}, ref, RULE, override=Override(limit=least * 0.999, reason="test")
    ).passed


def test_a_users_tolerance_shows_its_reason() -> None:
    ref = reference()
    parity = judge({"logits": good(ref)}, ref, RULE, override=Override(limit=0.5, reason="int8 weights"))
    assert "int8 weights" in parity.rule


def test_the_worst_element_is_named_with_both_values() -> None:
    ref = reference()
    wrong = good(ref)
    wrong[2, 7] += 5
    parity = judge({"logits": wrong}, ref, RULE)
    assert parity.worst.startswith("logits[2, 7]: got ")


def test_a_constant_reference_cannot_vouch_for_anything() -> None:
    flat = np.ones((2, 5))
    ref = Reference(
        source="t",
        float64={"y": flat},
        float32={"y": flat.astype(np.float32)},
        float32_again={"y": flat.astype(np.float32)},
    )
    assert judge({"y": flat.astype(np.float32)}, ref, RULE).failure_code == "constant_reference"


def test_a_reference_that_does_not_repeat_itself_gives_no_verdict() -> None:
    ref = reference()
    moved = dataclasses.replace(ref, float32_again={"logits": ref.float32["logits"] + np.float32(0.1)})
    assert judge({"logits": good(ref)}, moved, RULE).failure_code == "non_deterministic_reference"


def test_a_reference_with_nan_gives_no_verdict() -> None:
    ref = reference()
    ref.float64["logits"][0, 0] = np.nan
    assert judge({"logits": good(ref)}, ref, RULE).failure_code == "non_finite_reference"


def test_top1_margins_below_the_noise_make_the_check_itself_fail() -> None:
    rng = np.random.default_rng(0)
    wanted = 1 + 1e-9 * rng.standard_normal((8, 10))
    near = wanted.astype(np.float32)
    ref = Reference(source="t", float64={"y": wanted}, float32={"y": near}, float32_again={"y": near.copy()})
    assert judge({"y": near}, ref, RULE, top1=True).failure_code == "top1_undecidable"


def test_a_flipped_top1_within_tolerance_still_fails_in_float32() -> None:
    wanted = np.array([[1.0, 1.0 - 2e-6, 0.5], [1.0, 0.2, 0.1], [1.0, 0.2, 0.1]])
    near = wanted.astype(np.float32)
    ref = Reference(source="t", float64={"y": wanted}, float32={"y": near}, float32_again={"y": near.copy()})
    flipped = near.copy()
    flipped[0, 1] += np.float32(4e-6)
    parity = judge({"y": flipped}, ref, RULE, top1=True)
    assert parity.failure_code == "top1"
    assert judge({"y": flipped}, ref, Rule(top1=0.0), top1=True).passed


def test_integers_get_no_tolerance() -> None:
    wanted = np.arange(6).reshape(2, 3)
    ref = Reference(source="t", float64={"y": wanted}, float32={"y": wanted}, float32_again={"y": wanted})
    assert judge({"y": wanted.copy()}, ref, RULE).passed
    off = wanted.copy()
    off[1, 1] += 1
    parity = judge({"y": off}, ref, RULE)
    assert not parity.passed
    assert parity.worst == "y[1, 1]: got 5, reference 4"


def test_empty_outputs_of_the_right_shape_pass() -> None:
    empty = np.zeros((0, 4))
    other = np.arange(3.0)
    ref = Reference(
        source="t",
        float64={"boxes": empty, "y": other},
        float32={"boxes": empty.astype(np.float32), "y": other.astype(np.float32)},
        float32_again={"boxes": empty.astype(np.float32), "y": other.astype(np.float32)},
    )
    assert judge({"boxes": empty.astype(np.float32), "y": other.astype(np.float32)}, ref, RULE).passed


def test_a_zero_difference_is_a_normal_result() -> None:
    a = np.array([1.0, 2.0])
    assert scaled_error(a, a) == 0.0
    assert cosine(np.zeros(3), np.zeros(3)) == 1.0


@given(scale=st.floats(1e-20, 1e20), seed=st.integers(0, 99))
def test_the_scaled_error_does_not_depend_on_the_units_of_the_output(scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    wanted, noise = rng.standard_normal(50), rng.standard_normal(50) * 1e-3
    assert scaled_error((wanted + noise) * scale, wanted * scale) == pytest.approx(
        scaled_error(wanted + noise, wanted), rel=1e-6
    )


@given(extra=st.floats(0.0, 1.0), seed=st.integers(0, 20))
def test_a_larger_error_never_passes_where_a_smaller_one_failed(extra: float, seed: int) -> None:
    ref = reference(seed=seed)
    base = good(ref)
    small, large = base + np.float32(extra * 1e-4), base + np.float32(extra * 2e-4)
    if judge({"logits": large}, ref, RULE).passed:
        assert judge({"logits": small}, ref, RULE).passed


def test_a_reference_folder_round_trips(tmp_path: Path) -> None:
    ref = reference()
    np.savez(tmp_path / "float64.npz", **ref.float64)
    np.savez(tmp_path / "float32.npz", **ref.float32)
    np.savez(tmp_path / "float32_again.npz", **ref.float32_again)
    facts = {"framework": "pytorch", "version": "1.2.3"}
    (tmp_path / "reference.json").write_text(json.dumps(facts))
    loaded = load_reference(tmp_path)
    assert loaded.source == "pytorch 1.2.3 float64"
    assert loaded.floor == ref.floor
