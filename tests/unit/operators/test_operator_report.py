"""The report of operator cells: every case is counted once, and every difference has its evidence."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import environment, header, quick_records

from matrix.catalog import load
from matrix.catalog.types import Catalog
from matrix.records import (
    LaunchRecord,
    MetricValue,
    Parity,
    ReasonRecord,
    Record,
    WorkloadRecord,
)
from matrix.report import FORMATS, render
from matrix.report.operators import case_book, findings, pass_table, split
from matrix.report.operators.case_words import in_words
from matrix.report.style import PIPE_WIDTH, Style, visible_width
from matrix.sweep.checked import DIFFERS
from matrix_adapters.protocol import Node, OperatorCase, State, TensorSpec, content_hash

ACTIVATIONS = """\
Gelu:
  kind: transcendental
  opset: 20
  dtypes: [float32, float16]
  inputs: [X]
  cases:
    basic: {in: {X: [3, 5]}}
    tanh: {in: {X: {shape: [64], generator: uniform, low: -6, high: 6}}, attributes: {approximate: tanh}}
Relu:
  kind: exact
  dtypes: [float32]
  inputs: [X]
  cases: {basic: {in: {X: [3, 5]}}}
"""
SOFTMAX = """\
Softmax:
  kind: softmax
  dtypes: [float32]
  inputs: [X]
  cases:
    masked: {in: {X: {values: [[-.inf, -.inf], [1, 2]]}}, open: "a row of -inf alone is 0/0"}
    plain: {in: {X: [4, 10]}}
"""
OPEN_ROW = "a row of -inf alone is 0/0"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The catalog with three operators in two families."""
    folder = tmp_path_factory.mktemp("operators")
    (folder / "activations.yaml").write_text(ACTIVATIONS)
    (folder / "softmax.yaml").write_text(SOFTMAX)
    return dataclasses.replace(load(), operators=folder)


def cell(
    subject: str, framework: str = "pytorch", *, precision: str = "fp32", variant: str = "", **changes: Any
) -> Record:
    place = environment(framework)
    work = WorkloadRecord(
        level="operator", subject=subject, batch=1, precision=precision, threads=1, variant=variant
    )
    key = content_hash([place.name, work.model_dump()], 12)
    fields: dict[str, Any] = {
        "id": key,
        "label": f"{place.name} {subject}",
        "environment": place,
        "workload": work,
        "state": State.OK,
    }
    return Record(**{**fields, **changes})


def wrong(subject: str, framework: str = "pytorch", **changes: Any) -> Record:
    """An answer of 312 ulp, as the judge leaves it."""
    text = "error 312 ulp is above the limit 2 ulp; worst at Y[7]: got 0.251, exact 0.25"
    parity = Parity(
        reference="onnx 1.23.2 reference evaluator",
        passed=False,
        rule="error <= 2 ulp of float16",
        limit=2.0,
        max_scaled_error=1.2e-3,
        max_ulps=312.0,
        least_passing=312.0,
        unit="ulp",
        worst="Y[7]: got 0.251, exact 0.25",
        failure=text,
        failure_code="tolerance",
    )
    reason = ReasonRecord(code="tolerance", text=text)
    return cell(subject, framework, state=State.INCORRECT, reason=reason, parity=parity, **changes)


def open_answer(framework: str, values: Sequence[str], *, differs: bool) -> Record:
    """An answer to the open case, whose reference begins with NaN."""
    outputs = {
        "Y": {
            "dtype": "float32",
            "shape": [2, 2],
            "values": list(values),
            "reference": ["nan", "nan", "0.2689414213699951", "0.7310585786300049"],
        }
    }
    found = cell("Softmax/masked", framework)
    check = LaunchRecord(cell=found.id, purpose="check", block=0, state=State.OK, outputs=outputs)
    flag = ReasonRecord(code=DIFFERS, text=f"differs by definition: {OPEN_ROW}; Y[0, 0] is finite")
    return found.model_copy(update={"launches": (check,), "flags": (flag,) if differs else ()})


def ended(subject: str, framework: str, state: State, text: str, **changes: Any) -> Record:
    return cell(subject, framework, state=state, reason=ReasonRecord(code=state.value, text=text), **changes)


AGREES = ("nan", "nan", "0.26894143", "0.7310586")
NO_MAPPING = "the TensorFlow mapping has no Gelu with approximate = tanh"


