"""Operations of products, convolutions and attention, against PyTorch's own counter of operations.

The counter (`torch.utils.flop_counter`) was written by others and sees the calls, not our formulas. It runs
on tensors without memory (the device `meta`), so that shapes of real models cost nothing.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from matrix.catalog import load as load_catalog
from matrix.environments.base import BuiltEnvironment
from matrix.operators import work
from matrix.operators.load import load_operators
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, plain

pytestmark = pytest.mark.real

#: the operators that the counter knows; of attention it counts every pair, a causal mask or not
COUNTED = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Attention")

SCRIPT = """
import json, sys
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

def called(node, tensors):
    get = node["attributes"].get
    op = node["op"]
    if op == "MatMul":
        return torch.matmul(*tensors)
    if op == "Gemm":
        a, b = (t.T if get(name, 0) else t for t, name in zip(tensors, ("transA", "transB")))
        return torch.mm(a, b)
    if op == "Attention":
        q, k, v = tensors[:3]
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    x, w = tensors[:2]
    n = w.dim() - 2
    pads = get("pads", [0] * 2 * n)
    assert pads[:n] == pads[n:]
    more = dict(stride=get("strides", [1] * n), padding=pads[:n], dilation=get("dilations", [1] * n))
    name = f"conv{n}d" if op == "Conv" else f"conv_transpose{n}d"
    return getattr(F, name)(x, w, groups=get("group", 1), **more)

told = []
for case in json.loads(sys.stdin.read()):
    tensors = [torch.empty(spec["shape"], device="meta") for spec in case["inputs"]]
    with FlopCounterMode(display=False) as counter:
        output = called(case["nodes"][0], tensors)
    told.append({"flops": counter.get_total_flops(), "shape": list(output.shape)})
print(json.dumps(told))
"""


def case(op: str, shapes: Mapping[str, tuple[int, ...]], **attributes: Any) -> OperatorCase:
    node = Node(op=op, inputs=tuple(shapes), outputs=("Y",), attributes=attributes)
    specs = tuple(TensorSpec(name=name, dtype="float32", shape=shape) for name, shape in shapes.items())
    return OperatorCase(
        name=f"{op}/x", dtype="float32", nodes=(node,), inputs=specs, outputs=("Y",), opset=23
    )


MORE = [
    case("MatMul", {"A": (3, 4, 5), "B": (5, 6)}),
    case("Gemm", {"A": (5, 4), "B": (6, 5)}, transA=1, transB=1),
    case("Conv", {"X": (2, 6, 30), "W": (9, 2, 5)}, group=3, strides=[2], pads=[3, 3], dilations=[2]),
    case("Conv", {"X": (1, 4, 9, 9, 9), "W": (8, 4, 3, 3, 3)}),
    case("ConvTranspose", {"X": (2, 6, 9, 9), "W": (6, 4, 3, 3)}, group=2, strides=[2, 2]),
    case("Attention", {"Q": (2, 8, 5, 16), "K": (2, 2, 7, 16), "V": (2, 2, 7, 16)}),
]


@pytest.fixture(scope="module")
def counted(built: Callable[[str], BuiltEnvironment]) -> list[tuple[OperatorCase, dict[str, Any]]]:
    """Every timed case that the counter knows, and some harder ones, with what it counted."""
    known = load_operators(load_catalog().operators)
    timed = [one.case for cases in known.speed.values() for one in cases if one.operator in COUNTED]
    cases = [*timed, *MORE]
    environment = built("pytorch")
    done = subprocess.run(
        [str(environment.python), "-c", SCRIPT],
        input=json.dumps([plain(one) for one in cases]),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=environment.environ(),
    )
    return list(zip(cases, json.loads(done.stdout), strict=True))


def differing(counted: list[tuple[OperatorCase, dict[str, Any]]]) -> list[str]:
    """The cases whose operations we count differently."""
    found = []
    for one, told in counted:
        node = dataclasses.replace(one.nodes[0], attributes={**one.nodes[0].attributes, "is_causal": 0})
        whole = dataclasses.replace(one, nodes=(node,))
        if work.flops(whole, {one.outputs[0]: tuple(told["shape"])}) != told["flops"]:
            found.append(one.name)
    return found


def test_others_count_as_we_do(counted: list[tuple[OperatorCase, dict[str, Any]]]) -> None:
    assert len(counted) > 40
    assert differing(counted) == []


@pytest.mark.parametrize("op", COUNTED)
def test_a_formula_that_counts_multiply_adds_as_one_is_caught(
    counted: list[tuple[OperatorCase, dict[str, Any]]], op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = work.FORMULAS[op]
    planted = {**work.FORMULAS, op: lambda site: right(site) // 2}
    monkeypatch.setattr(work, "FORMULAS", planted)
    assert differing(counted) == [one.name for one, _ in counted if one.nodes[0].op == op]
