"""Every format of a comparison is read by a strict reader, with nothing in it and with hostile names."""

from __future__ import annotations

import html.parser
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from comparison_runs import Imported, paired, parity, record, samples, write_run

from matrix.catalog import load
from matrix.compare.collected import Count
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.judge.rows import Instrument, Verdict, Word
from matrix.report.comparison import FORMATS, Options, render
from matrix.report.comparison.markdown import LIMIT
from matrix.report.style import Style
from matrix_adapters.protocol import State

CATALOG = load()
EVIL = "<script>alert('x')</script>\"'|`<img src=x onerror=alert(1)>{{ 7*7 }} ]]> @everyone #1 \x1b[31m\u202e"
VOID = {"meta", "link", "br", "input", "img", "hr"}


def finding(
    workload: str = "w", word: Word = Word.REGRESSED, delta: float | None = 0.1, **changes: Any
) -> Finding:
    judged = Verdict(
        workload=workload,
        metric="latency_ms",
        unit="ms",
        verdict=word,
        delta=delta,
        delta_low=None if delta is None else delta - 0.02,
        delta_high=None if delta is None else delta + 0.02,
        effect=delta,
        margin=0.03,
        mde=0.02,
        n=8,
    )
    fields: dict[str, Any] = {
        "metric": "latency_ms",
        "unit": "ms",
        "better": "lower",
        "base": 10.0,
        "candidate": 11.0,
    }
    return Finding(workload=workload, verdict=word, judged=judged, **{**fields, **changes})


def comparison(findings: list[Finding], **changes: Any) -> Comparison:
    fields: dict[str, Any] = {
        "duels": (),
        "findings": tuple(findings),
        "instrument": Instrument(),
        "means": (),
        "base": Count(cells=1, ok=1),
        "candidate": Count(cells=1, ok=1),
        "locks": {},
        "warnings": (),
        "unjudged": (),
    }
    return Comparison(**{**fields, **changes})


def everything() -> Comparison:
    """One finding of each kind, with names that nobody should have."""
    found = [finding(EVIL, word, reason=f"because {EVIL}") for word in Word]
    found += [finding("higher", better="higher", metric="throughput_items_s", unit="items/s", derived=True)]
    found += [finding("no effect", Word.NOT_COMPARABLE, None, candidate=None, missing=True)]
    found += [finding("huge", delta=800.0), finding("none", Word.NO_WORSE, 0.0)]
    found += [
        Finding(
            workload=EVIL, metric="state", verdict=Word.REGRESSED, base="ok", candidate="oom", kind="state"
        )
    ]
    return comparison(found, warnings=(EVIL,), unjudged=("loss_gap",), failing={"regressed": 2})


@pytest.mark.parametrize("report_format", list(FORMATS))
@pytest.mark.parametrize("style", [Style(), Style(colour=True, unicode=True, width=60)])
def test_a_comparison_of_nothing_is_shown_in_every_format(report_format: str, style: Style) -> None:
    text = render(report_format, comparison([]), CATALOG, Options(style=style))
    assert text.endswith("\n")


def _refuse(constant: str) -> None:
    raise AssertionError(constant)


@pytest.mark.parametrize("made", [comparison([]), everything()], ids=["nothing", "everything"])
@pytest.mark.parametrize("report_format", ["json", "github", "github-bigger", "bencher"])
def test_json_is_json_without_nan_or_infinity(report_format: str, made: Comparison) -> None:
    json.loads(render(report_format, made, CATALOG), parse_constant=_refuse)


def test_json_holds_every_finding_with_the_promised_keys() -> None:
    answer = json.loads(render("json", everything(), CATALOG))
    assert set(answer) == {"summary", "cells"}
    assert len(answer["cells"]) == len(everything().findings)
    promised = {
        "workload",
        "metric",
        "verdict",
        "effect",
        "low",
        "high",
        "unit",
        "base",
        "candidate",
        "reason",
    }
    assert all(promised <= set(cell) for cell in answer["cells"])
    assert {cell["verdict"] for cell in answer["cells"]} == {word.value for word in Word}
    assert any(cell["workload"] == EVIL for cell in answer["cells"]), "data is not changed for views"


def test_junit_is_xml_with_a_case_for_every_finding() -> None:
    made = everything()
    root = ET.fromstring(render("junit", made, CATALOG))
    cases = list(root.iter("testcase"))
    assert len(cases) == len(made.findings) == int(root.attrib["tests"])
    failures = [case for case in cases if case.find("failure") is not None]
    assert len(failures) == int(root.attrib["failures"]) == 4, "regressed twice, a state, one that is gone"
    skipped = [case for case in cases if case.find("skipped") is not None]
    assert len(skipped) == int(root.attrib["skipped"]) == 2


def test_what_fail_on_names_is_a_failure_of_junit_too() -> None:
    made = comparison([finding("w", Word.INCONCLUSIVE)], fail_on=("inconclusive",))
    root = ET.fromstring(render("junit", made, CATALOG))
    assert root.attrib["failures"] == "1" and root.attrib["skipped"] == "0"