def planted() -> list[Record]:
    """One of everything that can happen, in three environments."""
    return [
        cell("Gelu/basic"),
        cell("Gelu/basic", "tensorflow"),
        cell("Gelu/basic", "onnxruntime"),
        wrong("Gelu/tanh", precision="fp16"),
        ended("Gelu/tanh", "tensorflow", State.UNSUPPORTED, NO_MAPPING, precision="fp16"),
        cell("Gelu/tanh", "onnxruntime", precision="fp16"),
        cell("Relu/basic"),
        cell("Relu/basic", "tensorflow"),
        ended("Relu/basic", "onnxruntime", State.FAILED, "the process died of signal 11"),
        open_answer("pytorch", AGREES, differs=False),
        open_answer("tensorflow", AGREES, differs=False),
        open_answer("onnxruntime", ("0", "0", *AGREES[2:]), differs=True),
    ]


def text(records: Sequence[Record], catalog: Catalog, report_format: str = "table") -> str:
    return render(report_format, records, header(), catalog)


def row_of(report: str, name: str) -> str:
    return next(line for line in report.splitlines() if line.strip().startswith(name))


def test_every_case_is_counted_once_by_operator_and_environment(catalog: Catalog) -> None:
    records = planted()
    book = case_book.case_book(catalog)
    table = pass_table.build(records, catalog, book)
    assert [family.name for family in table.families] == ["activations", "softmax"]
    assert [row.name for family in table.families for row in family.rows] == ["Gelu", "Relu", "Softmax"]
    assert sum(entry.total for entry in table.totals) == len(records)
    gelu = table.families[0].rows[0].entries
    assert [entry.text for entry in gelu] == ["1/2", "1/2", "2/2"]
    assert gelu[0].rest() == [(1, "incorrect")]
    assert gelu[1].rest() == [(1, "unsupported")]
    softmax = table.families[1].rows[0].entries[2]
    assert softmax.text == "0/1" and softmax.rest() == [(1, "differs by definition")]


def test_the_flag_is_the_one_that_checks_set() -> None:
    assert pass_table.DIFFERS == DIFFERS


def test_a_pipe_shows_a_line_for_every_operator(catalog: Catalog) -> None:
    report = text(planted(), catalog)
    assert re.search(r"Gelu +1/2, 1 incorrect +1/2, 1 unsupported +2/2", report)
    assert re.search(r"Relu +1/1 +1/1 +0/1, 1 failed", report)
    assert re.search(r"Softmax +1/1 +1/1 +0/1, 1 differs by definition", report)
    assert re.search(r"all +3/4, 1 incorrect +3/4, 1 unsupported +2/4", report)
    assert "PyTorch 2.13.0" in report and "geomean" not in report and "latency" not in report
    assert report.isascii()


def test_a_difference_is_told_with_all_its_evidence(catalog: Catalog) -> None:
    for report_format in ("table", "markdown", "html"):
        report = re.sub(r"\s+", " ", text(planted(), catalog, report_format)).replace("\\", "")
        for evidence in (
            "Gelu/tanh",
            "float16",
            "X[64] uniform -6 to 6; approximate = tanh",
            "312 ulp",
            "0.00120 of the largest exact value",
            "error <= 2 ulp of float16".replace("<", "&lt;" if report_format != "table" else "<"),
            "passes from",
            "Y[7]: got 0.251, exact 0.25",
        ):
            assert evidence in report, (report_format, evidence)


def test_nothing_wrong_shows_no_differences(catalog: Catalog) -> None:
    records = [cell("Gelu/basic"), cell("Gelu/basic", "onnxruntime"), cell("Softmax/masked")]
    for report_format in ("table", "markdown", "html"):
        report = text(records, catalog, report_format)
        assert "Differences" not in report and "Unsupported" not in report and "Did not end" not in report
        assert "1/1" in report
    found = findings.find(pass_table.build(records, catalog, book := case_book.case_book(catalog)), book)
    assert found.agreed == 1 and not found.open


def test_an_open_case_is_shown_side_by_side_at_the_first_place_that_differs(catalog: Catalog) -> None:
    book = case_book.case_book(catalog)
    (one,) = findings.find(pass_table.build(planted(), catalog, book), book).open
    assert (one.case, one.dtype, one.why) == ("Softmax/masked", "float32", OPEN_ROW)
    assert one.place == "Y[0, 0]" and one.reference == "nan"
    assert [value for _, value in one.answers] == ["nan", "nan", "0"]
    report = text(planted(), catalog)
    assert "Differs by definition (1)" in report
    assert re.search(r"Y\[0, 0\]: reference nan; PyTorch 2.13.0 cpu nan, TensorFlow", report)


def test_rounding_alone_is_no_place_that_differs(catalog: Catalog) -> None:
    later = open_answer("onnxruntime", (*AGREES[:3], "0.5"), differs=True)
    records = [open_answer("pytorch", AGREES, differs=False), later]
    book = case_book.case_book(catalog)
    (one,) = findings.find(pass_table.build(records, catalog, book), book).open
    assert one.place == "Y[1, 1]"
    assert [value for _, value in one.answers] == ["0.731059", "0.5"]


