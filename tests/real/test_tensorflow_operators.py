"""The TensorFlow mapping against the float64 oracle: the whole catalog, and what the variants do."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix import catalog, paths
from matrix.artefacts.operator_store import PreparedCase
from matrix.artefacts.store import ArtefactStore
from matrix.execution.cancel import Cancel
from matrix.operators import suites
from matrix.operators.known import KnownFailures, load_known
from matrix.operators.load import load_operators
from matrix.sweep.checked import answer_of, judged
from matrix_adapters import tensors
from matrix_adapters.operators import case_folder, generators
from matrix_adapters.operators.batch import CASES_FILE, spec_of
from matrix_adapters.protocol import (
    Measure,
    Node,
    OperatorCase,
    State,
    Task,
    TaskKind,
    TensorSpec,
    plain,
)

pytestmark = pytest.mark.real

Ended = dict[str, Any]  # a line of cases.jsonl, "arrays", and the "file" with them

#: a tensor of 2^31 elements has a test of its own elsewhere
MOST_ELEMENTS = 10**7


@pytest.fixture(scope="module")
def prepare(run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Path]]:
    """Cases through the oracle, in PyTorch's environment."""

    def run(cases: Sequence[OperatorCase]) -> list[Path]:
        names = [str(i) for i in range(len(cases))]
        task = Task(
            kind=TaskKind.ORACLE,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            options={"cases": [plain(case) for case in cases], "folders": names},
        )
        out = tmp_path_factory.mktemp("oracle") / "out"
        result = run_task("pytorch", task, out)
        assert result.state is State.OK, result.reason
        return [out / name for name in names]

    return run


