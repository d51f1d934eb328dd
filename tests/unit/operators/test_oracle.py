"""The oracle's own definitions, against numbers worked out otherwise, and what it says where it has none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters.operators import case_folder, oracle
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec, plain

DOUBLE = "float64"


def tensor(name: str, values: Any, dtype: str = DOUBLE, *, constant: bool = False) -> TensorSpec:
    array = np.asarray(values)
    flat = [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in array.ravel().tolist()]
    return TensorSpec(
        name=name,
        dtype=dtype,
        shape=array.shape,
        generator="values" if flat else "zeros",
        options={"values": flat} if flat else {},
        constant=constant,
    )


def case(op: str, *inputs: TensorSpec, **more: Any) -> OperatorCase:
    attributes = more.pop("attributes", {})
    outputs = more.pop("outputs", ("Y",))
    names = more.pop("names", tuple(spec.name for spec in inputs))
    node = Node(op=op, inputs=names, outputs=outputs, attributes=attributes)
    fields = {"dtype": DOUBLE, "opset": 21} | more
    return OperatorCase(name=f"{op}/x", nodes=(node,), inputs=inputs, outputs=outputs, **fields)


@pytest.fixture
def expect(tmp_path: Path) -> Any:
    """The expected outputs of a case; its oracle must not have failed."""

    def run(made: OperatorCase) -> dict[str, np.ndarray]:
        why = oracle.prepare(plain(made), tmp_path)
        assert why is None
        expected = case_folder.read(tmp_path).expected
        assert expected is not None
        return expected

    return run


@pytest.fixture
def failure(tmp_path: Path) -> Any:
    """The code and the sentence of a case that has no oracle."""

    def run(made: Any) -> tuple[str, str]:
        assert oracle.prepare(plain(made), tmp_path)
        failed = json.loads((tmp_path / case_folder.ORACLE_FILE).read_text())["failed"]
        assert not (tmp_path / case_folder.EXPECTED_FILE).exists()
        return failed["code"], failed["text"]

    return run


X = np.array([[1.5, -2.0, 0.25], [3.0, 0.0, -1.0]])


# --- what is computed ------------------------------------------------------------------------


def test_inputs_are_rounded_to_their_type_before_they_are_widened(expect: Any, tmp_path: Path) -> None:
    made = case("Mul", tensor("X", [0.1], "float16"), tensor("B", [3.0], "float16"), dtype="float16")
    (value,) = expect(made)["Y"]
    assert value == float(np.float16(0.1)) * 3
    assert value != 0.1 * 3
    about = json.loads((tmp_path / case_folder.ORACLE_FILE).read_text())["outputs"]["Y"]
    assert about == {"dtype": "float16", "shape": [1]}


def test_a_result_beyond_the_type_stays_a_number(expect: Any) -> None:
    """300 * 300 is infinite in float16; what it should have been is for the judge to know."""
    x = tensor("X", [300.0], "float16")
    assert expect(case("Mul", x, names=("X", "X"), dtype="float16"))["Y"] == [90000.0]


def test_as_is_wraps_as_the_type_does(expect: Any) -> None:
    made = case(
        "Add", tensor("X", [2**31 - 1], "int32"), tensor("B", [1], "int32"), dtype="int32", oracle="as-is"
    )
    (value,) = expect(made)["Y"]
    assert value.dtype == np.int32
    assert value == -(2**31)


def test_a_bfloat16_result_of_an_as_is_case_is_kept_as_its_value(expect: Any, tmp_path: Path) -> None:
    made = case(
        "Cast",
        tensor("X", [1.00390625, 1.01171875], "float32"),
        attributes={"to": "bfloat16"},
        oracle="as-is",
    )
    values = expect(made)["Y"]
    assert values.dtype == np.float64
    assert values.tolist() == [1.0, 1.015625]  # ties to even, down and up
    about = json.loads((tmp_path / case_folder.ORACLE_FILE).read_text())
    assert about["outputs"]["Y"]["dtype"] == "bfloat16"


@pytest.mark.parametrize("p", [1, 2])
def test_a_p_norm_takes_absolute_values(expect: Any, p: int) -> None:
    norm = (np.abs(X) ** p).sum(axis=1, keepdims=True) ** (1 / p)
    got = expect(case("LpNormalization", tensor("X", X), attributes={"p": p, "axis": 1}))["Y"]
    np.testing.assert_allclose(got, X / norm, rtol=1e-15)


def test_a_log_softmax_far_out_is_no_infinity(expect: Any) -> None:
    got = expect(case("LogSoftmax", tensor("X", [[0.0, -2000.0]])))["Y"]
    np.testing.assert_allclose(got, [[0.0, -2000.0]])


def test_softmax_before_opset_13_is_over_all_the_rest(expect: Any) -> None:
    x = np.arange(8.0).reshape(2, 2, 2)
    old = expect(case("Softmax", tensor("X", x), attributes={"axis": 1}, opset=11))["Y"]
    np.testing.assert_allclose(old.sum(axis=(1, 2)), 1)
    new = expect(case("Softmax", tensor("X", x), attributes={"axis": 1}))["Y"]
    np.testing.assert_allclose(new.sum(axis=1), 1)


def test_a_grouped_transposed_convolution_keeps_its_groups_apart(expect: Any) -> None:
    """Two channels, two groups, two filters each, kernel 1: every output is one product."""
    x, w = np.array([[[2.0, 3.0], [5.0, 7.0]]]), np.array([[[10.0], [20.0]], [[30.0], [40.0]]])
    got = expect(case("ConvTranspose", tensor("X", x), tensor("W", w), attributes={"group": 2}))["Y"]
    np.testing.assert_array_equal(got, [[[20, 30], [40, 60], [150, 210], [200, 280]]])


def test_a_transposed_convolution_has_zeros_at_the_end_where_more_is_asked_than_it_makes(expect: Any) -> None:
    x, w = tensor("X", [[[1.0, 2.0]]]), tensor("W", [[[1.0, 1.0]]])
    attributes = {"strides": [2], "output_shape": [5]}
    assert expect(case("ConvTranspose", x, w, attributes=attributes))["Y"].tolist() == [[[1, 1, 2, 2, 0]]]


def test_a_nan_under_a_pooling_window_is_not_swallowed(expect: Any) -> None:
    x = np.array([[[1.0, np.nan, 2.0, 3.0]]])
    for op in ("MaxPool", "AveragePool"):
        got = expect(case(op, tensor("X", x), attributes={"kernel_shape": [2], "strides": [2]}))["Y"]
        assert np.isnan(got[0, 0, 0])
        assert np.isfinite(got[0, 0, 1])


def test_a_window_cut_off_in_ceil_mode_begins_where_the_others_do(expect: Any) -> None:
    attributes = {"kernel_shape": [3], "strides": [3], "ceil_mode": 1}
    x = np.arange(1.0, 6.0).reshape(1, 1, 5)
    assert expect(case("MaxPool", tensor("X", x), attributes=attributes))["Y"].tolist() == [[[3, 5]]]
    assert expect(case("AveragePool", tensor("X", x), attributes=attributes))["Y"].tolist() == [[[2, 4.5]]]


def test_padding_counts_in_an_average_only_where_it_is_asked(expect: Any) -> None:
    x = tensor("X", np.full((1, 1, 2), 6.0))
    pads = {"kernel_shape": [2], "pads": [1, 0]}
    assert expect(case("AveragePool", x, attributes=pads))["Y"].tolist() == [[[6, 6]]]
    assert expect(case("AveragePool", x, attributes={**pads, "count_include_pad": 1}))["Y"].tolist() == [
        [[3, 6]]
    ]


def test_a_maximum_of_nothing_but_minus_infinity_is_found_inside(expect: Any) -> None:
    made = case(
        "MaxPool",
        tensor("X", np.full((1, 1, 2), -np.inf)),
        outputs=("Y", "I"),
        attributes={"kernel_shape": [2], "pads": [1, 0]},
    )
    assert expect(made)["I"].tolist() == [[[0, 0]]]


def test_batch_normalization_of_opset_9_uses_the_statistics_it_is_given(expect: Any) -> None:
    one = tensor("s", [2.0, 2.0])
    made = case(
        "BatchNormalization",
        tensor("X", [[4.0, 6.0]]),
        one,
        tensor("b", [1.0, 1.0]),
        tensor("m", [2.0, 2.0]),
        tensor("v", [4.0, 16.0]),
        attributes={"epsilon": 0.0},
        opset=9,
    )
    np.testing.assert_allclose(expect(made)["Y"], [[3.0, 3.0]])


def test_group_normalization_scales_each_channel(expect: Any) -> None:
    scale = [1.0, 2.0, 3.0, 4.0]
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    made = case(
        "GroupNormalization",
        tensor("X", x),
        tensor("s", scale),
        tensor("b", [0.5] * 4),
        attributes={"num_groups": 2, "epsilon": 0.0},
    )
    grouped = x.reshape(2, 2, 6)
    normal = (grouped - grouped.mean(2, keepdims=True)) / grouped.std(2, keepdims=True)
    wanted = normal.reshape(x.shape) * np.array(scale)[:, None] + 0.5
    np.testing.assert_allclose(expect(made)["Y"], wanted, rtol=1e-13)


def test_sums_of_integers_keep_their_type(expect: Any) -> None:
    x = tensor("X", [[2**30, 2**30], [1, 2]], "int32")
    for op, wanted in (("ReduceSum", [[-(2**31)], [3]]), ("ReduceSumSquare", [[0], [5]])):
        axes = tensor("a", [1], "int64", constant=True)
        got = expect(case(op, x, axes, dtype="int32", oracle="as-is"))["Y"]
        assert got.dtype == np.int32
        assert got.tolist() == wanted


def test_a_reduction_over_nothing_has_the_value_of_nothing(expect: Any) -> None:
    x = tensor("X", np.zeros((0, 2)))
    axes = tensor("a", [0], "int64", constant=True)
    wanted = {"ReduceSum": 0.0, "ReduceProd": 1.0, "ReduceMax": -math.inf, "ReduceMin": math.inf}
    for op, value in wanted.items():
        assert expect(case(op, x, axes, attributes={"keepdims": 0}))["Y"].tolist() == [value, value]


@pytest.mark.parametrize(
    ("x", "wanted"),
    [([math.inf, 1.0], math.inf), ([-math.inf] * 2, -math.inf), ([1000.0] * 2, 1000 + math.log(2))],
)
def test_a_logarithm_of_a_sum_of_powers_stands_infinities(expect: Any, x: list[float], wanted: float) -> None:
    got = expect(case("ReduceLogSumExp", tensor("X", x), attributes={"keepdims": 0}))["Y"]
    assert float(got) == pytest.approx(wanted)


def test_a_recurrent_sample_stops_at_its_own_length(expect: Any) -> None:
    """One unit, weights one, no feedback: h = tanh(x)."""
    x = np.array([[[0.5], [1.0]], [[2.0], [3.0]]])  # two steps, two samples
    made = case(
        "RNN",
        tensor("X", x),
        tensor("W", [[[1.0]]]),
        tensor("R", [[[0.0]]]),
        tensor("L", [2, 1], "int32"),
        names=("X", "W", "R", "", "L"),
        outputs=("Y", "H"),
        attributes={"hidden_size": 1},
    )
    got = expect(made)
    np.testing.assert_allclose(got["Y"][:, 0, :, 0], [[np.tanh(0.5), np.tanh(1)], [np.tanh(2), 0]])
    np.testing.assert_allclose(got["H"][0, :, 0], [np.tanh(2), np.tanh(1)])


def test_a_gru_takes_the_activations_that_it_is_given(expect: Any) -> None:
    """Gates are hard sigmoids of 0, so 0.5; the new state is Relu(x): h = 0.5 * x."""
    made = case(
        "GRU",
        tensor("X", [[[3.0]], [[-3.0]]]),
        tensor("W", [[[0.0], [0.0], [1.0]]]),
        tensor("R", [[[0.0], [0.0], [0.0]]]),
        attributes={"hidden_size": 1, "activations": ["HardSigmoid", "Relu"]},
    )
    np.testing.assert_allclose(expect(made)["Y"].ravel(), [1.5, 0.75])


def test_saturation_comes_before_the_cut_to_eight_bits(expect: Any) -> None:
    made = case(
        "QuantizeLinear",
        tensor("X", [1e12, -1e12, 2.5, 3.5], "float32"),
        tensor("s", 1.0, "float32"),
        tensor("z", 0, "int8"),
        oracle="as-is",
    )
    assert expect(made)["Y"].tolist() == [127, -128, 2, 4]


def test_a_zero_point_of_each_row_belongs_to_rows(expect: Any) -> None:
    a, zero = tensor("A", [[5, 5], [9, 9]], "uint8"), tensor("z", [5, 9], "uint8")
    made = case("MatMulInteger", a, tensor("B", [[1, 2], [3, 4]], "uint8"), zero, oracle="as-is")
    assert expect(made)["Y"].tolist() == [[0, 0], [0, 0]]


def test_pytorch_half_pixel_puts_a_single_output_at_0(expect: Any) -> None:
    attributes = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    made = case(
        "Resize",
        tensor("X", [[[4.0, 8.0, 15.0]]]),
        tensor("n", [1, 1, 1], "int64", constant=True),
        names=("X", "", "", "n"),
        attributes=attributes,
    )
    assert expect(made)["Y"].tolist() == [[[4.0]]]


def test_a_linear_resize_between_two_pixels_is_their_mean(expect: Any) -> None:
    made = case(
        "Resize",
        tensor("X", [[[1.0, 3.0]]]),
        tensor("n", [1, 1, 4], "int64", constant=True),
        names=("X", "", "", "n"),
        attributes={"mode": "linear"},
    )
    np.testing.assert_allclose(expect(made)["Y"], [[[1.0, 1.5, 2.5, 3.0]]])


def test_lrn_covers_every_channel(expect: Any) -> None:
    x = np.arange(1.0, 5.0).reshape(1, 4, 1, 1)
    made = case("LRN", tensor("X", x), attributes={"size": 3, "alpha": 3.0, "beta": 1.0, "bias": 0.0})
    np.testing.assert_allclose(expect(made)["Y"].ravel(), [1 / 5, 2 / 14, 3 / 29, 4 / 25])


def test_two_attributes_meet_in_float64(expect: Any) -> None:
    made = case(
        "LRN", tensor("X", [[[[3.0]]]]), attributes={"size": 3, "alpha": 0.1, "beta": 0.6, "bias": 2.0}
    )
    alpha, beta = float(np.float32(0.1)), float(np.float32(0.6))
    assert expect(made)["Y"].item() == pytest.approx(3 / (2 + alpha / 3 * 9) ** beta, rel=1e-15)


@pytest.mark.parametrize("op", ["Erf", "Gelu", "HardSwish", "Mish", "GridSample", "AffineGrid"])
def test_what_the_evaluator_rounds_to_float32_is_float64(expect: Any, op: str, tmp_path: Path) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (1, 2, 4, 5))
    more: list[TensorSpec] = []
    if op == "GridSample":
        more = [tensor("g", np.random.default_rng(2).uniform(-1, 1, (1, 3, 3, 2)))]
    if op == "AffineGrid":
        x, more = x.reshape(-1)[:6].reshape(1, 2, 3), [tensor("n", [1, 1, 4, 5], "int64")]
    values = expect(case(op, tensor("X", x), *more))["Y"]
    assert not np.array_equal(values, values.astype(np.float32))
    notes = json.loads((tmp_path / case_folder.ORACLE_FILE).read_text())["notes"]
    assert not [note for note in notes if "float32" in note]


# --- what is not -----------------------------------------------------------------------------


def test_a_random_operator_has_no_expected_output(failure: Any) -> None:
    assert failure(case("Bernoulli", tensor("X", X)))[0] == "random"


def test_types_that_the_standard_does_not_allow_are_illegal(failure: Any) -> None:
    code, text = failure(case("Celu", tensor("X", X)))
    assert code == "illegal_case"
    assert "Celu" in text


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            case("Gelu", tensor("X", X), attributes={"aproximate": "tanh"}),
            "no attribute 'aproximate': it has appr",
        ),
        (case("Gelu", tensor("X", X), opset=19), "no operator 'Gelu' in opset 19"),
        (case("Elu", tensor("X", X), attributes={"alpha": "big"}), "Elu.alpha is 'big', not float"),
        (case("Elu", tensor("X", X), attributes={"alpha": [1.0]}), "not float"),
        (case("Elu", tensor("X", X), opset=999), "opset 999 is unknown"),
        (case("Cast", tensor("X", X), attributes={"to": "float23"}), "no element type 'float23'"),
        (case("Transpose", tensor("X", X), attributes={"perm": [0.5, 1]}), "whole number"),
    ],
    ids=["attribute", "opset", "text", "list", "future", "type", "fraction"],
)
def test_a_case_that_is_wrong_says_where(failure: Any, made: OperatorCase, words: str) -> None:
    code, text = failure(made)
    assert code == "illegal_case"
    assert words in text


def test_a_case_that_cannot_be_read_is_recorded_too(failure: Any) -> None:
    data = plain(case("Relu", tensor("X", X)))
    del data["opset"]
    assert failure(data)[0] == "bad_case"


def test_shapes_that_do_not_fit_fail_that_case(failure: Any) -> None:
    code, text = failure(case("MatMul", tensor("X", X), tensor("B", X)))
    assert code in ("illegal_case", "evaluator_failed")
    assert text


def test_an_oracle_of_another_name_is_refused(failure: Any) -> None:
    assert failure(case("Relu", tensor("X", X), oracle="float80")) == (
        "bad_case",
        "no oracle 'float80': use float64 or as-is",
    )


# --- the model file --------------------------------------------------------------------------


def test_attributes_take_the_type_of_the_schema(expect: Any, tmp_path: Path) -> None:
    import onnx

    expect(case("Elu", tensor("X", X), attributes={"alpha": 2}))
    (attribute,) = onnx.load(tmp_path / case_folder.MODEL_FILE).graph.node[0].attribute
    assert attribute.type == onnx.AttributeProto.FLOAT
    assert attribute.f == 2.0


@pytest.mark.parametrize(("opset", "ir"), [(7, 4), (13, 7), (18, 8), (20, 9), (21, 10)])
def test_the_ir_version_is_the_lowest_that_the_opset_allows(
    expect: Any, tmp_path: Path, opset: int, ir: int
) -> None:
    import onnx

    expect(case("Relu", tensor("X", X, "float32"), dtype="float32", opset=opset))
    model = onnx.load(tmp_path / case_folder.MODEL_FILE)
    assert (model.ir_version, model.opset_import[0].version) == (ir, opset)


def test_constants_are_in_the_model_with_their_bits(expect: Any, tmp_path: Path) -> None:
    import onnx

    b = tensor("B", [1.0, -2.5, 0.1], "bfloat16", constant=True)
    expect(case("Add", tensor("X", X, "bfloat16"), b, dtype="bfloat16"))
    model = onnx.load(tmp_path / case_folder.MODEL_FILE)
    assert [value.name for value in model.graph.input] == ["X"]
    stored = onnx.numpy_helper.to_array(model.graph.initializer[0])
    assert stored.astype(np.float32).tolist() == [1.0, -2.5, 0.10009765625]


def test_a_tensor_may_be_an_attribute(expect: Any) -> None:
    value = {"dtype": "int64", "shape": [1], "values": [7]}
    made = case("ConstantOfShape", tensor("n", [2], "int64"), attributes={"value": value}, oracle="as-is")
    assert expect(made)["Y"].tolist() == [7, 7]


def test_several_nodes_are_one_graph(expect: Any) -> None:
    nodes = (
        Node(op="Add", inputs=("X", "B"), outputs=("T",)),
        Node(op="Relu", inputs=("T",), outputs=("Y",)),
    )
    made = OperatorCase(
        name="AddRelu/x",
        dtype=DOUBLE,
        nodes=nodes,
        inputs=(tensor("X", X), tensor("B", [1.0, 1.0, 1.0])),
        outputs=("Y", "T"),
        opset=21,
    )
    got = expect(made)
    np.testing.assert_array_equal(got["T"], X + 1)
    np.testing.assert_array_equal(got["Y"], np.maximum(X + 1, 0))


def test_a_scalar_and_an_empty_batch_are_cases_too(expect: Any) -> None:
    assert float(expect(case("Softsign", tensor("X", 3.0)))["Y"]) == 0.75
    made = case(
        "Resize",
        tensor("X", np.zeros((0, 2, 4))),
        tensor("n", [0, 2, 3], "int64", constant=True),
        names=("X", "", "", "n"),
        attributes={"mode": "linear"},
    )
    assert expect(made)["Y"].shape == (0, 2, 3)