def test_a_difference_beyond_the_stored_values_says_so(catalog: Catalog) -> None:
    far = open_answer("pytorch", AGREES, differs=True)
    parity = Parity(reference="onnx", passed=False, rule="r", worst="Y[40]: got 1, exact 2")
    book = case_book.case_book(catalog)
    table = pass_table.build([far.model_copy(update={"parity": parity})], catalog, book)
    (one,) = findings.find(table, book).open
    assert one.place == "beyond the stored values"
    assert one.answers[0][1] == "Y[40]: got 1, exact 2"


def test_who_has_no_answer_to_an_open_case_is_shown_by_its_state(catalog: Catalog) -> None:
    records = [
        open_answer("pytorch", ("0", "0", *AGREES[2:]), differs=True),
        ended("Softmax/masked", "tensorflow", State.UNSUPPORTED, "no"),
    ]
    book = case_book.case_book(catalog)
    (one,) = findings.find(pass_table.build(records, catalog, book), book).open
    assert [value for _, value in one.answers] == ["0", "unsupported"]


def test_what_a_framework_does_not_have_is_listed_once_for_each_reason(catalog: Catalog) -> None:
    records = [
        ended("Gelu/basic", "tensorflow", State.UNSUPPORTED, "no float16 here"),
        ended("Gelu/tanh", "tensorflow", State.UNSUPPORTED, "no float16 here"),
        ended("Relu/basic", "tensorflow", State.UNSUPPORTED, "no float16 here"),
        ended("Softmax/plain", "tensorflow", State.UNSUPPORTED, "no Softmax"),
        ended("Softmax/plain", "pytorch", State.NOT_RUN, "the budget was spent"),
    ]
    report = text(records, catalog)
    assert "Unsupported (2)" in report
    assert "TensorFlow 2.21.0 cpu, unsupported, 3 cases: no float16 here" in report
    assert "Gelu (2), Relu" in report
    assert "Did not end (1)" in report and "PyTorch 2.13.0 cpu, not run, 1 case: the budget" in report


def test_an_absent_device_names_no_operator_one_by_one(catalog: Catalog) -> None:
    names = [f"Op{n:03}" for n in range(40)]
    why = "no such device"
    records = [ended(f"{name}/a", "tensorrt", State.UNAVAILABLE, why) for name in names]
    assert re.search(r"operators +all 40\n", text(records, catalog))
    records[0] = cell(f"{names[0]}/a", "tensorrt")
    assert re.search(r"operators +39 of 40\n", text(records, catalog))
    few = [ended(f"{name}/a", "tensorrt", State.UNSUPPORTED, why) for name in names[:5]]
    assert "Op000, Op001, Op002, Op003, Op004" in text(few, catalog)


def test_variants_are_columns_of_their_own(catalog: Catalog) -> None:
    records = [
        cell("Gelu/basic", variant="eager"),
        wrong("Gelu/basic", variant="compile"),
        wrong("Gelu/tanh", variant="compile", precision="fp16", xfail="known since 2.12"),
    ]
    report = text(records, catalog)
    assert "cpu eager" in report and "cpu compile" in report
    assert re.search(r"Gelu +1/1 +0/2, 2 incorrect", report)
    assert "expected: known since 2.12" in report


def test_models_and_operators_in_one_sweep_are_both_shown(catalog: Catalog) -> None:
    models = quick_records()
    for report_format in ("table", "markdown", "html"):
        alone, both = (
            text(models, catalog, report_format),
            text([*models, *planted()], catalog, report_format),
        )
        assert "resnet50" in both and "Gelu" in both and "Gelu" not in alone
    table = text(models, catalog)
    matrix = table[table.index("\n") : table.index("16 cells")]
    assert matrix in text([*models, *planted()], catalog)  # unchanged above the operators


def test_a_timed_operator_cell_keeps_its_numbers_in_the_matrix() -> None:
    timed = cell("Gelu/basic", metrics={"latency_ms": MetricValue(value=0.01, unit="ms")})
    assert split([timed]) == ([timed], [timed])
    checked = cell("Gelu/basic")
    assert split([checked]) == ([], [checked])
    (model, *_) = quick_records()
    assert split([model]) == ([model], [])


def test_a_terminal_lets_operators_that_pass_everywhere_share_a_line(catalog: Catalog) -> None:
    records = [r for r in planted() if not (r.workload.subject == "Relu/basic" and r.state is not State.OK)]
    report = render(
        "table",
        records,
        header(),
        catalog,
        options=_options(Style(colour=False, unicode=True, width=140)),
    )
    assert "all pass: Relu 1" in report
    assert row_of(report, "Gelu")


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_the_table_fits_the_width(catalog: Catalog, width: int) -> None:
    for style in (Style(width=width), Style(colour=True, unicode=True, width=width)):
        report = render("table", planted(), header(), catalog, options=_options(style))
        assert visible_width(report) <= max(width, 60)
        for name in ("Gelu", "Relu", "Softmax"):
            assert name in report


