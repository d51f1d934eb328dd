"""The inputs of an operator case in words: names, shapes, how the values are made, attributes.

`X[2, 3] normal, axes[1] = -1 (int64, constant); keepdims = 0`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matrix_adapters.protocol import Node, OperatorCase, TensorSpec

#: values are written out up to so many; beyond, only that they are given
MOST_VALUES = 8


def in_words(case: OperatorCase) -> str:
    """Every tensor of the case and every attribute; one line."""
    tensors = ", ".join(_tensor(spec, case.dtype) for spec in case.inputs)
    return "; ".join(part for part in (tensors, _attributes(case.nodes)) if part) or "no inputs"


def _tensor(spec: TensorSpec, case_dtype: str) -> str:
    aside = [spec.dtype] if spec.dtype != case_dtype else []
    aside += [f"{spec.layout} layout"] if spec.layout != "contiguous" else []
    aside += ["constant"] if spec.constant else []
    shape = ", ".join(map(str, spec.shape))
    text = f"{spec.name}[{shape}]{_values(spec.generator, spec.options)}"
    return f"{text} ({', '.join(aside)})" if aside else text


def _values(generator: str, options: Mapping[str, Any]) -> str:
    if generator == "values":
        given = options.get("values")
        flat = _flat(given)
        if len(flat) > MOST_VALUES:
            return " given values"
        return f" = {_written(given)}"
    low, high = options.get("low"), options.get("high")
    rest = {name: value for name, value in options.items() if name not in ("low", "high")}
    words = [generator]
    if low is not None and high is not None:
        words.append(f"{_written(low)} to {_written(high)}")
    else:
        rest = dict(options)
    words += [f"{name} {_written(value)}" for name, value in rest.items()]
    return " " + " ".join(words)


def _attributes(nodes: Sequence[Node]) -> str:
    """Of one node its attributes; of several, the chain with each one's in brackets."""
    if len(nodes) == 1:
        return ", ".join(f"{name} = {_written(value)}" for name, value in nodes[0].attributes.items())
    chain = []
    for node in nodes:
        inside = ", ".join(f"{name} = {_written(value)}" for name, value in node.attributes.items())
        chain.append(f"{node.op}({inside})" if inside else node.op)
    return f"nodes {', '.join(chain)}"


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [one for value in values for one in _flat(value)]
    return [values]


def _written(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_written(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name}: {_written(one)}' for name, one in value.items())}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
