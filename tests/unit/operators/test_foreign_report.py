"""Tables of others' tests: each counted once, each failure with a reason, each change in one list."""

from __future__ import annotations

import json

import pytest

from matrix.records import EnvironmentRecord, ReasonRecord, Record, WorkloadRecord
from matrix.report.operators import foreign
from matrix.report.style import Style
from matrix_adapters.protocol import State


def record(
    test: str, state: State, reason: str = "", *, code: str = "code", version: str = "1", flags: str = ""
) -> Record:
    return Record(
        id=f"{test}{version}",
        label=test,
        environment=EnvironmentRecord(
            name=f"toy-{version}", framework="toy", version=version, hardware="cpu"
        ),
        workload=WorkloadRecord(level="operator", subject=test, batch=1, precision="fp32", threads=1),
        state=state,
        reason=ReasonRecord(code=code, text=reason) if reason else None,
        flags=(ReasonRecord(code=flags, text="several answers"),) if flags else (),
    )


def test_every_test_is_counted_once() -> None:
    found = foreign.summary(
        [
            record("A/1", State.OK),
            record("A/2", State.OK, flags="differs_by_definition"),
            record("A/3", State.INCORRECT, "an error of 3", code="tolerance"),
            record("A/4", State.FAILED, "it broke"),
            record("A/5", State.UNSUPPORTED, "no kernel"),
            record("A/6", State.NOT_RUN, "stopped"),
        ],
        "tests",
    )
    (one,) = found.passes
    assert (one.total, one.run, one.passed, one.open, one.failing) == (6, 4, 1, 1, 2)
    assert sum(one.states.values()) == one.total
    assert sum(len(why.tests) for why in one.why) == 4, "each that is not ok has a reason"


def test_reasons_that_differ_in_names_and_numbers_only_are_one() -> None:
    texts = ["opset 28 for 'a' is not known", "opset 27 for 'b' is not known", "it broke"]
    found = foreign.summary([record(f"A/{i}", State.FAILED, t) for i, t in enumerate(texts)], "tests")
    assert [(len(w.tests), w.text) for w in found.passes[0].why] == [
        (2, "opset N for ... is not known"),
        (1, "it broke"),
    ]
    assert found.passes[0].why[0].example == texts[0], "one of them in full"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "load failed: InvalidGraph: [ONNXRuntimeError] : 10 : INVALID_GRAPH : Load model from "
            '/a/5/model.onnx failed:This is an invalid model. In Node, ("", Attention, "", -1) : '
            '("Q": tensor(float),) -> ("Y": tensor(float),) , Error Unrecognized attribute: window',
            "load failed: InvalidGraph: INVALID_GRAPH : This is an invalid model. "
            "Unrecognized attribute: window",
        ),
        (
            "FAIL : Exception during initialization: /onnxruntime_src/text/string_normalizer.cc:235 "
            "onnxruntime::Locale::Locale(const std::string&)::<lambda()> Failed to construct locale",
            "FAIL : Exception during initialization: Failed to construct locale",
        ),
    ],
)
def test_a_reason_is_told_without_files_and_functions(said: str, told: str) -> None:
    assert foreign.general(said) == told


def test_failures_come_before_what_was_not_run() -> None:
    records = [record(f"A/{i}", State.UNSUPPORTED, "no kernel") for i in range(5)]
    found = foreign.summary([*records, record("B/1", State.FAILED, "it broke")], "tests")
    assert [why.state for why in found.passes[0].why] == [State.FAILED, State.UNSUPPORTED]


@pytest.mark.parametrize(
    ("before", "after", "where"),
    [
        (State.OK, State.INCORRECT, "newly_failing"),
        (State.OK, State.OOM, "newly_failing"),
        (State.UNSUPPORTED, State.FAILED, "newly_failing"),
        (State.FAILED, State.OK, "newly_passing"),
        (State.UNSUPPORTED, State.OK, "newly_passing"),
        (State.OK, State.UNSUPPORTED, "no_longer_run"),
        (State.FAILED, State.UNSUPPORTED, "no_longer_run"),
        (State.OK, State.OK, ""),
        (State.FAILED, State.INCORRECT, ""),
        (State.UNSUPPORTED, State.NOT_RUN, ""),
    ],
)
def test_a_change_is_in_one_list(before: State, after: State, where: str) -> None:
    found = foreign.summary(
        [record("A/1", before, "then", version="1"), record("A/1", after, "now", version="2")], "tests"
    )
    (change,) = found.changes
    lists = {
        name: [one.test for one in getattr(change, name)]
        for name in ("newly_failing", "newly_passing", "no_longer_run")
    }
    assert [name for name, tests in lists.items() if tests] == ([where] if where else [])


def test_later_versions_are_each_compared_with_the_first() -> None:
    records = [
        record("A/1", s, "x", version=v)
        for v, s in zip("123", [State.OK, State.FAILED, State.OK], strict=True)
    ]
    found = foreign.summary(records, "tests")
    assert [(c.base, c.candidate, len(c.newly_failing)) for c in found.changes] == [
        ("toy-1", "toy-2", 1),
        ("toy-1", "toy-3", 0),
    ]


def test_the_table_is_plain_text_in_a_pipe_and_the_data_is_json() -> None:
    found = foreign.summary([record("A/1", State.FAILED, "it said \x1b[31m× no")], "tests")
    text = foreign.table(found, Style())
    assert text.isascii()
    assert "\x1b" not in text
    assert json.loads(json.dumps(foreign.as_data(found), allow_nan=False))["environments"][0]["run"] == 1


def test_nothing_at_all_is_a_table_too() -> None:
    assert "0 tests" in foreign.table(foreign.summary([], "tests"), Style())
