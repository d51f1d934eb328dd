"""How the values of an operator case's tensors are made: by name, from a seed.

Every generator is deterministic in the case's seed and the tensor's name. Float values are
drawn in float64 and rounded to the tensor's type; integer and boolean types get whole
numbers from every generator. Options are checked: a misspelt one is an error.

Numbers that JSON cannot hold come as words in `values`: "nan", "inf", "-inf".
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix_adapters.operators import elements
from matrix_adapters.protocol import OperatorCase, TensorSpec

Values = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Draw:
    """What a generator draws from, and for."""

    random: np.random.Generator
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_float(self) -> bool:
        return elements.is_float(self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def range(self) -> tuple[int, int]:
        """Least and greatest value of an integer (or bool) type."""
        if self.dtype == "bool":
            return 0, 1
        info = np.iinfo(self.dtype)
        return int(info.min), int(info.max)


def case_inputs(case: OperatorCase) -> dict[str, Values]:
    """Every tensor that `case` is given, constants too, by name, as `tensor` makes them."""
    return {spec.name: tensor(spec, case.seed) for spec in case.inputs}


def tensor(spec: TensorSpec, seed: int) -> Values:
    """The values of `spec`, in its storage dtype (`elements.storage`), C-contiguous.

    Raises ValueError, naming tensor and generator, for an unknown generator or option, or
    values that the type cannot hold. For layout "broadcast" the values repeat along the first axis.
    """
    draw = Draw(_random(seed, spec.name), spec.shape, spec.dtype)
    try:
        elements.storage(spec.dtype)
        made = _make(spec.generator, draw, spec.options)
        if spec.layout == "broadcast" and made.ndim and made.shape[0] > 1:
            made = np.repeat(made[:1], made.shape[0], axis=0)
        return np.ascontiguousarray(elements.stored(made, spec.dtype)).reshape(spec.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"tensor {spec.name!r}, generator {spec.generator!r}: {error}") from None


def names() -> list[str]:
    """Every generator."""
    return sorted(_GENERATORS)


def normal(draw: Draw, mean: float = 0.0, std: float | None = None) -> Values:
    """Gaussian. Integers: rounded, standard deviation 16 unless given, kept in range."""
    std = (1.0 if draw.is_float else 16.0) if std is None else std
    made = draw.random.normal(mean, std, draw.shape)
    if draw.dtype == "bool":
        return made > mean
    return made if draw.is_float else _whole(draw, made)


def uniform(draw: Draw, low: float = 0.0, high: float = 1.0) -> Values:
    """Evenly in [low, high); rounding to a narrow type may give `high` itself. Integers: as `integers`."""
    return draw.random.uniform(low, high, draw.shape) if draw.is_float else integers(draw, low, high)


def positive(draw: Draw, low: float = 0.1, high: float = 10.0) -> Values:
    """Log-uniform in [low, high), low above zero: small and large values are equally frequent."""
    if not 0 < low < high:
        raise ValueError(f"0 < low < high is needed, not {low} and {high}")
    made = np.exp(draw.random.uniform(math.log(low), math.log(high), draw.shape))
    return made if draw.is_float else np.maximum(_whole(draw, made), 1)


def wide(draw: Draw, low: float | None = None, high: float | None = None) -> Values:
    """Log-uniform magnitudes with a random sign, from `low` to `high`; by default the whole normal range."""
    if draw.is_float:
        edges = elements.limits(draw.dtype)
        least, most = low or edges.min_normal, high or edges.max
    else:
        least, most = low or 1.0, high or float(draw.range[1])
    # exp(log(max)) may round to infinity: the magnitude is kept below.
    made = np.exp2(draw.random.uniform(math.log2(least), math.log2(most), draw.shape))
    made = np.clip(made, least, most)
    made = np.where(draw.random.random(draw.shape) < 0.5, made, -made)
    return made if draw.is_float else _whole(draw, made)


def integers(draw: Draw, low: float = 0, high: float | None = None) -> Values:
    """Whole numbers in [low, high), as NumPy counts; the type's whole range above `low` without `high`."""
    if high is None:
        high = 10 if draw.is_float else draw.range[1] + 1
    if draw.is_float:
        return draw.random.integers(int(low), int(high), draw.shape).astype(np.float64)
    least, most = draw.range
    if low < least or high - 1 > most:
        raise ValueError(f"{int(low)}..{int(high) - 1} does not fit {draw.dtype}")
    kind = np.uint64 if most > np.iinfo(np.int64).max else np.int64
    return draw.random.integers(int(low), int(high), draw.shape, dtype=kind)


