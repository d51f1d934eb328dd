"""The nodes of a case as one callable of tensors, built while it runs for the first time.

Only then are the types and shapes of what lies between two nodes known: in a trace as symbols,
in eager mode as values. Later eager calls go through the callables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from matrix_adapters.operators import tensorflow_cast, tensorflow_table
from matrix_adapters.operators.tensorflow_site import Call, Facts, Site
from matrix_adapters.protocol import Node, OperatorCase

ValueOf = Callable[[str], np.ndarray | None]


class Program:
    """One case. `constants`: arrays by name, already in the layout that the case is run in."""

    def __init__(
        self,
        tf: Any,
        case: OperatorCase,
        constants: Mapping[str, np.ndarray],
        value_of: ValueOf,
        *,
        channels_last: bool = False,
        xla: bool = False,
    ) -> None:
        self._tf = tf
        self._case = case
        self._constants = constants
        self._value_of = value_of
        self._channels_last = channels_last
        self._xla = xla
        self._steps: list[tuple[Call, tuple[str, ...], tuple[str, ...]]] = []
        self._several = False  # whether the last node gives a tuple
        self.fed = tuple(spec.name for spec in case.inputs if not spec.constant)
        for node in case.nodes:  # so that what has no mapping is known before anything is traced
            tensorflow_table.find(node.op, node.domain)

    def build(self, *tensors: Any) -> Any:
        """Outputs for these inputs (in the order of `fed`); every node is built on the way.

        A single output is a tensor, as a function written by hand would give it; several are a
        list. Raises Unsupported for what a mapping does not do.
        """
        self._steps = []
        known: dict[str, Any] = dict(zip(self.fed, tensors, strict=True))
        known |= {name: self._tf.constant(array) for name, array in self._constants.items()}
        computed: dict[str, np.ndarray] = {}
        for node in self._case.nodes:
            site = self._site(node, known, computed)
            call = tensorflow_table.build(site)
            if node.op == "Constant":
                values, dtype, shape = tensorflow_cast.constant_value(site)
                if dtype != "bfloat16":
                    computed[node.outputs[0]] = np.array(values, dtype).reshape(shape)
            self._steps.append((call, node.inputs, node.outputs))
            result = call(*[known[name] if name else None for name in node.inputs])
            self._several = isinstance(result, tuple)
            known |= _named(node.outputs, result)
        return self._outputs(known)

    def eager(self) -> Call:
        """The same of host arrays, without building anything again. Only after a `build` outside a trace."""
        convert = self._tf.convert_to_tensor
        steps, fed = self._steps, self.fed
        constants = {name: self._tf.constant(array) for name, array in self._constants.items()}
        call, inputs, produced = steps[0]
        if len(steps) == 1 and inputs == fed and produced == self._case.outputs:
            (node,) = self._case.nodes
            if tensorflow_table.find(node.op, node.domain).plain:
                return call
            if len(produced) == 1 and self._several:  # it gives more than is asked for
                return lambda *arrays: call(*[convert(array) for array in arrays])[0]
            return lambda *arrays: call(*[convert(array) for array in arrays])

        def run(*arrays: Any) -> Any:
            known: dict[str, Any] = dict(zip(fed, map(convert, arrays), strict=True))
            known.update(constants)
            for call, inputs, produced in steps:
                known.update(_named(produced, call(*[known[name] if name else None for name in inputs])))
            return self._outputs(known)

        return run

    def _outputs(self, known: Mapping[str, Any]) -> Any:
        names = self._case.outputs
        return known[names[0]] if len(names) == 1 else [known[name] for name in names]

    def _site(self, node: Node, known: Mapping[str, Any], computed: Mapping[str, np.ndarray]) -> Site:
        made = {name for step in self._steps for name in step[2]}

        def value_of(name: str) -> np.ndarray | None:
            return computed.get(name) if name in made else self._value_of(name)

        return Site(
            tf=self._tf,
            node=node,
            opset=self._case.opset,
            inputs=tuple(_facts(known[name]) if name else None for name in node.inputs),
            value_of=value_of,
            channels_last=self._channels_last,
            xla=self._xla,
        )


def _facts(tensor: Any) -> Facts:
    shape = tensor.shape
    return Facts(tensor.dtype.name, None if shape.rank is None else tuple(shape.as_list()))


def _named(names: Sequence[str], result: Any) -> dict[str, Any]:
    """A node's outputs by name; those that nobody asked for are dropped."""
    results = result if isinstance(result, tuple) else (result,)
    return {name: tensor for name, tensor in zip(names, results, strict=False) if name}
