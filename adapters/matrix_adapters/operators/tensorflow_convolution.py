"""Convolutions and transposed ones, of one to three dimensions, grouped, depthwise, dilated."""

from __future__ import annotations

from typing import Any

from matrix_adapters.operators import tensorflow_spatial as spatial
from matrix_adapters.operators.tensorflow_linear import shifted
from matrix_adapters.operators.tensorflow_quantise import quantiser
from matrix_adapters.operators.tensorflow_site import Call, Site, Table
from matrix_adapters.operators.tensorflow_spatial import Window

TABLE = Table()


@TABLE.add("Conv", attributes=f"{spatial.WINDOW} group")
def _conv(site: Site) -> Call:
    tf, core, filters, rank = site.tf, *_plan(site, 0, 1)

    def call(x: Any, w: Any, bias: Any = None) -> Any:
        y = core(x, filters(w))
        return y if bias is None else tf.nn.bias_add(y, bias)

    return spatial.in_own_layout(site, rank, call)


@TABLE.add("ConvInteger", attributes=f"{spatial.WINDOW} group")
def _conv_integer(site: Site) -> Call:
    """In int32, which TensorFlow's two-dimensional kernel has."""
    core, filters, rank = _plan(site, 0, 1)
    data, weights = shifted(site, 0, 2, None), shifted(site, 1, 3, rank + 1)

    def call(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
        return core(data(x, x_zero), filters(weights(w, w_zero)))

    return spatial.in_own_layout(site, rank, call)


@TABLE.add("QLinearConv", attributes=f"{spatial.WINDOW} group")
def _qlinear_conv(site: Site) -> Call:
    """int32 sums, bias among them, one scale in float32, then rounding to the output's type."""
    tf, core, filters, rank = site.tf, *_plan(site, 0, 3)
    data, weights = shifted(site, 0, 2, None), shifted(site, 3, 5, rank + 1)
    quantise = quantiser(tf, site.dtype(7))

    def call(*inputs: Any) -> Any:
        x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*inputs, None)[:9]
        y = core(data(x, x_zero), filters(weights(w, w_zero)))
        if bias is not None:
            y += bias
        return quantise(tf.cast(y, "float32") * (x_scale * w_scale / y_scale), y_zero)

    return spatial.in_own_layout(site, rank, call)


