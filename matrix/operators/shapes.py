"""What shapes tell of a case without computing it: how deep its sums are, and how large it is.

The depth K is the number of terms that one element of the output sums up; rounding errors grow
with it (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), and so do limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from matrix.operators.dtypes import FLOATS, ITEM_BYTES
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec

Shape = tuple[int, ...]
#: outputs of these have their inputs' shape: what follows them in a composite case is known too
_KEEPING = frozenset(
    [
        "Abs",
        "Add",
        "BiasGelu",
        "Celu",
        "Clip",
        "Cos",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "FastGelu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LayerNormalization",
        "LeakyRelu",
        "Log",
        "LogSoftmax",
        "Mish",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "RMSNormalization",
        "Reciprocal",
        "Relu",
        "Selu",
        "Sigmoid",
        "Sin",
        "Softmax",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    ]
)
#: bytes of one element of a type that is not ours, such as text
_UNKNOWN_BYTES = 16
#: bytes for each element while values are drawn in float64; what takes no chance has no intermediate arrays
_DRAWN, _WRITTEN = 24, 8
_WITHOUT_CHANCE = frozenset({"zeros", "ones", "values", "arange"})


def depth(nodes: Sequence[Node], tensors: Mapping[str, TensorSpec]) -> int:
    """The longest sum of any node whose shapes are known, at least 1."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    longest = 1
    for node in nodes:
        known = [shapes.get(name) for name in node.inputs]
        longest = max(longest, _terms(node, known, tensors))
        output = output_shape(node, known)
        if output is not None:
            shapes.setdefault(node.outputs[0], output)
    return longest


def needed_bytes(case: OperatorCase) -> int:
    """Memory of the larger of the two processes that hold all of a case: the oracle, or a framework's worker.

    The oracle draws inputs in float64 and computes in it; a worker holds every tensor as it was read or
    computed, in its own memory layout or as fetched, and once more while it is hashed or kept, bfloat16
    as float32 as well. The judge holds pieces. Measured with Identity on 67 million int8 and 17 million
    float32: the oracle took 86 and 63 % of its part, PyTorch 64 and 72 % of the worker's.

    Where shapes do not tell how large an output is, it is taken for as large as the largest input,
    or as what the inputs broadcast to.
    """
    shapes = {tensor.name: tensor.shape for tensor in case.inputs}
    together = broadcast(shapes.values())
    unknown = max([math.prod(shape) for shape in (*shapes.values(), together or ())], default=0)
    output = 0
    for node in case.nodes:
        shape = output_shape(node, [shapes.get(name) for name in node.inputs])
        if shape is not None:
            shapes.setdefault(node.outputs[0], shape)
        output = max(output, unknown if shape is None else math.prod(shape))
    sizes = [(math.prod(t.shape), t) for t in case.inputs]
    worker = sum(size * _held(t.dtype) for size, t in sizes) + output * _held(case.dtype)
    oracle = sum(size * _made(t) for size, t in sizes) + output * 2 * _computed(case.dtype)
    return max(worker, oracle)


def _held(dtype: str) -> int:
    """Bytes for each element of a tensor in a worker."""
    return 3 * ITEM_BYTES.get(dtype, _UNKNOWN_BYTES) + (8 if dtype == "bfloat16" else 0)


def _made(tensor: TensorSpec) -> int:
    """Bytes for each element of an input while the oracle makes it."""
    drawn = _WRITTEN if tensor.generator in _WITHOUT_CHANCE else _DRAWN
    return drawn + ITEM_BYTES.get(tensor.dtype, _UNKNOWN_BYTES)


def _computed(dtype: str) -> int:
    """Bytes of one element of the oracle's answer."""
    return 8 if dtype in FLOATS else ITEM_BYTES.get(dtype, _UNKNOWN_BYTES)


def broadcast(shapes: Iterable[Shape]) -> Shape | None:
    """The shape that all of them broadcast to, by NumPy's rule; None where they do not."""
    result: list[int] = []
    for shape in shapes:
        longer = max(len(result), len(shape))
        left, right = [1] * (longer - len(result)) + result, [1] * (longer - len(shape)) + list(shape)
        if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
            return None
        result = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    return tuple(result)


