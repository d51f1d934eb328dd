"""Reductions over axes, positions of extremes, running sums, the largest few."""

from __future__ import annotations

from typing import Any

from matrix_adapters.operators.tensorflow_elementwise import is_integer
from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()


@TABLE.add(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare", attributes="axes keepdims noop_with_empty_axes",
)  # fmt: skip
def _reduce(site: Site) -> Call:
    """Axes are an attribute in old opsets, an input in new ones; none at all means every axis."""
    tf, keep = site.tf, bool(site.get("keepdims", 1))
    given = site.integers(1) if site.has(1) else site.ints("axes", ())
    function = _functions(tf, site.node.op, site.dtype())
    if not given and site.get("noop_with_empty_axes", 0):
        return lambda x, *_: function(x, (), True)
    axes = tuple(site.axis(axis) for axis in given) if given else None
    return lambda x, *_: function(x, axes, keep)


def _functions(tf: Any, name: str, dtype: str) -> Call:
    if dtype == "bool" and name in ("ReduceMax", "ReduceMin"):
        logical: Call = tf.reduce_any if name == "ReduceMax" else tf.reduce_all
        return logical
    plain = {
        "ReduceMax": tf.reduce_max,
        "ReduceMean": tf.reduce_mean,
        "ReduceMin": tf.reduce_min,
        "ReduceProd": tf.reduce_prod,
        "ReduceSum": tf.reduce_sum,
        "ReduceLogSumExp": tf.reduce_logsumexp,
    }
    if name in plain:
        function: Call = plain[name]
        return function
    return {
        "ReduceL1": lambda x, axes, keep: tf.reduce_sum(tf.abs(x), axes, keep),
        "ReduceL2": lambda x, axes, keep: tf.sqrt(tf.reduce_sum(tf.square(x), axes, keep)),
        "ReduceLogSum": lambda x, axes, keep: tf.math.log(tf.reduce_sum(x, axes, keep)),
        "ReduceSumSquare": lambda x, axes, keep: tf.reduce_sum(tf.square(x), axes, keep),
    }[name]


@TABLE.add("ArgMax", "ArgMin", attributes="axis keepdims select_last_index")
def _arg(site: Site) -> Call:
    """The first of equal values, or by `select_last_index` the last: the first from behind."""
    tf, axis = site.tf, site.axis(site.get("axis", 0))
    function = tf.argmax if site.node.op == "ArgMax" else tf.argmin
    keep, last = site.get("keepdims", 1), site.get("select_last_index", 0)
    size = site.shape()[axis] if last else 0

    def call(x: Any) -> Any:
        found = size - 1 - function(tf.reverse(x, (axis,)), axis) if last else function(x, axis)
        return tf.expand_dims(found, axis) if keep else found

    return call


@TABLE.add("CumSum", "CumProd", attributes="exclusive reverse")
def _cumulative(site: Site) -> Call:
    tf = site.tf
    exclusive, reverse = bool(site.get("exclusive", 0)), bool(site.get("reverse", 0))
    function = tf.cumsum if site.node.op == "CumSum" else tf.math.cumprod
    (axis,) = site.integers(1) or (0,)
    return lambda x, _: function(x, axis, exclusive, reverse)


@TABLE.add("TopK", attributes="axis k largest sorted")
def _top_k(site: Site) -> Call:
    """Along the last axis, where TensorFlow looks; the smallest are the largest of what is turned round."""
    tf = site.tf
    (k,) = (int(site.get("k")),) if site.opset < 10 else (site.integers(1) or (1,))
    axis, rank = site.axis(site.get("axis", -1)), site.rank()
    ordered = bool(site.get("sorted", 1))
    swap = [n for n in range(rank) if n != axis] + [axis]
    back = [swap.index(n) for n in range(rank)]
    # No whole number overflows when its bits are inverted; the negative of the least one does.
    turn = tf.bitwise.invert if is_integer(site.dtype()) else tf.negative
    smallest = not site.get("largest", 1)

    def call(x: Any, *_: Any) -> tuple[Any, Any]:
        x = x if axis == rank - 1 else tf.transpose(x, swap)
        values, indices = tf.math.top_k(turn(x) if smallest else x, k, sorted=ordered)
        values, indices = turn(values) if smallest else values, tf.cast(indices, "int64")
        if axis == rank - 1:
            return values, indices
        return tf.transpose(values, back), tf.transpose(indices, back)

    return call
