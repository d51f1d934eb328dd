"""What one call of an operator case has to do: floating-point operations, and bytes that have to move.

One convention for all: a multiply-add is two operations; a function of one element (an exponential,
a square root) counts as one, however many instructions it takes. Bytes are those of every input, weight
and output once: what an ideal cache would still have to move; values between the nodes of a composite
case move nothing. Work is a property of the case, not of a framework's way to do it (Winograd
transforms and sparse kernels do less and show it as a higher rate).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matrix.operators.dtypes import ITEM_BYTES
from matrix.operators.expand import CatalogCase
from matrix.operators.shapes import Shape, output_shape
from matrix_adapters.protocol import Node, OperatorCase

#: no arithmetic: what they do is told by the bytes alone
MOVING = frozenset(
    [
        "Cast",
        "CastLike",
        "CenterCropPad",
        "Col2Im",
        "Compress",
        "Concat",
        "ConstantOfShape",
        "DepthToSpace",
        "Expand",
        "EyeLike",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "NonZero",
        "OneHot",
        "Pad",
        "Range",
        "Reshape",
        "ReverseSequence",
        "ScatterElements",
        "ScatterND",
        "Shape",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
    ]
)
#: they read only what their indices name: as much as they write
_GATHERING = frozenset({"Gather", "GatherElements", "GatherND"})
#: attributes that change the amount of work
_TELLING = ("kernel_shape", "strides", "group", "dilations", "is_causal", "axis")
_ONE_EACH = [
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "And",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "IsInf",
    "IsNaN",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pow",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Xor",
]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Of one call. What is None has a reason."""

    flops: int | None = None
    bytes: int | None = None
    why_no_flops: str = ""
    why_no_bytes: str = ""
    doubt: str = ""  # what the case declares is not what its shapes give

    @property
    def intensity(self) -> float | None:
        """Operations a byte; None where one of the two is not known."""
        return self.flops / self.bytes if self.flops and self.bytes else None


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """One node with the shapes around it; () stands for a left-out input."""

    node: Node
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]

    @property
    def elements(self) -> int:
        """Of the first output."""
        return math.prod(self.outputs[0])

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes.get(name, default)


Formula = Callable[[Site], int]


def work_of(case: CatalogCase, outputs: Mapping[str, Mapping[str, Any]]) -> Work:
    """`outputs`: name -> {"dtype", "shape"}, as the oracle found them.

    What the case declares goes first; where its shapes give another number, `doubt` says so.
    """
    found = flops(case.case, {name: tuple(facts["shape"]) for name, facts in outputs.items()})
    moved = _bytes(case.case, outputs)
    known_flops, no_flops = _one(case.flops, found)
    known_bytes, no_bytes = _one(case.bytes, moved)
    doubts = [_doubt(case.flops, found, "operations"), _doubt(case.bytes, moved, "bytes")]
    return Work(
        flops=known_flops,
        bytes=known_bytes,
        why_no_flops=no_flops,
        why_no_bytes=no_bytes,
        doubt="; ".join(text for text in doubts if text),
    )


def _one(declared: int | None, found: int | str) -> tuple[int | None, str]:
    """The number that counts, and why there is none."""
    if declared is not None:
        return declared, ""
    return (found, "") if isinstance(found, int) else (None, found)


def _doubt(declared: int | None, found: int | str, what: str) -> str:
    if declared is None or isinstance(found, str) or declared == found:
        return ""
    return f"{declared:,} {what} are declared, its shapes give {found:,}"


def shapes_in_words(case: OperatorCase) -> str:
    """ "1x64x56x56, 64x64x3x3; strides 2 2": what tells a case from another of its operator at a glance."""
    sizes = ", ".join("x".join(map(str, spec.shape)) for spec in case.inputs if spec.shape)
    told = [
        f"{name} {' '.join(map(str, value)) if isinstance(value, (list, tuple)) else value}"
        for node in case.nodes
        for name, value in node.attributes.items()
        if name in _TELLING and not _usual(name, value, len(case.inputs))
    ]
    return "; ".join(part for part in (sizes, ", ".join(told)) if part)


def _usual(name: str, value: Any, inputs: int) -> bool:
    """Strides and groups of one say nothing, nor does a kernel's shape beside the weights that have it."""
    several = value if isinstance(value, (list, tuple)) else [value]
    ones = name in ("strides", "dilations", "group") and set(several) == {1}
    return ones or (name == "kernel_shape" and inputs > 1) or (name == "is_causal" and not value)


def flops(case: OperatorCase, outputs: Mapping[str, Shape]) -> int | str:
    """Operations of one call, the sum over its nodes; or why that is not known."""
    shapes: dict[str, Shape] = {tensor.name: tensor.shape for tensor in case.inputs} | dict(outputs)
    total = 0
    for node in case.nodes:
        known = [shapes.get(name) for name in node.inputs]
        inferred = output_shape(node, known)
        if inferred is not None:
            shapes.setdefault(node.outputs[0], inferred)
        if node.op in MOVING:
            continue
        formula = FORMULAS.get(node.op) if node.domain in ("", "ai.onnx") else None
        if formula is None:
            return f"there is no formula for the operations of {node.op}"
        missing = [n for n in (*node.inputs, node.outputs[0]) if n and n not in shapes]
        if missing:
            return f"the shape of {missing[0]} between its nodes is not known"
        site = Site(node, [shapes.get(n, ()) for n in node.inputs], [shapes[node.outputs[0]]])
        try:
            total += formula(site)
        except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
            return f"the operations of {node.op} do not follow from these shapes"
    return total or "it does no arithmetic: it moves data"


