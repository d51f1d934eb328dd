"""An operator case as one callable on native tensors: its nodes, built for a feed's shapes, in order.

A node whose result follows from constants and shapes alone (a Shape that feeds a Reshape) is worked
out while building, as a user of torch has such numbers in Python. Fed tensors whose values shape the
computation (axes, sizes) are built for as well: `statics` names them, and whoever calls has to bind
again when they change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import torch_table
from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator
from matrix_adapters.protocol import Node, OperatorCase

#: operators whose result is known from the shape of their input
_OF_SHAPE = frozenset({"Shape", "Size"})

#: operators whose result has a shape that depends on values: nothing can be built for what comes after
_LOOSE = frozenset({"Compress", "NonZero", "Unique"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Which fed tensors a case's callable takes, in order, and which it is built for."""

    takes: tuple[str, ...]
    statics: tuple[str, ...]


def layout(case: OperatorCase) -> Layout:
    """Raises Unsupported, naming it, for an operator that is not mapped."""
    fed = [spec.name for spec in case.inputs if not spec.constant]
    as_tensor: list[str] = []
    as_value: set[str] = set()
    for node in case.nodes:
        static = torch_table.find(node.op, node.domain).static
        for position, name in enumerate(node.inputs):
            if position in static:
                as_value.add(name)
            elif name and name not in as_tensor:
                as_tensor.append(name)
    return Layout(
        takes=tuple(name for name in as_tensor if name in fed),
        statics=tuple(name for name in fed if name in as_value),
    )


@dataclasses.dataclass
class _Builder:
    """State of one pass over the nodes: `values` holds a tensor for every name seen so far."""

    case: OperatorCase
    torch: Any
    device: Any
    values: dict[str, Any]
    fixed: set[str]  # names whose values no call changes
    loose: set[str] = dataclasses.field(default_factory=set)  # names whose shapes a call may change
    steps: list[tuple[Kernel, tuple[str, ...], tuple[str, ...]]] = dataclasses.field(default_factory=list)

    def add(self, node: Node) -> None:
        node = _trimmed(node)
        if loose := sorted(set(node.inputs) & self.loose):
            raise Unsupported(
                f"PyTorch mapping of {node.op}: the shape of its input {loose[0]!r} depends on data"
            )
        operator = torch_table.find(node.op, node.domain)
        taken = tuple("" if i in operator.static else n for i, n in enumerate(node.inputs))
        taken = tuple(n for i, n in enumerate(taken) if i not in operator.static)
        kernel = self._kernel(node, operator)
        given = {name for name in node.inputs if name}
        folds = given <= self.fixed or node.op in _OF_SHAPE
        if len(self.case.nodes) == 1:
            self.steps.append((kernel, taken, node.outputs))
            return  # nobody needs its result to build on
        made = kernel(*(self.values[name] if name else None for name in taken))
        self.values.update(zip(node.outputs, made if len(node.outputs) > 1 else (made,), strict=False))
        if node.op in _LOOSE and not folds:
            self.loose.update(node.outputs)
        kept = set(node.outputs) & set(self.case.outputs)
        if folds:
            self.fixed.update(node.outputs)
        if kept or not folds:
            self.steps.append((kernel, taken, node.outputs))

    def _kernel(self, node: Node, operator: Operator) -> Kernel:
        moving = [
            i for i in operator.static if i < len(node.inputs) and node.inputs[i] not in self.fixed | {""}
        ]
        if moving:
            what = f"input {moving[0]}, which decides shapes, is computed from data"
            raise Unsupported(f"PyTorch mapping of {node.op}: {what}")
        return build(self._bound(node, operator), operator)

    def _bound(self, node: Node, operator: Operator) -> Bound:
        tensors = [self.values[name] if name else None for name in node.inputs]
        known = {i: t.cpu() for i, t in enumerate(tensors) if t is not None and node.inputs[i] in self.fixed}
        return Bound(
            node=node,
            opset=self.case.opset,
            shapes=tuple(None if t is None else tuple(t.shape) for t in tensors),
            dtypes=tuple(None if t is None else t.dtype for t in tensors),
            known=known,
            torch=self.torch,
            device=self.device,
        )


