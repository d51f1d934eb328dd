"""The matrix as data: what is in it, who is the best of a row, what a mean is over."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_runs import eventful_records, quick_records, record

from matrix.catalog import load
from matrix.errors import UsageError
from matrix.records import ReasonRecord, Record
from matrix.report.matrix_table import Mark, MatrixTable, build, geometric_mean
from matrix.report.summary import counts, headline, notes
from matrix_adapters.protocol import State

CATALOG = load()
FALLBACK = ReasonRecord(code="partial_fallback", text="partial fallback: 3 of 122 nodes on the CPU")


def table(records: list[Record], metric: str = "latency_ms", baseline: str | None = None) -> MatrixTable:
    return build(records, CATALOG, metric, baseline)


def marks(found: MatrixTable, row: int = 0) -> list[str | None]:
    return [cell and cell.mark.value for cell in found.rows[row].cells]


def speeds(values: list[float | None], framework: str) -> list[Record]:
    """One cell per model; None is a failed one."""
    return [
        record(framework, f"model{i}", {"latency_ms": value})
        if value is not None
        else record(framework, f"model{i}", state=State.FAILED)
        for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("records", [quick_records(), eventful_records(), []])
def test_every_planned_cell_is_in_the_matrix_exactly_once(records: list[Record]) -> None:
    for metric in CATALOG.metrics:
        shown = [cell.record.id for cell in table(records, metric).cells()]
        assert sorted(shown) == sorted(r.id for r in records)


CELLS = st.tuples(
    st.sampled_from(["pytorch", "tensorflow", "thirdparty"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "eager", "compile"]),
    st.sampled_from(list(State)),
    st.sampled_from([1, 8]),
    st.sampled_from(["", "aa"]),
    st.floats(min_value=1e-3, max_value=1e4),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(CELLS, max_size=12))
def test_whatever_is_planned_is_reported_even_when_two_cells_claim_one_place(cells: list[tuple]) -> None:
    records = [
        record(f, subject, {"latency_ms": v}, variant=variant, state=state, batch=batch, arm=arm)
        for f, subject, variant, state, batch, arm, v in cells
    ]
    found = table(records)
    assert sorted(c.record.id for c in found.cells()) == sorted(r.id for r in records)
    assert sum(s.planned for s in found.summaries) == len(records)
    assert all(c.state is State.OK for c in found.cells() if c.mark is not Mark.NONE or c.ratio is not None)
    assert all(
        sum(c is not None and c.mark is Mark.BEST for c in r.cells) != 0 for r in found.rows if _race(r)
    )


def _race(row) -> bool:
    return sum(c is not None and c.ratio is not None for c in row.cells) > 1


def test_the_lowest_latency_and_the_highest_throughput_are_the_best_of_their_rows() -> None:
    fast = {"latency_ms": 1.0, "throughput_items_s": 1000.0}
    slow = {"latency_ms": 2.0, "throughput_items_s": 500.0}
    records = [record("pytorch", metrics=slow), record("onnxruntime", metrics=fast)]
    assert marks(table(records)) == ["", "best"]
    assert marks(table(records, "throughput_items_s")) == ["", "best"]
    assert [c.ratio for c in table(records, "throughput_items_s").cells()] == [0.5, 1.0]


@pytest.mark.parametrize("state", [s for s in State if s is not State.OK])
def test_a_cell_that_is_not_ok_is_never_the_best_however_fast(state: State) -> None:
    records = [
        record("pytorch", metrics={"latency_ms": 0.001}, state=state),
        record("tensorflow", metrics={"latency_ms": 40.0}),
        record("onnxruntime", metrics={"latency_ms": 30.0}),
    ]
    found = table(records)
    assert marks(found) == ["", "", "best"]
    assert found.rows[0].cells[0].ratio is None


def test_the_speed_of_an_incorrect_cell_is_struck_and_its_error_is_not() -> None:
    wrong = record("pytorch", metrics={"latency_ms": 1.0, "max_scaled_error": 0.5}, state=State.INCORRECT)
    assert table([wrong]).cells()[0].struck
    assert not table([wrong], "max_scaled_error").cells()[0].struck


def test_what_was_not_measured_has_no_value_and_is_never_zero() -> None:
    records = [record("pytorch", absent={"latency_ms": "no samples"}), record("tensorflow", state=State.OOM)]
    for cell in table(records).cells():
        assert cell.value is None
        assert "0" not in cell.text
    assert [c.text for c in table(records).cells()] == ["-", "oom"]
    assert table(records).cells()[0].why == "no samples"
    assert table(records).summaries[0].geomean is None


@pytest.mark.parametrize("state", [s for s in State if s not in (State.OK, State.INCORRECT)])
def test_what_a_stopped_cell_had_measured_does_not_hide_its_state(state: State) -> None:
    half = {"latency_ms": 1.0, "max_scaled_error": 1e-6}
    records = [record("pytorch", metrics=half, state=state), record("tensorflow", metrics=half)]
    for metric in half:
        assert table(records, metric).cells()[0].text == state.value
        assert table(records, metric).cells()[0].value is None


def test_a_measured_zero_is_no_candidate() -> None:
    records = [record("pytorch", metrics={"latency_ms": 0.0}), *speeds([3.0], "tensorflow")]
    records += [
        record("tensorflow", metrics={"latency_ms": 5.0}),
        record("onnxruntime", metrics={"latency_ms": 4.0}),
    ]
    assert marks(table(records)) == ["", "", "best"]


def test_a_cell_alone_in_its_row_is_the_best_of_nothing() -> None:
    records = [record("pytorch", metrics={"latency_ms": 1.0}), record("tensorflow", state=State.UNAVAILABLE)]
    assert marks(table(records)) == ["", ""]
    assert headline(table(records)) == ["No row has two cells whose latency (median) may be compared."]


def test_a_cell_that_fell_back_keeps_its_number_and_is_not_ranked() -> None:
    records = [
        record("pytorch", metrics={"latency_ms": 1.0}, flags=(FALLBACK,)),
        record("tensorflow", metrics={"latency_ms": 3.0}),
        record("onnxruntime", metrics={"latency_ms": 2.0}),
    ]
    found = table(records)
    assert marks(found) == ["", "", "best"]
    assert found.cells()[0].text == "1.00 ms"
    assert found.cells()[0].why == FALLBACK.text


def test_another_flag_leaves_a_cell_in_the_ranking() -> None:
    noisy = ReasonRecord(code="noisy", text="launches differ by 14 %")
    records = [record("pytorch", metrics={"latency_ms": 1.0}, flags=(noisy,)), *[]]
    records.append(record("tensorflow", metrics={"latency_ms": 3.0}))
    assert marks(table(records)) == ["best", ""]


@pytest.mark.parametrize("field", ["threads", "math_mode", "boundary", "inputs", "weights"])
def test_cells_of_different_contracts_are_not_compared_and_the_field_is_named(field: str) -> None:
    usual = {"boundary": "host_to_host", "threads": 1, "math_mode": "fp32", "inputs": "aa", "weights": "bb"}
    records = [
        record("pytorch", metrics={"latency_ms": 1.0}, contract={**usual, field: "other"}),
        record("tensorflow", metrics={"latency_ms": 3.0}, contract=usual),
        record("onnxruntime", metrics={"latency_ms": 2.0}, contract=usual),
    ]
    found = table(records)
    assert marks(found) == ["", "", "best"]
    assert found.cells()[0].why.startswith(f"not comparable: {field} differs")
    assert field in notes(records, found).remarks[0].text


def test_each_framework_may_have_its_own_layout_and_say_nothing_of_its_math_mode() -> None:
    records = [
        record("pytorch", metrics={"latency_ms": 1.0}, contract={"layout": "NCHW", "math_mode": None}),
        record("tensorflow", metrics={"latency_ms": 3.0}, contract={"layout": "NHWC", "math_mode": "fp32"}),
    ]
    assert marks(table(records)) == ["best", ""]


def test_a_cell_whose_range_overlaps_the_best_is_marked_as_tied() -> None:
    records = [
        record("pytorch", metrics={"latency_ms": (10.0, 9.0, 11.0)}),
        record("tensorflow", metrics={"latency_ms": (10.5, 9.8, 11.2)}),
        record("onnxruntime", metrics={"latency_ms": (13.0, 12.9, 13.1)}),
    ]
    assert marks(table(records)) == ["best", "tied", ""]
    assert "may be chance" in headline(table(records))[0]


def test_the_mean_leaves_failures_out_and_shows_the_pass_rate_beside_it() -> None:
    records = speeds([1.0, 1.0, 1.0, 1.0], "pytorch") + speeds([0.7, 0.8, None, 0.9], "tensorflow")
    base, other = table(records, baseline="pytorch-2.13.0-cpu").summaries
    assert other.geomean == pytest.approx(0.796, abs=5e-4)
    assert (other.ok, other.planned, other.rows) == (3, 4, 3)
    assert (base.geomean, base.rows) == (1.0, 3)


def test_twice_as_fast_and_twice_as_slow_is_no_difference() -> None:
    records = speeds([1.0, 1.0], "pytorch") + speeds([2.0, 0.5], "tensorflow")
    assert table(records, baseline="pytorch-2.13.0-cpu").summaries[1].geomean == pytest.approx(1.0)


@given(st.lists(st.floats(min_value=1e-6, max_value=1e6), min_size=1, max_size=30))
def test_swapping_both_sides_gives_the_inverse_mean(ratios: list[float]) -> None:
    mean, swapped = geometric_mean(ratios), geometric_mean([1 / r for r in ratios])
    assert mean * swapped == pytest.approx(1.0)
    assert min(ratios) * (1 - 1e-9) <= mean <= max(ratios) * (1 + 1e-9)


def test_swapping_the_baseline_inverts_the_column_mean() -> None:
    records = speeds([1.0, 3.0, 5.0], "pytorch") + speeds([0.7, 4.0, 6.0], "tensorflow")
    one = table(records, baseline="pytorch-2.13.0-cpu").summaries[1].geomean
    other = table(records, baseline="tensorflow-2.21.0-cpu").summaries[0].geomean
    assert one * other == pytest.approx(1.0)


def test_there_is_no_mean_of_nothing_nor_of_one_column_alone() -> None:
    assert geometric_mean([]) is None
    assert table(speeds([1.0, 2.0], "pytorch")).summaries[0].geomean is None
    records = speeds([1.0, None], "pytorch") + speeds([None, 1.0], "tensorflow")
    assert [s.geomean for s in table(records).summaries] == [None, None]


def test_a_metric_that_is_not_ranked_has_neither_best_nor_mean() -> None:
    found = table(quick_records(), "max_scaled_error")
    assert {cell.mark for cell in found.cells()} == {Mark.NONE}
    assert [s.geomean for s in found.summaries] == [None] * 4
    assert headline(found) == []


def test_a_column_without_any_number_does_not_empty_the_others_means() -> None:
    found = table(quick_records())
    assert [s.rows for s in found.summaries] == [4, 4, 4, 0]
    assert found.summaries[3].geomean is None
    assert (found.summaries[3].ok, found.summaries[3].planned) == (0, 4)


def test_a_default_variant_is_not_spelled_out_until_there_is_another() -> None:
    one = [record("pytorch", variant="eager", metrics={"latency_ms": 1.0})]
    two = [*one, record("pytorch", variant="compile", metrics={"latency_ms": 2.0})]
    assert [c.label for c in table(one).columns] == ["PyTorch 2.13.0 cpu"]
    assert [c.label for c in table(two).columns] == ["PyTorch 2.13.0 cpu eager", "PyTorch 2.13.0 cpu compile"]
    assert len(table(two).rows) == 1


def test_columns_of_one_environment_stand_side_by_side() -> None:
    found = table(eventful_records())
    order = [key for key, _ in itertools.groupby(c.key[0] for c in found.columns)]
    assert len(order) == len(set(order))


def test_what_all_rows_share_is_said_once() -> None:
    found = table(quick_records())
    assert dict(found.common) == {"batch": "batch 1", "precision": "fp32", "threads": "1 thread"}
    assert [found.row_label(row) for row in found.rows][2] == "distilbert, sequence 128"


def test_a_metric_or_baseline_that_does_not_exist_is_named_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match="Did you mean latency_ms"):
        table(quick_records(), "latency")
    with pytest.raises(UsageError, match="environments here are pytorch"):
        table(quick_records(), baseline="jax")


def test_reasons_are_grouped_and_all_cells_are_counted() -> None:
    records = eventful_records()
    found = notes(records, table(records))
    assert sum(note.count for note in found.reasons) == sum(r.state is not State.OK for r in records)
    assert [(n.head, n.count) for n in found.reasons if n.head == "unavailable"] == [("unavailable", 4)]
    assert sum(counts(records).values()) == len(records)


def test_an_expected_failure_and_a_required_cell_say_so_in_their_reason() -> None:
    records = [
        record("pytorch", state=State.FAILED, xfail="shows a broken recipe"),
        record("tensorflow", state=State.UNAVAILABLE, required=True),
    ]
    texts = [note.text for note in notes(records, table(records)).reasons]
    assert any("expected: shows a broken recipe" in text for text in texts)
    assert any("this cell is required" in text for text in texts)


def test_the_headline_names_every_column_that_wins_a_row() -> None:
    records = [*speeds([10.0, 10.0], "pytorch"), *speeds([5.0, 20.0], "onnxruntime")]
    said = headline(table(records))[0]
    assert said.startswith("The lowest latency (median) of 2 compared rows: ")
    assert "PyTorch 2.13.0 cpu in 1" in said and "ONNX Runtime 1.32.0 cpu in 1" in said
