"""OpInfo of layers and of shapes: samples whose arguments are attributes of the ONNX operator, or axes.

As `opinfo_table`, which lists them: a translation gives the node's inputs and attributes, or raises `Untold`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matrix_adapters.operators.opinfo_told import Told, Translate, Untold, nothing

_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")


def convolution(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """`conv1d` to `conv3d`: torch's "same" pads one more at the end where the total is odd."""
    told = _named(_CONVOLUTION, args, kwargs)
    weight, spatial = told["weight"], _spatial(given, told["weight"])
    strides, dilations = _each(told, "stride", 1, spatial), _each(told, "dilation", 1, spatial)
    padding = told.get("padding", 0)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
        pads = [t // 2 for t in totals] + [t - t // 2 for t in totals]
    else:
        pads = _each({} if padding == "valid" else told, "padding", 0, spatial) * 2
    attributes = {"strides": strides, "dilations": dilations, "pads": pads, "group": told.get("groups", 1)}
    return Told(inputs=_with_bias(given, told), attributes=attributes)


def transposed_convolution(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """`conv_transpose1d` to `conv_transpose3d`."""
    told = _named(_TRANSPOSED, args, kwargs)
    spatial = _spatial(given, told["weight"])
    attributes = {
        "strides": _each(told, "stride", 1, spatial),
        "dilations": _each(told, "dilation", 1, spatial),
        "pads": _each(told, "padding", 0, spatial) * 2,
        "output_padding": _each(told, "output_padding", 0, spatial),
        "group": told.get("groups", 1),
    }
    return Told(inputs=_with_bias(given, told), attributes=attributes)


def group_norm(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    told = _named(("num_groups", "weight", "bias", "eps"), args, kwargs)
    if told.get("weight") is None or told.get("bias") is None:
        raise Untold("no scale or no bias")
    attributes = {"num_groups": told["num_groups"], "epsilon": float(told.get("eps", 1e-5))}
    return Told(inputs=[given, told["weight"], told["bias"]], attributes=attributes)


def batch_norm(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """As it is used after training: statistics are given."""
    names = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
    told = _named(names, args, kwargs)
    if told.get("training"):
        raise Untold("statistics of the batch are another operator's, which has three outputs")
    tensors = [told.get(name) for name in ("weight", "bias", "running_mean", "running_var")]
    if any(tensor is None for tensor in tensors):
        raise Untold("no scale, bias or statistics")
    return Told(inputs=[given, *tensors], attributes={"epsilon": float(told.get("eps", 1e-5))})


def rms_norm(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    told = _named(("normalized_shape", "weight", "eps"), args, kwargs)
    if told.get("weight") is None or told.get("eps") is None:
        raise Untold("no scale, or an epsilon of the type's own")
    attributes = {"axis": -len(told["normalized_shape"]), "epsilon": float(told["eps"])}
    return Told(inputs=[given, told["weight"]], attributes=attributes)


def embedding(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """What concerns its gradient alone is left out."""
    gradient = ("padding_idx", "scale_grad_by_freq", "sparse")
    nothing(args[1:], {k: v for k, v in kwargs.items() if k not in gradient and v is not None})
    return Told(inputs=[given, args[0]], attributes={"axis": 0})


def top_k(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    told = _named(("k", "dim", "largest", "sorted"), args, kwargs)
    if not given.dim():
        raise Untold("a tensor without axes has none to sort along")
    if not given.is_floating_point():
        raise Untold("equal numbers, of which ONNX takes the first and torch any")
    if not told.get("sorted", True):
        raise Untold("an order that nobody promises")
    attributes = {"axis": told.get("dim", -1), "largest": int(told.get("largest", True)), "sorted": 1}
    return Told(inputs=[given, [told["k"]]], attributes=attributes)


def concatenated(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    told = _named(("dim",), args, kwargs)
    if len({tensor.dim() for tensor in given}) > 1:
        raise Untold("tensors of different ranks, which torch allows where one is empty")
    return Told(inputs=list(given), attributes={"axis": told.get("dim", 0)})


def unsqueezed(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    return Told(inputs=[given, [_named(("dim",), args, kwargs)["dim"]]])


def reshaped(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    """With `allowzero`: a zero is a size here."""
    shape = list(_named(("shape",), args, kwargs)["shape"])
    if 0 in shape and -1 in shape:
        raise Untold("a size of 0 beside one that follows")
    return Told(inputs=[given, shape], attributes={"allowzero": 1})


def expanded(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Told:
    shape = list(_named(("size",), args, kwargs)["size"])
    if -1 in shape:
        raise Untold("a size of -1, which keeps the axis")
    return Told(inputs=[given, shape])


TRANSLATIONS: Mapping[str, tuple[str, Translate]] = {
    **{f"nn.functional.conv{n}d": ("Conv", convolution) for n in (1, 2, 3)},
    **{f"nn.functional.conv_transpose{n}d": ("ConvTranspose", transposed_convolution) for n in (1, 2, 3)},
    "nn.functional.group_norm": ("GroupNormalization", group_norm),
    "nn.functional.batch_norm": ("BatchNormalization", batch_norm),
    "nn.functional.rms_norm": ("RMSNormalization", rms_norm),
    "nn.functional.embedding": ("Gather", embedding),
    "topk": ("TopK", top_k),
    "cat": ("Concat", concatenated),
    "unsqueeze": ("Unsqueeze", unsqueezed),
    "reshape": ("Reshape", reshaped),
    "expand": ("Expand", expanded),
}


def _named(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name. Raises Untold for one that is not among `names`."""
    found = dict(zip(names, args, strict=False)) | dict(kwargs)
    nothing(args[len(names) :], {k: v for k, v in found.items() if k not in names})
    return found


def _spatial(given: Any, weight: Any) -> int:
    """The number of spatial axes. Raises Untold for what ONNX's convolutions do not take."""
    if not given.is_floating_point():
        raise Untold("whole numbers, which ONNX's convolutions do not take")
    if given.dim() != weight.dim():
        raise Untold("no axis of the batch")
    return int(weight.dim()) - 2


def _each(told: Mapping[str, Any], name: str, default: int, count: int) -> list[int]:
    value = told.get(name, default)
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * count if len(sizes) == 1 else sizes


def _with_bias(given: Any, told: Mapping[str, Any]) -> list[Any]:
    bias = told.get("bias")
    return [given, told["weight"]] + ([] if bias is None else [bias])
