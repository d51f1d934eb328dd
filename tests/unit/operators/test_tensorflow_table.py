"""What the TensorFlow mapping decides before TensorFlow is there: names, refusals, windows, layouts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import (
    tensorflow_layout,
    tensorflow_runner,
    tensorflow_spatial,
    tensorflow_table,
)
from matrix_adapters.operators.tensorflow_resize import Axis, _neighbours, _places
from matrix_adapters.operators.tensorflow_runner import Slot
from matrix_adapters.operators.tensorflow_site import Facts, Site, single
from matrix_adapters.protocol import Node, OperatorCase, TensorSpec


def site(op: str, *shapes: tuple[int | None, ...], opset: int = 21, **attributes: Any) -> Site:
    names = tuple(f"x{n}" for n in range(len(shapes)))
    return Site(
        tf=None,
        node=Node(op=op, inputs=names, outputs=("y",), attributes=attributes),
        opset=opset,
        inputs=tuple(Facts("float32", shape) for shape in shapes),
        value_of=lambda name: None,
    )


def test_no_module_of_the_mapping_imports_tensorflow() -> None:
    code = (
        "import sys, pkgutil, importlib, matrix_adapters.operators as o\n"
        "names = [m.name for m in pkgutil.iter_modules(o.__path__) if m.name.startswith('tensorflow_')]\n"
        "[importlib.import_module(f'matrix_adapters.operators.{name}') for name in names]\n"
        "assert len(names) > 15, names\n"
        "sys.exit(any(m.split('.')[0] in ('tensorflow', 'keras') for m in sys.modules))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_at_least_120_operators_are_mapped() -> None:
    assert len(tensorflow_table.TABLE) >= 120


def test_an_operator_without_a_mapping_is_named() -> None:
    with pytest.raises(Unsupported, match="no mapping of the operator Multinomial"):
        tensorflow_table.find("Multinomial")
    with pytest.raises(Unsupported, match=r"com\.microsoft\.Gelu"):
        tensorflow_table.find("Gelu", "com.microsoft")


def test_an_attribute_that_the_mapping_does_not_read_is_named() -> None:
    with pytest.raises(Unsupported, match="Gelu: no mapping of attribute 'slope'"):
        tensorflow_table.build(site("Gelu", (3,), slope=1.0))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "words"),
    [
        ("Gelu", [(3,)], {"approximate": "sigmoid"}, "no approximation 'sigmoid'"),
        ("Cast", [(3,)], {"to": "float8e4m3fn"}, "no mapping of the type float8e4m3fn"),
        ("Cast", [(3,)], {"to": 8}, "no mapping of the type number 8"),
        ("BitShift", [(3,), (3,)], {"direction": "UP"}, "no direction 'UP'"),
        ("LpNormalization", [(3, 4)], {"p": 3}, "the 3-norm"),
        ("AveragePool", [(1, 2, 5, 5)], {"kernel_shape": [3]}, "kernel_shape"),
        ("Conv", [(1, 2), (1, 2)], {}, "no spatial ones"),
        ("Conv", [(1, 1, 4, 4), (1, 1, 2, 2)], {"auto_pad": "SOME"}, "no auto_pad 'SOME'"),
        ("Reshape", [(2, 3), (1,)], {}, "input 'x1' has to be known before the call"),
        ("Flatten", [(None, 3)], {}, "the shape of input 'x0' depends on the data"),
    ],
)
def test_what_a_mapping_does_not_do_is_refused_in_words(
    op: str, shapes: list[Any], attributes: dict[str, Any], words: str
) -> None:
    with pytest.raises(Unsupported, match=f"{op}: .*{words}"):
        tensorflow_table.build(site(op, *shapes, **attributes))


def test_floats_are_kept_in_32_bits_as_a_model_file_keeps_them() -> None:
    assert single(0.1) == float(np.float32(0.1)) != 0.1
    assert single("-inf") == float("-inf")
    assert site("Elu", (1,), alpha=0.7).real("alpha", 1.0) == float(np.float32(0.7))


# --- windows: sizes and padding as Conv and AveragePool in ONNX's Operators.md have them -------------


@pytest.mark.parametrize(
    ("attributes", "begin", "end", "out"),
    [
        ({}, (0, 0), (0, 0), (5, 6)),
        ({"pads": [1, 0, 2, 1]}, (1, 0), (2, 1), (8, 7)),
        ({"strides": [2, 3]}, (0, 0), (0, 0), (3, 2)),
        ({"dilations": [2, 1]}, (0, 0), (0, 0), (3, 6)),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, (1, 0), (1, 1), (4, 4)),
        ({"auto_pad": "SAME_LOWER", "strides": [2, 2]}, (1, 1), (1, 0), (4, 4)),
        ({"auto_pad": "VALID", "pads": [9, 9, 9, 9]}, (0, 0), (0, 0), (5, 6)),
    ],
)
def test_windows_fit_as_often_as_the_standard_says(
    attributes: dict[str, Any], begin: Any, end: Any, out: Any
) -> None:
    found = tensorflow_spatial.window(site("Conv", (1, 1, 7, 8), **attributes), (3, 3), (7, 8))
    assert (found.begin, found.end, found.out) == (begin, end, out)


def test_rounding_up_lets_the_last_window_stick_out_but_not_begin_in_the_padding() -> None:
    sticking = tensorflow_spatial.window(site("MaxPool", strides=[2]), (3,), (6,), ceil=True)
    assert (sticking.out, sticking.extra) == ((3,), (1,))
    padding = tensorflow_spatial.window(site("MaxPool", strides=[2], pads=[1, 1]), (1,), (4,), ceil=True)
    assert padding.out == (3,)


# --- resizing -----------------------------------------------------------------------------------------


def one(size: int, out: int, scale: float | None = None) -> Axis:
    return Axis(axis=2, size=size, out=out, scale=scale or out / size, roi=(0.0, 1.0))


@pytest.mark.parametrize(
    ("mode", "size", "out", "places"),
    [
        ("half_pixel", 4, 2, [0.5, 2.5]),
        ("half_pixel", 4, 1, [1.5]),
        ("pytorch_half_pixel", 4, 1, [0]),
        ("align_corners", 4, 7, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        ("align_corners", 4, 1, [0]),
        ("asymmetric", 4, 8, [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5]),
    ],
)
def test_places_that_an_output_looks_at(mode: str, size: int, out: int, places: list[float]) -> None:
    where = site("Resize", (1, 1, size, size), coordinate_transformation_mode=mode)
    np.testing.assert_allclose(_places(where, one(size, out)), places)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("attributes", [{}, {"antialias": 1}, {"exclude_outside": 1}])
@pytest.mark.parametrize("out", [1, 3, 5, 9])
def test_weights_of_neighbours_sum_to_one(mode: str, attributes: dict[str, int], out: int) -> None:
    indices, weights = _neighbours(site("Resize", (1, 1, 5, 5), **attributes), mode, one(5, out))
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-12)
    assert indices.min() >= 0 and indices.max() < 5


# --- layouts ------------------------------------------------------------------------------------------


def case(*nodes: Node, rank: int = 4) -> OperatorCase:
    return OperatorCase(
        name="case",
        dtype="float32",
        nodes=nodes,
        inputs=(
            TensorSpec(name="X", dtype="float32", shape=(2,) * rank),
            TensorSpec(name="W", dtype="float32", shape=(2,) * rank, constant=True),
        ),
        outputs=("Y",),
        opset=21,
    )


CONV = Node(op="Conv", inputs=("X", "W"), outputs=("Y",))


def test_a_single_convolution_is_given_channels_last_and_its_answer_is_turned_back() -> None:
    plan = tensorflow_layout.plan(case(CONV))
    assert plan.channels_last
    data, filters = np.arange(120).reshape(2, 3, 4, 5), np.zeros((8, 3, 5, 7))
    assert plan.arranged("X", data).shape == (2, 4, 5, 3)
    assert plan.arranged("W", filters).shape == (5, 7, 3, 8)
    assert plan.arranged("X", data).flags.c_contiguous
    np.testing.assert_array_equal(plan.restored("Y", plan.arranged("X", data)), data)


@pytest.mark.parametrize(
    "nodes",
    [
        (CONV, Node(op="Relu", inputs=("Y",), outputs=("Z",))),
        (Node(op="Relu", inputs=("X",), outputs=("Y",)),),
        (Node(op="MaxPool", inputs=("X",), outputs=("Y", "I")),),
        (Node(op="DepthToSpace", inputs=("X",), outputs=("Y",), attributes={"mode": "CRD"}),),
    ],
)
def test_everything_else_is_taken_as_it_is_given(nodes: tuple[Node, ...]) -> None:
    plan = tensorflow_layout.plan(case(*nodes))
    assert not plan.channels_last and not plan.outputs


def test_a_matrix_has_no_channels_to_move() -> None:
    norm = Node(op="BatchNormalization", inputs=("X", "a", "b", "c", "d"), outputs=("Y",))
    assert not tensorflow_layout.plan(case(norm, rank=2)).channels_last


# --- one call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), ("a",), ("b", "a"), ("c", "a", "b")])
def test_a_call_gets_the_arrays_in_the_order_of_the_function(names: tuple[str, ...]) -> None:
    run = tensorflow_runner.calling(Slot(lambda *arrays: arrays), names, (ValueError,))
    feed = {name: np.array([ord(name)]) for name in "abc"}
    assert [array.item() for array in run(feed)] == [ord(name) for name in names]


@pytest.mark.parametrize("names", [("a",), ("a", "b"), ("a", "b", "c")])
def test_a_missing_kernel_is_unsupported_and_any_other_error_stays_what_it_is(
    names: tuple[str, ...],
) -> None:
    def call(*_: Any) -> Any:
        raise ValueError(said)

    run = tensorflow_runner.calling(Slot(call), names, (ValueError,))
    said = "Value for attr 'T' of float is not in the list of allowed values: int8, int16"
    with pytest.raises(Unsupported, match="has no kernel for this: Value for attr"):
        run(dict.fromkeys(names, np.zeros(1)))
    said = "Dimensions must be equal"
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        run(dict.fromkeys(names, np.zeros(1)))


class Tensor:
    def __init__(self, *values: float) -> None:
        self._values = values

    def numpy(self) -> np.ndarray:
        return np.array(self._values)


@pytest.mark.parametrize("convert", [None, lambda name, tensor: tensor.numpy()])
def test_outputs_are_fetched_by_name_and_looked_at_once(convert: Any) -> None:
    looked: list[list[str]] = []

    def look_at(outputs: Any) -> Any:
        looked.append(list(outputs))
        return convert

    alone = tensorflow_runner.fetching(("y",), look_at)
    both = tensorflow_runner.fetching(("y", "z"), look_at)
    for value in (1.0, 2.0):
        assert _listed(alone(Tensor(value))) == {"y": [value]}
        assert _listed(both([Tensor(value), Tensor(3.0, value)])) == {"y": [value], "z": [3.0, value]}
    assert looked == [["y"], ["y", "z"]]


def test_what_the_first_outputs_need_is_done_to_all() -> None:
    fetch = tensorflow_runner.fetching(("y",), lambda _: lambda name, tensor: 2 * tensor.numpy())
    assert [_listed(fetch(Tensor(value))) for value in (1.0, 2.0)] == [{"y": [2.0]}, {"y": [4.0]}]


def test_a_loop_that_holds_on_to_run_sees_what_the_first_call_has_built() -> None:
    slot = Slot(lambda x: "built")
    run = tensorflow_runner.calling(slot, ("x",), (ValueError,))
    assert run({"x": np.zeros(1)}) == "built"
    slot.call = lambda x: "called"
    assert run({"x": np.zeros(1)}) == "called"


def _listed(arrays: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: array.tolist() for name, array in arrays.items()}
