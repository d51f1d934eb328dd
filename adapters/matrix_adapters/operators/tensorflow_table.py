"""Every ONNX operator that has a mapping to TensorFlow. Nothing here imports TensorFlow."""

from __future__ import annotations

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import (
    tensorflow_attention,
    tensorflow_cast,
    tensorflow_convolution,
    tensorflow_elementwise,
    tensorflow_index,
    tensorflow_linear,
    tensorflow_loss,
    tensorflow_normalisation,
    tensorflow_pooling,
    tensorflow_quantise,
    tensorflow_recurrent,
    tensorflow_reduction,
    tensorflow_resize,
    tensorflow_sampling,
    tensorflow_shape,
    tensorflow_signal,
)
from matrix_adapters.operators.tensorflow_site import Call, Mapping, Site

_FAMILIES = (
    tensorflow_attention,
    tensorflow_cast,
    tensorflow_convolution,
    tensorflow_elementwise,
    tensorflow_index,
    tensorflow_linear,
    tensorflow_loss,
    tensorflow_normalisation,
    tensorflow_pooling,
    tensorflow_quantise,
    tensorflow_recurrent,
    tensorflow_reduction,
    tensorflow_resize,
    tensorflow_sampling,
    tensorflow_shape,
    tensorflow_signal,
)

TABLE: dict[str, Mapping] = {name: mapping for family in _FAMILIES for name, mapping in family.TABLE.items()}


def find(op: str, domain: str = "") -> Mapping:
    """The mapping of an operator. Raises Unsupported, which names it, where there is none."""
    if domain not in ("", "ai.onnx") or op not in TABLE:
        named = op if domain in ("", "ai.onnx") else f"{domain}.{op}"
        raise Unsupported(f"no mapping of the operator {named} to TensorFlow")
    return TABLE[op]


def build(site: Site) -> Call:
    """The callable for one node. Raises Unsupported for what its mapping does not do."""
    return find(site.node.op, site.node.domain).build(site)