def _terms(node: Node, shapes: Sequence[Shape | None], tensors: Mapping[str, TensorSpec]) -> int:
    first = shapes[0] if shapes else None
    if first is None:
        return 1
    rule = _RULES.get(node.op)
    if rule is None and node.op.startswith("Reduce"):
        rule = _reduced
    try:
        return max(1, rule(node, [shape or () for shape in shapes], tensors)) if rule else 1
    except (IndexError, TypeError, ValueError):  # shapes that the operator would refuse: the oracle says so
        return 1


def _matmul(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return shapes[0][-1]


def _gemm(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return shapes[0][0 if node.attributes.get("transA") else 1]


def _conv(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    """Weights are [M, C / group, kernel...]: every output sums over all but the first."""
    return math.prod(shapes[1][1:])


def _transposed_conv(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    """Weights are [C, M / group, kernel...]; at most so many terms meet in one output."""
    return shapes[1][0] // int(node.attributes.get("group", 1)) * math.prod(shapes[1][2:])


def _reduced(node: Node, shapes: Sequence[Shape], tensors: Mapping[str, TensorSpec]) -> int:
    axes: Any = node.attributes.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] in tensors:
        axes = tensors[node.inputs[1]].options.get("values")
    if isinstance(axes, int):
        axes = [axes]
    if not axes:
        return 1 if node.attributes.get("noop_with_empty_axes") else math.prod(shapes[0])
    return math.prod(shapes[0][axis] for axis in axes)


def _along_axis(default: int) -> Callable[[Node, Sequence[Shape], Mapping[str, TensorSpec]], int]:
    def terms(node: Node, shapes: Sequence[Shape], tensors: Mapping[str, TensorSpec]) -> int:
        axis: Any = node.attributes.get("axis", default)
        return shapes[0][int(axis)]

    return terms


def _from_axis(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return math.prod(shapes[0][int(node.attributes.get("axis", -1)) :])


def _cumulative(node: Node, shapes: Sequence[Shape], tensors: Mapping[str, TensorSpec]) -> int:
    axis = tensors[node.inputs[1]].options.get("values") if node.inputs[1] in tensors else None
    return shapes[0][axis] if isinstance(axis, int) else max(shapes[0])


def _pooled(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return math.prod(node.attributes["kernel_shape"])


def _all_spatial(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return math.prod(shapes[0][2:])


def _grouped(node: Node, shapes: Sequence[Shape], _: Mapping[str, TensorSpec]) -> int:
    return math.prod(shapes[0][1:]) // int(node.attributes.get("num_groups", 1))


_RULES: Mapping[str, Callable[[Node, Sequence[Shape], Mapping[str, TensorSpec]], int]] = {
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "QLinearMatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _transposed_conv,
    "Softmax": _along_axis(-1),
    "LogSoftmax": _along_axis(-1),
    "LpNormalization": _along_axis(-1),
    "LayerNormalization": _from_axis,
    "RMSNormalization": _from_axis,
    "InstanceNormalization": _all_spatial,
    "GroupNormalization": _grouped,
    "CumSum": _cumulative,
    "AveragePool": _pooled,
    "LpPool": _pooled,
    "GlobalAveragePool": _all_spatial,
    "GlobalLpPool": _all_spatial,
}


def output_shape(node: Node, shapes: Sequence[Shape | None]) -> Shape | None:
    known = [shape for name, shape in zip(node.inputs, shapes, strict=True) if name and shape is not None]
    if len(known) < sum(1 for name in node.inputs if name) or not known:
        return None
    if node.op in _KEEPING:
        return broadcast(known)
    if node.op == "MatMul" and len(known) == 2 and min(map(len, known)) >= 2:
        batch = broadcast([known[0][:-2], known[1][:-2]])
        return None if batch is None else (*batch, known[0][-2], known[1][-1])
    if node.op == "Gemm":
        rows = known[0][1 if node.attributes.get("transA") else 0]
        return (rows, known[1][0 if node.attributes.get("transB") else 1])
    return None
