"""Quantised operators. Formulas: ONNX's Operators.md; rounding is to the nearest, ties to even.

The evaluator (onnx 1.23) dequantises in float32, lets values wrap in int32 before it saturates
them, takes a zero point of each row for one of each column, and knows those of each channel for
two-dimensional images only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

from matrix_adapters.operators.oracle_op import Array, Definition, wide
from matrix_adapters.operators.oracle_ops_convolution import convolve

_RANGES = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT4: (-8, 7),
}


class QuantizeLinear(Definition):
    """saturate(round(x / scale) + zero point). The division is in the scale's type, as the standard says."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array | None = None,
        *,
        axis: int = 1,
        saturate: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
        precision: int = 0,
    ) -> tuple[Array]:
        kind = int(output_dtype or TensorProto.UINT8)
        if zero_point is not None:
            kind = int(np_dtype_to_tensor_dtype(zero_point.dtype))
        dtype = tensor_dtype_to_np_dtype(kind)
        exact = tensor_dtype_to_np_dtype(precision) if precision else scale.dtype
        ratio = x.astype(exact) / _along(scale.astype(exact), x.shape, axis, block_size)
        if kind not in _RANGES:
            made = numpy_helper.saturate_cast(ratio, dtype) if saturate else ratio.astype(dtype)
            return (made,)
        whole = np.rint(wide(ratio))
        if zero_point is not None:
            whole = whole + wide(_along(zero_point, x.shape, axis, block_size))
        return (np.clip(whole, *_RANGES[kind]).astype(dtype),)


class DequantizeLinear(Definition):
    """(x - zero point) * scale, rounded once to the type of the result."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero_point: Array | None = None,
        *,
        axis: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
    ) -> tuple[Array]:
        difference = wide(x)
        if zero_point is not None:
            difference = difference - wide(_along(zero_point, x.shape, axis, block_size))
        product = difference * wide(_along(scale, x.shape, axis, block_size))
        dtype = tensor_dtype_to_np_dtype(output_dtype) if output_dtype else scale.dtype
        return (product.astype(dtype),)


class MatMulInteger(Definition):
    """(a - zero point) @ (b - zero point) in int32, which wraps."""

    def _run(
        self, a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None, **_: Any
    ) -> tuple[Array]:
        return (np.matmul(_shifted_rows(a, a_zero), _shifted(b, b_zero)),)


class QLinearMatMul(Definition):
    """saturate(round((a - za) @ (b - zb) * sa * sb / sy) + zy)."""

    def _run(  # noqa: PLR0917 - the operator's inputs
        self,
        a: Array,
        a_scale: Array,
        a_zero: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array,
        y_scale: Array,
        y_zero: Array,
        **_: Any,
    ) -> tuple[Array]:
        product = np.matmul(_shifted_rows(a, a_zero), _shifted(b, b_zero))
        factor = _of_rows(wide(a_scale)) * wide(b_scale) / _of_rows(wide(y_scale))
        return (_requantised(product, factor, _of_rows(y_zero)),)


class ConvInteger(Definition):
    """The convolution of the differences to the zero points, in int32. Padding is the zero point."""

    def _run(
        self,
        x: Array,
        w: Array,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
        *,
        group: int = 1,
        kernel_shape: list[int] | None = None,
        **geometry: Any,
    ) -> tuple[Array]:
        del kernel_shape
        return (convolve(_shifted(x, x_zero), _shifted(w, _of_filters(w_zero, w)), group, **geometry),)


class QLinearConv(Definition):
    """saturate(round((conv(x - zx, w - zw) + b) * sx * sw / sy) + zy); b is int32 in units of sx * sw."""

    def _run(  # noqa: PLR0917 - the operator's inputs
        self,
        x: Array,
        x_scale: Array,
        x_zero: Array,
        w: Array,
        w_scale: Array,
        w_zero: Array,
        y_scale: Array,
        y_zero: Array,
        b: Array | None = None,
        *,
        group: int = 1,
        kernel_shape: list[int] | None = None,
        **geometry: Any,
    ) -> tuple[Array]:
        del kernel_shape
        total = convolve(_shifted(x, x_zero), _shifted(w, _of_filters(w_zero, w)), group, **geometry)
        by_channel = (-1, *[1] * (x.ndim - 2))
        if b is not None:
            total = total + b.reshape(by_channel)
        factor = wide(x_scale) * wide(w_scale).reshape(by_channel) / wide(y_scale)
        return (_requantised(total, factor, y_zero),)


def _requantised(total: Array, factor: Array, zero_point: Array) -> Array:
    info = np.iinfo(zero_point.dtype)
    whole = np.rint(wide(total) * factor) + wide(zero_point)
    return np.asarray(np.clip(whole, info.min, info.max).astype(zero_point.dtype))


def _shifted(x: Array, zero_point: Array | None) -> Array:
    return x.astype(np.int32) - (0 if zero_point is None else zero_point.astype(np.int32))


def _shifted_rows(a: Array, zero_point: Array | None) -> Array:
    return _shifted(a, None if zero_point is None else _of_rows(zero_point))


def _of_rows(value: Array) -> Array:
    """One value for each row: [M] belongs to the last axis but one."""
    return value[:, None] if value.ndim == 1 and value.size > 1 else value


def _of_filters(zero_point: Array | None, w: Array) -> Array | None:
    return None if zero_point is None else zero_point.reshape(-1, *[1] * (w.ndim - 1))


def _along(value: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """Scale or zero point of the whole, of each entry of `axis`, or of each block along it."""
    if value.size == 1:
        return value.reshape(())
    if block_size:
        repeated: Array = np.repeat(value, block_size, axis=axis)
        return np.take(repeated, range(shape[axis]), axis=axis)
    dims = [1] * len(shape)
    dims[axis] = value.size
    return value.reshape(dims)


OPERATORS = (QuantizeLinear, DequantizeLinear, MatMulInteger, QLinearMatMul, ConvInteger, QLinearConv)
