"""The PyTorch mapping against the float64 oracle: every operator, in several attributes and types."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_cases
from torch_cases.table import E, Entry, as_case, bools, exact, f, fixed, ints, values

from matrix_adapters import tensors
from matrix_adapters.operators import case_folder, elements, generators, torch_table
from matrix_adapters.protocol import Measure, Node, OperatorCase, Task, TaskKind, TensorSpec, plain

pytestmark = pytest.mark.real

Ended = dict[str, Any]  # a line of cases.jsonl, and "arrays"

#: relative to max(1, |expected|): wide enough for small shapes, far too narrow for a wrong formula
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}

#: where ONNX's evaluator computes with an attribute in float32 (the root of `scale`)
ROUGHLY = {"Attention": 1e-7}

#: (case, dtype) -> what torch 2.13 itself answers in place of the standard's answer
FAULTS_OF_TORCH = {
    ("Gelu/1", "float32"): "F.gelu(inf) is NaN in float32 on the CPU, and inf in float64",
}

#: cases of these operators that ONNX's evaluator, and ours, cannot compute: `BY_HAND` has them
NO_ORACLE = {"Scatter", "OneHot"}


@pytest.fixture(scope="module")
def run_cases(run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Ended]]:
    """Prepared folders through the adapter in one launch; what each case ended with."""

    def run(folders: list[Path], variant: str = "eager") -> list[Ended]:
        task = Task(
            kind=TaskKind.OPERATORS,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            variant=variant,
            options={"cases": [str(folder) for folder in folders]},
        )
        out = tmp_path_factory.mktemp("run") / "out"
        run_task("pytorch", task, out)
        lines = [json.loads(line) for line in (out / "cases.jsonl").read_text().splitlines()]
        ended: list[Ended] = [line for line in lines if "state" in line]
        for line in ended:
            file = out / f"{line['case']}.npz"
            line["arrays"] = tensors.load(file) if file.exists() else {}
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
def prepared(run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[OperatorCase, Path]]:
    """Every case of the table with its folder, as the oracle left it."""
    cases = list(torch_cases.cases())
    names = [str(i) for i in range(len(cases))]
    task = Task(
        kind=TaskKind.ORACLE,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        options={"cases": [plain(case) for case in cases], "folders": names},
    )
    out = tmp_path_factory.mktemp("oracle") / "out"
    run_task("pytorch", task, out)
    return [(case, out / name) for case, name in zip(cases, names, strict=True)]


@pytest.fixture(scope="module")
def judged(
    prepared: list[tuple[OperatorCase, Path]], run_cases: Callable[..., list[Ended]]
) -> list[tuple[OperatorCase, Ended, str]]:
    """(case, how it ended, what is wrong with it or "") of every case that has an oracle."""
    known = [(case, folder) for case, folder in prepared if (folder / case_folder.EXPECTED_FILE).exists()]
    ended = run_cases([folder for _, folder in known])
    return [
        (case, line, _wrong(case, line, case_folder.read(folder)))
        for (case, folder), line in zip(known, ended, strict=True)
    ]


def _wrong(case: OperatorCase, ended: Ended, prepared: case_folder.Prepared) -> str:
    if ended["state"] != "ok":
        return str(ended["reason"])
    assert prepared.expected is not None
    for name, expected in prepared.expected.items():
        facts, told = ended["outputs"][name], prepared.oracle["outputs"][name]
        if (facts["dtype"], facts["shape"]) != (told["dtype"], told["shape"]):
            return f"{name} is {facts}, expected {told}"
        found = ended["arrays"][name]
        if expected.dtype.kind in "biu":
            if not np.array_equal(found, expected):
                return f"{name} is {found.ravel()[:6]}, expected {expected.ravel()[:6]}"
            continue
        wide = elements.widened(found, facts["dtype"]).astype(np.float64)
        limit = max(TOLERANCE[facts["dtype"]], TOLERANCE.get(case.dtype, 0), ROUGHLY.get(case.nodes[0].op, 0))
        if not np.allclose(wide, expected, rtol=limit, atol=limit, equal_nan=True):
            return f"{name} is {wide.ravel()[:6]}, expected {expected.ravel()[:6]}"
    return ""


def test_every_answer_is_the_standards_or_a_known_fault_of_torch(judged: Any) -> None:
    wrong = {
        (case.name, case.dtype): f"{dict(case.nodes[0].attributes)}: {what}"
        for case, line, what in judged
        if what and line["state"] != "unsupported"
    }
    assert wrong.keys() == FAULTS_OF_TORCH.keys(), wrong


def test_what_is_unsupported_names_the_kernel_that_torch_lacks(judged: Any) -> None:
    refused = [line["reason"]["text"] for _, line, _ in judged if line["state"] == "unsupported"]
    assert all("has no such kernel" in text for text in refused), refused
    assert len(refused) < 10


def test_every_operator_of_the_table_was_right_at_least_once(judged: Any) -> None:
    right = {case.nodes[0].op for case, _, what in judged if not what}
    assert set(torch_table.names()) - right <= {"Scatter"}
    assert len(right) > 160


def test_only_these_have_no_oracle(prepared: list[tuple[OperatorCase, Path]]) -> None:
    without = {
        case.nodes[0].op for case, folder in prepared if not (folder / case_folder.EXPECTED_FILE).exists()
    }
    assert without <= NO_ORACLE


_X = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

#: cases whose answer a reader can see
BY_HAND: list[tuple[Entry, Any]] = [
    (E("Pad", values(_X, None), values([0, -1, 1, 1])), [[2, 3, 0], [5, 6, 0], [0, 0, 0]]),
    (E("Pad", values(_X, None), values([0, -1, 1, 1]), mode="edge"), [[2, 3, 3], [5, 6, 6], [5, 6, 6]]),
    (
        E("Scatter", values([1.0, 2.0, 3.0], None), values([2, 0]), values([8.0, 9.0], None), opset=9),
        [9, 2, 8],
    ),
    (
        E("OneHot", values([2, -3, 7]), values([3]), values([0.0, 5.0], None)),
        [[0, 0, 5], [5, 0, 0], [0, 0, 0]],
    ),
    (
        E("Resize", values([[[[1.0, 2.0]]]], None), values([1.0, 1.0, 2.0, 1.5], "float32"), opset=10),
        [[[[1, 1, 2], [1, 1, 2]]]],
    ),
    (
        E(
            "Upsample",
            values([[[[1.0, 3.0]]]], None),
            values([1.0, 1.0, 1.0, 2.0], "float32"),
            opset=9,
            mode="linear",
        ),
        [[[[1, 2, 3, 3]]]],
    ),
    (
        E(
            "ConvTranspose",
            values([[[[2.0]]]], None),
            values([[[[1.0, 3.0], [4.0, 5.0]]]], None),
            values([0.5], None),
            strides=[2, 2],
            output_shape=[3, 3],
        ),
        [[[[2.5, 6.5, 0.5], [8.5, 10.5, 0.5], [0.5, 0.5, 0.5]]]],
    ),
    (E("TopK", values([3.0, 5.0, 4.0], None), values([2]), outputs=(True, False)), [5, 4]),
    (E("MatMul", values([[3e38, 1.0]], None), values([[10.0], [1.0]], None)), [[np.inf]]),
]


def test_cases_worked_out_by_hand(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path]
) -> None:
    cases = [as_case(entry, f"hand/{i}", "float32") for i, (entry, _) in enumerate(BY_HAND)]
    ended = run_cases([by_hand(case) for case in cases])
    for (entry, expected), line in zip(BY_HAND, ended, strict=True):
        assert line["state"] == "ok", (entry.op, line["reason"])
        np.testing.assert_array_equal(line["arrays"]["y0"], np.asarray(expected, np.float32), entry.op)


def test_int32_sums_stay_int32_and_wrap(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path]
) -> None:
    entry = exact("CumSum", values([2**30, 2**30, 5], "int32"), values(0))
    (line,) = run_cases([by_hand(as_case(entry, "CumSum/wraps", "int32"))])
    assert line["outputs"]["y0"]["dtype"] == "int32"
    assert line["arrays"]["y0"].tolist() == [2**30, -(2**31), -(2**31) + 5]


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (E("NonMaxSuppression", f(1, 2, 4), f(1, 1, 2)), "no operator NonMaxSuppression"),
        (E("Relu", f(3), slope=0.1), "Relu: attribute 'slope' is not mapped"),
        (E("Gelu", f(3), approximate="sigmoid"), "approximate='sigmoid' is not mapped"),
        (exact("Cast", f(3), to="float8e4m3fn"), "to=float8e4m3fn is not mapped"),
        (E("Mod", f(3), f(3)), "fmod=0 is defined for integers only"),
        (E("Dropout", f(3), values(0.5, "float32"), values(True, "bool")), "is random"),
        (exact("BitwiseNot", f(3)), "has no such kernel"),
    ],
)
def test_what_the_mapping_does_not_do_is_unsupported_by_name(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path], entry: Entry, says: str
) -> None:
    (line,) = run_cases([by_hand(as_case(entry, "refused", "float32"))])
    assert line["state"] == "unsupported"
    assert says in line["reason"]["text"]


# --- several nodes ----------------------------------------------------------------------------------


def _spec(name: str, *shape: int, **more: Any) -> TensorSpec:
    return TensorSpec(name=name, dtype=more.pop("dtype", "float32"), shape=shape, **more)


def _node(op: str, inputs: str, outputs: str, **attributes: Any) -> Node:
    return Node(op=op, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)


SKIP_NORM = OperatorCase(
    name="skip norm",
    dtype="float32",
    nodes=(_node("Add", "ab", "s"), _node("LayerNormalization", "sgh", "y")),
    inputs=(_spec("a", 2, 8), _spec("b", 2, 8), _spec("g", 8, constant=True), _spec("h", 8, constant=True)),
    outputs=("y", "s"),
    opset=21,
)
#: the shape of one tensor becomes a parameter of another
SHAPED = OperatorCase(
    name="shaped",
    dtype="float32",
    nodes=(_node("Shape", "a", "s", start=1), _node("Expand", "bs", "y")),
    inputs=(_spec("a", 2, 3), _spec("b", 1)),
    outputs=("y",),
    opset=21,
)
DATA_DECIDES = OperatorCase(
    name="data decides",
    dtype="float32",
    nodes=(_node("NonZero", "a", "n"), _node("Cast", "n", "y", to="float32")),
    inputs=(_spec("a", 3),),
    outputs=("y",),
    opset=21,
)


@pytest.mark.parametrize("variant", ["eager", "compile"])
def test_several_nodes_run_as_one_callable(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path], variant: str
) -> None:
    norm, shaped = run_cases([by_hand(SKIP_NORM), by_hand(SHAPED)], variant)
    given = {name: a.astype(np.float64) for name, a in generators.case_inputs(SKIP_NORM).items()}
    total = given["a"] + given["b"]
    centred = total - total.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm["arrays"]["y"], scaled * given["g"] + given["h"], atol=1e-5)
    np.testing.assert_allclose(norm["arrays"]["s"], total, atol=1e-6)
    assert norm["effective"]["variant"] == variant
    expected = np.broadcast_to(generators.case_inputs(SHAPED)["b"], (3,))
    np.testing.assert_array_equal(shaped["arrays"]["y"], expected)


def test_nothing_is_built_on_a_shape_that_data_decides(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path]
) -> None:
    (line,) = run_cases([by_hand(DATA_DECIDES)])
    assert line["state"] == "unsupported"
    assert "the shape of its input 'n' depends on data" in line["reason"]["text"]


#: one of each kind of mapping: views, reductions over a fed axis, sorting, weights, integers, several outputs
COMPILED = [
    E("Gelu", f(3, 5)),
    E("ReduceSum", f(3, 4), values([1])),
    E("TopK", f(3, 8), values([3]), outputs=2),
    E("Slice", f(3, 5), values([4]), values([0]), values([1]), values([-2])),
    E("Resize", f(1, 2, 4, 4), None, values([1.0, 1.0, 1.5, 1.5], "float32"), mode="linear"),
    exact("MatMulInteger", ints(0, 9, 3, 4, dtype="uint8"), ints(0, 9, 4, 5, dtype="uint8")),
]


def test_the_compiled_variant_agrees_with_eager(
    run_cases: Callable[..., list[Ended]], by_hand: Callable[..., Path]
) -> None:
    folders = [by_hand(as_case(entry, f"c/{i}", "float32")) for i, entry in enumerate(COMPILED)]
    for entry, eager, compiled in zip(
        COMPILED, run_cases(folders), run_cases(folders, "compile"), strict=True
    ):
        assert compiled["state"] == "ok", (entry.op, compiled["reason"])
        assert compiled["outputs"] == eager["outputs"]
        for name, array in eager["arrays"].items():
            np.testing.assert_allclose(compiled["arrays"][name], array, rtol=1e-5, atol=1e-6)


#: one input, several, outputs of their own type, bits: each has a way of its own through the runner
TIMED = [
    (E("Relu", f(1)), "float32", {"y0": "float32"}),
    (E("Relu", f(2, 3)), "bfloat16", {"y0": "bfloat16"}),
    (E("Gemm", f(2, 3), f(3, 4), f(4)), "float32", {"y0": "float32"}),
    (E("Where", bools(3), f(3), f(3)), "bfloat16", {"y0": "bfloat16"}),
    (E("TopK", f(8), values([3]), outputs=2), "float32", {"y0": "float32", "y1": "int64"}),
    (E("ConstantOfShape", fixed([2, 2])), "float32", {"y0": "float32"}),
]


@pytest.mark.parametrize(("entry", "dtype", "gives"), TIMED)
def test_the_same_cell_is_timed_by_the_clock_of_models(
    run_task: Any, by_hand: Callable[..., Path], tmp_path: Path, entry: Entry, dtype: str, gives: Any
) -> None:
    from matrix_adapters.operators.batch import spec_of

    case = as_case(entry, f"{entry.op}/timed", dtype)
    folder = by_hand(case)
    task = Task(
        kind=TaskKind.MEASURE,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        model=spec_of(case),
        artefacts={"operator": str(folder)},
        inputs=str(folder / case_folder.INPUTS_FILE),
        measure=Measure(samples=3, max_steady_s=0.1, warmup_calls=1, max_warmup_s=0.1),
    )
    result = run_task("pytorch", task, tmp_path / "out")
    assert result.state == "ok", result.reason
    assert 0 < result.metrics["latency_ms"] < 10
    assert result.effective["output_dtypes"] == gives
    assert result.sampling["synchronous"] is True
    assert "non_deterministic" not in {flag.code for flag in result.flags}  # first call against last
