"""Element-wise operators, activations, comparisons, logic and bits."""

from __future__ import annotations

import functools
from typing import Any

from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()

TABLE.plain(
    Abs="abs", Acos="acos", Acosh="acosh", Asin="asin", Asinh="asinh", Atan="atan", Atanh="atanh",
    Ceil="math.ceil", Cos="cos", Cosh="cosh", Erf="math.erf", Exp="exp", Floor="floor",
    Identity="identity", IsNaN="math.is_nan", Log="math.log", Neg="negative",
    Reciprocal="math.reciprocal", Relu="nn.relu", Round="round", Sigmoid="sigmoid", Sign="sign",
    Sin="sin", Sinh="sinh", Softplus="nn.softplus", Softsign="nn.softsign", Sqrt="sqrt", Tan="tan",
    Tanh="tanh",
)  # fmt: skip
TABLE.plain(Add="add", Sub="subtract", Mul="multiply", Where="where")
TABLE.plain(
    Equal="equal", Greater="greater", GreaterOrEqual="greater_equal", Less="less",
    LessOrEqual="less_equal",
)  # fmt: skip
TABLE.plain(And="logical_and", Or="logical_or", Xor="math.logical_xor", Not="logical_not")
TABLE.plain(
    BitwiseAnd="bitwise.bitwise_and", BitwiseOr="bitwise.bitwise_or",
    BitwiseXor="bitwise.bitwise_xor", BitwiseNot="bitwise.invert",
)  # fmt: skip


def is_integer(dtype: str) -> bool:
    """Whether this is TensorFlow's name of a whole-number type."""
    return "int" in dtype


@TABLE.add("Div")
def _div(site: Site) -> Call:
    """Whole numbers are divided towards zero, as in C."""
    tf = site.tf
    division: Call = tf.truncatediv if is_integer(site.dtype()) else tf.divide
    return division


@TABLE.add("Mod", attributes="fmod")
def _mod(site: Site) -> Call:
    """The sign of the divisor, or with `fmod` that of the dividend."""
    tf = site.tf
    modulo: Call = tf.truncatemod if site.get("fmod", 0) else tf.math.floormod
    return modulo


@TABLE.add("Pow")
def _pow(site: Site) -> Call:
    """The result has the base's type, whatever the exponent's."""
    tf, base, exponent = site.tf, site.dtype(0), site.dtype(1)
    if base == exponent:
        power: Call = tf.pow
        return power
    if is_integer(base) and not is_integer(exponent):
        return lambda x, y: tf.cast(tf.pow(tf.cast(x, exponent), y), base)
    return lambda x, y: tf.pow(x, tf.cast(y, base))


@TABLE.add("Max", "Min", "Sum", "Mean")
def _variadic(site: Site) -> Call:
    """Any number of tensors, broadcast together."""
    tf = site.tf
    pair = {"Max": tf.maximum, "Min": tf.minimum}.get(site.node.op, tf.add)
    if site.node.op == "Mean":
        count = len(site.node.inputs)
        return lambda *tensors: functools.reduce(pair, tensors) / count
    if len(site.node.inputs) == 1:
        same: Call = tf.identity
        return same
    if len(site.node.inputs) == 2:
        two: Call = pair
        return two
    return lambda *tensors: functools.reduce(pair, tensors)


@TABLE.add("Clip", attributes="min max")
def _clip(site: Site) -> Call:
    """Where the lower limit exceeds the upper one the upper one wins (`clip_by_value`: the lower)."""
    tf = site.tf
    if site.opset < 11:
        low, high = "min" in site.node.attributes, "max" in site.node.attributes
        return _limited(tf, low, high, (site.real("min", 0), site.real("max", 0)))
    return _limited(tf, site.has(1), site.has(2), None)


def _limited(tf: Any, low: bool, high: bool, fixed: tuple[Any, Any] | None) -> Call:
    if fixed is not None:
        inner = _limited(tf, low, high, None)
        return lambda x: inner(x, *fixed)
    if low and high:
        return lambda x, a, b: tf.minimum(tf.maximum(x, a), b)
    if low:
        return lambda x, a, *_: tf.maximum(x, a)
    if high:
        return lambda x, _, b: tf.minimum(x, b)
    return lambda x, *_: tf.identity(x)


@TABLE.add("Gelu", attributes="approximate")
def _gelu(site: Site) -> Call:
    tf, words = site.tf, site.get("approximate", "none")
    if words not in ("none", "tanh"):
        raise site.refusal(f"no approximation {words!r}")
    approximate = words == "tanh"
    return lambda x: tf.nn.gelu(x, approximate)


