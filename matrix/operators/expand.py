"""From an operator's entry to its cases: every case in every type, and the edge cases of templates.

Pure and quick: thousands of cases are made whenever a sweep that names operators is planned.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping

from matrix.operators import shapes
from matrix.operators.dtypes import FLOATS, Dtype, precision_of
from matrix.operators.types import CaseEntry, Edge, OperatorEntry, TensorEntry
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, content_hash


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class CatalogCase:
    """A case in one type, with what the host needs to plan and judge it."""

    operator: str
    case: OperatorCase
    kind: str  # row of the tolerance table
    depth: int = 1  # terms of its longest sum
    terms: float | None = None  # their size, where the answer is a small difference of them
    open: str = ""  # why no answer is the only right one
    edge: str = ""  # the template it comes from
    flops: int | None = None
    bytes: int | None = None
    timed: bool = False  # of a speed suite: checked, and then timed
    model: str = ""  # the model whose operator it is
    count: int = 1  # how many nodes of that model are this very case

    @property
    def precision(self) -> str:
        return precision_of(self.case.dtype)

    @property
    def key(self) -> tuple[str, str]:
        """Subject and precision of its workloads: unique in the catalog."""
        return (self.case.name, self.precision)


def expand(name: str, entry: OperatorEntry) -> tuple[CatalogCase, ...]:
    """All cases of one operator, in the file's order, edge cases last. Names are unique with their types.

    Raises ValueError, with the way to it as the first argument, for a case that does not fit together.
    """
    made = [
        _case(name, case_name, entry, case, dtype)
        for case_name, case in entry.cases.items()
        for dtype in dict.fromkeys(case.dtypes or entry.dtypes)
    ]
    made += [
        _case(name, case_name, entry, case, dtype, edge=edge)
        for edge, case_name, case in edge_cases(entry)
        for dtype in dict.fromkeys(entry.dtypes)
        if dtype in FLOATS or edge != "nan_at_each"
    ]
    return tuple(made)


def _case(
    name: str, case_name: str, entry: OperatorEntry, case: CaseEntry, dtype: Dtype, *, edge: str = ""
) -> CatalogCase:
    full = f"{name}/{case_name}"
    tensors = {n: _tensor(n, t, dtype) for n, t in {**entry.in_defaults, **case.feed}.items()}
    nodes = _composite(entry, case) if entry.nodes else (_single(name, entry, case, tensors),)
    outputs = tuple(case.outputs or entry.outputs) or _results(nodes)
    kind = case.kind or entry.kind
    used = dict.fromkeys(i for node in nodes for i in node.inputs if i in tensors)
    return CatalogCase(
        operator=name,
        case=OperatorCase(
            name=full,
            dtype=dtype,
            nodes=nodes,
            inputs=tuple(tensors[tensor] for tensor in used),
            outputs=tuple(output for output in outputs if output),
            opset=case.opset or entry.opsets.get(dtype, entry.opset),
            oracle=case.oracle or entry.oracle or default_oracle(kind, dtype),
            seed=int(content_hash(full, 8), 16) >> 1,  # the same values in every type
        ),
        kind=kind,
        depth=case.depth or entry.depth or shapes.depth(nodes, tensors),
        terms=case.terms,
        open=case.open or entry.open,
        edge=edge,
        flops=case.flops,
        bytes=case.bytes,
    )


def default_oracle(kind: str, dtype: str) -> str:
    """In which types the oracle computes: float64, or the case's own where they are the meaning."""
    return "float64" if dtype in FLOATS and kind != "quantise" else "as-is"


def input_names(entry: OperatorEntry, case: CaseEntry) -> list[str]:
    """The inputs of a case in the operator's order; of a composite, all that no node makes."""
    if case.inputs is not None:
        return case.inputs
    if not entry.nodes:
        return entry.inputs or list(dict.fromkeys([*entry.in_defaults, *case.feed]))
    made = {output for node in entry.nodes for output in node.outputs}
    return list(dict.fromkeys(i for node in entry.nodes for i in node.inputs if i and i not in made))


def _single(name: str, entry: OperatorEntry, case: CaseEntry, tensors: Mapping[str, TensorSpec]) -> Node:
    """One node. An input that a case does not give is left out: "" in the middle, nothing at the end."""
    inputs = [i if i in tensors else "" for i in input_names(entry, case)]
    while inputs and not inputs[-1]:
        inputs.pop()
    return Node(
        op=name,
        inputs=tuple(inputs),
        outputs=tuple(case.outputs or entry.outputs or ("Y",)),
        attributes={**entry.attributes, **case.attributes},
        domain=entry.domain,
    )