def bools(draw: Draw, probability: float = 0.5) -> Values:
    """True (1 in other types) with this probability."""
    return draw.random.random(draw.shape) < probability


def permutation(draw: Draw, start: float = 0, step: float = 1) -> Values:
    """start, start + step, ... shuffled: no two values are equal, so an order is unambiguous."""
    made = start + step * draw.random.permutation(draw.size).reshape(draw.shape)
    back = elements.widened(elements.stored(np.asarray(made), draw.dtype), draw.dtype)
    if len(np.unique(back)) != draw.size:
        raise ValueError(f"{draw.dtype} cannot tell {draw.size} values from {start} in steps of {step} apart")
    return np.asarray(made)


def sorted_(draw: Draw, descending: bool = False) -> Values:
    """As `normal`, sorted along the last axis."""
    made = np.sort(normal(draw), axis=-1) if draw.shape else normal(draw)
    return made[..., ::-1] if descending and draw.shape else made


def zeros(draw: Draw) -> Values:
    """Nothing but 0."""
    return np.zeros(draw.shape)


def ones(draw: Draw) -> Values:
    """Nothing but 1."""
    return np.ones(draw.shape)


def arange(draw: Draw, start: float = 0, step: float = 1) -> Values:
    """start, start + step, ... in C order."""
    return np.asarray(start + step * np.arange(draw.size).reshape(draw.shape))


def values(draw: Draw, values: Any) -> Values:
    """Given one by one, nested as the shape is, flat, or one for all."""
    flat = [_number(value, draw) for value in _flatten(values)]
    if len(flat) not in (1, draw.size):
        raise ValueError(f"{len(flat)} values for a tensor of {list(draw.shape)}")
    made: Values = np.array(flat, np.float64) if draw.is_float else _exact(draw, flat)
    return made.reshape(draw.shape) if len(flat) == draw.size else np.broadcast_to(made, draw.shape)


def special(draw: Draw) -> Values:
    """The values at a type's edges, over and over: NaN, infinities, zeros, subnormals, extremes, ones."""
    if draw.is_float:
        edges = elements.limits(draw.dtype)
        subnormals = [edges.min_subnormal, edges.min_normal - edges.min_subnormal]
        signed = [math.inf, 0.0, *subnormals, edges.max, edges.min_normal, 1.0]
        cycle: list[Any] = [math.nan, *(sign * value for value in signed for sign in (1, -1))]
        return np.resize(np.array(cycle), draw.shape)
    least, most = draw.range
    return np.resize(
        _exact(draw, sorted({v for v in (0, 1, -1, least, least + 1, most - 1, most) if least <= v <= most})),
        draw.shape,
    )


def nan_at(draw: Draw, index: int | Sequence[int] = 0) -> Values:
    """As `normal`, with NaN at one place: a flat index in C order, or one index an axis. Floats only."""
    if not draw.is_float:
        raise ValueError(f"{draw.dtype} has no NaN")
    made = normal(draw)
    place = np.unravel_index(index, draw.shape) if isinstance(index, int) else tuple(index)
    if len(place) != len(draw.shape):
        raise ValueError(f"index {index} for a tensor of {list(draw.shape)}")
    try:
        made[place] = math.nan
    except IndexError as error:
        raise ValueError(str(error)) from None
    return made


def onehot(draw: Draw) -> Values:
    """Zeros, with a 1 at a random place along the last axis."""
    if not draw.shape or not draw.shape[-1]:
        return np.ones(draw.shape)
    place = draw.random.integers(0, draw.shape[-1], draw.shape[:-1])
    return np.eye(draw.shape[-1])[place]


