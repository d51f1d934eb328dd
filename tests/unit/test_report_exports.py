"""Markdown, CSV, JSON and JUnit: the same cells for people elsewhere and for programs."""

import csv
import io
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from synthetic_runs import eventful_records, header, quick_records, record

from matrix.catalog import load
from matrix.errors import StorageError, UsageError
from matrix.records import ReasonRecord, Record
from matrix.report import FORMATS, Options, render, write_all
from matrix_adapters.protocol import State

CATALOG = load()
EVIL = "a|b`<script>alert(1)</script>*x* [y](http://z.example) @someone\nnext"


def strict(text: str):
    def refuse(name: str):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


# --- markdown -----------------------------------------------------------------------------


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of the first table, as a Markdown parser sees them."""
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    table = html.split("<table>")[1].split("</table>")[0]
    return [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        for row in table.split("</tr>")
        if "<t" in row
    ]


def test_a_markdown_table_has_every_row_with_every_column() -> None:
    rows = markdown_rows(render("markdown", quick_records(), header(), CATALOG))
    assert len(rows) == 1 + 4 + 1  # heading, workloads, geometric mean
    assert {len(row) for row in rows} == {5}
    assert rows[1][3] == "<strong>33.5\u00a0ms</strong>"
    assert rows[1][4].startswith("unavailable<sup>1</sup>")


def test_text_from_outside_stays_text_in_markdown() -> None:
    reason = ReasonRecord(code="x", text=EVIL)
    records = [
        record("pytorch", EVIL, {"latency_ms": 1.0}),
        record("tensorflow", EVIL, state=State.FAILED, reason=reason),
    ]
    text = render("markdown", records, header(name=EVIL), CATALOG)
    assert {len(row) for row in markdown_rows(text)} == {3}
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(text)
    assert "<script" not in html
    assert "<a " not in html
    assert "@someone" not in re.sub(r"(?m)^(\| )`[^`]*`", "", text)  # a code span mentions nobody
    notes = html.split("Not ok")[1]
    assert "a|b`&lt;script&gt;alert(1)&lt;/script&gt;*x* [y](http://z.example)" in notes


def test_an_incorrect_cell_is_struck_in_markdown() -> None:
    text = render("markdown", eventful_records(), header(), CATALOG)
    assert re.search(r"incorrect<sup>1</sup> ~~48\.4&nbsp;ms~~", text)


# --- csv ----------------------------------------------------------------------------------


def csv_lines(records: list[Record]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render("csv", records, header(), CATALOG))))


def test_every_cell_has_a_line_in_the_csv_and_every_number_its_stored_unit() -> None:
    records = eventful_records()
    lines = csv_lines(records)
    assert {line["id"] for line in lines} == {r.id for r in records}
    values = {(line["id"], line["metric"]): line for line in lines if line["value"]}
    for r in records:
        for name, value in r.metrics.items():
            line = values[r.id, name]
            assert float(line["value"]) == value.value  # every digit
            assert line["unit"] == value.unit == CATALOG.metrics[name].unit


def test_a_cell_without_numbers_has_its_state_and_reason_in_the_csv_and_no_value() -> None:
    (line,) = csv_lines(
        [record("pytorch", state=State.OOM, reason=ReasonRecord(code="oom", text="24 GiB used"))]
    )
    assert (line["state"], line["reason_code"], line["reason"]) == ("oom", "oom", "24 GiB used")
    assert (line["metric"], line["value"], line["low"], line["n"]) == ("", "", "", "")


def test_an_absent_metric_has_a_line_with_the_reason_and_an_empty_value() -> None:
    (line,) = csv_lines([record("pytorch", absent={"latency_ms_p99": "66 samples"})])
    assert (line["metric"], line["value"], line["absent"]) == ("latency_ms_p99", "", "66 samples")


def test_a_spreadsheet_does_not_run_what_a_reason_says() -> None:
    reason = ReasonRecord(code="x", text="=HYPERLINK(1)")
    assert csv_lines([record("pytorch", state=State.FAILED, reason=reason)])[0]["reason"].startswith("'=")


# --- json ---------------------------------------------------------------------------------


def test_the_json_is_strict_and_holds_every_record_whole() -> None:
    records = eventful_records()
    document = strict(render("json", records, header(), CATALOG))
    assert document["run"]["id"] == header()["id"]
    assert [Record.model_validate(cell) for cell in document["cells"]] == records
    cell = document["cells"][0]
    assert cell["metrics"]["latency_ms"].keys() >= {"value", "unit", "low", "high", "n"}
    assert cell["environment"].keys() >= {"framework", "version", "hardware", "backend"}
    assert cell["workload"].keys() >= {"level", "subject"}
    assert cell.keys() >= {"id", "label", "state", "reason", "flags", "parity", "artefacts", "contract"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_header_with_a_number_that_is_none_becomes_null(bad: float) -> None:
    document = strict(render("json", quick_records(), header(totals={"wall_s": bad, "list": [bad]}), CATALOG))
    assert document["run"]["totals"] == {"wall_s": None, "list": [None]}


# --- junit --------------------------------------------------------------------------------


def test_junit_has_a_case_for_every_cell_and_counts_failures_and_skips() -> None:
    records = eventful_records()
    suite = ET.fromstring(render("junit", records, header(), CATALOG)).find("testsuite")
    cases = suite.findall("testcase")
    assert len(cases) == len(records) == int(suite.get("tests"))
    assert len(suite.findall("testcase/failure")) == int(suite.get("failures")) == 5
    assert len(suite.findall("testcase/skipped")) == int(suite.get("skipped")) == 6
    assert sum(len(c) == 0 or c[0].tag == "properties" for c in cases if c.find("failure") is None) >= 18


@pytest.mark.parametrize(
    ("state", "changes", "kind"),
    [
        (State.UNAVAILABLE, {}, "skipped"),
        (State.UNAVAILABLE, {"required": True}, "failure"),
        (State.FAILED, {}, "failure"),
        (State.FAILED, {"xfail": "known"}, "skipped"),
        (State.INCORRECT, {}, "failure"),
        (State.NOT_RUN, {}, "skipped"),
    ],
)
def test_junit_fails_where_the_run_would(state: State, changes: dict, kind: str) -> None:
    root = ET.fromstring(render("junit", [record("pytorch", state=state, **changes)], {}, CATALOG))
    assert root.find(f".//{kind}") is not None
    assert root.find(f".//{kind}").get("message").startswith(state.value)


def test_junit_stays_xml_whatever_a_reason_holds() -> None:
    reason = ReasonRecord(code="x", text="\x00\x1b[31m<&>\ud7ff\ufffe")
    text = render("junit", [record("pytorch", "m<>", state=State.FAILED, reason=reason)], header(), CATALOG)
    assert ET.fromstring(text).find(".//failure").get("message").startswith("failed: ")


# --- all of them --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_every_format_takes_an_empty_run_and_a_bare_header(name: str) -> None:
    assert render(name, [], {}, CATALOG).strip()
    assert render(name, quick_records(), {}, CATALOG).strip()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_rendering_twice_gives_the_same_bytes(name: str) -> None:
    records = eventful_records()
    assert render(name, records, header(), CATALOG) == render(name, records, header(), CATALOG)


def test_an_unknown_format_is_a_usage_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there are table, markdown, html"):
        render("pdf", [], {}, CATALOG)


def test_all_reports_of_a_run_are_written_beside_it(tmp_path: Path) -> None:
    written = write_all(tmp_path, eventful_records(tmp_path), header(), CATALOG)
    assert [p.name for p in written] == [f"matrix.{x}" for x in ("txt", "md", "html", "csv", "json", "svg")]
    assert {p.parent for p in written} == {tmp_path / "reports"}
    assert all(p.stat().st_size > 500 for p in written)
    assert not [p for p in (tmp_path / "reports").iterdir() if p not in written]  # no leftovers


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("a file where the folder should be")
    with pytest.raises(StorageError):
        write_all(tmp_path, quick_records(), header(), CATALOG)


def test_a_baseline_is_honoured_by_every_view_that_has_ratios() -> None:
    options = Options(baseline="pytorch-2.13.0-cpu")
    for name in ("table", "markdown", "html", "svg"):
        assert "ratio to PyTorch 2.13.0 cpu" in " ".join(
            re.sub(r"<[^>]+>", " ", render(name, quick_records(), header(), CATALOG, options)).split()
        )