def _composite(entry: OperatorEntry, case: CaseEntry) -> tuple[Node, ...]:
    given = {*entry.in_defaults, *case.feed}
    made = {output for node in entry.nodes for output in node.outputs}
    return tuple(
        Node(
            op=node.op,
            inputs=tuple(i if i in given or i in made else "" for i in node.inputs),
            outputs=tuple(node.outputs),
            attributes=node.attributes,
            domain=node.domain,
        )
        for node in entry.nodes
    )


def _results(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    """What the nodes make and none of them uses."""
    used = {name for node in nodes for name in node.inputs}
    return tuple(o for node in nodes for o in node.outputs if o and o not in used)


def _tensor(name: str, entry: TensorEntry, case_dtype: str) -> TensorSpec:
    return TensorSpec(
        name=name,
        dtype=entry.dtype or case_dtype,
        shape=entry.dimensions,
        generator="values" if entry.values is not None else entry.generator or "normal",
        options=entry.options(),
        layout=entry.layout,
        constant=entry.constant,
    )


# --- edge cases ---------------------------------------------------------------------------

#: every value with every other: two inputs are given them along different axes
_SPECIAL = {1: ([4, 4],), 2: ([16, 1], [1, 16]), 3: ([16, 1], [1, 16], [1, 1])}
_BROADCAST = ([3, 1, 5], [4, 1], [1], [5])
#: NaN on the diagonal: at each place of a row, and of a column. The rest is exact in every type
_NAN = [[math.nan if i == j else (4 * i + j + 1) / 16 for j in range(4)] for i in range(4)]


def edge_cases(entry: OperatorEntry) -> Iterator[tuple[Edge, str, CaseEntry]]:
    """(template, name, case) of each edge case: the first case with other tensors in it.

    Attributes, constants and scalars stay as they are; generators too, where the template has none.
    """
    first = next(iter(entry.cases.values()))
    feed = {**entry.in_defaults, **first.feed}
    names = [n for n in input_names(entry, first) if n in feed and _is_data(feed[n])]
    floats = [n for n in names if feed[n].dtype is None]
    own = dict.fromkeys(("depth", "terms", "flops", "bytes"))
    base = first.model_copy(update={"dtypes": [], "open": "", **own})

    def case(changed: Mapping[str, TensorEntry]) -> CaseEntry:
        return base.model_copy(update={"feed": {**feed, **changed}})

    for edge in dict.fromkeys(entry.edges):
        name = f"edge-{edge}"
        if edge == "special":
            given = _SPECIAL.get(len(names), ([4, 4],) * len(names))
            yield edge, name, case({n: _special(feed[n], s) for n, s in zip(names, given, strict=True)})
        elif edge == "nan_at_each":
            for at in floats:
                changed = {n: _shaped(feed[n], [4, 4]) for n in names}
                changed[at] = TensorEntry(values=_NAN)
                yield edge, f"edge-nan-{at}" if len(floats) > 1 else "edge-nan", case(changed)
        elif edge == "broadcast" and len(names) > 1:
            given = (*_BROADCAST, *([1],) * len(names))[: len(names)]
            yield edge, name, case({n: _shaped(feed[n], s) for n, s in zip(names, given, strict=True)})
        else:
            shape, layout = _SIMPLE[edge]
            yield edge, name, case({n: _shaped(feed[n], shape, layout=layout) for n in names})


_SIMPLE: Mapping[str, tuple[list[int], str]] = {
    "empty": ([0, 3], "contiguous"),
    "size_one": ([1, 1, 1], "contiguous"),
    "strided": ([4, 6], "strided"),
    "broadcast": ([4, 6], "broadcast"),  # of one input: strides of zero
}


def _is_data(tensor: TensorEntry) -> bool:
    return not tensor.constant and len(tensor.dimensions) > 0


def _shaped(tensor: TensorEntry, shape: list[int], **more: object) -> TensorEntry:
    """The same kind of values in another shape; what was written out, or is an index, is drawn anew."""
    bound = tensor.generator in _BOUND_TO_SHAPE or tensor.values is not None or "generator" in more
    kept = {} if bound else tensor.model_dump(exclude_unset=True)
    return TensorEntry.model_validate({**kept, "dtype": tensor.dtype, "shape": shape, **more})


_BOUND_TO_SHAPE = frozenset({"values", "nan_at", "special", "permutation", "indices"})


def _special(tensor: TensorEntry, shape: list[int]) -> TensorEntry:
    if tensor.dtype is not None:  # a condition, an index: nothing special about it
        return _shaped(tensor, shape)
    return _shaped(tensor, shape, generator="special")
