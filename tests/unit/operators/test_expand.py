"""From an operator's entry to its cases: names are unique, shapes are legal, mistakes have a line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import small_catalog
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix import catalog
from matrix.errors import ConfigError
from matrix.operators import shapes, suites
from matrix.operators.dtypes import DTYPES, ITEM_BYTES, dtype_of, precision_of
from matrix.operators.expand import CatalogCase, expand
from matrix.operators.load import Operators, load_operators
from matrix.operators.types import GENERATORS, OperatorEntry
from matrix_adapters.operators import generators
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, from_json, to_json


def load(folder: Path, text: str = small_catalog.TEXT) -> Operators:
    return load_operators(small_catalog.write(folder, text))


def by_name(operators: Operators, name: str, dtype: str = "float32") -> CatalogCase:
    (found,) = [c for c in operators if c.case.name == name and c.case.dtype == dtype]
    return found


# --- what is made of an entry -------------------------------------------------------------


def test_every_case_comes_in_every_type_of_its_operator_or_its_own(tmp_path: Path) -> None:
    operators = load(tmp_path)
    types = {(c.case.name, c.case.dtype) for c in operators if c.operator == "Gelu" and not c.edge}
    assert types == {
        ("Gelu/basic", "float32"),
        ("Gelu/basic", "bfloat16"),
        ("Gelu/tanh", "float32"),
        ("Gelu/tanh", "bfloat16"),
        ("Gelu/values", "float32"),
    }


def test_a_type_may_need_a_newer_opset_than_the_others(tmp_path: Path) -> None:
    text = small_catalog.TEXT.replace(
        "  opset: 20\n  dtypes", "  opset: 20\n  opsets: {bfloat16: 22}\n  dtypes"
    )
    text = text.replace("tanh: {", "tanh: {opset: 21, ")
    found = {(c.case.name, c.case.dtype): c.case.opset for c in load(tmp_path, text).cases["Gelu"]}
    assert found["Gelu/basic", "float32"] == 20 and found["Gelu/basic", "bfloat16"] == 22
    assert found["Gelu/edge-special", "bfloat16"] == 22
    assert found["Gelu/tanh", "float32"] == found["Gelu/tanh", "bfloat16"] == 21  # a case's own goes first


def test_an_opset_of_a_type_that_no_case_has_is_a_mistake(tmp_path: Path) -> None:
    text = small_catalog.TEXT.replace("  opset: 20\n  dtypes", "  opset: 20\n  opsets: {int8: 22}\n  dtypes")
    with pytest.raises(ConfigError, match="no case has the type int8"):
        load(tmp_path, text)


def test_an_operator_is_one_node_with_its_attributes(tmp_path: Path) -> None:
    (node,) = by_name(load(tmp_path), "Gelu/tanh").case.nodes
    assert node == Node(op="Gelu", inputs=("X",), outputs=("Y",), attributes={"approximate": "tanh"})


def test_what_a_case_does_not_say_its_operator_says(tmp_path: Path) -> None:
    case = by_name(load(tmp_path), "LayerNormalization/no_bias").case
    assert case.nodes[0].attributes == {"axis": -1, "epsilon": 1e-6}
    assert case.nodes[0].inputs == ("X", "Scale"), "an input that is not given at the end is left out"
    assert {t.name: t.shape for t in case.inputs} == {"X": (2, 3, 16), "Scale": (16,)}


def test_an_input_that_is_left_out_in_the_middle_is_an_empty_name(tmp_path: Path) -> None:
    text = "Clip:\n  kind: exact\n  inputs: [X, min, max]\n  cases:\n    a: {in: {X: [3], max: []}}\n"
    assert by_name(load(tmp_path, text), "Clip/a").case.nodes[0].inputs == ("X", "", "max")


def test_a_composite_has_its_nodes_and_gives_what_none_of_them_uses(tmp_path: Path) -> None:
    case = by_name(load(tmp_path), "BiasGelu/basic").case
    assert [node.op for node in case.nodes] == ["Add", "Gelu"]
    assert case.outputs == ("Y",)
    assert [tensor.name for tensor in case.inputs] == ["X", "B"]


def test_integers_and_casts_are_computed_as_they_are_floats_in_float64(tmp_path: Path) -> None:
    operators = load(tmp_path)
    assert by_name(operators, "Add/basic").case.oracle == "float64"
    assert by_name(operators, "Add/basic", "int32").case.oracle == "as-is"


def test_numbers_that_json_has_not_are_words(tmp_path: Path) -> None:
    case = by_name(load(tmp_path), "Gelu/values").case
    assert case.inputs[0].options == {"values": [["nan", 1.0], [-0.0, "-inf"]]}
    assert math.copysign(1, case.inputs[0].options["values"][1][0]) == -1
    assert from_json(OperatorCase, to_json(case)) == case


def test_the_seed_depends_on_the_name_alone(tmp_path: Path) -> None:
    operators = load(tmp_path)
    seeds = {c.case.name: c.case.seed for c in operators}
    assert seeds["Gelu/basic"] != seeds["Gelu/tanh"]
    assert by_name(operators, "Gelu/basic", "bfloat16").case.seed == seeds["Gelu/basic"]
    assert all(0 <= seed < 2**31 for seed in seeds.values())


# --- edges --------------------------------------------------------------------------------


def test_templates_make_cases_of_their_own_from_the_first_case(tmp_path: Path) -> None:
    operators = load(tmp_path)
    names = {c.case.name for c in operators if c.edge}
    assert names == {
        *(f"Gelu/edge-{e}" for e in ("special", "nan", "empty", "size_one", "strided", "broadcast")),
        *(f"Add/edge-{e}" for e in ("special", "nan-A", "nan-B", "broadcast")),
    }
    assert by_name(operators, "Gelu/edge-empty").case.inputs[0].shape == (0, 3)
    assert by_name(operators, "Gelu/edge-size_one").case.inputs[0].shape == (1, 1, 1)
    assert by_name(operators, "Gelu/edge-strided").case.inputs[0].layout == "strided"


def test_special_values_of_two_inputs_meet_each_other(tmp_path: Path) -> None:
    a, b = by_name(load(tmp_path), "Add/edge-special").case.inputs
    assert (a.shape, b.shape) == ((16, 1), (1, 16))
    assert (a.generator, b.generator) == ("special", "special")


def test_nan_is_put_at_each_place_of_a_row_of_one_input_at_a_time(tmp_path: Path) -> None:
    a, b = by_name(load(tmp_path), "Add/edge-nan-B").case.inputs
    assert a.generator == "normal"
    rows = b.options["values"]
    assert [[i for i, v in enumerate(row) if v == "nan"] for row in rows] == [[0], [1], [2], [3]]


def test_integers_have_no_nan(tmp_path: Path) -> None:
    assert {c.case.dtype for c in load(tmp_path) if c.edge == "nan_at_each" and c.operator == "Add"} == {
        "float32"
    }


def test_two_inputs_broadcast_and_one_has_strides_of_zero(tmp_path: Path) -> None:
    operators = load(tmp_path)
    a, b = by_name(operators, "Add/edge-broadcast").case.inputs
    assert shapes.broadcast([a.shape, b.shape]) == (3, 4, 5)
    (x,) = by_name(operators, "Gelu/edge-broadcast").case.inputs
    assert x.layout == "broadcast"


# --- depth and size -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "attributes", "given", "depth"),
    [
        ("MatMul", {}, {"A": (8, 32), "B": (32, 4)}, 32),
        ("Gemm", {}, {"A": (8, 32), "B": (32, 4)}, 32),
        ("Gemm", {"transA": 1}, {"A": (32, 8), "B": (32, 4)}, 32),
        ("Conv", {}, {"X": (1, 6, 9, 9), "W": (4, 3, 3, 5)}, 45),
        ("ConvTranspose", {"group": 2}, {"X": (1, 6, 9, 9), "W": (6, 2, 3, 3)}, 27),
        ("ReduceSum", {}, {"X": (3, 4, 5)}, 60),
        ("ReduceMax", {"axes": [0, -1]}, {"X": (3, 4, 5)}, 15),
        ("ReduceMean", {"noop_with_empty_axes": 1}, {"X": (3, 4, 5)}, 1),
        ("Softmax", {"axis": 0}, {"X": (3, 4, 5)}, 3),
        ("LayerNormalization", {"axis": 1}, {"X": (3, 4, 5)}, 20),
        ("AveragePool", {"kernel_shape": [2, 3]}, {"X": (1, 1, 9, 9)}, 6),
        ("Relu", {}, {"X": (3, 4, 5)}, 1),
        ("MatMul", {}, {"A": (3, 0), "B": (0, 4)}, 1),
        ("Softmax", {"axis": 7}, {"X": (3,)}, 1),
    ],
)
def test_the_depth_is_the_number_of_terms_that_shapes_tell(
    op: str, attributes: dict[str, object], given: dict[str, tuple[int, ...]], depth: int
) -> None:
    node = Node(op=op, inputs=tuple(given), outputs=("Y",), attributes=attributes)
    tensors = {n: TensorSpec(name=n, dtype="float32", shape=s) for n, s in given.items()}
    assert shapes.depth([node], tensors) == depth


def test_axes_may_be_an_input() -> None:
    axes = TensorSpec(name="axes", dtype="int64", shape=(2,), generator="values", options={"values": [0, 2]})
    tensors = {"X": TensorSpec(name="X", dtype="float32", shape=(3, 4, 5)), "axes": axes}
    node = Node(op="ReduceSum", inputs=("X", "axes"), outputs=("Y",))
    assert shapes.depth([node], tensors) == 15


def test_a_declared_depth_stands(tmp_path: Path) -> None:
    text = "Einsum:\n  kind: matmul\n  inputs: [A]\n  cases:\n    a: {in: {A: [3]}, depth: 77}\n"
    assert by_name(load(tmp_path, text), "Einsum/a").depth == 77


def test_the_depth_of_a_composite_is_that_of_its_longest_sum(tmp_path: Path) -> None:
    text = """\