def _bytes(case: OperatorCase, outputs: Mapping[str, Mapping[str, Any]]) -> int | str:
    written = 0
    for name, facts in outputs.items():
        if facts["dtype"] not in ITEM_BYTES:
            return f"the size of an element of {name} ({facts['dtype']}) is not known"
        written += math.prod(facts["shape"]) * ITEM_BYTES[facts["dtype"]]
    large = {n.inputs[0] for n in case.nodes if n.op in _GATHERING}
    read = 0
    for tensor in case.inputs:
        size = math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
        read += min(size, written) if tensor.name in large else size
    return read + written


# --- formulas -----------------------------------------------------------------------------


def _one_each(site: Site) -> int:
    """1 for each element of the output."""
    return site.elements


def _several(site: Site) -> int:
    """Of n inputs n - 1 for each element of the output."""
    return (len(site.inputs) - 1) * site.elements


def _mean(site: Site) -> int:
    """As a sum, and a quotient."""
    return len(site.inputs) * site.elements


def _matmul(site: Site) -> int:
    """2 M N K for each matrix of the batch: K is the last axis of the first factor."""
    return 2 * site.elements * site.inputs[0][-1]


def _gemm(site: Site) -> int:
    """2 M N K, as BLAS counts it; the addition of C is not counted."""
    return 2 * site.elements * site.inputs[0][0 if site.attribute("transA", 0) else 1]


def _conv(site: Site) -> int:
    """2 x outputs x C / group x kernel; weights are [M, C / group, kernel...]. The bias is not counted."""
    return 2 * site.elements * math.prod(site.inputs[1][1:])


def _transposed_conv(site: Site) -> int:
    """2 x inputs x M / group x kernel; weights are [C, M / group, kernel...]."""
    return 2 * math.prod(site.inputs[0]) * math.prod(site.inputs[1][1:])


def _attention(site: Site) -> int:
    """2 E + 2 Ev for each pair of query and key that the mask of a causal one leaves, in each head.

    Q [B, H, L, E], K [B, Hk, S, E], V [B, Hk, S, Ev]; or heads side by side in the last of three
    axes. Softmax and scaling are not counted (as in FlashAttention's figures, Dao et al. 2022).
    """
    q, k, v = site.inputs[:3]
    if len(q) == 4:
        batch, heads, rows, size = q
        keys, value_size = k[2], v[3]
    else:
        batch, rows, hidden = q
        heads = int(site.attribute("q_num_heads", 0))
        size, keys = hidden // heads, k[1]
        value_size = v[2] // int(site.attribute("kv_num_heads", 0))
    past = site.inputs[4][2] if len(site.inputs) > 4 and site.inputs[4] else 0
    keys += past
    pairs = rows * keys
    if site.attribute("is_causal", 0):
        pairs = sum(min(row + 1 + past, keys) for row in range(rows))
    return 2 * batch * heads * pairs * (size + value_size)


def _recurrent(site: Site) -> int:
    """2 x steps x batch x (weights + recurrent weights): X [steps, batch, in], W and R of all gates.

    What is element-wise between the gates is not counted.
    """
    steps, batch = site.inputs[0][0], site.inputs[0][1]
    if site.attribute("layout", 0):
        steps, batch = batch, steps
    return 2 * steps * batch * (math.prod(site.inputs[1]) + math.prod(site.inputs[2]))


def _of_input(count: int) -> Formula:
    """`count` for each element of the first input."""
    return lambda site: count * math.prod(site.inputs[0])


def _scaled(count: int) -> Formula:
    """`count` for each element of the input, and 1 each for a scale and a bias that are given."""
    return lambda site: (count + sum(1 for shape in site.inputs[1:3] if shape)) * math.prod(site.inputs[0])


def _pool(site: Site) -> int:
    """One for each place of the window, for each output."""
    return site.elements * int(math.prod(site.node.attributes["kernel_shape"]))


def _einsum(site: Site) -> int:
    """2 x the product of all axes of two operands; 1 x with one operand."""
    equation = str(site.node.attributes["equation"]).replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    if "." in equation or len(terms) > 2:
        raise ValueError("no single contraction")
    sizes: dict[str, int] = {}
    for letters, shape in zip(terms, site.inputs, strict=True):
        sizes |= dict(zip(letters, shape, strict=True))
    return len(terms) * math.prod(sizes.values())


FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys(_ONE_EACH, _one_each),
    **dict.fromkeys(("Max", "Min", "Sum"), _several),
    "Mean": _mean,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _transposed_conv,
    "Attention": _attention,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    # largest value, difference, exponential, sum, quotient
    "Softmax": _of_input(5),
    "LogSoftmax": _of_input(5),
    # sum, difference, square, sum of squares, quotient; then scale and bias
    "LayerNormalization": _scaled(5),
    "InstanceNormalization": _scaled(5),
    "GroupNormalization": _scaled(5),
    "RMSNormalization": _scaled(3),  # square, sum, quotient; then the scale
    "BatchNormalization": _of_input(2),  # one product and one sum, when not training
    "LpNormalization": _of_input(3),
    **dict.fromkeys(
        ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin", "CumSum"),
        _of_input(1),
    ),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum"), _of_input(2)),
    "ReduceLogSumExp": _of_input(4),
    "MaxPool": _pool,
    "AveragePool": _pool,
    "LpPool": _pool,
    "GlobalAveragePool": _of_input(1),
    "GlobalMaxPool": _of_input(1),
}