@pytest.fixture(scope="module")
def run_cases(run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Ended]]:
    """Prepared folders through the adapter in one launch, and one more for each that dies: how each ended."""

    def run(folders: Sequence[Path], variant: str = "") -> list[Ended]:
        task = Task(
            kind=TaskKind.OPERATORS,
            framework="tensorflow",
            adapter="matrix_adapters.tensorflow",
            variant=variant,
            options={"cases": [str(folder) for folder in folders]},
        )
        ended: list[Ended] = []
        while len(ended) < len(folders):
            out = tmp_path_factory.mktemp("run") / "out"
            rest = dataclasses.replace(task, options={**task.options, "first": len(ended)})
            result = run_task("tensorflow", rest, out)
            lines = [json.loads(line) for line in (out / CASES_FILE).read_text().splitlines()]
            for line in lines:
                if "state" in line:
                    file = out / f"{line['case']}.npz"
                    arrays = tensors.load(file) if file.exists() else {}
                    ended.append({**line, "arrays": arrays, "file": file})
            if result.state is not State.OK:  # the process died of the case in hand
                assert lines[-1].get("begin"), result.reason
                ended.append({"state": "died", "reason": {"text": str(result.reason)}, "arrays": {}})
        return ended

    return run


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A case folder without an oracle."""

    def write(case: OperatorCase) -> Path:
        folder = tmp_path_factory.mktemp("case")
        case_folder.write_case(folder, case, generators.case_inputs(case))
        return folder

    return write


@pytest.fixture(scope="module")
def standard(built: Any, run_task: Any, run_cases: Any) -> list[tuple[Any, Ended, str]]:
    """(catalog's case, how it ended, what is wrong with it or "") of the standard suite.

    Its cases are those of the product's own cache: a run of the product leaves nothing to be made.
    """
    facts = catalog.load()
    cases = [
        one
        for one in suites.chosen(["standard"], load_operators(facts.operators))
        if not one.open and all(math.prod(spec.shape) < MOST_ELEMENTS for spec in one.case.inputs)
    ]
    store = ArtefactStore(paths.home(), built("pytorch").key)
    prepared = store.prepare_operators(
        [one.case for one in cases],
        lambda task, out: run_task("pytorch", task, out),
        ended=lambda _: None,
        cancel=Cancel(),
    )
    ready = [_ready(prepared[one.key]) for one in cases]
    found = []
    for one, each, line in zip(cases, ready, run_cases([each.folder for each in ready]), strict=True):
        wrong = ""
        if line["state"] == "ok":
            verdict = judged(answer_of(line), line["file"], one, each, facts)
            wrong = verdict.reason.text if verdict.reason else ""
        found.append((one, line, wrong))
    return found


def _ready(outcome: Any) -> PreparedCase:
    assert isinstance(outcome, PreparedCase), outcome.reason
    return outcome


@pytest.fixture(scope="module")
def known() -> KnownFailures:
    """What the catalog knows to fail, and why."""
    folder = catalog.load().operators
    return load_known(folder, load_operators(folder))


def _title(one: Any) -> str:
    return f"{one.case.name} {one.case.dtype}"


def test_every_answer_is_the_standards_or_one_that_the_catalog_explains(
    standard: Any, known: KnownFailures
) -> None:
    unexplained = {
        _title(one): what
        for one, _, what in standard
        if what and not known.explain("tensorflow", one.case.name, one.case.dtype, "incorrect")
    }
    assert not unexplained


def test_no_case_of_the_catalog_fails_for_another_reason_than_a_missing_kernel_or_mapping(
    standard: Any, known: KnownFailures
) -> None:
    others = {
        _title(one): line["reason"]
        for one, line, _ in standard
        if line["state"] not in ("ok", "unsupported")
        and not known.explain("tensorflow", one.case.name, one.case.dtype, "failed")
    }
    assert not others
    for one, line, _ in standard:
        if line["state"] == "unsupported":
            text = line["reason"]["text"]
            assert "has no kernel" in text or one.case.nodes[0].op in text, text


def test_every_explanation_explains_something_in_this_version(standard: Any, known: KnownFailures) -> None:
    failing = [
        (one.case.name, one.case.dtype, "incorrect" if what else "failed")
        for one, line, what in standard
        if what or line["state"] not in ("ok", "unsupported")
    ]
    idle = [
        fault
        for fault in known.of("tensorflow")
        if not any(fault.covers(name, dtype) and fault.ends == end for name, dtype, end in failing)
    ]
    assert not idle


def test_a_case_that_ends_the_process_costs_itself_only(standard: Any) -> None:
    died = {one.case.name for one, line, _ in standard if line["state"] == "died"}
    assert died == {"Gemm/empty_sum_is_bias"}
    alike = [line["state"] for one, line, _ in standard if one.case.name.startswith("Gemm/b")]
    assert "ok" in alike  # those that come after it, in a process of their own


def test_more_than_120_operators_are_right(standard: Any) -> None:
    right = {
        node.op
        for one, line, what in standard
        if line["state"] == "ok" and not what
        for node in one.case.nodes
    }
    assert len(right) >= 120


# --- variants and layouts ------------------------------------------------------------------------------


def _spec(name: str, *shape: int, dtype: str = "float32", **more: Any) -> TensorSpec:
    constant, generator = more.pop("constant", False), more.pop("generator", "normal")
    return TensorSpec(
        name=name, dtype=dtype, shape=shape, generator=generator, options=more, constant=constant
    )


def _case(name: str, nodes: Sequence[Node], inputs: Sequence[TensorSpec], **more: Any) -> OperatorCase:
    fields: dict[str, Any] = {"opset": 21, "dtype": "float32", "outputs": ("y",)} | more
    return OperatorCase(name=name, nodes=tuple(nodes), inputs=tuple(inputs), **fields)


def _node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Node:
    return Node(op=op, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)


_PADS: dict[str, Any] = {"pads": [1, 0, 2, 1], "strides": [2, 1]}
_IMAGE = _spec("x", 2, 4, 7, 8)

#: each of these is run alone, with channels last outside the call, and before a Relu, transposed inside it
SPATIAL = {
    "Conv": (_node("Conv", "xwb", **_PADS), [_spec("w", 6, 4, 3, 3), _spec("b", 6, constant=True)]),
    "Conv/grouped": (_node("Conv", "xw", group=2, **_PADS), [_spec("w", 6, 2, 3, 3)]),
    "Conv/depthwise": (_node("Conv", "xw", group=4, pads=[1, 1, 1, 1]), [_spec("w", 8, 1, 3, 3)]),
    "ConvTranspose": (
        _node("ConvTranspose", "xw", group=2, output_padding=[1, 0], **_PADS),
        [_spec("w", 4, 3, 3, 3)],
    ),
    "MaxPool": (_node("MaxPool", "x", kernel_shape=[3, 3], ceil_mode=1, **_PADS), []),
    "AveragePool": (_node("AveragePool", "x", kernel_shape=[3, 3], ceil_mode=1, **_PADS), []),
    "LRN": (_node("LRN", "x", size=3), []),
    "GroupNormalization": (
        _node("GroupNormalization", "xsb", num_groups=2),
        [_spec("s", 4), _spec("b", 4)],
    ),
    "Resize": (
        Node(op="Resize", inputs=("x", "", "s"), outputs=("y",), attributes={"mode": "linear"}),
        [_spec("s", 4, generator="values", values=[1.0, 1.0, 2.0, 1.5])],
    ),
    "DepthToSpace": (_node("DepthToSpace", "x", blocksize=2), []),
}


def _both_ways() -> list[OperatorCase]:
    cases = []
    for name, (node, more) in SPATIAL.items():
        inputs = [_IMAGE, *more]
        inner = Node(op=node.op, inputs=node.inputs, outputs=("t",), attributes=node.attributes)
        cases.append(_case(name, [node], inputs))
        cases.append(_case(f"{name}+Relu", [inner, _node("Relu", "t")], inputs))
    return cases


@pytest.fixture(scope="module")
def both_ways(prepare: Any) -> tuple[list[OperatorCase], list[Path]]:
    cases = _both_ways()
    return cases, prepare(cases)


@pytest.mark.parametrize("variant", ["eager", "graph", "xla"])
def test_layouts_inside_and_outside_the_call_give_the_same_answer_in_every_variant(
    both_ways: Any, run_cases: Any, variant: str
) -> None:
    cases, folders = both_ways
    for case, folder, line in zip(cases, folders, run_cases(folders, variant), strict=True):
        assert line["state"] == "ok", (case.name, line["reason"])
        expected = case_folder.read(folder).expected
        assert expected is not None
        np.testing.assert_allclose(
            line["arrays"]["y"], expected["y"], rtol=2e-5, atol=2e-5, err_msg=case.name
        )
        effective = line["effective"]
        assert effective["variant"] == variant
        assert effective["xla"] is (variant == "xla")
        outside = len(case.nodes) == 1
        assert ("transposed outside the call" in effective["layout"]) is outside, case.name
        assert ("transposed inside the call" in effective["layout"]) is not outside, case.name


def test_what_was_really_used_is_said(run_cases: Any, by_hand: Any) -> None:
    axes = _spec("a", 1, dtype="int64", generator="values", values=[-1])
    half = _case(
        "sum", [_node("ReduceSum", "xa")], [_spec("x", 2, 3, dtype="bfloat16"), axes], dtype="bfloat16"
    )
    best = _case("argmax", [_node("ArgMax", "x")], [_spec("x", 2, 3)])
    summed, found = run_cases([by_hand(half), by_hand(best)])
    assert summed["effective"]["precision"] == "bf16"
    assert summed["effective"]["output_dtypes"] == {"y": "bfloat16"}
    assert summed["effective"]["read_beforehand"] == ["a"]
    assert summed["effective"]["device"] == "cpu"
    assert found["effective"]["output_dtypes"] == {"y": "int64"}
    assert "read_beforehand" not in found["effective"]


def test_int32_sums_stay_int32_and_wrap(run_cases: Any, by_hand: Any) -> None:
    x = _spec("x", 3, dtype="int32", generator="values", values=[2**30, 2**30, 5])
    axis = _spec("a", dtype="int64", generator="values", values=0)
    (line,) = run_cases([by_hand(_case("CumSum", [_node("CumSum", "xa")], [x, axis], dtype="int32"))])
    assert line["outputs"]["y"]["dtype"] == "int32"
    assert line["arrays"]["y"].tolist() == [2**30, -(2**31), -(2**31) + 5]


@pytest.mark.parametrize("variant", ["eager", "graph"])
@pytest.mark.parametrize(
    ("node", "says"),
    [
        (_node("Multinomial", "x"), "no mapping of the operator Multinomial"),
        (_node("Gelu", "x", approximate="sigmoid"), "no approximation 'sigmoid'"),
        (_node("Relu", "x", slope=0.1), "no mapping of attribute 'slope'"),
        (_node("Cast", "x", to="float8e4m3fn"), "no mapping of the type float8e4m3fn"),
        (_node("BitwiseNot", "x"), "has no kernel for this"),
    ],
)
def test_what_the_mapping_does_not_do_is_unsupported_by_name(
    run_cases: Any, by_hand: Any, node: Node, says: str, variant: str
) -> None:
    (line,) = run_cases([by_hand(_case("refused", [node], [_spec("x", 3)]))], variant)
    assert line["state"] == "unsupported", line["reason"]
    assert says in line["reason"]["text"]


def test_a_shape_that_another_node_computes_is_unsupported_by_name(run_cases: Any, by_hand: Any) -> None:
    nodes = [_node("Shape", "x", "s"), _node("Reshape", "xs")]
    (line,) = run_cases([by_hand(_case("computed", nodes, [_spec("x", 3)]))])
    assert line["state"] == "unsupported"
    assert "Reshape: input 's' has to be known before the call" in line["reason"]["text"]


@pytest.mark.parametrize("variant", ["eager", "graph"])
def test_the_same_clock_times_an_operator_as_a_model(
    run_task: Any, by_hand: Any, tmp_path: Path, variant: str
) -> None:
    case = _case("Gelu/speed", [_node("Gelu", "x")], [_spec("x", 64, 64)])
    folder = by_hand(case)
    task = Task(
        kind=TaskKind.MEASURE,
        framework="tensorflow",
        adapter="matrix_adapters.tensorflow",
        variant=variant,
        model=spec_of(case),
        artefacts={"operator": str(folder)},
        inputs=str(folder / case_folder.INPUTS_FILE),
        measure=Measure(samples=3, max_steady_s=0.1, warmup_calls=1, max_warmup_s=0.1),
    )
    result = run_task("tensorflow", task, tmp_path / "out")
    assert result.state is State.OK, result.reason
    assert result.metrics["latency_ms"] > 0
    assert result.effective["variant"] == variant
    assert result.effective["precision"] == "fp32"
    assert not [flag for flag in result.flags if flag.code.startswith(("threads", "precision", "math_mode"))]
