"""Linear quantisation and integer products. Types are the meaning here: results are exact integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.operators.torch_convolution import convolution

_QUANTISED = (torch.uint8, torch.int8, torch.uint16, torch.int16)


def _shaped(bound: Bound, position: int, axis: int, block: int) -> Callable[[Any], Any]:
    """A scale or zero point that lines up with input 0: per tensor, per axis, or per block along an axis."""
    rank, shape = bound.rank(), bound.shape(position)
    if block:
        size = bound.shape()[axis]
        return lambda t: t.repeat_interleave(block, axis).narrow(axis, 0, size)
    if len(shape) == 0 or shape == (1,):
        return lambda t: t.reshape(())
    if len(shape) != 1:
        bound.refuse(f"a scale of shape {list(shape)} without block_size")
    sizes = [-1 if i == axis else 1 for i in range(rank)]
    return lambda t: t.reshape(sizes)


def _axis(bound: Bound, position: int) -> int:
    """The attribute says nothing where there is one scale for all."""
    per_tensor = len(bound.shape(position)) == 0 or bound.shape(position) == (1,)
    axis = bound.integer("axis", 1)
    return 0 if per_tensor else bound.positive(axis)


def _quantize(bound: Bound) -> Kernel:
    """round half to even, add the zero point, saturate."""
    axis, block = _axis(bound, 1), bound.integer("block_size")
    bound.ignore("saturate")  # of 8-bit floats
    precision = bound.element_type("precision")
    dtype = bound.dtype(2) if bound.has(2) else bound.element_type("output_dtype", "uint8")
    bound.ignore("output_dtype")
    if dtype not in _QUANTISED:
        bound.refuse(f"results of type {dtype}")
    limits = torch.iinfo(dtype)
    scaled = _shaped(bound, 1, axis, block)
    zeroed = _shaped(bound, 2, axis, block) if bound.has(2) else None

    def quantize(x: Any, scale: Any, zero: Any = None) -> Any:
        scale = scaled(scale if precision is None else scale.to(precision))
        x = x.to(scale.dtype)
        # float32 holds every sum of a 16-bit zero point and what is not saturated anyway
        y = torch.round(x / scale).float()
        if zeroed is not None:
            y = y + zeroed(zero.float())
        return y.clamp(limits.min, limits.max).to(dtype)

    return quantize


def _dequantize(bound: Bound) -> Kernel:
    axis, block = _axis(bound, 1), bound.integer("block_size")
    dtype = bound.element_type("output_dtype") or bound.dtype(1)
    scaled = _shaped(bound, 1, axis, block)
    zeroed = _shaped(bound, 2, axis, block) if bound.has(2) else None

    def dequantize(x: Any, scale: Any, zero: Any = None) -> Any:
        if zeroed is not None:
            x = x.to(torch.int32) - zeroed(zero).to(torch.int32)
        return (x.float() * scaled(scale).float()).to(dtype)

    return dequantize


def _dynamic(bound: Bound) -> Kernel:
    """uint8 over the range of the data, 0 always in it."""

    def quantize(x: Any) -> Any:
        low, high = torch.aminmax(x)
        low, high = low.clamp(max=0), high.clamp(min=0)
        scale = torch.where(high == low, 1.0, high - low) / 255
        zero = torch.round((-low / scale).clamp(0, 255))
        y = (torch.round(x / scale) + zero).clamp(0, 255)
        return y.to(torch.uint8), scale, zero.to(torch.uint8)

    return quantize


def _matmul_integer(bound: Bound) -> Kernel:
    """Zero points: of all of A or of each of its rows, of all of B or of each of its columns."""
    rows = _along_rows(bound, 2)

    def product(a: Any, b: Any, zero_a: Any = None, zero_b: Any = None) -> Any:
        a, b = a.to(torch.int32), b.to(torch.int32)
        if zero_a is not None:
            a = a - rows(zero_a.to(torch.int32))
        if zero_b is not None:
            b = b - zero_b.to(torch.int32)
        return torch.matmul(a, b)

    return product


def _along_rows(bound: Bound, position: int) -> Callable[[Any], Any]:
    """A vector for the rows of a matrix is a column; one number is one number."""
    if bound.has(position) and len(bound.shape(position)) == 1 and bound.shape(position) != (1,):
        return lambda t: t.unsqueeze(-1)
    return lambda t: t


def _qlinear_matmul(bound: Bound) -> Kernel:
    dtype = bound.dtype(7)
    limits = torch.iinfo(dtype)
    scale_rows, zero_rows = _along_rows(bound, 1), _along_rows(bound, 2)
    out_scale, out_zero = _along_rows(bound, 6), _along_rows(bound, 7)

    def product(a: Any, sa: Any, za: Any, *rest: Any) -> Any:
        b, sb, zb, sy, zy = rest
        wide = a.to(torch.int32) - zero_rows(za).to(torch.int32)
        total = torch.matmul(wide, b.to(torch.int32) - zb.to(torch.int32))
        y = total.float() * (scale_rows(sa).float() * sb.float() / out_scale(sy).float())
        return (torch.round(y) + out_zero(zy).float()).clamp(limits.min, limits.max).to(dtype)

    return product


def _conv_integer(bound: Bound) -> Kernel:
    """torch convolves no integers on a CPU; float64 holds every sum exactly."""
    convolve = convolution(bound)

    def conv(x: Any, w: Any, zero_x: Any = None, zero_w: Any = None) -> Any:
        x, w = x.double(), w.double()
        if zero_x is not None:
            x = x - zero_x.double().reshape(())
        if zero_w is not None:
            w = w - _per_output(zero_w.double(), w)
        return convolve(x, w).to(torch.int32)

    return conv


def _qlinear_conv(bound: Bound) -> Kernel:
    convolve, dtype = convolution(bound, weight=3), bound.dtype(7)
    limits = torch.iinfo(dtype)

    def conv(x: Any, sx: Any, zx: Any, *rest: Any) -> Any:
        w, sw, zw, sy, zy, bias = (*rest, None)[:6]
        x = x.double() - zx.double().reshape(())
        wide = w.double() - _per_output(zw.double(), w)
        total = convolve(x, wide, None if bias is None else bias.double())
        y = total.float() * (_per_channel(sx.float() * sw.float() / sy.float(), total))
        return (torch.round(y) + zy.float()).clamp(limits.min, limits.max).to(dtype)

    return conv


def _per_output(zero: Any, weight: Any) -> Any:
    return zero.reshape(()) if zero.numel() == 1 else zero.reshape(-1, *([1] * (weight.dim() - 1)))


def _per_channel(scale: Any, total: Any) -> Any:
    return scale.reshape(()) if scale.numel() == 1 else scale.reshape(-1, *([1] * (total.dim() - 2)))


OPERATORS: dict[str, Operator] = {
    "ConvInteger": Operator(build=_conv_integer),
    "DequantizeLinear": Operator(build=_dequantize),
    "DynamicQuantizeLinear": Operator(build=_dynamic),
    "MatMulInteger": Operator(build=_matmul_integer),
    "QLinearConv": Operator(build=_qlinear_conv),
    "QLinearMatMul": Operator(build=_qlinear_matmul),
    "QuantizeLinear": Operator(build=_quantize),
}
