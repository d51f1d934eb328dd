"""Operations and bytes of a case, against figures that are counted by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.catalog import load as load_catalog
from matrix.operators import load
from matrix.operators.expand import CatalogCase
from matrix.operators.work import FORMULAS, MOVING, flops, shapes_in_words, work_of
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec

Shapes = dict[str, tuple[int, ...]]


def case(op: str, inputs: Shapes, attributes: dict[str, Any] | None = None, **more: Any) -> OperatorCase:
    node = Node(op=op, inputs=tuple(inputs), outputs=("Y",), attributes=attributes or {})
    specs = tuple(TensorSpec(name=name, dtype="float32", shape=shape) for name, shape in inputs.items())
    return OperatorCase(
        name=f"{op}/a", dtype="float32", nodes=(node,), inputs=specs, outputs=("Y",), opset=21, **more
    )


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "output", "operations"),
    [
        ("MatMul", {"A": (4, 5, 8), "B": (4, 8, 7)}, {}, (4, 5, 7), 2 * 4 * 5 * 7 * 8),
        ("MatMul", {"A": (3,), "B": (3,)}, {}, (), 2 * 3),
        ("Gemm", {"A": (9, 17), "B": (17, 6)}, {}, (9, 6), 2 * 9 * 6 * 17),
        ("Gemm", {"A": (17, 9), "B": (17, 6), "C": (6,)}, {"transA": 1}, (9, 6), 2 * 9 * 6 * 17),
        # 64 maps of 112 x 112, each value a sum of 3 x 7 x 7 products: 118 million multiply-adds
        ("Conv", {"X": (1, 3, 224, 224), "W": (64, 3, 7, 7)}, {}, (1, 64, 112, 112), 2 * 118_013_952),
        ("Conv", {"X": (1, 8, 5, 5), "W": (8, 1, 3, 3)}, {"group": 8}, (1, 8, 3, 3), 2 * 8 * 9 * 9),
        ("ConvTranspose", {"X": (1, 4, 5, 5), "W": (4, 2, 3, 3)}, {}, (1, 2, 7, 7), 2 * 4 * 25 * 2 * 9),
        (
            "Attention",
            {"Q": (2, 3, 5, 8), "K": (2, 3, 7, 8), "V": (2, 3, 7, 4)},
            {},
            (2, 3, 5, 4),
            2 * 2 * 3 * 5 * 7 * (8 + 4),
        ),
        # a causal mask leaves 1 + 2 + 3 pairs of 3 x 3
        (
            "Attention",
            {"Q": (1, 1, 3, 2), "K": (1, 1, 3, 2), "V": (1, 1, 3, 2)},
            {"is_causal": 1},
            (1, 1, 3, 2),
            2 * 6 * 4,
        ),
        # heads side by side: 4 of 8, over 2 of keys and values
        (
            "Attention",
            {"Q": (1, 3, 32), "K": (1, 5, 16), "V": (1, 5, 16)},
            {"q_num_heads": 4, "kv_num_heads": 2},
            (1, 3, 32),
            2 * 4 * 3 * 5 * (8 + 8),
        ),
        ("Relu", {"X": (3, 4)}, {}, (3, 4), 12),
        ("Add", {"A": (3, 1), "B": (1, 4)}, {}, (3, 4), 12),
        ("Max", {"A": (3, 4), "B": (4,), "C": (3, 1)}, {}, (3, 4), 2 * 12),
        ("Mean", {"A": (3, 4), "B": (4,), "C": (3, 1)}, {}, (3, 4), 3 * 12),
        ("Softmax", {"X": (3, 4)}, {}, (3, 4), 60),
        ("LayerNormalization", {"X": (3, 4), "S": (4,), "B": (4,)}, {}, (3, 4), 7 * 12),
        ("LayerNormalization", {"X": (3, 4), "S": (4,)}, {}, (3, 4), 6 * 12),
        ("ReduceSum", {"X": (3, 4)}, {}, (1,), 12),
        ("MaxPool", {"X": (1, 2, 4, 4)}, {"kernel_shape": [2, 2]}, (1, 2, 2, 2), 8 * 4),
        ("LSTM", {"X": (5, 2, 3), "W": (1, 16, 3), "R": (1, 16, 4)}, {}, (5, 1, 2, 4), 2 * 5 * 2 * 16 * 7),
        ("Einsum", {"A": (2, 5, 8), "B": (2, 8, 3)}, {"equation": "bij,bjk->bik"}, (2, 5, 3), 2 * 240),
    ],
)
def test_operations_are_counted_from_the_shapes(
    op: str, inputs: Shapes, attributes: dict[str, Any], output: tuple[int, ...], operations: int
) -> None:
    assert flops(case(op, inputs, attributes), {"Y": output}) == operations


@given(m=st.integers(1, 50), n=st.integers(1, 50), k=st.integers(1, 50))
def test_a_transposed_product_is_as_much_work(m: int, n: int, k: int) -> None:
    plain = flops(case("Gemm", {"A": (m, k), "B": (k, n)}), {"Y": (m, n)})
    turned = flops(case("Gemm", {"A": (k, m), "B": (n, k)}, {"transA": 1, "transB": 1}), {"Y": (m, n)})
    assert plain == turned == 2 * m * n * k


def test_a_chain_is_the_sum_of_its_nodes_where_shapes_can_be_followed() -> None:
    nodes = (
        Node(op="MatMul", inputs=("X", "W"), outputs=("T",)),
        Node(op="Add", inputs=("T", "B"), outputs=("U",)),
        Node(op="Gelu", inputs=("U",), outputs=("Y",)),
    )
    specs = tuple(
        TensorSpec(name=n, dtype="float32", shape=s) for n, s in (("X", (2, 8)), ("W", (8, 4)), ("B", (4,)))
    )
    made = OperatorCase(name="a/b", dtype="float32", nodes=nodes, inputs=specs, outputs=("Y",), opset=21)
    assert flops(made, {"Y": (2, 4)}) == 2 * 2 * 4 * 8 + 8 + 8


def test_what_cannot_be_counted_says_why() -> None:
    assert flops(case("Zebra", {"X": (3,)}), {"Y": (3,)}) == "there is no formula for the operations of Zebra"
    assert "moves data" in str(flops(case("Transpose", {"X": (3, 4)}), {"Y": (4, 3)}))
    shapes = {"Q": (1, 3, 32), "K": (1, 5, 16), "V": (1, 5, 16)}  # the number of heads is missing
    assert "do not follow" in str(flops(case("Attention", shapes), {"Y": (1, 3, 32)}))
    assert "no formula" in str(
        flops(
            OperatorCase(
                name="Relu/x",
                dtype="float32",
                nodes=(Node(op="Relu", inputs=("X",), outputs=("Y",), domain="com.example"),),
                inputs=(TensorSpec(name="X", dtype="float32", shape=(3,)),),
                outputs=("Y",),
                opset=21,
            ),
            {"Y": (3,)},
        )
    )


def test_bytes_are_those_of_every_tensor_once() -> None:
    made = CatalogCase(operator="MatMul", case=case("MatMul", {"A": (3, 4), "B": (4, 5)}), kind="matmul")
    work = work_of(made, {"Y": {"dtype": "float32", "shape": [3, 5]}})
    assert (work.flops, work.bytes) == (120, 4 * (12 + 20 + 15))
    assert work.intensity == pytest.approx(120 / 188)


def test_a_gather_moves_the_rows_it_takes_and_not_the_table() -> None:
    nodes = (Node(op="Gather", inputs=("T", "I"), outputs=("Y",)),)
    specs = (
        TensorSpec(name="T", dtype="float32", shape=(50_000, 8)),
        TensorSpec(name="I", dtype="int64", shape=(3,)),
    )
    made = OperatorCase(name="Gather/a", dtype="float32", nodes=nodes, inputs=specs, outputs=("Y",), opset=21)
    work = work_of(
        CatalogCase(operator="Gather", case=made, kind="exact"), {"Y": {"dtype": "float32", "shape": [3, 8]}}
    )
    assert work.bytes == 2 * 3 * 8 * 4 + 3 * 8
    assert work.flops is None
    assert "moves data" in work.why_no_flops


def test_what_a_case_declares_goes_first_and_unknown_types_have_a_reason() -> None:
    made = CatalogCase(
        operator="Zebra", case=case("Zebra", {"X": (3,)}), kind="composite", flops=77, bytes=88
    )
    work = work_of(made, {"Y": {"dtype": "complex64", "shape": [3]}})
    assert (work.flops, work.bytes, work.why_no_flops) == (77, 88, "")
    told = work_of(
        CatalogCase(operator="Zebra", case=case("Zebra", {"X": (3,)}), kind="composite"),
        {"Y": {"dtype": "complex64", "shape": [3]}},
    )
    assert "complex64" in told.why_no_bytes


def test_what_is_declared_and_contradicts_the_shapes_is_doubted() -> None:
    """Planted: multiply-adds declared as operations, and a weight forgotten."""
    product = case("MatMul", {"A": (3, 4), "B": (4, 5)})
    made = {"operator": "MatMul", "case": product, "kind": "matmul"}
    outputs = {"Y": {"dtype": "float32", "shape": [3, 5]}}
    wrong = work_of(CatalogCase(**made, flops=60, bytes=4 * 27), outputs)
    assert wrong.doubt == (
        "60 operations are declared, its shapes give 120; 108 bytes are declared, its shapes give 188"
    )
    assert work_of(CatalogCase(**made, flops=120, bytes=188), outputs).doubt == ""
    assert work_of(CatalogCase(**made), outputs).doubt == ""


def test_what_is_declared_where_nothing_follows_from_shapes_is_believed() -> None:
    made = CatalogCase(operator="Zebra", case=case("Zebra", {"X": (3,)}), kind="composite", flops=77)
    assert work_of(made, {"Y": {"dtype": "float32", "shape": [3]}}).doubt == ""


def test_a_case_is_told_from_its_sisters_by_shapes_and_what_changes_its_work() -> None:
    made = case("Conv", {"X": (1, 8, 5, 5), "W": (8, 1, 3, 3)}, {"group": 8, "strides": [2, 2], "pads": [1]})
    assert shapes_in_words(made) == "1x8x5x5, 8x1x3x3; group 8, strides 2 2"
    plain = {"group": 1, "strides": [1, 1], "dilations": [1, 1], "kernel_shape": [3, 3]}
    assert shapes_in_words(case("Conv", {"X": (1, 8, 5, 5), "W": (8, 8, 3, 3)}, plain)) == "1x8x5x5, 8x8x3x3"
    assert shapes_in_words(case("MaxPool", {"X": (1, 8, 5, 5)}, plain)) == "1x8x5x5; kernel_shape 3 3"
    assert shapes_in_words(case("Relu", {"X": ()})) == ""


def test_nothing_is_both_moved_and_computed() -> None:
    assert not MOVING & set(FORMULAS)


def test_every_timed_case_of_the_catalog_has_a_formula() -> None:
    known = load.load_operators(load_catalog().operators)
    timed = [one for cases in known.speed.values() for one in cases]
    assert len(timed) >= 50
    for one in timed:
        for node in one.case.nodes:
            assert node.op in FORMULAS, one.case.name
        assert math.prod(max((spec.shape for spec in one.case.inputs), key=math.prod)) <= 1 << 24