def indices(
    draw: Draw,
    size: int | Sequence[int],
    negative: bool = False,
    unique: bool = False,
    unique_axis: int | None = None,
) -> Values:
    """Indices into an axis of `size` elements, counted from the end half of the time if `negative`.

    `size` may be a list, one for each entry of the last axis (as GatherND and ScatterND index).
    `unique`: no two equal (no two rows, where `size` is a list). `unique_axis`: no two equal along that axis.
    """
    several = not isinstance(size, int)
    sizes = list(size) if not isinstance(size, int) else [size]
    if several and (not draw.shape or draw.shape[-1] != len(sizes)):
        raise ValueError(f"{len(sizes)} sizes for a tensor of {list(draw.shape)}")
    shape = draw.shape[:-1] if several else draw.shape
    count = math.prod(sizes)
    if unique:
        made = _distinct(draw.random, count, math.prod(shape)).reshape(shape)
    elif unique_axis is not None:
        length = shape[unique_axis]
        rest = math.prod(shape) // max(length, 1)
        rows = [_distinct(draw.random, count, length) for _ in range(rest)]
        moved = [n for axis, n in enumerate(shape) if axis != unique_axis % len(shape)]
        made = np.moveaxis(np.array(rows, np.int64).reshape(*moved, length), -1, unique_axis)
    else:
        made = draw.random.integers(0, max(count, 1), shape)
    if several:
        made = np.stack(np.unravel_index(made, sizes), axis=-1)
    if negative:
        extent = np.array(sizes) if several else sizes[0]
        made = np.where(draw.random.random(draw.shape) < 0.5, made - extent, made)
    return np.asarray(made)


_GENERATORS: Mapping[str, Callable[..., Values]] = {
    "normal": normal,
    "uniform": uniform,
    "positive": positive,
    "wide": wide,
    "integers": integers,
    "bools": bools,
    "permutation": permutation,
    "sorted": sorted_,
    "zeros": zeros,
    "ones": ones,
    "arange": arange,
    "values": values,
    "special": special,
    "nan_at": nan_at,
    "onehot": onehot,
    "indices": indices,
}

_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _random(seed: int, name: str) -> np.random.Generator:
    """A stream of its own for every tensor: adding an input leaves the others as they were."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _make(name: str, draw: Draw, options: Mapping[str, Any]) -> Values:
    if name not in _GENERATORS:
        raise ValueError(f"there is no such generator: use {', '.join(names())}")
    generator = _GENERATORS[name]
    known = list(inspect.signature(generator).parameters)[1:]
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"no option {unknown[0]!r}: it takes {', '.join(known) or 'none'}")
    return generator(draw, **options)


def _whole(draw: Draw, made: Values) -> Values:
    """Rounded and kept in the type's range; in 64 bits, in what of it float64 can say."""
    least, most = draw.range
    limit = float(most)
    if limit > most:  # rounded up: the float below it is the greatest that fits
        limit = math.nextafter(limit, 0)
    return np.clip(np.rint(made), least, limit).astype(elements.storage(draw.dtype))


def _exact(draw: Draw, numbers: Sequence[int]) -> Values:
    return np.array(numbers, dtype=elements.storage(draw.dtype))


def _flatten(nested: Any) -> list[Any]:
    if isinstance(nested, (list, tuple)):
        return [value for item in nested for value in _flatten(item)]
    return [nested]


def _number(value: Any, draw: Draw) -> Any:
    """A float for float types, else an integer that fits exactly."""
    if isinstance(value, str):
        if value not in _WORDS:
            raise ValueError(f"{value!r} is no number: words are {', '.join(_WORDS)}")
        value = _WORDS[value]
    if draw.is_float:
        return float(value)
    least, most = draw.range
    if not math.isfinite(value) or int(value) != value or not least <= value <= most:
        raise ValueError(f"{value!r} is no {draw.dtype}")
    return int(value)


def _distinct(random: np.random.Generator, size: int, count: int) -> Values:
    if count > size:
        raise ValueError(f"{count} different indices below {size} are not to be had")
    return random.permutation(size)[:count] if size < 1 << 20 else random.choice(size, count, replace=False)
