"""The speed table: every timed case once for each environment, with what the call itself costs."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic_runs import environment, header

from matrix.catalog import load
from matrix.catalog.types import Catalog
from matrix.records import MetricValue, ReasonRecord, Record, WorkloadRecord
from matrix.report import render
from matrix.report.operators import speed
from matrix_adapters.protocol import State, content_hash

UNITS = {"latency_ms": "ms", "tflops": "TFLOP/s", "memory_gb_s": "GB/s", "roofline_share": "1"}
PEAKS = {
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
        reached = {"latency_ms": product, "tflops": 0.268 / product, "memory_gb_s": 0.4, "roofline_share": 0.4}
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
    assert "Operators of tiny in PyTorch 2.13.0 cpu: 8.00 ms (Conv 6.00 ms, Relu 2.00 ms)." in speed.sum_words(
        one
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.41, "41 %"), (0.0123, "1.2 %"), (0.0001, "under 0.1 %"), (1.07, "107 %")],
)
def test_shares_read_well(share: float, text: str) -> None:
    assert speed.percent(share) == text


@pytest.mark.parametrize("kind", ["table", "markdown", "html"])
def test_every_view_has_the_speed_table(catalog: Catalog, kind: str) -> None:
    text = render(kind, some(), {**header(), "peaks": PEAKS}, catalog)
    plain = text.replace("&nbsp;", " ").replace("\u00b5", "u")
    for wanted in ("MatMul/gemm_512 fp32", "7.20 ms", "37.2 GFLOP/s", "0.400 GB/s", "40 %", "2.00 us"):
        assert wanted in plain, (kind, wanted)


def test_nothing_of_speed_is_drawn_where_nothing_was_timed(catalog: Catalog) -> None:
    checked = [record("pytorch", "Gelu/tanh", {})]
    for kind in ("table", "markdown", "html"):
        assert "of the roof" not in render(kind, checked, header(), catalog)
