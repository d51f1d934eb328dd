"""Matrix products, whole-number ones too."""

from __future__ import annotations

from typing import Any

from matrix_adapters.operators.tensorflow_quantise import quantiser
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()


@TABLE.add("MatMul")
def _matmul(site: Site) -> Call:
    return _product(site.tf, site.rank(0), site.rank(1))


def _product(tf: Any, left: int, right: int) -> Call:
    """`numpy.matmul` for these ranks: a vector is a row on the left and a column on the right."""
    if left > 1 and right > 1:
        matmul: Call = tf.linalg.matmul
        return matmul
    if left > 1:
        matvec: Call = tf.linalg.matvec
        return matvec
    if right > 1:
        return lambda a, b: tf.squeeze(tf.linalg.matmul(a[tf.newaxis, :], b), -2)
    return lambda a, b: tf.tensordot(a, b, 1)


@TABLE.add("Gemm", attributes="alpha beta transA transB")
def _gemm(site: Site) -> Call:
    tf = site.tf
    alpha, beta = site.real("alpha", 1.0), site.real("beta", 1.0)
    ta, tb = bool(site.get("transA", 0)), bool(site.get("transB", 0))
    if "int" in site.dtype() and (alpha != int(alpha) or beta != int(beta)):
        raise site.refusal("a fractional alpha or beta with whole numbers")
    if "int" in site.dtype():
        alpha, beta = int(alpha), int(beta)

    def product(a: Any, b: Any) -> Any:
        y = tf.linalg.matmul(a, b, transpose_a=ta, transpose_b=tb)
        return y if alpha == 1 else alpha * y

    if not site.has(2):
        return lambda a, b, *_: product(a, b)
    if beta == 1:
        return lambda a, b, c: product(a, b) + c
    return lambda a, b, c: product(a, b) + beta * c


@TABLE.add("Einsum", attributes="equation")
def _einsum(site: Site) -> Call:
    tf, equation = site.tf, str(site.get("equation")).replace(" ", "")
    return lambda *tensors: tf.einsum(equation, *tensors)


@TABLE.add("Det")
def _det(site: Site) -> Call:
    det: Call = site.tf.linalg.det
    return det


@TABLE.add("MatMulInteger")
def _matmul_integer(site: Site) -> Call:
    tf = site.tf
    product = _product(tf, site.rank(0), site.rank(1))
    left, right = shifted(site, 0, 2, 1), shifted(site, 1, 3, None)
    return lambda a, b, a_zero=None, b_zero=None: product(left(a, a_zero), right(b, b_zero))


@TABLE.add("QLinearMatMul")
def _qlinear_matmul(site: Site) -> Call:
    """int32 sums, one scale in float32, then rounding to the output's type."""
    tf = site.tf
    product = _product(tf, site.rank(0), site.rank(3))
    left, right = shifted(site, 0, 2, 1), shifted(site, 3, 5, None)
    per_row = site.rank(1) == 1 and site.rank(0) > 1
    quantise = quantiser(tf, site.dtype(7))

    def call(*inputs: Any) -> Any:
        a, sa, za, b, sb, zb, sy, zy = inputs
        total = tf.cast(product(left(a, za), right(b, zb)), "float32")
        sa = tf.expand_dims(sa, -1) if per_row else sa
        scale = tf.cast(sa, "float32") * tf.cast(sb, "float32") / tf.cast(sy, "float32")
        return quantise(total * scale, zy)

    return call


def shifted(site: Site, index: int, zero: int, tail: int | None) -> Call:
    """The tensor in int32, less its zero point. A vector of zero points has `tail` dimensions after it."""
    tf = site.tf
    if not site.has(zero):
        return lambda x, _: tf.cast(x, "int32")
    if tail and site.rank(zero) == 1 and site.rank(index) > 1:
        ones = (1,) * tail
        return lambda x, z: tf.cast(x, "int32") - tf.reshape(tf.cast(z, "int32"), (-1, *ones))
    return lambda x, z: tf.cast(x, "int32") - tf.cast(z, "int32")