def _trimmed(node: Node) -> Node:
    """Without the left-out tensors at the end: ONNX lets a model name them or not."""
    inputs, outputs = list(node.inputs), list(node.outputs)
    for names in (inputs, outputs):
        while names and not names[-1]:
            names.pop()
    return dataclasses.replace(node, inputs=tuple(inputs), outputs=tuple(outputs))


def build(bound: Bound, operator: Operator) -> Kernel:
    """The node's callable. Raises Unsupported for what it does not map."""
    kernel = operator.build(bound)
    bound.finish()
    return kernel


def bind(
    case: OperatorCase,
    constants: Mapping[str, Any],
    feed: Mapping[str, Any],
    torch: Any,
    device: Any,
) -> Kernel:
    """callable(tensors of `layout(case).takes`) -> a tensor, or a tuple where the case has several outputs.

    `constants` and `feed`: tensors by name, on `device`.
    """
    plan = layout(case)
    fixed = {*constants, *plan.statics}
    builder = _Builder(case, torch, device, {**constants, **feed}, fixed)
    for node in case.nodes:
        builder.add(node)
    steps = builder.steps
    if len(steps) == 1 and steps[0][2] == case.outputs:
        simple = _single(steps[0][0], steps[0][1], plan.takes, builder.values)
        if simple is not None:
            return simple
    return _chain(case, steps, plan.takes, builder)


def _single(
    kernel: Kernel, taken: Sequence[str], takes: Sequence[str], values: Mapping[str, Any]
) -> Kernel | None:
    """Nothing between the caller and the kernel but what is fixed and comes last."""
    count = len(takes)
    if tuple(taken[:count]) != tuple(takes) or set(taken[count:]) & set(takes):
        return None
    tail = tuple(values[name] if name else None for name in taken[count:])
    if not tail:
        return kernel
    if count == 1:
        return lambda x: kernel(x, *tail)
    return lambda *fed: kernel(*fed, *tail)


def _chain(
    case: OperatorCase,
    steps: Sequence[tuple[Kernel, tuple[str, ...], tuple[str, ...]]],
    takes: Sequence[str],
    builder: _Builder,
) -> Kernel:
    """Names become places in one list: what is fed, what is fixed, what is computed."""
    place = {name: i for i, name in enumerate(takes)}
    stored: list[Any] = []
    computed = {name for _, _, gives in steps for name in gives if name}
    needed = [name for _, taken, _ in steps for name in taken] + list(case.outputs)
    for name in needed:
        if name and name not in place and name not in computed:
            place[name] = len(takes) + len(stored)
            stored.append(builder.values[name])
    free = len(takes) + len(stored)
    for name in sorted(computed):
        place.setdefault(name, free + len(place) - len(takes) - len(stored))
    nothing = free + len(computed)  # a left-out input is None; a left-out output goes there too
    program: list[tuple[Kernel, tuple[int, ...], tuple[int, ...]]] = [
        (
            kernel,
            tuple(place[n] if n else nothing for n in taken),
            tuple(place[n] if n else nothing + 1 for n in gives),
        )
        for kernel, taken, gives in steps
    ]
    rest = (*stored, *([None] * (len(computed) + 2)))
    wanted = tuple(place[name] for name in case.outputs)
    return _runner(tuple(program), rest, wanted)


def _runner(
    program: tuple[tuple[Kernel, tuple[int, ...], tuple[int, ...]], ...],
    rest: tuple[Any, ...],
    wanted: tuple[int, ...],
) -> Callable[..., Any]:
    only = wanted[0] if len(wanted) == 1 else None

    def run(*fed: Any) -> Any:
        slots = [*fed, *rest]
        for kernel, taken, gives in program:
            made = kernel(*[slots[i] for i in taken])
            if len(gives) == 1:
                slots[gives[0]] = made
            else:
                for i, value in zip(gives, made, strict=False):
                    slots[i] = value
        return slots[only] if only is not None else tuple([slots[i] for i in wanted])

    return run
