"""What picks elements by index, and what puts them somewhere: gather, scatter, one-hot, non-zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matrix_adapters.operators.tensorflow_site import Call, Site, Table

TABLE = Table()


@TABLE.add("Gather", attributes="axis")
def _gather(site: Site) -> Call:
    tf, axis = site.tf, site.axis(site.get("axis", 0))
    counted = _from_front(site, 1, site.shape()[axis : axis + 1])
    return lambda x, indices: tf.gather(x, counted(indices), axis=axis)


@TABLE.add("GatherElements", attributes="axis")
def _gather_elements(site: Site) -> Call:
    """All other axes go along with the indices, and no further than they do."""
    tf, axis, shape = site.tf, site.axis(site.get("axis", 0)), site.shape()
    rank, wanted = len(shape), site.shape(1)
    counted = _from_front(site, 1, (shape[axis],))
    cut = tuple(slice(None) if n == axis else slice(wanted[n]) for n in range(rank))
    order = [n for n in range(rank) if n != axis] + [axis]
    back = [order.index(n) for n in range(rank)]
    inner = rank - 1

    def call(x: Any, indices: Any) -> Any:
        x, indices = tf.transpose(x[cut], order), tf.transpose(counted(indices), order)
        return tf.transpose(tf.gather(x, indices, axis=inner, batch_dims=inner), back)

    return call


@TABLE.add("GatherND", attributes="batch_dims")
def _gather_nd(site: Site) -> Call:
    tf, batch, shape = site.tf, int(site.get("batch_dims", 0)), site.shape()
    depth = site.shape(1)[-1]
    counted = _from_front(site, 1, shape[batch : batch + depth])
    return lambda x, indices: tf.gather_nd(x, counted(indices), batch_dims=batch)


@TABLE.add("ScatterElements", "Scatter", attributes="axis reduction")
def _scatter_elements(site: Site) -> Call:
    """Every update with the full index of its place."""
    tf, axis, shape = site.tf, site.axis(site.get("axis", 0)), site.shape()
    counted, places = _from_front(site, 1, (shape[axis],)), site.shape(1)
    put = _put(site, len(shape), math.prod(places))

    def call(x: Any, indices: Any, updates: Any) -> Any:
        axes = [tf.range(n, dtype=indices.dtype) for n in places]
        grid = tf.meshgrid(*axes, indexing="ij")
        grid[axis] = counted(indices)
        return put(x, tf.reshape(tf.stack(grid, -1), (-1, len(shape))), tf.reshape(updates, (-1,)))

    return call


@TABLE.add("ScatterND", attributes="reduction")
def _scatter_nd(site: Site) -> Call:
    tf, shape, places = site.tf, site.shape(), site.shape(1)
    depth = places[-1]
    counted, put = _from_front(site, 1, shape[:depth]), _put(site, depth, math.prod(places[:-1]))
    flat_indices, flat_updates = (-1, depth), (-1, *shape[depth:])

    def call(x: Any, indices: Any, updates: Any) -> Any:
        return put(x, tf.reshape(counted(indices), flat_indices), tf.reshape(updates, flat_updates))

    return call


def _put(site: Site, depth: int, count: int) -> Call:
    """(data, indices [n, depth], updates [n, ...]) -> data with the updates in it."""
    tf, reduction = site.tf, site.get("reduction", "none")
    ready = {
        "none": tf.tensor_scatter_nd_update,
        "add": tf.tensor_scatter_nd_add,
        "max": tf.tensor_scatter_nd_max,
        "min": tf.tensor_scatter_nd_min,
    }
    if reduction in ready:
        function: Call = ready[reduction]
        return function
    if reduction != "mul":
        raise site.refusal(f"no reduction {reduction!r}")
    # There is no scatter that multiplies: products by place, which are 1 where nothing goes.
    shape = site.shape()
    strides = [math.prod(shape[n + 1 : depth]) for n in range(depth)]
    total = math.prod(shape[:depth])

    def multiply(x: Any, indices: Any, updates: Any) -> Any:
        linear = tf.reduce_sum(indices * tf.constant(strides, indices.dtype), -1)
        return x * tf.reshape(tf.math.unsorted_segment_prod(updates, linear, total), shape)

    return multiply


@TABLE.add("TensorScatter", attributes="axis mode")
def _tensor_scatter(site: Site) -> Call:
    """An update written along one axis of a cache, for each entry of the batch from its own place on."""
    tf, axis, shape = site.tf, site.axis(site.get("axis", -2)), site.shape()
    batch, length, mode = shape[0], site.shape(1)[axis], site.get("mode", "linear")
    if mode not in ("linear", "circular"):
        raise site.refusal(f"no mode {mode!r}")
    order = [0, axis, *(n for n in range(1, len(shape)) if n != axis)]
    back = [order.index(n) for n in range(len(shape))]

    def call(cache: Any, update: Any, starts: Any = None) -> Any:
        steps = tf.range(length, dtype="int64")
        places = tf.zeros((batch, 1), "int64") if starts is None else starts[:, tf.newaxis]
        places = places + steps
        places = places % shape[axis] if mode == "circular" else places
        rows = tf.broadcast_to(tf.range(batch, dtype="int64")[:, tf.newaxis], (batch, length))
        indices = tf.stack([rows, places], -1)
        written = tf.tensor_scatter_nd_update(
            tf.transpose(cache, order), indices, tf.transpose(update, order)
        )
        return tf.transpose(written, back)

    return call


@TABLE.add("OneHot", attributes="axis")
def _one_hot(site: Site) -> Call:
    tf, axis = site.tf, int(site.get("axis", -1))
    (depth,) = site.integers(1) or (0,)
    whole = site.dtype() in ("int32", "int64", "uint8", "int8")

    def call(indices: Any, _: Any, values: Any) -> Any:
        indices = indices if whole else tf.cast(indices, "int64")
        # Negative ones count from the end; those that are still negative match nothing.
        indices = tf.where(indices < 0, indices + tf.cast(depth, indices.dtype), indices)
        return tf.one_hot(indices, depth, values[1], values[0], axis)

    return call


@TABLE.add("NonZero")
def _non_zero(site: Site) -> Call:
    tf = site.tf
    if site.dtype() == "bool":
        return lambda x: tf.transpose(tf.where(x))
    return lambda x: tf.transpose(tf.where(tf.not_equal(x, tf.zeros((), x.dtype))))


@TABLE.add("Compress", attributes="axis")
def _compress(site: Site) -> Call:
    """The condition may be shorter than the axis: what lies beyond it is left out."""
    tf, given = site.tf, site.get("axis")
    if given is None:
        return lambda x, kept: tf.gather(tf.reshape(x, (-1,)), tf.where(kept)[:, 0])
    axis = site.axis(given)
    return lambda x, kept: tf.gather(x, tf.where(kept)[:, 0], axis=axis)


@TABLE.add("Unique", attributes="axis sorted")
def _unique(site: Site) -> Call:
    """Values, where each comes first, where each element's value is among them, how often each comes."""
    tf = site.tf
    if site.get("axis") is not None and site.rank() != 1:
        raise site.refusal("unique slices along an axis")
    ordered, more = bool(site.get("sorted", 1)), len(site.node.outputs) > 1

    def call(x: Any) -> Any:
        flat = tf.reshape(x, (-1,))
        values, inverse, counts = tf.unique_with_counts(flat, tf.int64)
        order = tf.argsort(values) if ordered else tf.range(tf.size(values))
        if not more:
            return tf.gather(values, order)
        length = tf.size(flat, tf.int64)
        first = tf.math.unsorted_segment_min(tf.range(length), inverse, tf.size(values, tf.int64))
        rank = tf.cast(tf.argsort(order), "int64")
        sorted_each = (tf.gather(each, order) for each in (values, first))
        return (*sorted_each, tf.gather(rank, inverse), tf.gather(counts, order))

    return call


def _from_front(site: Site, index: int, sizes: Sequence[int]) -> Call:
    """Negative indices counted from the front, which TensorFlow's kernels do not do.

    Left out where the indices are known and none is negative, as whoever calls TensorFlow would.
    `sizes`: one for all, or one for each place of the indices' last dimension.
    """
    tf, known = site.tf, site.value_of(site.node.inputs[index])
    if known is not None and (known >= 0).all():
        return lambda indices: indices
    limit = sizes[0] if len(sizes) == 1 else tuple(sizes)
    dtype = site.dtype(index)
    return lambda indices: tf.where(indices < 0, indices + tf.constant(limit, dtype), indices)
