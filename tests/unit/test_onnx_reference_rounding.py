"""Steps that leave float64 inside a float64 reference are found, and nothing else is blamed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_graphs as graphs
import pytest
from onnx.reference import ReferenceEvaluator
from onnx_graphs import node, value

from matrix_adapters.onnx_promote import OPERATORS, promote
from matrix_adapters.onnx_reference import narrow_operators

X = np.linspace(0.1, 3, 64, dtype=np.float64)


def run(made: Any, operators: Any = OPERATORS) -> tuple[list[str], dict[str, Any]]:
    wide = promote(made)
    evaluator = ReferenceEvaluator(wide, new_ops=list(operators))
    values = evaluator.run(None, {"x": X}, intermediate=True)
    return narrow_operators(made, values), values


def chain(*operators: str, opset: int = 20) -> Any:
    names = ["x", *(f"v{i}" for i in range(1, len(operators))), "y"]
    nodes = [node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(operators)]
    return graphs.model(nodes, [value("x", [64])], [value("y", [64])], opsets={"": opset})


def test_the_evaluators_own_erf_rounds_inside_and_is_found() -> None:
    """When this fails, onnx has been corrected and `onnx_promote.Erf` can go."""
    narrow, values = run(chain("Sqrt", "Erf"), operators=())
    assert values["y"].dtype == np.float64
    assert narrow == ["Erf"]


@pytest.mark.parametrize("operator", ["Erf", "Gelu"])
def test_error_functions_are_exact_to_float64(operator: str) -> None:
    narrow, values = run(chain(operator))
    erf = np.vectorize(math.erf)
    exact = erf(X) if operator == "Erf" else 0.5 * X * (1 + erf(X / math.sqrt(2)))
    np.testing.assert_allclose(values["y"], exact, rtol=1e-14)
    assert not narrow


@pytest.mark.parametrize(
    "operators",
    [
        ("Sqrt", "Exp"),
        ("Log", "Relu"),
        ("Neg", "Relu"),
        ("Sqrt", "Floor"),
        ("Sqrt", "Sign"),
        ("Sigmoid", "Tanh"),
        ("Softplus", "HardSwish"),
    ],
)
def test_honest_operators_are_not_blamed(operators: tuple[str, ...]) -> None:
    assert run(chain(*operators))[0] == []