@TABLE.add("ConvTranspose", attributes=f"{spatial.WINDOW} group output_padding output_shape")
def _conv_transpose(site: Site) -> Call:
    tf, data = site.tf, spatial.data(site)
    rank, group = data.rank, int(site.get("group", 1))
    if rank > 3:
        raise site.refusal(f"{rank} spatial dimensions")
    _, per_group, *kernel = spatial.filter_shape(site, 1)
    strides, dilations = site.ints("strides", (1,) * rank), site.ints("dilations", (1,) * rank)
    begin, end = _transposed_pads(site, data.size, kernel)
    grown = site.ints("output_padding", (0,) * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [s * (n - 1) + r for s, n, r in zip(strides, data.size, reach, strict=True)]
    out = [f + g - b - e for f, g, b, e in zip(full, grown, begin, end, strict=True)]
    filters, one = spatial.filters_last(site, rank), _one_transposed(tf, data.batch, full, strides)
    spread, crop = _dilated(tf, kernel, dilations), _cropped(tf, full, begin, out)

    def call(x: Any, w: Any, bias: Any = None) -> Any:
        # The transposed kernel wants spatial..., out, in.
        w = spread(filters(w))
        if group == 1:
            y = one(x, w, per_group)
        else:
            parts = zip(tf.split(x, group, -1), tf.split(w, group, -1), strict=True)
            y = tf.concat([one(part, weight, per_group) for part, weight in parts], -1)
        y = crop(y)
        return y if bias is None else tf.nn.bias_add(y, bias)

    return spatial.in_own_layout(site, rank, call)


def _plan(site: Site, x: int, w: int) -> tuple[Call, Call, int]:
    """(data and filters with channels last -> result), how filters get there, spatial dimensions."""
    data = spatial.data(site, x)
    if data.rank > 3:
        raise site.refusal(f"{data.rank} spatial dimensions")
    group = int(site.get("group", 1))
    maps, per_group, *kernel = spatial.filter_shape(site, w)
    window = spatial.window(site, kernel, data.size)
    integer = "int" in site.dtype(x)
    if data.rank == 3:
        core = _volume(site.tf, window, group)
    elif group == data.channels and per_group == 1 and group > 1 and not integer:
        core = _depthwise(site.tf, window, maps // group)
    else:
        core = _plane(site.tf, window)
    return core, spatial.filters_last(site, data.rank), data.rank


def _plane(tf: Any, window: Window) -> Call:
    """One or two dimensions: one kernel, which takes explicit padding and finds the groups itself."""
    pads = spatial.padding(window.begin, window.end)
    if len(window.kernel) == 2:
        return lambda x, w: tf.nn.conv2d(x, w, window.strides, pads, dilations=window.dilations)
    # `tf.nn.conv1d` goes the same way, but takes no explicit padding.
    pads = [[0, 0], [0, 0], *pads[1:]]
    strides, dilations = (1, *window.strides), (1, *window.dilations)

    def line(x: Any, w: Any) -> Any:
        y = tf.nn.conv2d(x[:, tf.newaxis], w[tf.newaxis], strides, pads, dilations=dilations)
        return tf.squeeze(y, 1)

    return line


def _depthwise(tf: Any, window: Window, multiplier: int) -> Call:
    """One filter or a few a channel. The kernel takes equal strides, and either strides or dilations."""
    line = len(window.kernel) == 1
    strides, dilations = window.strides * (2 if line else 1), window.dilations
    if len(set(strides)) > 1 or (max(strides) > 1 and max(dilations) > 1):
        return _plane(tf, window)
    pads = spatial.padding(window.begin, window.end)
    if line:
        pads, dilations = [[0, 0], [0, 0], *pads[1:]], (1, *dilations)
    # Explicit padding is an argument too, but one that aborts the process in TensorFlow 2.21: the
    # graph optimiser's shape function asks for a dimension H that the format has not.
    padded = _padded(tf, window, pads)
    steps = (1, *strides, 1)

    def call(x: Any, w: Any) -> Any:
        x, w = (x[:, tf.newaxis], w[tf.newaxis]) if line else (x, w)
        # ONNX counts the filters of one channel together: spatial..., 1, C * m.
        w = tf.reshape(w, (*w.shape[:2], -1, multiplier))
        y = tf.nn.depthwise_conv2d(padded(x), w, steps, "VALID", dilations=dilations)
        return tf.squeeze(y, 1) if line else y

    return call


def _volume(tf: Any, window: Window, group: int) -> Call:
    """Three dimensions: neither explicit padding nor groups."""
    padded = _padded(tf, window, spatial.padding(window.begin, window.end))
    strides, dilations = (1, *window.strides, 1), (1, *window.dilations, 1)

    def one(x: Any, w: Any) -> Any:
        return tf.nn.conv3d(x, w, strides, "VALID", dilations=dilations)

    if group == 1:
        return lambda x, w: one(padded(x), w)

    def call(x: Any, w: Any) -> Any:
        parts = zip(tf.split(padded(x), group, -1), tf.split(w, group, -1), strict=True)
        return tf.concat([one(part, weight) for part, weight in parts], -1)

    return call


def _padded(tf: Any, window: Window, pads: list[list[int]]) -> Call:
    if not window.padded:
        return lambda x: x
    return lambda x: tf.pad(x, pads)


def _transposed_pads(
    site: Site, size: tuple[int, ...], kernel: list[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What is cut off the full result at the beginning and at the end of each dimension."""
    rank = len(size)
    auto = site.get("auto_pad", "NOTSET")
    wanted = site.ints("output_shape", ())[-rank:]
    if auto in ("NOTSET", "") and not wanted:
        pads = site.ints("pads", (0,) * (2 * rank))
        return pads[:rank], pads[rank:]
    if auto == "VALID" and not wanted:
        return (0,) * rank, (0,) * rank
    strides = site.ints("strides", (1,) * rank)
    dilations, grown = site.ints("dilations", (1,) * rank), site.ints("output_padding", (0,) * rank)
    wanted = wanted or tuple(n * s for n, s in zip(size, strides, strict=True))
    total = [
        s * (n - 1) + g + (k - 1) * d + 1 - w
        for s, n, g, k, d, w in zip(strides, size, grown, kernel, dilations, wanted, strict=True)
    ]
    half, rest = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (half, rest) if auto == "SAME_UPPER" else (rest, half)


def _one_transposed(tf: Any, batch: int, full: list[int], strides: tuple[int, ...]) -> Call:
    """One group, nothing cut off."""
    if len(full) == 3:

        def volume(x: Any, w: Any, maps: int) -> Any:
            return tf.nn.conv3d_transpose(x, w, (batch, *full, maps), strides, "VALID")

        return volume
    if len(full) == 2:

        def plane(x: Any, w: Any, maps: int) -> Any:
            return tf.nn.conv2d_transpose(x, w, (batch, *full, maps), strides, "VALID")

        return plane

    def line(x: Any, w: Any, maps: int) -> Any:
        return tf.nn.conv1d_transpose(x, w, (batch, *full, maps), strides, "VALID")

    return line


def _dilated(tf: Any, kernel: list[int], dilations: tuple[int, ...]) -> Call:
    """Filters with zeros between their elements: the CPU's transposed kernels know no dilation."""
    if max(dilations) == 1:
        return lambda w: w

    def call(w: Any) -> Any:
        for axis, (k, d) in enumerate(zip(kernel, dilations, strict=True)):
            if d == 1:
                continue
            before, after = w.shape[:axis], w.shape[axis + 1 :]
            w = tf.reshape(w, (*before, k, 1, *after))
            w = tf.pad(w, [[0, 0] if n != axis + 1 else [0, d - 1] for n in range(len(w.shape))])
            w = tf.reshape(w, (*before, k * d, *after))
            w = w[(*(slice(None) for _ in before), slice((k - 1) * d + 1))]
        return w

    return call


def _cropped(tf: Any, full: list[int], begin: tuple[int, ...], out: list[int]) -> Call:
    """The part that is asked for; negative pads and output padding ask for zeros beyond the full result."""
    if all(b == 0 for b in begin) and out == full:
        return lambda y: y
    before = [max(-b, 0) for b in begin]
    after = [max(b + n - f, 0) for b, n, f in zip(begin, out, full, strict=True)]
    start = [0, *(max(b, 0) for b in begin), 0]
    if not any((*before, *after)):
        return lambda y: tf.slice(y, start, (-1, *out, -1))
    pads = spatial.padding(before, after)
    return lambda y: tf.slice(tf.pad(y, pads), start, (-1, *out, -1))