def test_letters_stand_for_words_where_those_do_not_fit(catalog: Catalog) -> None:
    narrow = render("table", planted(), header(), catalog, options=_options(Style(width=72)))
    assert re.search(r"Gelu +1/2 1i +1/2 1u +2/2", narrow)
    assert "i incorrect" in narrow and "u unsupported" in narrow and "d differs by definition" in narrow


def test_hundreds_of_differences_are_cut_in_a_terminal_and_whole_in_a_file(catalog: Catalog) -> None:
    records = [wrong(f"Gelu/case{i}") for i in range(60)]
    screen = render(
        "table", records, header(), catalog, options=_options(Style(unicode=True, width=PIPE_WIDTH))
    )
    assert "... and 35 more, in the reports" in screen and "Gelu/case59" not in screen
    assert "Gelu/case59" in text(records, catalog) and "more, in the reports" not in text(records, catalog)


def test_cases_that_the_catalog_does_not_know_are_shown_all_the_same(
    catalog: Catalog, tmp_path: Path
) -> None:
    records = [wrong("Vanished/basic"), cell("Gelu/basic")]
    report = text(records, catalog)
    assert row_of(report, "Vanished") and "not in this version's catalog" in report
    for folder in (tmp_path, tmp_path / "nowhere"):
        bare = dataclasses.replace(catalog, operators=folder)
        assert row_of(text(records, bare), "Vanished") and row_of(text(records, bare), "Gelu")


def test_a_broken_catalog_does_not_break_the_report(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("Gelu: {kind: nonsense}\n")
    report = text([cell("Gelu/basic")], dataclasses.replace(catalog, operators=tmp_path))
    assert row_of(report, "Gelu")


def test_a_wrong_cell_without_evidence_is_still_told(catalog: Catalog) -> None:
    bare = cell("Gelu/basic", state=State.INCORRECT)
    for report_format in ("table", "markdown", "html"):
        assert "no reason was stored" in text([bare], catalog, report_format)


def test_words_from_a_worker_cannot_write_markup(catalog: Catalog) -> None:
    nasty = "<script>alert(1)</script> | **x** \x1b[31m"
    records = [ended("Gelu/basic", "pytorch", State.FAILED, nasty), wrong("Relu/basic")]
    assert "<script>alert" not in text(records, catalog, "html")
    assert "<script>" not in text(records, catalog, "markdown")
    assert "\x1b" not in text(records, catalog)


@pytest.mark.parametrize("report_format", FORMATS)
def test_a_run_of_operators_alone_has_every_format(catalog: Catalog, report_format: str) -> None:
    assert text(planted(), catalog, report_format).strip()


def test_two_thread_counts_are_told_apart(catalog: Catalog) -> None:
    one = wrong("Gelu/basic")
    many = one.model_copy(update={"id": "other", "workload": one.workload.model_copy(update={"threads": 4})})
    report = text([one, many], catalog)
    assert "Gelu/basic, 1 thread float32" in report and "Gelu/basic, 4 threads float32" in report
    assert "0/2, 2 incorrect" in report


def test_inputs_in_words() -> None:
    case = OperatorCase(
        name="Chain/x",
        dtype="float16",
        nodes=(
            Node(op="Pad", inputs=("X", "pads"), outputs=("P",), attributes={"mode": "edge"}),
            Node(op="Relu", inputs=("P",), outputs=("Y",)),
        ),
        inputs=(
            TensorSpec(name="X", dtype="float16", shape=(2, 3), layout="strided"),
            TensorSpec(
                name="pads",
                dtype="int64",
                shape=(4,),
                generator="values",
                options={"values": [0, 1, 0, 2]},
                constant=True,
            ),
            TensorSpec(name="Z", dtype="float16", shape=(), generator="nan_at", options={"index": 3}),
        ),
        outputs=("Y",),
        opset=19,
    )
    assert in_words(case) == (
        "X[2, 3] normal (strided layout), pads[4] = [0, 1, 0, 2] (int64, constant), "
        "Z[] nan_at index 3; nodes Pad(mode = edge), Relu"
    )


def test_long_values_are_not_written_out() -> None:
    spec = TensorSpec(
        name="X", dtype="float32", shape=(9,), generator="values", options={"values": list(range(9))}
    )
    node = Node(op="Abs", inputs=("X",), outputs=("Y",))
    case = OperatorCase(
        name="Abs/x", dtype="float32", nodes=(node,), inputs=(spec,), outputs=("Y",), opset=13
    )
    assert in_words(case) == "X[9] given values"


def _options(style: Style) -> Any:
    from matrix.report import Options

    return Options(style=style)
