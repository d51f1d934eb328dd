"""What our own definitions of operators have in common: a base class for ONNX's evaluator.

Each class is named after its operator and computes what the standard's text says, in float64
where floats are involved, whatever type it is given; the result is returned in the type of the
first input. Attributes arrive by keyword with the defaults of the case's opset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference.op_run import OpRun

Array = npt.NDArray[Any]


class Definition(OpRun):  # type: ignore[misc]
    """An operator of ONNX's own domain; `since` is the version of its definition that applies."""

    op_domain = ""

    def __init__(self, node: Any, run_params: Any) -> None:
        opsets = run_params["opsets"]
        schema = onnx.defs.get_schema(type(self).__name__, opsets.get("", opsets.get("ai.onnx", 0)), "")
        super().__init__(node, run_params, schema=schema)
        self.since = int(schema.since_version)
        # What is in the file has 32 bits; what is computed of two such numbers needs more.
        for name in self.attributes_names_:
            setattr(self, name, _widened(getattr(self, name)))


def wide(x: Array) -> Array:
    """As float64, exactly, for every float type and for integers of up to 53 bits."""
    return x.astype(np.float64)


def like(result: Array, x: Array) -> Array:
    """In the type of `x`."""
    return np.asarray(result).astype(x.dtype)


def _widened(value: Any) -> Any:
    if isinstance(value, list):
        return [_widened(one) for one in value]
    return float(value) if isinstance(value, np.floating) else value
