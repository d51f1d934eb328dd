"""The speed table: every timed case once for each environment, with what the call itself costs."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_runs import environment, header

from matrix.catalog import load
from matrix.catalog.types import Catalog
from matrix.records import LaunchRecord, MetricValue, ReasonRecord, Record, WorkloadRecord
from matrix.report import render
from matrix.report.operators import speed, speed_said, speed_text
from matrix.report.style import Style
from matrix_adapters.protocol import State, content_hash

UNITS = {"latency_ms": "ms", "tflops": "TFLOP/s", "memory_gb_s": "GB/s", "roofline_share": "1"}
PEAKS: dict[str, Any] = {
    "1": {
        "gemm": {"fp32": {"flops_s": 92.6e9, "case": "MatMul/gemm_512", "environment": "onnxruntime"}},
        "bandwidth": [{"bytes": 402653184, "bytes_s": 10.7e9, "kernel": "add", "where": "memory"}],
        "absent": {"pytorch bf16": "no such kernel"},
    }
}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load()


def record(framework: str, subject: str, metrics: dict[str, float], **changes: Any) -> Record:
    place = environment(framework)
    work = WorkloadRecord(
        level="operator", subject=subject, batch=1, precision="fp32", threads=changes.pop("threads", 1)
    )
    fields: dict[str, Any] = {
        "id": content_hash([framework, work.model_dump()], 12),
        "label": f"{place.name} {subject}",
        "environment": place,
        "workload": work,
        "state": State.OK,
        "metrics": {
            name: MetricValue(value=value, unit=UNITS[name], n=3, derived=name != "latency_ms")
            for name, value in metrics.items()
        },
    }
    return Record(**{**fields, **changes})


def some() -> list[Record]:
    gemm = {"flops": 268_435_456, "bytes": 3_145_728}
    found = []
    for framework, call, product in (("pytorch", 0.002, 7.2), ("onnxruntime", 0.005, 10.3)):
        found.append(record(framework, "Relu/size_1", {"latency_ms": call}, work={"flops": 1, "bytes": 8}))
        reached = {
            "latency_ms": product,
            "tflops": 0.268 / product,
            "memory_gb_s": 0.4,
            "roofline_share": 0.4,
        }
        found.append(record(framework, "MatMul/gemm_512", reached, work=gemm))
    return found


def test_an_entry_says_which_share_of_its_time_the_call_itself_is(catalog: Catalog) -> None:
    table = speed.build(some(), header(), catalog)
    assert table is not None
    shares = {
        (row.key.subject, column.framework): entry.dispatch
        for row in table.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry is not None
    }
    assert shares["Relu/size_1", "pytorch"] == pytest.approx(1.0)
    assert shares["MatMul/gemm_512", "onnxruntime"] == pytest.approx(0.005 / 10.3)


def test_the_cost_of_a_call_is_a_column(catalog: Catalog) -> None:
    table = speed.build(some(), header(), catalog)
    assert table is not None
    product = next(row for row in table.rows if row.key.subject == "MatMul/gemm_512")
    at = speed.HEADS.index("dispatch")
    assert [entry.words()[at] for entry in product.entries if entry] == [
        "2.00 us (<0.1 %)",
        "5.00 us (<0.1 %)",
    ]


def test_a_run_without_the_call_of_one_element_says_so(catalog: Catalog) -> None:
    table = speed.build([r for r in some() if r.workload.subject != "Relu/size_1"], header(), catalog)
    assert table is not None
    assert all(entry.words()[-1] == "-" for row in table.rows for entry in row.entries if entry)
    assert "What a call itself costs was not measured" in " ".join(table.said)


def test_the_time_of_a_wrong_answer_is_struck_and_nothing_follows_from_it(catalog: Catalog) -> None:
    reached = {"latency_ms": 7.2, "tflops": 0.037, "memory_gb_s": 0.4, "roofline_share": 0.4}
    why = ReasonRecord(code="tolerance", text="planted")
    changes = {"state": State.INCORRECT, "reason": why, "work": {"model": "tiny", "count": 2}}
    wrong = record("tensorflow", "Conv/tiny_01", reached, **changes)
    found = [*some(), wrong]
    table = speed.build(found, header(), catalog)
    assert table is not None
    assert [e.words() for row in table.rows for e in row.entries if e and e.struck] == [
        ("7.20 ms", "-", "-", "-", "-")
    ]
    assert table.sums == ()  # no sum over a model is made from wrong answers
    for kind, struck in (
        ("table", "incorrect ~~7.20 ms~~"),
        ("markdown", "incorrect ~~7.20&nbsp;ms~~"),
        ("html", "incorrect <s>7.20 ms</s>"),
    ):
        assert struck in render(kind, found, header(), catalog), kind


def test_a_flag_marks_the_number_that_it_speaks_against(catalog: Catalog) -> None:
    noisy = (ReasonRecord(code="noisy", text="launches differ by 20 %"),)
    table = speed.build(
        [record("pytorch", "Relu/size_1", {"latency_ms": 0.002}, flags=noisy)], header(), catalog
    )
    assert table is not None
    assert [entry.words()[0] for row in table.rows for entry in row.entries if entry] == ["2.00 us*"]


def test_what_a_number_lacks_is_said_with_the_reason(catalog: Catalog) -> None:
    moving = record(
        "pytorch",
        "Transpose/a",
        {"latency_ms": 0.5, "memory_gb_s": 8.0},
        absent={"tflops": "it does no arithmetic: it moves data", "roofline_share": "it was not measured"},
    )
    table = speed.build([*some(), moving], header(), catalog)
    assert table is not None
    text = " ".join(table.said)
    assert "1 cell without a share of the roof: it was not measured." in text
    assert "1 cell without a rate of arithmetic: it does no arithmetic: it moves data." in text


def rotated(working_set: int) -> Record:
    told = {
        "cache_copies": 16,
        "cache_working_set_bytes": working_set,
        "cache_last_level_bytes": 32 << 20,
    }
    launch = LaunchRecord(cell="c", purpose="measure", block=0, state=State.OK, sampling=told)
    work = {"flops": 1_000_000, "bytes": 8_000_000, "shapes": "1000x1000"}
    contract = {"cache": "rotating: inputs from a working set of 2 x the last cache"}
    return record(
        "pytorch", "Relu/size_1m", {"latency_ms": 0.5}, work=work, launches=(launch,), contract=contract
    )


def test_where_the_inputs_were_is_said(catalog: Catalog) -> None:
    for working_set, words in (
        (64 << 20, "16 copies rotate (64.0 MiB)"),
        (8 << 20, "16 copies rotate (8.00 MiB, less than the last cache holds)"),
    ):
        table = speed.build([rotated(working_set)], header(), catalog)
        assert table is not None
        (row,) = table.rows
        assert row.facts(threads=False) == f"1000x1000, 1.00 MFLOP, 7.63 MiB, {words}"
        assert "Inputs are rotating: inputs from a working set of 2 x the last cache." in table.said


def test_nodes_that_are_no_cases_are_counted_with_the_reason(catalog: Catalog) -> None:
    told = {"left_out": {"tiny": {"If: it holds a subgraph": 2}}}
    table = speed.build(some(), {**header(), **told}, catalog)
    assert table is not None
    assert "Nodes of tiny that are no cases: 2 x If: it holds a subgraph." in table.said


def test_the_sums_of_a_model_are_told_apart_by_threads(catalog: Catalog) -> None:
    found = [
        record("pytorch", "Conv/tiny_01", {"latency_ms": t}, threads=n, work={"model": "tiny", "count": 3})
        for n, t in ((1, 2.0), (2, 1.2))
    ]
    table = speed.build(found, header(), catalog)
    assert table is not None
    assert [(one.threads, one.total_ms) for one in table.sums] == [
        (1, pytest.approx(6.0)),
        (2, pytest.approx(3.6)),
    ]
    assert "cpu with 2 threads: 3.60 ms" in table.sentences()[-1]


def test_a_narrow_terminal_is_not_overdrawn(catalog: Catalog) -> None:
    drawn, _ = speed_text.blocks(some(), {**header(), "peaks": PEAKS}, catalog, Style(width=80))
    assert max(map(len, drawn.splitlines())) <= 80


def test_the_roof_and_the_cost_of_a_call_are_said_in_words(catalog: Catalog) -> None:
    table = speed.build(some(), {**header(), "peaks": PEAKS}, catalog)
    assert table is not None
    text = " ".join(table.said)
    assert "92.6 GFLOP/s in fp32 (MatMul/gemm_512, onnxruntime)" in text
    assert "10.7 GB/s over 384 MiB" in text
    assert "No peak of pytorch bf16: no such kernel." in text
    assert "A call of one element (Relu/size_1) takes 2.00 us in PyTorch" in text


def test_a_timed_case_that_failed_somewhere_has_its_state_and_no_number(catalog: Catalog) -> None:
    failed = record(
        "tensorflow",
        "MatMul/gemm_512",
        {},
        state=State.FAILED,
        reason=ReasonRecord(code="planted", text="it broke"),
    )
    table = speed.build([*some(), failed], header(), catalog)
    assert table is not None
    words = [
        entry.words()
        for row in table.rows
        for column, entry in zip(table.columns, row.entries, strict=True)
        if entry is not None and column.framework == "tensorflow"
    ]
    assert words == [("failed", "-", "-", "-", "-")]


def test_no_table_where_nothing_was_timed(catalog: Catalog) -> None:
    assert speed.build([record("pytorch", "Gelu/tanh", {})], header(), catalog) is None


def test_the_operators_of_a_model_are_summed_as_often_as_it_has_them(catalog: Catalog) -> None:
    found = [
        record("pytorch", "Conv/tiny_01", {"latency_ms": 2.0}, work={"model": "tiny", "count": 3}),
        record("pytorch", "Relu/tiny_01", {"latency_ms": 0.5}, work={"model": "tiny", "count": 4}),
    ]
    table = speed.build(found, header(), catalog)
    assert table is not None
    (one,) = table.sums
    assert one.total_ms == pytest.approx(8.0)
    assert one.operators == (("Conv", pytest.approx(6.0)), ("Relu", pytest.approx(2.0)))
    assert (
        "Operators of tiny in PyTorch 2.13.0 cpu: 8.00 ms (Conv 6.00 ms, Relu 2.00 ms)."
        in speed.sum_words(one)
    )


def test_a_candidate_has_one_operator_of_a_model_and_no_sum(catalog: Catalog) -> None:
    work = {"model": "tiny", "count": 3}
    stock = record("pytorch", "Conv/tiny_01", {"latency_ms": 2.0}, work=work)
    mine = stock.model_copy(
        update={"id": "mine", "workload": stock.workload.model_copy(update={"variant": "candidate:mine"})}
    )
    table = speed.build([stock, mine], header(), catalog)
    assert table is not None
    assert len(table.columns) == 2
    assert [one.column.label for one in table.sums] == [table.columns[0].label]


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.41, "41 %"), (0.0123, "1.2 %"), (0.0001, "<0.1 %"), (1.07, "107 %")],
)
def test_shares_read_well(share: float, text: str) -> None:
    assert speed_said.percent(share) == text


@pytest.mark.parametrize("kind", ["table", "markdown", "html"])
def test_every_view_has_the_speed_table(catalog: Catalog, kind: str) -> None:
    text = render(kind, some(), {**header(), "peaks": PEAKS}, catalog)
    plain = text.replace("&nbsp;", " ").replace("\u00b5", "u")
    for wanted in (
        "MatMul/gemm_512 fp32",
        "7.20 ms",
        "37.2 GFLOP/s",
        "400 MB/s",
        "40 %",
        "2.00 us (100 %)",
    ):
        assert wanted in plain, (kind, wanted)


def test_nothing_of_speed_is_drawn_where_nothing_was_timed(catalog: Catalog) -> None:
    checked = [record("pytorch", "Gelu/tanh", {})]
    for kind in ("table", "markdown", "html"):
        assert "of roof" not in render(kind, checked, header(), catalog)
