"""Products of matrices."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_elementwise import plain


def _gemm(bound: Bound) -> Kernel:
    """alpha * A' B' + beta * C; C broadcasts to the result."""
    alpha: float | int = bound.real("alpha", 1.0)
    beta: float | int = bound.real("beta", 1.0)
    flip_a, flip_b = bound.flag("transA"), bound.flag("transB")
    if not bound.is_float():
        if alpha != int(alpha) or beta != int(beta):
            bound.refuse(f"alpha={alpha}, beta={beta} with integers")
        alpha, beta = int(alpha), int(beta)
    if not bound.has(2):
        return _product(flip_a, flip_b, alpha)
    bias = bound.shape(2)
    if flip_b and not flip_a and alpha == beta == 1 and len(bias) == 1 and bound.is_float():
        return _linear_or_sum(bias, bound.shape(1)[0])

    def gemm(a: Any, b: Any, c: Any) -> Any:
        return torch.addmm(c, a.t() if flip_a else a, b.t() if flip_b else b, beta=beta, alpha=alpha)

    return gemm


def _product(flip_a: bool, flip_b: bool, alpha: float | int) -> Kernel:
    def product(a: Any, b: Any, _: Any = None) -> Any:
        found = torch.mm(a.t() if flip_a else a, b.t() if flip_b else b)
        return found if alpha == 1 else found * alpha

    return product


def _linear_or_sum(bias: tuple[int, ...], columns: int) -> Kernel:
    """A bias of one number is no bias vector to F.linear."""
    if bias == (columns,):
        return F.linear
    return lambda a, b, c: torch.addmm(c, a, b.t())


def _einsum(bound: Bound) -> Kernel:
    equation = str(bound.attribute("equation"))
    return lambda *tensors: torch.einsum(equation, *tensors)


OPERATORS: dict[str, Operator] = {
    "Det": plain(torch.linalg.det),
    "Einsum": Operator(build=_einsum),
    "Gemm": Operator(build=_gemm),
    "MatMul": plain(torch.matmul),
}
