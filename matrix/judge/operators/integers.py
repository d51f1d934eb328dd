"""Integers, booleans and text: no tolerance, but the usual ways of being wrong are named."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.outcome import Failure, Outcome, count, place
from matrix.judge.operators.verdict import OutputError

_WIDTHS = (32, 16, 8)  # of types that a wider answer wraps in


def judge_integers(
    name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], dtype: str
) -> Outcome:
    """Equal or not; `wrapped` where all wrong ones are equal modulo a power of two."""
    rule = f"{dtype} is exact"
    differs = np.asarray(got != wanted)
    wrong = int(np.count_nonzero(differs))
    numeric = got.dtype.kind in "iub" and wanted.dtype.kind in "iub"
    gaps = np.where(differs, 1.0, 0.0)
    if wrong and numeric:
        gaps = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
        gaps = np.where(differs, np.maximum(gaps, 1.0), 0.0)  # float64 rounds large ones to equal
    worst = ""
    if wanted.size:
        flat = int(np.argmax(gaps))
        worst = f"{place(name, flat, wanted.shape)}: got {got.flat[flat]}, exact {wanted.flat[flat]}"
    largest = float(np.max(gaps, initial=0.0))
    size = float(np.max(np.abs(wanted.astype(np.float64)), initial=0.0)) if numeric else 0.0
    error = OutputError(
        name=name,
        dtype=dtype,
        elements=wanted.size,
        wrong=wrong,
        max_error=largest,
        max_scaled_error=largest / size if size else largest,
        max_ulps=None,
        share=None if wrong else 0.0,
        limit=0.0,
        least=largest,
        unit="absolute",
        worst=worst,
    )
    failure = None
    if wrong:
        bits = wrapped_bits(got, wanted) if numeric else 0
        code, text = "values", f"{count(wrong, wanted.size)} of {name} differ, the worst at {worst}"
        if bits:
            code, text = "wrapped", f"{text}; wrapped: all are equal modulo 2^{bits}"
        failure = Failure(code, text)
    return Outcome(rule=rule, failure=failure, error=error)


def wrapped_bits(got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> int:
    """n, where the values differ and all that do are equal modulo 2^n (8, 16, 32, 64); else 0."""
    a, b = got.astype(np.uint64), wanted.astype(np.uint64)  # negative ones wrap modulo 2^64
    signs = (got.astype(np.float64) < 0) != (wanted.astype(np.float64) < 0)
    same_bits = a == b
    if bool((same_bits & signs).any()) and bool(same_bits.all()):
        return 64  # an unsigned one read as signed
    gaps = (a - b)[~same_bits]
    if gaps.size == 0:
        return 0
    return next((n for n in _WIDTHS if not bool((gaps & np.uint64(2**n - 1)).any())), 0)
