"""Integers, booleans and text: no tolerance, but the usual ways of being wrong are named."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.judge.operators.outcome import Failure, Outcome, count, place
from matrix.judge.operators.pieces import pieces
from matrix.judge.operators.verdict import OutputError

Array = npt.NDArray[Any]

_WIDTHS = (32, 16, 8)  # of types that a wider answer wraps in


class _Differences:
    """What is wrong in the pieces seen so far. Only elements that differ are ever widened."""

    def __init__(self) -> None:
        self.wrong = self.at = 0  # `at`: where the largest gap is
        self.largest = 0.0
        self.size = 0  # the largest magnitude that was wanted
        self.numeric = True
        self._bits = 0  # of all gaps modulo 2^64, joined

    def add(self, begin: int, got: Array, wanted: Array) -> None:
        self.numeric = got.dtype.kind in "iub" and wanted.dtype.kind in "iub"
        if self.numeric:
            self.size = max(self.size, abs(int(wanted.min())), abs(int(wanted.max())))
        places = np.flatnonzero(np.asarray(got != wanted))
        if not places.size:
            return
        self.wrong += places.size
        bad, right = got[places], wanted[places]
        gaps = np.ones(places.size)
        if self.numeric:  # float64 rounds large ones to equal: they differ by one at least
            gaps = np.maximum(np.abs(bad.astype(np.float64) - right.astype(np.float64)), 1.0)
            modulo = bad.astype(np.uint64) - right.astype(np.uint64)  # modulo 2^64
            self._bits |= int(np.bitwise_or.reduce(modulo))
        most = int(np.argmax(gaps))
        if float(gaps[most]) > self.largest:
            self.largest, self.at = float(gaps[most]), begin + int(places[most])

    @property
    def wrapped(self) -> int:
        """n, where values differ and all that do are equal modulo 2^n (8, 16, 32, 64); else 0."""
        if not self.wrong or not self.numeric:
            return 0
        if not self._bits:
            return 64  # an unsigned one read as signed
        return next((n for n in _WIDTHS if not self._bits % 2**n), 0)


def judge_integers(
    name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic], dtype: str
) -> Outcome:
    """Equal or not; `wrapped` where all wrong ones are equal modulo a power of two."""
    found = _differences(got, wanted)
    worst = ""
    if wanted.size:
        at = place(name, found.at, wanted.shape)
        worst = f"{at}: got {got.flat[found.at]}, exact {wanted.flat[found.at]}"
    error = OutputError(
        name=name,
        dtype=dtype,
        elements=wanted.size,
        wrong=found.wrong,
        max_error=found.largest,
        max_scaled_error=found.largest / found.size if found.size else found.largest,
        max_ulps=None,
        share=None if found.wrong else 0.0,
        limit=0.0,
        least=found.largest,
        unit="absolute",
        worst=worst,
    )
    failure = None
    if found.wrong:
        code, text = "values", f"{count(found.wrong, wanted.size)} of {name} differ, the worst at {worst}"
        if bits := found.wrapped:
            code, text = "wrapped", f"{text}; wrapped: all are equal modulo 2^{bits}"
        failure = Failure(code, text)
    return Outcome(rule=f"{dtype} is exact", failure=failure, error=error)


def wrapped_bits(got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> int:
    """n, where the values differ and all that do are equal modulo 2^n (8, 16, 32, 64); else 0."""
    return _differences(got, wanted).wrapped


def _differences(got: Array, wanted: Array) -> _Differences:
    found = _Differences()
    for begin, (values, right) in pieces(got, wanted):
        found.add(begin, values, right)
    return found
