"""Resize in its modes, and sampling at given places."""

from __future__ import annotations

from collections.abc import Iterator

from torch_cases.table import (
    FLOATS,
    E,
    Entry,
    between,
    exact,
    f,
    ints,
    values,
)


def _resizes() -> Iterator[Entry]:
    x = f(1, 2, 4, 4)
    modes = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    for mode in ("nearest", "linear", "cubic"):
        for place in modes:
            for size in ([1, 2, 1, 1], [1, 2, 2, 2], [1, 2, 7, 7], [1, 2, 8, 3]):
                yield E(
                    "Resize",
                    x,
                    None,
                    None,
                    values(size),
                    mode=mode,
                    coordinate_transformation_mode=place,
                    opset=19,
                )
            yield E(
                "Resize",
                x,
                None,
                values([1.0, 1.0, 0.8, 2.3], "float32"),
                mode=mode,
                coordinate_transformation_mode=place,
                opset=19,
            )
        yield E("Resize", x, None, None, values([7, 3]), mode=mode, axes=[2, 3], opset=19)
        yield E("Resize", x, None, None, values([3, 7]), mode=mode, axes=[3, 1], opset=19)
        yield E("Resize", f(2, 3, 8), None, values([1.0, 1.0, 2.0], "float32"), mode=mode)
        yield E(
            "Resize",
            x,
            values([0.0, 0.0, 0.2, 0.3, 1.0, 1.0, 0.7, 1.4], "float32"),
            None,
            values([1, 2, 3, 5]),
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=7.0,
        )
        yield E(
            "Resize",
            f(1, 2, 6, 8),
            None,
            None,
            values([9, 9]),
            mode=mode,
            axes=[2, 3],
            keep_aspect_ratio_policy="not_larger",
        )
        yield E(
            "Resize",
            f(1, 2, 6, 8),
            None,
            None,
            values([9, 9]),
            mode=mode,
            axes=[2, 3],
            keep_aspect_ratio_policy="not_smaller",
        )
        yield E("Resize", x, None, values([1.0, 1.0, 2.0, 2.0], "float32"), mode=mode, dtypes=FLOATS)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for place in ("half_pixel", "asymmetric", "align_corners"):
            for scale in (0.5, 2.0, 0.6, 1.5):
                yield E(
                    "Resize",
                    x,
                    None,
                    values([1.0, 1.0, scale, scale], "float32"),
                    mode="nearest",
                    nearest_mode=rounding,
                    coordinate_transformation_mode=place,
                )
    for mode in ("linear", "cubic"):
        for outside in (0, 1):
            for scale in (0.6, 1.5):
                yield E(
                    "Resize",
                    f(1, 2, 9, 8),
                    None,
                    values([1.0, 1.0, scale, scale], "float32"),
                    mode=mode,
                    antialias=1,
                    exclude_outside=outside,
                    opset=18,
                )
    yield E("Resize", x, None, values([1.0, 1.0, 1.5, 1.5], "float32"), mode="cubic", exclude_outside=1)
    yield E("Resize", x, None, values([1.0, 1.0, 1.5, 1.5], "float32"), mode="cubic", cubic_coeff_a=-0.5)
    yield E("Resize", f(1, 2, 3, 4, 5), None, None, values([1, 2, 5, 2, 7]), mode="linear")
    yield exact(
        "Resize",
        ints(0, 255, 1, 1, 4, 4, dtype="uint8"),
        None,
        values([1.0, 1.0, 2.0, 2.0], "float32"),
        mode="linear",
    )
    yield E("Resize", x, values([1.0, 1.0, 2.0, 2.0], "float32"), opset=10)
    yield E("Resize", x, values([1.0, 1.0, 0.5, 0.5], "float32"), opset=10)
    yield E("Upsample", x, values([1.0, 1.0, 2.0, 3.0], "float32"), opset=9)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                yield E(
                    "GridSample",
                    f(2, 3, 5, 4),
                    between(-1.3, 1.3, 2, 3, 6, 2),
                    mode=mode,
                    padding_mode=padding,
                    align_corners=corners,
                )
    yield E("GridSample", f(2, 3, 5, 4), between(-1, 1, 2, 3, 6, 2), opset=16, mode="bicubic")
    yield E("GridSample", f(2, 3, 3, 5, 4), between(-1, 1, 2, 2, 3, 6, 3))
    for corners in (0, 1):
        yield E("AffineGrid", f(2, 2, 3), values([2, 3, 4, 5]), align_corners=corners)
        yield E("AffineGrid", f(2, 3, 4), values([2, 3, 4, 5, 6]), align_corners=corners)


FAMILIES = (_resizes,)
