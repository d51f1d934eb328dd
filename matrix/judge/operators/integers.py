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
    # two billion elements are compared as they are: only those that differ are widened
    wrong = np.flatnonzero(np.asarray(got != wanted))
    numeric = got.dtype.kind in "iub" and wanted.dtype.kind in "iub"
    bad, right = got.ravel()[wrong], wanted.ravel()[wrong]
    gaps = np.ones(wrong.size)
    if numeric:  # float64 rounds large ones to equal: they differ by one at least
        gaps = np.maximum(np.abs(bad.astype(np.float64) - right.astype(np.float64)), 1.0)
    worst = ""
    if wanted.size:
        flat = int(wrong[np.argmax(gaps)]) if wrong.size else 0
        worst = f"{place(name, flat, wanted.shape)}: got {got.flat[flat]}, exact {wanted.flat[flat]}"
    largest = float(np.max(gaps, initial=0.0))
    size = float(max(abs(int(wanted.min())), abs(int(wanted.max())))) if numeric and wanted.size else 0.0
    error = OutputError(
        name=name,
        dtype=dtype,
        elements=wanted.size,
        wrong=wrong.size,
        max_error=largest,
        max_scaled_error=largest / size if size else largest,
        max_ulps=None,
        share=None if wrong.size else 0.0,
        limit=0.0,
        least=largest,
        unit="absolute",
        worst=worst,
    )
    failure = None
    if wrong.size:
        bits = wrapped_bits(bad, right) if numeric else 0
        code, text = "values", f"{count(wrong.size, wanted.size)} of {name} differ, the worst at {worst}"
        if bits:
            code, text = "wrapped", f"{text}; wrapped: all are equal modulo 2^{bits}"
        failure = Failure(code, text)
    return Outcome(rule=rule, failure=failure, error=error)


def wrapped_bits(got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> int:
    """n, where the values differ and all that do are equal modulo 2^n (8, 16, 32, 64); else 0."""
    differs = np.asarray(got != wanted)
    gaps = got[differs].astype(np.uint64) - wanted[differs].astype(np.uint64)  # modulo 2^64
    if gaps.size == 0:
        return 0
    if not gaps.any():
        return 64  # an unsigned one read as signed
    return next((n for n in _WIDTHS if not bool((gaps & np.uint64(2**n - 1)).any())), 0)
