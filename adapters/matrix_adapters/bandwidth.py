"""How fast this machine moves memory, by how much of it is touched: STREAM's kernels, in NumPy.

Triad (a = b + s c) and Add (a = b + c) of McCalpin's STREAM (1995, "Memory bandwidth and machine balance
in current high performance computers"), and counted as it counts: three arrays of float64, 24 bytes an
element, whatever else a cache line costs to write. Beside them Read (the largest value of each of the three):
what writes nothing, a reduction, is not slowed down by that. The best of the three is the machine's. Working
sets that fit a cache are measured as well, since what is called again with the same data finds it there
(the cache-aware roofline of Ilic, Pratas and Sousa 2014, "Cache-aware roofline model: upgrading the loft").

Threads are Python's: NumPy lets others run while it computes. Each has a slice of its own.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix_adapters import caches

BYTES_EACH = 24  # of one element of a kernel: three arrays of float64, read or written
#: an array is at least four times the last cache, as STREAM's own rules ask
STREAM_FACTOR = 4
#: of all arrays together, however large the cache is
MOST_BYTES = 2 << 30
_LEAST_S, _ROUNDS = 0.02, 7
_BLOCK = 1 << 12  # elements; Triad's product stays in the first cache
_SCALE = 3.0

Doubles = npt.NDArray[np.float64]
Kernel = Callable[[Doubles, Doubles, Doubles, Doubles], None]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """One working set: all three arrays of all threads together."""

    bytes: int
    bytes_s: float  # the best of all rounds and kernels
    kernel: str
    where: str  # "memory", or "cache"


def measure(threads: int, found: caches.Caches | None = None, *, most_bytes: int = MOST_BYTES) -> list[Level]:
    """From the smallest working set to one that no cache holds.

    `most_bytes` limits the last one; where that is not twice the last cache, memory is not measured.
    """
    known = found or caches.read()
    last, whole = known.last, min(3 * STREAM_FACTOR * known.last, most_bytes)
    sizes = [known.levels[2] // 2 * threads] if 2 in known.levels else []
    sizes += [last // 2, last, *([2 * last, whole] if whole >= 2 * last else [])]
    ordered = sorted(
        {size: "cache" if size <= last else "memory" for size in sizes if size >= 3 * 8 * threads}.items()
    )
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return [_level(size, where, threads, pool) for size, where in ordered]


def _level(size: int, where: str, threads: int, pool: concurrent.futures.Executor) -> Level:
    each = max(1, size // BYTES_EACH // threads)
    slices = [
        (np.zeros(each), np.full(each, 1.0), np.full(each, 2.0), np.zeros(min(each, _BLOCK)))
        for _ in range(threads)
    ]
    best, kernel = max(
        (_best(run, slices, pool) * BYTES_EACH * each * threads, name) for name, run in KERNELS.items()
    )
    return Level(bytes=BYTES_EACH * each * threads, bytes_s=best, kernel=kernel, where=where)


def _best(kernel: Kernel, slices: list[Any], pool: concurrent.futures.Executor) -> float:
    """Passes a second: the best round, every round long enough for the clock."""

    def passes(arrays: Any, count: int) -> None:
        for _ in range(count):
            kernel(*arrays)

    def timed(count: int) -> float:
        begin = time.perf_counter()
        if len(slices) == 1:
            passes(slices[0], count)
        else:
            list(pool.map(passes, slices, [count] * len(slices)))
        return time.perf_counter() - begin

    timed(1)
    count = max(1, round(_LEAST_S / max(timed(1), 1e-7)))
    return count / min(timed(count) for _ in range(_ROUNDS))


def add(a: Doubles, b: Doubles, c: Doubles, _: Doubles) -> None:
    """a = b + c."""
    np.add(b, c, out=a)


def triad(a: Doubles, b: Doubles, c: Doubles, product: Doubles) -> None:
    """a = b + s c, a block at a time: NumPy has no such operation, and the product must not go to memory."""
    for at in range(0, len(a), len(product)):
        part = slice(at, min(at + len(product), len(a)))
        into = product[: part.stop - at]
        np.multiply(c[part], _SCALE, out=into)
        np.add(b[part], into, out=a[part])


def read(a: Doubles, b: Doubles, c: Doubles, _: Doubles) -> None:
    """The largest value of each."""
    for array in (a, b, c):
        np.maximum.reduce(array)


KERNELS: dict[str, Kernel] = {"triad": triad, "add": add, "read": read}
