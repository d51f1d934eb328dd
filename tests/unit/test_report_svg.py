"""The picture for a README: one file, well-formed, nothing from elsewhere."""

import re
from xml.etree import ElementTree as ET

import pytest
from synthetic_runs import eventful_records, header, many_records, quick_records, record

from matrix.catalog import load
from matrix.records import ReasonRecord, Record
from matrix.report import Options, render
from matrix.report.matrix_table import build
from matrix_adapters.protocol import State

CATALOG = load()
SVG = "{http://www.w3.org/2000/svg}"


def picture(records: list[Record], **options) -> ET.Element:
    return ET.fromstring(render("svg", records, header(), CATALOG, Options(**options)))


def texts(root: ET.Element) -> list[str]:
    return ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("records", [quick_records(), eventful_records(), many_records(60), []])
def test_the_picture_is_well_formed_and_every_cell_is_in_it(records: list[Record]) -> None:
    root = picture(records)
    assert len(root.findall(f"{SVG}g")) == len(records)
    height = float(root.get("height"))
    assert all(float(node.get("y")) <= height for node in root.iter(f"{SVG}text"))


def test_the_picture_needs_nothing_from_elsewhere() -> None:
    text = render("svg", eventful_records(), header(), CATALOG)
    rest = text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"https?:|href|<script|@import|url\(|<image|<foreignObject", rest)


def test_bars_stay_within_the_card_and_texts_beside_them() -> None:
    root = picture(eventful_records())
    width = float(root.get("width"))
    for bar in list(root.iter(f"{SVG}rect"))[1:]:
        assert float(bar.get("x")) + float(bar.get("width")) < width - 150


def test_a_cell_without_a_number_has_its_state_and_no_bar() -> None:
    root = picture(quick_records())
    without = [g for g in root.findall(f"{SVG}g") if g.find(f"{SVG}rect") is None]
    assert len(without) == 4
    assert all("unavailable" in "".join(g.itertext()) for g in without)


def test_the_best_of_each_row_is_marked_once() -> None:
    assert sum("★ best" in text for text in texts(picture(quick_records()))) == 4


def test_a_best_cell_that_is_flagged_says_both() -> None:
    noisy = ReasonRecord(code="noisy", text="launches differ by 61 %")
    fast = record("pytorch", metrics={"latency_ms": 1.0}, flags=(noisy,))
    shown = texts(picture([fast, record("tensorflow", metrics={"latency_ms": 2.0})]))
    assert "1.00 ms★ bestflagged" in shown


def test_an_incorrect_bar_is_hollow_and_its_number_struck() -> None:
    root = picture(eventful_records())
    (hollow,) = [
        g
        for g in root.findall(f"{SVG}g")
        if (r := g.find(f"{SVG}rect")) is not None and r.get("fill") == "none"
    ]
    assert "48.4 ms" in "".join(hollow.itertext())
    assert hollow.find(f".//{SVG}tspan").get("class") == "v s"


def test_names_with_markup_or_control_characters_stay_text() -> None:
    evil = "</text><script>x</script>\x00\x1b&"
    reason = ReasonRecord(code="x", text=evil)
    root = picture(
        [record("pytorch", evil, state=State.FAILED, reason=reason), record(evil, evil, {"latency_ms": 2.0})]
    )
    assert root.find(f".//{SVG}script") is None
    assert any(text.startswith("</text><script>x</script>") for text in texts(root))


def test_another_metric_can_be_drawn() -> None:
    root = picture(quick_records(), metrics=["peak_memory_bytes"])
    assert "Peak host memory" in texts(root)
    assert any(text.startswith("298 MiB") for text in texts(root))


def test_it_says_in_words_what_it_shows() -> None:
    root = picture(quick_records())
    described = root.find(f"{SVG}desc").text
    table = build(quick_records(), CATALOG, "latency_ms")
    assert root.get("role") == "img"
    assert all(row.key.subject in described for row in table.rows)
