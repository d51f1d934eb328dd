"""The reference of a user's ONNX file: its own definition, in float64, by ONNX's evaluator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_graphs as graphs
import pytest
from onnx_graphs import FLOAT, INT64, node, value

from matrix_adapters import tensors
from matrix_adapters.protocol import ModelSpec, Result, State, Task, TaskKind

pytestmark = pytest.mark.real


@pytest.fixture
def refer(run_task: Any, tmp_path: Path) -> Any:
    """Make the reference of one model file; (result, folder)."""

    def run(
        path: Path,
        feed: dict[str, np.ndarray],
        expected: dict[str, np.ndarray] | None = None,
        outputs: tuple[str, ...] = (),
    ) -> tuple[Result, Path]:
        tensors.save(tmp_path / "inputs.npz", feed)
        artefacts = {"onnx": str(path)}
        if expected is not None:
            tensors.save(tmp_path / "expected.npz", expected)
            artefacts["expected"] = str(tmp_path / "expected.npz")
        task = Task(
            kind=TaskKind.REFERENCE,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            model=ModelSpec(name="user", format="onnx", task="onnx", inputs=tuple(feed), outputs=outputs),
            artefacts=artefacts,
            inputs=str(tmp_path / "inputs.npz"),
        )
        return run_task("pytorch", task, tmp_path / "reference"), tmp_path / "reference"

    return run


def weights_of(path: Path) -> dict[str, np.ndarray]:
    graph = graphs.onnx.load(path).graph
    return {t.name: graphs.numpy_helper.to_array(t).astype(np.float64) for t in graph.initializer}


def test_the_reference_is_float64_arithmetic_on_the_files_own_weights(refer: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.linear(rows=256))
    x = np.random.default_rng(2).standard_normal((3, 256), np.float32)
    result, folder = refer(path, {"x": x})
    assert result.state is State.OK, result.reason
    w = weights_of(path)
    exact = x.astype(np.float64) @ w["w"] + w["b"]
    reference = tensors.load(folder / "float64.npz")["y"]
    single = tensors.load(folder / "float32.npz")["y"]
    assert reference.dtype == np.float64
    assert single.dtype == np.float32
    np.testing.assert_allclose(reference, exact, rtol=1e-13, atol=1e-13)
    assert np.abs(single - exact).max() > 1e-8  # the floor is real, so the reference is not float32 widened
    again = tensors.load(folder / "float32_again.npz")["y"]
    np.testing.assert_array_equal(single, again)
    about = json.loads((folder / "reference.json").read_text())
    assert about["framework"] == "onnx reference evaluator"
    assert about["repeats"] is True
    assert 0 < about["floor"] < 1e-5


def everything_that_names_a_type() -> Any:
    """Casts, constants in each spelling, a filled tensor, a branch with a weight: all float32 by name."""
    branch_weight = graphs.numpy_helper.from_array(np.array([1 / 3], np.float32), "third")
    then = graphs.helper.make_graph(
        [node("Mul", ["sum", "third"], ["a"])], "then", [], [value("a", ["n"])], [branch_weight]
    )
    other = graphs.helper.make_graph([node("Identity", ["sum"], ["b"])], "else", [], [value("b", ["n"])])
    return graphs.model(
        [
            node("Cast", ["i"], ["f"], to=FLOAT),
            node("Constant", [], ["c1"], value_float=0.1),
            node("Constant", [], ["c2"], value_floats=[0.7]),
            node("Constant", [], ["c3"], value=graphs.numpy_helper.from_array(np.array([0.3], np.float32))),
            node("Shape", ["i"], ["size"]),
            node("ConstantOfShape", ["size"], ["zeros"]),
            node("Mul", ["f", "c1"], ["m"]),
            node("Add", ["m", "c2"], ["s1"]),
            node("Add", ["s1", "c3"], ["s2"]),
            node("Add", ["s2", "zeros"], ["s3"]),
            node("Softmax", ["s3"], ["p"]),
            node("LayerNormalization", ["p", "c3"], ["l"]),
            node("Erf", ["l"], ["e"]),
            node("Add", ["e", "s3"], ["sum"]),
            node("If", ["yes"], ["y"], then_branch=then, else_branch=other),
        ],
        [value("i", ["n"], INT64), value("yes", [], graphs.BOOL)],
        [value("y", ["n"])],
    )


def test_no_step_falls_back_to_float32(refer: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, everything_that_names_a_type())
    result, folder = refer(path, {"i": np.arange(16), "yes": np.array(True)})
    assert result.state is State.OK, result.reason
    assert not result.flags
    f32 = lambda number: float(np.float32(number))  # noqa: E731
    s3 = np.arange(16) * f32(0.1) + f32(0.7) + f32(0.3)
    p = np.exp(s3 - s3.max()) / np.exp(s3 - s3.max()).sum()
    scaled = (p - p.mean()) / np.sqrt(p.var() + f32(1e-5)) * f32(0.3)
    from math import erf

    exact = (np.vectorize(erf)(scaled) + s3) * f32(1 / 3)
    np.testing.assert_allclose(tensors.load(folder / "float64.npz")["y"], exact, rtol=1e-13)


def test_an_operator_that_falls_back_to_float32_is_found_and_named(refer: Any, tmp_path: Path) -> None:
    made = graphs.model(
        [
            node(
                "TfIdfVectorizer",
                ["words"],
                ["counts"],
                mode="TF",
                min_gram_length=1,
                max_gram_length=1,
                max_skip_count=0,
                ngram_counts=[0],
                ngram_indexes=[0, 1, 2],
                pool_int64s=[5, 6, 7],
            )
        ],
        [value("words", [6], INT64)],
        [value("counts", [3])],
    )
    result, folder = refer(graphs.write(tmp_path, made), {"words": np.array([5, 7, 7, 1, 5, 7])})
    assert [flag.code for flag in result.flags] == ["reference_not_float64"]
    assert "TfIdfVectorizer" in result.flags[0].text
    assert tensors.load(folder / "float64.npz")["counts"].tolist() == [2, 0, 3]


def test_an_operator_that_the_evaluator_gets_wrong_is_ours(refer: Any, tmp_path: Path) -> None:
    """Its LRN normalises as many channels as the batch has images, and its mean counts an ignored -1."""
    made = graphs.model(
        [
            node("LRN", ["x"], ["normal"], size=3, alpha=0.3, beta=0.5),
            node("NegativeLogLikelihoodLoss", ["normal", "labels"], ["y"], ignore_index=-1),
        ],
        [value("x", [1, 4, 1, 3]), value("labels", [1, 1, 3], INT64)],
        [value("normal", [1, 4, 1, 3]), value("y", [])],
    )
    x = np.random.default_rng(3).standard_normal((1, 4, 1, 3), np.float32)
    labels = np.array([[[0, -1, 3]]])
    result, folder = refer(graphs.write(tmp_path, made), {"x": x, "labels": labels})
    assert result.state is State.OK, result.reason
    w = x.astype(np.float64)
    around = np.pad(np.square(w), [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = around[:, :-2] + around[:, 1:-1] + around[:, 2:]
    f32 = lambda number: float(np.float32(number))  # noqa: E731
    normal = w / (1 + f32(0.3) / 3 * total) ** 0.5
    found = tensors.load(folder / "float64.npz")
    np.testing.assert_allclose(found["normal"], normal, rtol=1e-14)
    np.testing.assert_allclose(found["y"], -(normal[0, 0, 0, 0] + normal[0, 3, 0, 2]) / 2, rtol=1e-14)
    single = tensors.load(folder / "float32.npz")["normal"]
    np.testing.assert_allclose(single, normal, rtol=1e-6)  # a wrong run is no noise floor
    assert json.loads((folder / "reference.json").read_text())["floor"] < 1e-6


def test_control_flow_and_integers(refer: Any, tmp_path: Path) -> None:
    feed = {"x": np.ones((3, 2), np.float32), "count": np.array(4), "flip": np.array(True)}
    result, folder = refer(graphs.write(tmp_path, graphs.if_and_loop()), feed)
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(tensors.load(folder / "float64.npz")["y"], np.full((3, 2), -16.0))


def test_text_can_be_compared_too(refer: Any, tmp_path: Path) -> None:
    result, folder = refer(
        graphs.write(tmp_path, graphs.text_in_and_out()), {"words": np.array(["w1", "w2"])}
    )
    assert result.state is State.OK, result.reason
    outputs = tensors.load(folder / "float64.npz")
    assert outputs["joined"].tolist() == ["w1!", "w2!"]
    assert outputs["same"].tolist() == [True, False]


def test_bfloat16_is_read_from_its_bits_and_stored_widened(refer: Any, tmp_path: Path) -> None:
    made = graphs.model(
        [node("Add", ["x", "x"], ["y"])],
        [value("x", [2], graphs.BFLOAT16)],
        [value("y", [2], graphs.BFLOAT16)],
    )
    bits = np.array([0x3F80, 0x4049], np.uint16)  # 1 and 3.140625
    result, folder = refer(graphs.write(tmp_path, made), {"x": bits})
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(tensors.load(folder / "float64.npz")["y"], [2, 6.28125])
    assert tensors.load(folder / "float32.npz")["y"].dtype == np.float32


def test_only_the_outputs_that_were_named_are_kept(refer: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.text_in_and_out())
    _, folder = refer(path, {"words": np.array(["w1"])}, outputs=("same",))
    assert list(tensors.load(folder / "float64.npz")) == ["same"]


def foreign() -> Any:
    return graphs.model(
        [node("Foo", ["x"], ["y"], name="f", domain="acme")],
        [value("x", [2])],
        [value("y", [2])],
        opsets={"": 20, "acme": 1},
    )


def test_an_operator_without_a_definition_gives_no_reference_and_is_named(refer: Any, tmp_path: Path) -> None:
    result, folder = refer(graphs.write(tmp_path, foreign()), {"x": np.ones(2, np.float32)})
    assert result.state is State.UNSUPPORTED
    assert result.reason.code == "no_reference"
    assert "Foo" in result.reason.text
    assert not (folder / "float64.npz").exists()


def test_outputs_given_by_the_user_take_the_first_place(refer: Any, tmp_path: Path) -> None:
    path = graphs.write(tmp_path, graphs.linear())
    given = {"y": np.full((1, 3), 7.0)}
    result, folder = refer(path, {"x": np.ones((1, 4), np.float32)}, expected=given)
    assert result.state is State.OK, result.reason
    np.testing.assert_array_equal(tensors.load(folder / "float64.npz")["y"], given["y"])
    assert tensors.load(folder / "float32.npz")["y"].dtype == np.float32
    assert json.loads((folder / "reference.json").read_text())["framework"] == "outputs given by the user"


def test_outputs_given_by_the_user_stand_alone_where_nothing_can_evaluate_the_file(
    refer: Any, tmp_path: Path
) -> None:
    given = {"y": np.array([1.0, 2.0])}
    path = graphs.write(tmp_path, foreign())
    result, folder = refer(path, {"x": np.ones(2, np.float32)}, expected=given)
    assert result.state is State.OK, result.reason
    assert [flag.code for flag in result.flags] == ["no_noise_floor"]
    np.testing.assert_array_equal(tensors.load(folder / "float64.npz")["y"], given["y"])


def test_random_operators_show_as_a_reference_that_does_not_repeat(refer: Any, tmp_path: Path) -> None:
    made = graphs.model([node("RandomNormal", [], ["y"], shape=[4])], [value("x", [1])], [value("y", [4])])
    result, _ = refer(graphs.write(tmp_path, made), {"x": np.ones(1, np.float32)})
    assert result.state is State.OK, result.reason
    assert result.artefacts["repeats"] is False