@TABLE.add("Elu", attributes="alpha")
def _elu(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 1.0)
    if alpha == 1.0:
        elu: Call = tf.nn.elu
        return elu
    return lambda x: tf.where(x > 0, x, alpha * tf.nn.elu(x))


#: what ONNX writes out (they are the float32 values) and TensorFlow has built in
_SELU = (1.67326319217681884765625, 1.05070102214813232421875)


@TABLE.add("Selu", attributes="alpha gamma")
def _selu(site: Site) -> Call:
    tf, alpha, gamma = site.tf, site.real("alpha", _SELU[0]), site.real("gamma", _SELU[1])
    # TensorFlow's have more digits, which float64 would show.
    if (alpha, gamma) == _SELU and site.dtype() != "float64":
        selu: Call = tf.nn.selu
        return selu
    return lambda x: gamma * tf.where(x > 0, x, alpha * tf.nn.elu(x))


@TABLE.add("Celu", attributes="alpha")
def _celu(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 1.0)
    return lambda x: tf.where(x > 0, x, alpha * tf.nn.elu(x / alpha))


@TABLE.add("LeakyRelu", attributes="alpha")
def _leaky_relu(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 0.01)
    return lambda x: tf.nn.leaky_relu(x, alpha)


@TABLE.add("PRelu")
def _prelu(site: Site) -> Call:
    tf = site.tf
    return lambda x, slope: tf.where(x < 0, slope * x, x)


@TABLE.add("ThresholdedRelu", attributes="alpha")
def _thresholded_relu(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 1.0)
    return lambda x: tf.where(x > alpha, x, tf.zeros_like(x))


@TABLE.add("HardSigmoid", attributes="alpha beta")
def _hard_sigmoid(site: Site) -> Call:
    tf, alpha, beta = site.tf, site.real("alpha", 0.2), site.real("beta", 0.5)
    return lambda x: tf.clip_by_value(alpha * x + beta, 0.0, 1.0)


@TABLE.add("HardSwish")
def _hard_swish(site: Site) -> Call:
    tf = site.tf
    return lambda x: x * tf.clip_by_value(x * (1 / 6) + 0.5, 0.0, 1.0)


@TABLE.add("Mish")
def _mish(site: Site) -> Call:
    tf = site.tf
    return lambda x: x * tf.tanh(tf.nn.softplus(x))


@TABLE.add("Swish", attributes="alpha")
def _swish(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 1.0)
    return lambda x: tf.nn.silu(x, alpha)


@TABLE.add("SwiGLU", attributes="alpha")
def _swiglu(site: Site) -> Call:
    tf, alpha = site.tf, site.real("alpha", 1.0)
    return lambda a, b: tf.nn.silu(a, alpha) * b


@TABLE.add("Shrink", attributes="bias lambd")
def _shrink(site: Site) -> Call:
    tf, bias, limit = site.tf, site.real("bias", 0.0), site.real("lambd", 0.5)
    return lambda x: tf.where(x < -limit, x + bias, tf.where(x > limit, x - bias, tf.zeros_like(x)))


@TABLE.add("IsInf", attributes="detect_negative detect_positive")
def _is_inf(site: Site) -> Call:
    tf = site.tf
    negative, positive = site.get("detect_negative", 1), site.get("detect_positive", 1)
    if negative and positive:
        both: Call = tf.math.is_inf
        return both
    if not negative and not positive:
        return lambda x: tf.zeros_like(x, tf.bool)
    wanted = float("inf") if positive else float("-inf")
    return lambda x: tf.equal(x, wanted)


@TABLE.add("BitShift", attributes="direction")
def _bit_shift(site: Site) -> Call:
    direction = site.get("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise site.refusal(f"no direction {direction!r}")
    bits = site.tf.bitwise
    shift: Call = bits.left_shift if direction == "LEFT" else bits.right_shift
    return shift


@TABLE.add("Dropout", attributes="ratio seed is_test")
def _dropout(site: Site) -> Call:
    """Inference only: the data as they are, and a mask that keeps everything."""
    tf = site.tf
    training = site.parameter(2)
    if training is not None and bool(training.reshape(-1)[0]):
        raise site.refusal("training mode draws random numbers")
    if site.wants(1):
        return lambda x, *_: (tf.identity(x), tf.ones_like(x, tf.bool))
    return lambda x, *_: tf.identity(x)
