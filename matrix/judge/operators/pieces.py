"""Two arrays side by side, a piece at a time: what is compared may be larger than what fits into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: elements of a piece. About a dozen arrays of eight bytes each are alive while one is compared: 100 MB
ELEMENTS = 1 << 20


def pieces(*arrays: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """(index of the first element, that piece of each array) in C order; nothing for empty arrays.

    The arrays have one shape. Those that lie in C order are not copied, mapped ones not read beforehand.
    """
    flat = [np.reshape(array, -1) for array in arrays]
    for begin in range(0, flat[0].size, ELEMENTS):
        yield begin, tuple(array[begin : begin + ELEMENTS] for array in flat)
