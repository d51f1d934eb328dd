"""Sliding windows of convolutions and pools: kernel, strides, dilations, pads and how many windows fit.

Formulas of the ONNX specification (Conv-11, MaxPool-12, AveragePool-19 and its later wording:
a window that would start in the right padding is dropped).
"""

from __future__ import annotations

import dataclasses

from matrix_adapters.operators.torch_bound import Bound

_AUTO = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Each field has one entry a spatial axis."""

    size: tuple[int, ...]  # of the input
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]  # padding
    end: tuple[int, ...]
    count: tuple[int, ...]  # windows that fit

    @property
    def axes(self) -> int:
        return len(self.size)

    @property
    def symmetric(self) -> bool:
        return self.begin == self.end

    def padding(self) -> list[int]:
        """Of F.pad, last axis first: exactly what the windows reach, which may be less than the pads."""
        made: list[int] = []
        for i in reversed(range(self.axes)):
            reach = (self.count[i] - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1
            made += [self.begin[i], reach - self.size[i] - self.begin[i]]
        return made


def windows(bound: Bound, kernel: tuple[int, ...], *, ceil: bool = False) -> Windows:
    """Read strides, dilations, pads and auto_pad of input 0, [N, C, spatial axes...]."""
    axes = len(kernel)
    size = bound.shape()[2:]
    if len(size) != axes or not 1 <= axes <= 3:
        bound.refuse(f"{len(size)} spatial axes, a kernel of {axes}")
    strides = tuple(bound.integers("strides") or [1] * axes)
    dilations = tuple(bound.integers("dilations") or [1] * axes)
    auto = bound.text("auto_pad", "NOTSET", _AUTO)
    pads = bound.integers("pads") or [0] * (2 * axes)
    begin, end, count = [], [], []
    for i in range(axes):
        reach = (kernel[i] - 1) * dilations[i] + 1
        if auto.startswith("SAME"):
            fits = -(-size[i] // strides[i])
            total = max(0, (fits - 1) * strides[i] + reach - size[i])
            first = total // 2 if auto == "SAME_UPPER" else total - total // 2
            last = total - first
        else:
            first, last = (0, 0) if auto == "VALID" else (pads[i], pads[axes + i])
            room = size[i] + first + last - reach
            fits = room // strides[i] + 1
            if ceil and auto == "NOTSET":
                fits = -(-room // strides[i]) + 1
                fits -= (fits - 1) * strides[i] >= size[i] + first
        begin.append(first)
        end.append(last)
        count.append(fits)
    return Windows(
        size=size,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        begin=tuple(begin),
        end=tuple(end),
        count=tuple(count),
    )
