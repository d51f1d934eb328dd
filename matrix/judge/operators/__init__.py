"""Is this operator right? The outputs of one case against the exact answer.

Order of checks: names, shape, dtype, where values are finite, then the error at every element
against the limit of the operator's kind (`matrix.catalog.operator_rules`). The exact answer is
what float64 arithmetic gives on the case's own inputs, not rounded to its dtype, so that an
error can be told in ULPs: |got - exact| / ulp(exact). Integers, booleans and text are exact.
"""

from matrix.judge.operators.judging import judge
from matrix.judge.operators.verdict import Note, OperatorVerdict, OutputError

__all__ = ["Note", "OperatorVerdict", "OutputError", "judge"]
