"""Element-wise operators that the evaluator (onnx 1.23) lacks, rounds or gets wrong.

Formulas: the operators' own text in ONNX's Operators.md.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from matrix_adapters.operators.oracle_op import Array, Definition, like, wide


class HardSwish(Definition):
    """x * max(0, min(1, x / 6 + 0.5)). The evaluator's comes from a function with a float32 1/6."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        w = wide(x)
        return (like(w * np.clip(w / 6 + 0.5, 0, 1), x),)


class Mish(Definition):
    """x * tanh(ln(1 + e^x)). The evaluator expands a function of several nodes."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        w = wide(x)
        return (like(w * np.tanh(np.logaddexp(0, w)), x),)


class Softsign(Definition):
    """x / (1 + |x|). The evaluator's cannot do a scalar."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        w = wide(x)
        return (like(w / (1 + np.abs(w)), x),)


class Mean(Definition):
    """The mean of the inputs, element by element. The evaluator fails where the first is not the largest."""

    def _run(self, *inputs: Array, **_: Any) -> tuple[Array]:
        total = functools.reduce(np.add, [wide(x) for x in inputs])
        return (like(total / len(inputs), inputs[0]),)


OPERATORS = (HardSwish, Mish, Softsign, Mean)
