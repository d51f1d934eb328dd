"""Others' tests on the host: collected once, planned with their reasons, judged by their own limits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix import catalog
from matrix.artefacts import foreign_tests
from matrix.artefacts.content_cache import ContentCache
from matrix.artefacts.foreign_tests import ONNX_TESTS, Collected, ForeignPreparer, NotCollected
from matrix.artefacts.operator_store import PreparedCase
from matrix.commands.foreign import plan_of, sweep_of
from matrix.execution.cancel import Cancel
from matrix.judge import operators as judge
from matrix_adapters.operators.foreign import INDEX_FILE, ForeignTest, kept, write
from matrix_adapters.protocol import (
    Node,
    OperatorCase,
    Reason,
    Result,
    State,
    Task,
    TensorSpec,
    plain,
    write_atomic,
)

LOCK = ("numpy==2.4.6", "onnx==1.23.2", "torch==2.13.0")
SOURCE = "onnx 1.23.2 node test"


def relu(name: str, **more: Any) -> ForeignTest:
    x = np.array([-1, 2], np.float32)
    case = OperatorCase(
        name=f"Relu/{name}",
        dtype="float32",
        nodes=(Node(op="Relu", inputs=("x",), outputs=("y",)),),
        inputs=(TensorSpec(name="x", dtype="float32", shape=(2,), generator="values"),),
        outputs=("y",),
        opset=14,
        oracle="as-is",
    )
    given: dict[str, Any] = {"inputs": {"x": x}, "expected": {"y": np.maximum(x, 0)}, "model": b"model"}
    given |= {"dtypes": {"y": "float32"}, "rtol": 1e-3, "atol": 1e-7, "test": f"test_{name}", **more}
    return ForeignTest(case=case, **given)


def maker(tests: list[ForeignTest], state: State = State.OK) -> tuple[Callable[..., Result], list[Task]]:
    """What stands for the worker: leaves `tests` as it would, and keeps what it was asked."""
    asked: list[Task] = []

    def run(task: Task, out: Path) -> Result:
        asked.append(task)
        if state is not State.OK:
            return Result(state=state, reason=Reason(code="missing_module", text="there is no onnx here"))
        entries = []
        for number, test in enumerate(tests):
            if test.refused is None:
                write(out / str(number), test, SOURCE)
            entries.append(
                {
                    "folder": str(number) if test.refused is None else "",
                    "case": plain(test.case),
                    "test": test.test,
                    "rtol": test.rtol,
                    "atol": test.atol,
                    "refused": plain(test.refused),
                    "open": test.open,
                }
            )
        (out / "result.json").write_text("{}")
        write_atomic(out / INDEX_FILE, json.dumps({"source": SOURCE, "cases": entries}))
        return Result(state=State.OK, artefacts={"source": SOURCE})

    return run, asked


def collected(folder: Path, *tests: ForeignTest) -> Collected:
    run, _ = maker(list(tests))
    return foreign_tests.collect(ContentCache(folder), ONNX_TESTS, LOCK, run)


def test_tests_are_collected_once_for_each_release(tmp_path: Path) -> None:
    run, asked = maker([relu("one"), relu("two")])
    cache = ContentCache(tmp_path)
    first = foreign_tests.collect(cache, ONNX_TESTS, LOCK, run)
    again = foreign_tests.collect(ContentCache(tmp_path), ONNX_TESTS, LOCK, run)
    assert first == again
    assert len(asked) == 1
    foreign_tests.collect(cache, ONNX_TESTS, ("numpy==2.4.6", "onnx==1.24.0"), run)
    assert len(asked) == 2, "another release has other tests"


def test_a_change_of_other_packages_makes_nothing_again(tmp_path: Path) -> None:
    run, asked = maker([relu("one")])
    cache = ContentCache(tmp_path)
    foreign_tests.collect(cache, ONNX_TESTS, LOCK, run)
    foreign_tests.collect(cache, ONNX_TESTS, (*LOCK[:2], "torch==2.14.0"), run)
    assert len(asked) == 1


def test_the_cases_are_called_by_operator_and_keep_the_limits_of_the_test(tmp_path: Path) -> None:
    found = collected(tmp_path, relu("one"), relu("loose", rtol=0.1, atol=0.5))
    assert [case.key for case in found.cases] == [("Relu/one", "fp32"), ("Relu/loose", "fp32")]
    assert [case.test for case in found.cases] == ["test_one", "test_loose"]
    known = foreign_tests.with_rules(catalog.load(), found.cases).tolerances.operators
    limit = known[found.cases[1].catalog_case.kind].limit("float16")
    assert limit is not None
    assert (limit.relative, limit.absolute) == (0.1, 0.5)


def test_a_worker_without_onnx_is_an_error_with_its_reason_and_leaves_nothing(tmp_path: Path) -> None:
    run, _ = maker([], State.FAILED)
    with pytest.raises(NotCollected, match="there is no onnx here"):
        foreign_tests.collect(ContentCache(tmp_path), ONNX_TESTS, LOCK, run)
    assert not list((tmp_path / "foreign-tests").glob("onnx-tests-*"))


def test_an_environment_without_the_package_is_told_before_anything_runs(tmp_path: Path) -> None:
    run, asked = maker([relu("one")])
    with pytest.raises(NotCollected, match="has no onnx"):
        foreign_tests.collect(ContentCache(tmp_path), ONNX_TESTS, ("numpy==2.4.6",), run)
    assert not asked


@pytest.mark.parametrize("text", ["", "[]", '{"cases": [{}], "source": ""}', '{"cases": 3}', "not JSON"])
def test_a_damaged_index_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / INDEX_FILE).write_text(text)
    with pytest.raises(NotCollected, match=r"index\.json"):
        foreign_tests.read(tmp_path)


def test_what_no_folder_can_hold_is_planned_as_unsupported_with_the_reason(tmp_path: Path) -> None:
    reason = Reason(code="no_tensor", text="only tensors are fed and compared: x is a sequence")
    found = collected(tmp_path, relu("one"), relu("sequence", refused=reason))
    asked = {"framework": "onnxruntime", "versions": ["1.31.0", "1.32.0"], "hardware": ["cpu"]}
    config = sweep_of(ONNX_TESTS, {"foreign": asked}, found)
    cells = plan_of(config, catalog.load(), found, None)
    assert len(cells) == 4, "every test in every version"
    ends = {(c.workload.subject, c.environment.version): (c.state, c.reason) for c in cells}
    assert ends["Relu/one", "1.31.0"] == (None, None)
    assert ends["Relu/sequence", "1.32.0"] == (State.UNSUPPORTED, reason)


def test_prepared_cases_say_which_test_decides(tmp_path: Path) -> None:
    found = collected(tmp_path, relu("one"))
    case = found.cases[0].catalog_case.case
    counted: list[int] = []
    prepared = ForeignPreparer(found).prepare_operators(
        [case], maker([])[0], ended=counted.append, cancel=Cancel()
    )
    one = prepared["Relu/one", "fp32"]
    assert isinstance(one, PreparedCase)
    assert one.source == SOURCE
    assert one.dtypes == {"y": "float32"}
    assert set(one.hashes) == {"inputs", "reference", "onnx"}
    assert counted == [1]


def test_text_and_bfloat16_are_kept_as_files_can_hold_them() -> None:
    text = kept(np.array(["a", b"bc"], object), "string")
    assert text.dtype.kind == "U"
    assert text.tolist() == ["a", "bc"]
    bits = kept(np.array([0x3F80], np.uint16), "bfloat16")
    assert bits.dtype == np.uint16


# --- the limits of others -------------------------------------------------------------------


def verdict(got: float, exact: float, rtol: float, atol: float) -> Any:
    rule = foreign_tests._rule(rtol, atol)
    outputs, expected = {"y": np.array([got], np.float32)}, {"y": np.array([exact])}
    return judge.judge(outputs, {"y": "float32"}, expected, {"y": "float32"}, rule)


@pytest.mark.parametrize(
    ("got", "exact", "rtol", "atol"),
    [(100.09, 100.0, 1e-3, 0.0), (0.0, 9e-8, 0.0, 1e-7), (-100.09, -100.0, 1e-3, 0.0), (1.0, 1.0, 0.0, 0.0)],
)
def test_within_the_limits_of_allclose_passes(got: float, exact: float, rtol: float, atol: float) -> None:
    assert np.allclose(np.float32(got), exact, rtol=rtol, atol=atol)
    assert verdict(got, exact, rtol, atol).passed


@pytest.mark.parametrize(
    ("got", "exact", "rtol", "atol"),
    [(100.11, 100.0, 1e-3, 0.0), (0.0, 2e-7, 0.0, 1e-7), (np.nan, 1.0, 1e3, 1e3), (np.inf, 1.0, 1e3, 1e3)],
)
def test_beyond_the_limits_of_allclose_fails(got: float, exact: float, rtol: float, atol: float) -> None:
    assert not np.allclose(np.float32(got), exact, rtol=rtol, atol=atol)
    found = verdict(got, exact, rtol, atol)
    assert not found.passed
    assert found.failure


def test_the_rule_is_told_in_words() -> None:
    assert verdict(1.0, 1.0, 1e-3, 1e-7).rule == "error <= 1e-07 + 0.001 x |exact|"