Mlp:
  kind: matmul
  nodes:
    - {op: MatMul, inputs: [X, A], outputs: [H]}
    - {op: Relu, inputs: [H], outputs: [R]}
    - {op: MatMul, inputs: [R, B], outputs: [Y]}
  cases:
    a: {in: {X: [2, 8], A: [8, 64], B: [64, 3]}}
"""
    assert by_name(load(tmp_path, text), "Mlp/a").depth == 64


def test_memory_is_counted_with_the_output(tmp_path: Path) -> None:
    case = by_name(load(tmp_path), "Add/edge-broadcast").case
    drawn, answer = 24 + 4, 2 * 8  # bytes for each element, in the oracle: it needs more than a worker
    assert shapes.needed_bytes(case) == (15 + 4) * drawn + 60 * answer


def test_what_is_not_drawn_and_of_one_byte_needs_a_fifth(tmp_path: Path) -> None:
    text = """
Identity:
  kind: exact
  dtypes: [int8, float32]
  cases:
    large: {in: {X: {shape: [1000, 1000], generator: ones}}}
    drawn: {in: {X: [1000, 1000]}}
"""
    cases = {(c.case.name, c.case.dtype): shapes.needed_bytes(c.case) for c in load(tmp_path, text)}
    assert cases["Identity/large", "int8"] == 11_000_000
    assert cases["Identity/drawn", "float32"] == 44_000_000


# --- properties ---------------------------------------------------------------------------

_DIMENSIONS = st.lists(st.integers(0, 5), max_size=4)
_TENSOR = st.one_of(
    _DIMENSIONS,
    st.builds(lambda s, d, g: {"shape": s, "dtype": d, "generator": g}, _DIMENSIONS, st.sampled_from(DTYPES),
              st.sampled_from(["normal", "ones", "bools", "wide"])),
    st.builds(lambda v: {"values": v}, st.lists(st.floats(allow_nan=True), max_size=4)),
    st.builds(lambda s: {"shape": s, "constant": True}, _DIMENSIONS),
)  # fmt: skip
_CASE = st.builds(
    lambda feed, dtypes, attributes: {"in": feed, "dtypes": dtypes, "attributes": attributes},
    st.dictionaries(st.sampled_from(["A", "B", "C"]), _TENSOR, min_size=1),
    st.lists(st.sampled_from(DTYPES), max_size=3),
    st.dictionaries(st.sampled_from(["axis", "to"]), st.integers(-3, 3)),
)
_ENTRY = st.builds(
    lambda kind, dtypes, edges, cases: {
        "kind": kind,
        "dtypes": dtypes,
        "inputs": ["A", "B", "C"],
        "edges": edges,
        "cases": cases,
    },
    st.sampled_from(["elementwise", "quantise", "reduction"]),
    st.lists(st.sampled_from(DTYPES), min_size=1, max_size=4),
    st.lists(st.sampled_from(["special", "nan_at_each", "empty", "size_one", "strided", "broadcast"])),
    st.dictionaries(st.sampled_from(["a", "b", "c-1", "d_2"]), _CASE, min_size=1),
)


@settings(max_examples=200, deadline=None)
@given(_ENTRY)
def test_names_are_unique_with_their_types_and_shapes_are_legal(data: dict[str, object]) -> None:
    made = expand("Some", OperatorEntry.model_validate(data))
    keys = [case.key for case in made]
    assert len(keys) == len(set(keys))
    for case in made:
        assert case.case.name.startswith("Some/")
        assert from_json(OperatorCase, to_json(case.case)) == case.case
        names = [tensor.name for tensor in case.case.inputs]
        assert len(names) == len(set(names))
        assert {i for node in case.case.nodes for i in node.inputs if i} == set(names)
        assert case.case.outputs
        assert case.depth >= 1
        assert shapes.needed_bytes(case.case) >= 0
        for tensor in case.case.inputs:
            assert all(isinstance(d, int) and d >= 0 for d in tensor.shape)
            assert tensor.dtype in DTYPES


@settings(max_examples=100, deadline=None)
@given(_ENTRY)
def test_what_a_template_gives_its_inputs_broadcasts(data: dict[str, object]) -> None:
    for case in expand("Some", OperatorEntry.model_validate(data)):
        if case.edge in ("special", "broadcast", "size_one", "empty"):
            varied = [t.shape for t in case.case.inputs if t.shape and not t.constant]
            assert shapes.broadcast(varied) is not None


@given(st.sampled_from(DTYPES))
def test_the_word_of_a_type_leads_back_to_it(dtype: str) -> None:
    assert dtype_of(precision_of(dtype)) == dtype
    assert ITEM_BYTES[dtype] in (1, 2, 4, 8)


def test_the_generators_of_both_sides_are_the_same() -> None:
    assert sorted(GENERATORS) == generators.names()


# --- the shipped catalog ------------------------------------------------------------------


def test_the_shipped_catalog_is_right_and_its_names_are_unique() -> None:
    operators = load_operators(catalog.folder() / "operators")
    keys = [case.key for case in operators]
    assert len(keys) == len(set(keys))


def test_the_kinds_of_the_shipped_catalog_have_rows_in_the_tolerance_table() -> None:
    table = catalog.load_from(catalog.folder(), third_parties=False).tolerances.operators
    assert {case.kind for case in load_operators(catalog.folder() / "operators")} <= set(table)


# --- suites -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["Add/basic"], {"Add/basic"}),
        (["MatMul"], {"MatMul/square", "MatMul/huge"}),
        (["MatMul", "MatMul/square"], {"MatMul/square", "MatMul/huge"}),
    ],
)
def test_a_word_chooses_an_operator_or_a_case(tmp_path: Path, words: list[str], names: set[str]) -> None:
    chosen = suites.chosen(words, load(tmp_path))
    assert {case.case.name for case in chosen} == names
    assert len({case.key for case in chosen}) == len(chosen)


def test_standard_is_everything_and_edges_are_a_part_of_it(tmp_path: Path) -> None:
    operators = load(tmp_path)
    everything = suites.chosen(["standard"], operators)
    assert everything == tuple(operators)
    edges = suites.chosen(["edges"], operators)
    assert edges == tuple(case for case in everything if case.edge)


# --- mistakes -----------------------------------------------------------------------------

_HEAD = "Some:\n  kind: exact\n  inputs: [X]\n"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("Some:\n  kind: exact\n  cases: {}\n", 3, "Some.cases: at least one entry is needed"),
        ("Some:\n  kind: exakt\n  cases: {a: {in: {X: [1]}}}\n", 2, 'did you mean "exact"?'),
        ("Some:\n  cases: {a: {in: {X: [1]}}}\n", 2, "`kind` is missing"),
        (_HEAD + "  cases: {a: {on: {X: [1]}}}\n", 4, "Some.cases.a.on: unknown key"),
        (_HEAD + "  cases: {a: {in: {x1: [1]}}}\n", 4, "in.x1: there is no such input"),
        (_HEAD + "  cases: {a: {in: {X: [1, -1]}}}\n", 4, "in.X[1]: at least 0 is needed, got -1"),
        (_HEAD + "  cases: {a: {in: {X: 3}}}\n", 4, "a mapping is needed, got 3"),
        (_HEAD + "  cases: {a: {in: {X: {shape: [2], generator: norml}}}}\n", 4, 'did you mean "normal"?'),
        (_HEAD + "  cases: {a: {in: {X: {shape: [2], low: 1}}}}\n", 4, "normal takes no `low`"),
        (_HEAD + "  cases: {a: {in: {X: {generator: ones}}}}\n", 4, "`shape` is missing"),
        (_HEAD + "  cases: {a: {in: {X: {values: [[1], [2, 3]]}}}}\n", 4, "different lengths"),
        (_HEAD + "  cases: {a: {in: {X: {values: [one]}}}}\n", 4, "got 'one'"),
        (_HEAD + "  cases: {a: {in: {X: {shape: [3], values: [1, 2]}}}}\n", 4, "have the shape [2], not [3]"),
        (_HEAD + "  cases: {a: {in: {X: [1]}, attributes: {axis: }}}\n", 4, "axis: nothing is given"),
        (_HEAD + "  cases: {a: {in: {X: [1]}, dtypes: [float23]}}\n", 4, 'did you mean "float32"?'),
        (_HEAD + "  cases: {edge-a: {in: {X: [1]}}}\n", 4, "names that begin with edge-"),
        (_HEAD + "  cases: {a b: {in: {X: [1]}}}\n", 4, "letters, digits"),
        (_HEAD + "  edges: [specials]\n  cases: {a: {in: {X: [1]}}}\n", 4, 'did you mean "special"?'),
        ("So-me:\n  kind: exact\n  cases: {a: {in: {X: [1]}}}\n", 1, "in the name of an operator"),
        ("[Some]\n", 1, "a mapping from operators to their entries is needed"),
        (
            "Some:\n  kind: exact\n  nodes:\n    - {op: Add, inputs: [X, Q], outputs: [Y]}\n"
            "  cases: {a: {in: {X: [1]}}}\n",
            4,
            "no case gives Q, no node makes it",
        ),
        (
            "Some:\n  kind: exact\n  nodes:\n    - {op: Neg, inputs: [T], outputs: [Y]}\n"
            "    - {op: Abs, inputs: [X], outputs: [T]}\n  cases: {a: {in: {X: [1]}}}\n",
            4,
            "T is made by a later node",
        ),
        (
            "Some:\n  kind: exact\n  outputs: [Z]\n  nodes:\n    - {op: Neg, inputs: [X], outputs: [Y]}\n"
            "  cases: {a: {in: {X: [1]}}}\n",
            3,
            "no node makes Z",
        ),
    ],
)
def test_a_mistake_in_the_catalog_has_its_file_line_and_key(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert f"small.yaml:{line}:" in str(caught.value)


def test_two_files_may_not_have_the_same_operator(tmp_path: Path) -> None:
    text = _HEAD + "  cases: {a: {in: {X: [1]}}}\n"
    small_catalog.write(tmp_path, text, "first.yaml")
    small_catalog.write(tmp_path, text, "second.yaml")
    with pytest.raises(ConfigError, match=r"second.yaml:1:1: Some: Some is in first.yaml already"):
        load_operators(tmp_path)


def test_all_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    small_catalog.write(tmp_path, "A:\n  kind: x\n  cases: {a: {in: {X: [1]}}}\n", "first.yaml")
    small_catalog.write(tmp_path, "B:\n  kind: y\n  cases: {a: {in: {X: [1]}}}\n", "second.yaml")
    with pytest.raises(ConfigError) as caught:
        load_operators(tmp_path)
    assert len(caught.value.problems) == 2
