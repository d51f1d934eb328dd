"""ONNX operator -> where the PyTorch mapping builds it. Reading this table imports no framework.

A family module defines `OPERATORS`, name -> `Operator`, for exactly the names that are listed
for it here; a test compares the two.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators.torch_bound import Operator

FAMILIES: Mapping[str, str] = {
    "torch_elementwise": (
        "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor "
        "Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual Identity IsInf IsNaN Less "
        "LessOrEqual Log Max Mean Min Mod Mul Neg Not Or Pow Reciprocal Round Sign Sin Sinh Sqrt Sub Sum "
        "Tan Tanh Where Xor"
    ),
    "torch_activation": (
        "Celu Dropout Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax Mish PRelu Relu Selu "
        "Shrink Sigmoid Softmax Softplus Softsign SwiGLU Swish ThresholdedRelu"
    ),
    "torch_linear": "Det Einsum Gemm MatMul",
    "torch_convolution": "Col2Im Conv ConvTranspose",
    "torch_pooling": ("AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool MaxUnpool"),
    "torch_normalisation": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
        "LpNormalization MeanVarianceNormalization RMSNormalization"
    ),
    "torch_reduction": (
        "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean "
        "ReduceMin ReduceProd ReduceSum ReduceSumSquare"
    ),
    "torch_shape": (
        "CenterCropPad Concat DepthToSpace Expand Flatten Pad Reshape Shape Size Slice SpaceToDepth Split "
        "Squeeze Tile Transpose Trilu Unsqueeze"
    ),
    "torch_index": (
        "Compress Gather GatherElements GatherND NonZero OneHot ReverseSequence Scatter ScatterElements "
        "ScatterND TensorScatter TopK Unique"
    ),
    "torch_create": "BlackmanWindow Constant ConstantOfShape EyeLike HammingWindow HannWindow Range",
    "torch_resize": "AffineGrid GridSample Resize Upsample",
    "torch_attention": "Attention RotaryEmbedding",
    "torch_recurrent": "GRU LSTM RNN",
    "torch_quantise": (
        "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul "
        "QuantizeLinear"
    ),
    "torch_loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "torch_cast": "BitCast Cast CastLike",
    "torch_spectral": "DFT STFT",
}

_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names.split()}


def names() -> list[str]:
    """Every ONNX operator that is mapped."""
    return sorted(_FAMILY_OF)


def find(operator: str, domain: str = "") -> Operator:
    """Raises Unsupported, naming the operator, for one that is not mapped."""
    if domain not in ("", "ai.onnx") or operator not in _FAMILY_OF:
        title = f"{domain}.{operator}" if domain else operator
        raise Unsupported(f"the PyTorch mapping has no operator {title}")
    module = importlib.import_module(f"matrix_adapters.operators.{_FAMILY_OF[operator]}")
    found: Operator = module.OPERATORS[operator]
    return found
