"""The operators that we define ourselves, in place of those of ONNX's reference evaluator.

Why each one is here stands in its class. Everything else is the evaluator's own.
"""

from __future__ import annotations

from matrix_adapters import onnx_promote
from matrix_adapters.operators import (
    oracle_ops_convolution,
    oracle_ops_elementwise,
    oracle_ops_loss,
    oracle_ops_movement,
    oracle_ops_normalisation,
    oracle_ops_pooling,
    oracle_ops_quantise,
    oracle_ops_recurrent,
    oracle_ops_reduction,
    oracle_ops_resize,
    oracle_ops_sampling,
    oracle_ops_softmax,
)

OPERATORS = (
    *onnx_promote.OPERATORS,
    *oracle_ops_elementwise.OPERATORS,
    *oracle_ops_softmax.OPERATORS,
    *oracle_ops_normalisation.OPERATORS,
    *oracle_ops_reduction.OPERATORS,
    *oracle_ops_pooling.OPERATORS,
    *oracle_ops_convolution.OPERATORS,
    *oracle_ops_recurrent.OPERATORS,
    *oracle_ops_quantise.OPERATORS,
    *oracle_ops_resize.OPERATORS,
    *oracle_ops_sampling.OPERATORS,
    *oracle_ops_movement.OPERATORS,
    *oracle_ops_loss.OPERATORS,
)

NAMES = frozenset(operator.__name__ for operator in OPERATORS)