def test_github_and_bencher_take_each_metric_once_and_in_its_direction() -> None:
    made = comparison(
        [finding("w"), finding("w", better="higher", metric="throughput_items_s", unit="items/s")]
    )
    smaller, bigger = (json.loads(render(f, made, CATALOG)) for f in ("github", "github-bigger"))
    assert [entry["name"] for entry in smaller] == ["w latency_ms"]
    assert [entry["name"] for entry in bigger] == ["w throughput_items_s"]
    assert {"name", "unit", "value"} <= set(smaller[0]) and float(smaller[0]["range"]) > 0
    found = json.loads(render("bencher", made, CATALOG))
    assert set(found) == {"w"} and set(found["w"]) == {"latency-ms", "throughput-items-s"}
    for measure in found["w"].values():
        assert measure["lower_value"] < measure["upper_value"]


class Tree(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")


@pytest.mark.parametrize("made", [comparison([]), everything()], ids=["nothing", "everything"])
def test_the_page_is_well_formed_self_contained_and_runs_nothing(made: Comparison) -> None:
    page = render("html", made, CATALOG)
    tree = Tree(page)
    assert tree.wrong == [] and tree.open == []
    names = {tag for tag, _ in tree.tags}
    assert "script" not in names and "img" not in names
    assert not re.search(r"https?:|@import|url\(", page)
    assert not any(name.startswith("on") for _, attrs in tree.tags for name in attrs)
    ids = [attrs["id"] for _, attrs in tree.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    if made.findings:
        assert "{{ 7*7 }}" in page, "no template in a name is run"


def test_the_forest_draws_what_is_judged_inside_its_frame() -> None:
    page = render("html", everything(), CATALOG)
    tree = Tree(page)
    circles = [attrs for tag, attrs in tree.tags if tag == "circle"]
    arrows = [attrs for tag, attrs in tree.tags if tag == "path"]
    assert len(circles) + len(arrows) == sum(
        f.judged is not None and f.judged.delta is not None and not f.derived for f in everything().findings
    )
    assert arrows, "x2.7e347 lies beyond every scale"
    assert all(400 <= float(attrs["cx"] or 0) <= 920 for attrs in circles)


def test_markdown_lets_no_name_out_of_its_cell() -> None:
    text = render("markdown", everything(), CATALOG)
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "<script" not in outside and "<img" not in outside and "@everyone" not in outside
    for line in text.splitlines():
        if line.startswith("| ") and "`" in line:
            cells = re.split(r"(?<!\\)\|", line)
            assert len(cells) == 8, line
    assert text.count("<details>") == text.count("</details>")


def test_markdown_fits_a_comment_whatever_it_holds() -> None:
    many = [
        finding(f"workload {i} {'x' * 80}", word, reason="because " * 20) for i in range(600) for word in Word
    ]
    text = render("markdown", comparison(many), CATALOG)
    assert len(text) <= LIMIT
    assert "more are in the JSON" in text and "600 regressed" in text
    assert text.count("<details>") == text.count("</details>")


def test_the_table_says_first_what_is_worst_and_folds_what_is_well() -> None:
    found = [finding(f"fine {i}", Word.NO_WORSE, 0.001) for i in range(3)]
    made = comparison([finding("slow", delta=0.3), *found], failing={"regressed": 1})
    text = render("table", made, CATALOG)
    assert "slow" in text and "fine" not in text
    assert "3 more rows are no worse; --all shows them" in text
    assert "+35.0 %" in text and "fails on regressed (1)" in text
    assert "fine 2" in render("table", made, CATALOG, Options(all=True))


def test_a_pipe_gets_one_plain_line_a_row() -> None:
    made = everything()
    text = render("table", made, CATALOG, Options(style=Style(width=60), all=True))
    assert text.isascii() and "\x1b" not in text
    body = text.partition("----\n")[2].partition("\n\n")[0].splitlines()
    rows = [line for line in body if line.startswith(tuple(word.value for word in Word))]
    assert len(rows) == len(made.findings)


def test_a_narrow_terminal_gets_a_narrow_table() -> None:
    made = comparison([finding("a long name of a workload, batch 16, sequence 512 bf16 8 threads" * 2)])
    wide = render("table", made, CATALOG, Options(style=Style(unicode=True, width=120)))
    assert max(map(len, wide.splitlines())) <= 120


def test_all_formats_of_real_comparisons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Imported(tmp_path, capsys)
    made.add(samples(only=lambda e, w: 1.2 if (e, w) == ("new", "a") else 1.0))
    base, candidate = paired(1.2)
    halves = [
        record("1.31.0", "resnet50", base, parity=parity(1e-6)),
        record("1.32.0", "resnet50", candidate, parity=parity(9e-5)),
        record("1.31.0", "gpt2", [1.0]),
        record("1.32.0", "gpt2", state=State.OOM),
    ]
    write_run(made.results, "sweep", halves)
    for sides in (("run:old", "run:new"), ("sweep:onnxruntime-1.31.0-cpu", "sweep:onnxruntime-1.32.0-cpu")):
        for report_format in FORMATS:
            target = tmp_path / f"out.{report_format}"
            code, out, err = made.run("compare", *sides, "--format", report_format, "-o", str(target))
            assert code == 1 and out == "" and "Traceback" not in err
            assert target.read_text(encoding="utf-8")


def test_a_metric_that_repeats_another_is_not_counted_again_in_any_view() -> None:
    made = comparison(
        [finding("w"), finding("w", metric="throughput_items_s", better="higher", derived=True)]
    )
    assert "<b>1 regressed</b>" in render("html", made, CATALOG)
    well = comparison([finding("w", Word.NO_WORSE), finding("w", Word.NO_WORSE, metric="x", derived=True)])
    assert "1 more row is no worse" in render("table", well, CATALOG)
