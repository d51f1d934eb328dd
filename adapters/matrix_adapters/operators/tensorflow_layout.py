"""Which tensors of a case TensorFlow gets with the channels last, transposed outside the timed call.

Only for a single node whose kernels want it so: whoever writes for TensorFlow has such data to
begin with. Between the nodes of a longer case the mappings transpose inside the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from matrix_adapters.protocol import OperatorCase

#: operators whose first input has channels, and where their filters are (None: they have none)
_OPERATORS: dict[str, int | None] = {
    "Conv": 1,
    "ConvTranspose": 1,
    "AveragePool": None,
    "BatchNormalization": None,
    "DepthToSpace": None,
    "GlobalAveragePool": None,
    "GlobalLpPool": None,
    "GlobalMaxPool": None,
    "GroupNormalization": None,
    "InstanceNormalization": None,
    "LpPool": None,
    "LRN": None,
    "MaxPool": None,
    "Resize": None,
    "SpaceToDepth": None,
    "Upsample": None,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Input name -> order of its axes here; output names whose channels come last. Empty: as given."""

    inputs: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    outputs: frozenset[str] = frozenset()

    @property
    def channels_last(self) -> bool:
        """Whether anything is transposed."""
        return bool(self.inputs)

    def arranged(self, name: str, array: np.ndarray) -> np.ndarray:
        """An input as the call takes it."""
        order = self.inputs.get(name)
        return array if order is None else np.ascontiguousarray(array.transpose(order))

    def restored(self, name: str, array: np.ndarray) -> np.ndarray:
        """An output as ONNX has it."""
        return np.moveaxis(array, -1, 1) if name in self.outputs else array


def plan(case: OperatorCase) -> Plan:
    """How the tensors of this case are given to TensorFlow."""
    if len(case.nodes) != 1:
        return Plan()
    (node,) = case.nodes
    ranks = {spec.name: len(spec.shape) for spec in case.inputs}
    rank = ranks.get(node.inputs[0], 0) if node.inputs else 0
    if node.op not in _OPERATORS or node.domain or not 3 <= rank <= 5:
        return Plan()
    if node.op == "MaxPool" and len(node.outputs) > 1:  # indices into the flattened tensor
        return Plan()
    if node.op == "DepthToSpace" and node.attributes.get("mode", "DCR") != "DCR":
        return Plan()
    inputs = {node.inputs[0]: (0, *range(2, rank), 1)}
    filters = _OPERATORS[node.op]
    if filters is not None:
        inputs[node.inputs[filters]] = (*range(2, rank), 1, 0)
    return Plan(inputs, frozenset(node.outputs[:1]))
