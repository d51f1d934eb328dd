"""The page: complete, self-contained, and safe whatever a name holds."""

import base64
import hashlib
import html.parser
import re
from pathlib import Path

import numpy as np
import pytest
from synthetic_runs import eventful_records, header, many_records, measured, quick_records, record

from matrix.catalog import load
from matrix.records import LaunchRecord, ReasonRecord
from matrix.report import Options, render
from matrix.report.chart import colours, groups
from matrix.report.matrix_table import build
from matrix.report.plots import MOST_DOTS, error_axis, stack, strip
from matrix_adapters.protocol import State

CATALOG = load()
EVIL = "<script>alert('x')</script>\"'><img src=x onerror=alert(1)>{{ 7*7 }}"
VOID = {"meta", "link", "br", "input", "img", "hr"}


class Tree(html.parser.HTMLParser):
    """Checks that tags nest, and keeps what a test asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.texts: list[str] = []
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

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, tag: str, name: str) -> list[str]:
        return [attrs[name] or "" for t, attrs in self.tags if t == tag and name in attrs]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("run")
    records = eventful_records(folder)
    return render("html", records, header(), CATALOG, Options(run_dir=folder, link_base="../"))


def test_the_page_is_well_formed_and_its_ids_are_unique(page: str) -> None:
    tree = Tree(page)
    assert tree.wrong == []
    assert tree.open == []
    ids = [attrs["id"] for _, attrs in tree.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))


def test_the_page_asks_nothing_of_any_other_place(page: str) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|url\(", page)
    tree = Tree(page)
    links = [v for name in ("src", "href", "action", "srcset") for t, a in tree.tags if (v := a.get(name))]
    assert all(v.startswith(("#", "../logs/", "data:,")) for v in links)
    policy = next(a["content"] for t, a in tree.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_only_script_that_may_run_is_the_one_that_ships(page: str) -> None:
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert len(scripts) == 1
    assert f"script-src 'sha256-{digest}'" in page
    assert not re.search(r"\son[a-z]+=", page)


def test_every_link_within_the_page_leads_somewhere(page: str) -> None:
    tree = Tree(page)
    ids = {attrs["id"] for _, attrs in tree.tags if attrs.get("id")}
    targets = {v[1:] for v in tree.values("a", "href") if v.startswith("#")}
    assert targets <= ids
    assert {f"c-{r.id}" for r in eventful_records()} <= targets


def test_every_cell_is_in_the_matrix_and_has_its_details(page: str) -> None:
    records = eventful_records()
    latency = page.split('class="panel p-latency_ms"')[1].split("</section>", maxsplit=1)[0]
    for r in records:
        assert latency.count(f'href="#c-{r.id}"') == 1
        assert page.count(f'id="c-{r.id}"') == 1


def test_hostile_names_are_text_and_nothing_else() -> None:
    reason = ReasonRecord(code=EVIL, text=EVIL)
    records = [
        record(
            "pytorch",
            EVIL,
            {"latency_ms": 1.0},
            flags=(reason,),
            contract={EVIL: EVIL},
            versions={EVIL: EVIL},
        ),
        record(EVIL, EVIL, state=State.FAILED, reason=reason, variant=EVIL, arm=EVIL, xfail=EVIL),
    ]
    text = render(
        "html", records, header(name=EVIL, machine={"cpu": EVIL}, warnings=[EVIL], command=[EVIL]), CATALOG
    )
    tree = Tree(text)
    assert tree.wrong == []
    assert [t for t, _ in tree.tags].count("script") == 1
    assert not [a for t, a in tree.tags if t == "img" or any(k.startswith("on") for k in a)]
    assert "49" not in "".join(t for t in tree.texts if "7*7" in t)
    assert "{{ 7*7 }}" in text


def test_a_hostile_log_is_shown_as_text(page: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)" not in page


def test_an_incorrect_speed_is_struck_through_wherever_it_is_shown(page: str) -> None:
    wrong = next(r for r in eventful_records() if r.state is State.INCORRECT)
    details = page.split(f'id="c-{wrong.id}"')[1].split("</details>", maxsplit=1)[0]
    assert "<s>48.4 ms</s>" in details
    assert "outside tolerance" in details
    assert (
        page.count("48.4 ms") == page.count("<s>48.4 ms</s>") + page.count('<s class="num">48.4 ms</s>') + 1
    )
    # the one more is the launch that measured it, in the table of launches
    assert "<b>48.4 ms</b>" not in page


def test_the_details_of_a_cell_hold_what_its_number_rests_on(page: str) -> None:
    cell = next(r for r in eventful_records() if r.environment.framework == "tensorflow")
    details = page.split(f'id="c-{cell.id}"')[1].split("</details>", maxsplit=1)[0]
    for word in (
        "Samples",
        "Start-up",
        "Numerics",
        "clamp(4 x",
        "host_to_host",
        cell.artefacts["weights"],
        cell.artefacts["inputs"],
        "NHWC",
        "66 samples, p99 needs 662",
        "load_average",
        "tensorflow-2.21.0-cpu",
    ):
        assert word in details, word
    assert details.count('class="mid"') == 3  # one lane for each timed launch
    assert details.count("../logs/") == 3


def test_a_page_without_scripts_still_has_every_metric_and_every_reason(page: str) -> None:
    bare = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "killed by the kernel" in bare
    assert bare.count('type="radio"') == bare.count('class="panel ')
    assert "<dialog" in bare  # closed unless a script opens it


def test_a_metric_that_is_absent_is_not_shown_as_zero() -> None:
    records = [
        record("pytorch", metrics={"latency_ms": 3.0, "peak_memory_bytes": 2.0**20}),
        record("tensorflow", metrics={"latency_ms": 4.0}, absent={"peak_memory_bytes": "no memory launch"}),
    ]
    text = render("html", records, {}, CATALOG)
    panel = text.split('class="panel p-peak_memory_bytes"')[1].split("</section>")[0]
    assert "no value" in panel
    assert 'title="no memory launch"' in panel
    assert not re.search(r">0( |<)", panel.split("<tfoot>")[0])


def test_three_hundred_cells_make_a_page_of_sane_size(tmp_path: Path) -> None:
    text = render("html", many_records(300, tmp_path), header(), CATALOG, Options(run_dir=tmp_path))
    assert len(text.encode()) < 4_500_000
    assert Tree(text).wrong == []


def test_samples_and_logs_outside_the_run_folder_are_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("../secret.txt", str(tmp_path / "secret.txt")):
        launch = LaunchRecord(
            cell="x", purpose="measure", block=0, state=State.FAILED, log=name, samples=name
        )
        cell = record("pytorch", state=State.FAILED, launches=(launch,))
        assert "the secret" not in render("html", [cell], {}, CATALOG, Options(run_dir=run, link_base="../"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 torn", b"not a zip"])
def test_broken_samples_leave_out_the_picture_and_nothing_else(tmp_path: Path, content: bytes) -> None:
    cell = measured("resnet50", "pytorch", tmp_path)
    for launch in cell.launches:
        if launch.samples:
            (tmp_path / launch.samples).write_bytes(content)
    text = render("html", [cell], header(), CATALOG, Options(run_dir=tmp_path))
    assert "one dot a timed sample" not in text
    assert "45.9 ms" in text


# --- pictures -----------------------------------------------------------------------------


def test_thinned_dots_keep_the_slowest_and_the_fastest_sample() -> None:
    values = np.full(5000, 10.0)
    values[1234], values[4321] = 9.0, 90.0
    drawn = strip([("launch 1", values)])
    assert drawn is not None
    lane = drawn.lanes[0]
    assert lane.dots.count("M") <= MOST_DOTS
    assert (lane.count, lane.left_out) == (5000, 5000 - lane.dots.count("M"))
    assert (drawn.low, drawn.high, drawn.log) == (9.0, 90.0, True)
    assert "M6 9h0" in lane.dots
    assert "M634 9h0" in lane.dots


def test_no_samples_make_no_picture() -> None:
    assert strip([]) is None
    assert strip([("launch 1", np.empty(0))]) is None


def test_samples_that_are_all_equal_are_drawn_in_the_middle() -> None:
    drawn = strip([("launch 1", np.full(3, 5.0))])
    assert drawn is not None
    assert drawn.lanes[0].median_x == 320


def test_phases_are_shares_of_their_sum_and_nothing_has_no_shares() -> None:
    assert [(s.name, s.share) for s in stack([("import", 3.0), ("load", 0.0), ("first call", 1.0)])] == [
        ("import", 0.75),
        ("first call", 0.25),
    ]
    assert stack([("import", 0.0)]) == []


def test_floor_error_and_limit_keep_their_order_on_the_axis() -> None:
    axis = error_axis(4e-7, 1e-5, 3e-3)
    assert axis is not None
    assert 0 < axis.floor < axis.limit < axis.error < 1
    assert error_axis(None, 1e-5, 0.0).error == 0.0
    assert error_axis(1e-7, None, None) is None


def test_bars_start_at_zero_and_are_as_long_as_their_numbers() -> None:
    table = build(quick_records(), CATALOG, "latency_ms")
    for group in groups(table):
        drawn = [(bar.length, bar.cell.value.value) for bar in group.bars if bar.length is not None]
        scales = [length / value for length, value in drawn]
        assert max(scales) == pytest.approx(min(scales))
        assert max(length for length, _ in drawn) <= 1
        assert [bar.length for bar in group.bars if bar.cell.state is State.UNAVAILABLE] == [None]


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_has_the_contrast_that_accessibility_rules_ask_for(page: str, dark: bool) -> None:
    """WCAG 2.2 AA: 4.5 to 1 for text of this size."""
    blocks = re.findall(r":root\{(.*?)\}", page.split("</style>", maxsplit=1)[0], re.DOTALL)
    names = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})\b", re.sub(r"#fff\b", "#ffffff", blocks[dark])))
    names.setdefault("card", "#ffffff")
    pairs = [("ink", place) for place in ("bg", "card", "faint", *(f"h{i}" for i in range(6)))]
    pairs += [(text, place) for text in ("soft", "accent", "good", "bad", "warn") for place in ("bg", "card")]
    pairs += [("bad", "badbg"), ("warn", "faint"), ("soft", "faint")]
    for text, place in pairs:
        light, deep = sorted((luminance(names[text]), luminance(names[place])), reverse=True)
        assert (light + 0.05) / (deep + 0.05) >= 4.5, (text, place)


def test_columns_have_colours_of_their_own() -> None:
    table = build(eventful_records(), CATALOG, "latency_ms")
    found = colours(table.columns)
    assert len(set(found)) == len(found) == len(table.columns)
