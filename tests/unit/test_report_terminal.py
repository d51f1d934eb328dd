"""The matrix in a terminal and in a pipe."""

import io
import re

import pytest
from synthetic_runs import NO_GPU, eventful_records, header, many_records, quick_records, record

from matrix.catalog import load
from matrix.records import MetricValue, ReasonRecord, Record
from matrix.report.style import PIPE_WIDTH, Style, visible_width
from matrix.report.terminal import render
from matrix_adapters.protocol import State

CATALOG = load()


class Terminal(io.StringIO):
    """A stream that says it is a terminal of some encoding."""

    def __init__(self, encoding: str = "utf-8", tty: bool = True) -> None:
        super().__init__()
        self._encoding, self._tty = encoding, tty

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


def small() -> list[Record]:
    """Two models, three columns: best, tied, flagged, incorrect, unavailable."""
    noisy = ReasonRecord(code="noisy", text="launches differ by 14 %")
    wrong = ReasonRecord(code="tolerance", text="max|d|/max|ref| is 0.28, limit 1.0e-05")

    def values(latency: tuple, first: float, memory: int, error: float) -> dict:
        return {
            "latency_ms": latency,
            "time_to_first_output_s": first,
            "peak_memory_bytes": float(memory * 2**20),
            "max_scaled_error": error,
        }

    gone = {"hardware": "nvidia", "state": State.UNAVAILABLE, "reason": NO_GPU}
    text = {"sequence": 128}
    return [
        record("pytorch", "resnet50", values((46.0, 45.5, 46.6), 2.41, 612, 1.8e-5)),
        record("onnxruntime", "resnet50", values((33.5, 33.2, 33.7), 0.221, 298, 2.2e-5), flags=(noisy,)),
        record("tensorrt", "resnet50", **gone),
        record(
            "pytorch",
            "bert",
            values((69.5, 69.0, 70.0), 3.2, 721, 0.28),
            state=State.INCORRECT,
            reason=wrong,
            **text,
        ),
        record("onnxruntime", "bert", values((57.4, 56.8, 58.0), 0.396, 560, 6e-7), **text),
        record("tensorrt", "bert", **gone, **text),
    ]


PIPED = """\
quick  2026-11-30 20:21 UTC, 4 min 28 s

                      PyTorch 2.13.0               ONNX Runtime 1.32.0            TensorRT 11.4.0.106
                      cpu                          cpu                            nvidia
------------------  ---------------------------  -----------------------------  ---------------------
resnet50
  latency                46.0 ms  (45.5-46.6)    *    33.5 ms  (33.2-33.7) [a]    unavailable [2]
  first output           2.41 s                  *   0.221 s
  peak memory             612 MiB                *     298 MiB
  error               1.8e-05                      2.2e-05
------------------  ---------------------------  -----------------------------  ---------------------
bert, sequence 128
  latency             incorrect [1] ~~69.5 ms~~       57.4 ms  (56.8-58.0)        unavailable [2]
  first output        ~~3.20 s~~                     0.396 s
  peak memory         ~~721 MiB~~                      560 MiB
  error                 0.280                      6.0e-07
------------------  ---------------------------  -----------------------------  ---------------------
geomean               1.37x  (1/2 ok)              1.00x  (2/2 ok)                -  (0/2 ok)

* best of row   ~~12.3 ms~~ wrong numerics, not ranked   (low-high) over launches   all rows: batch 1, fp32, 1
thread

6 cells: 3 ok, 1 incorrect, 2 unavailable.
ONNX Runtime 1.32.0 cpu has the lowest latency (median) in the one compared row.
Geometric mean of the ratio to ONNX Runtime 1.32.0 cpu, over the one row that all of them have: PyTorch 2.13.0
cpu 1.37x.

Not ok
  [1] incorrect, 1 cell: max|d|/max|ref| is 0.28, limit 1.0e-05
  [2] unavailable, 2 cells: no NVIDIA GPU on this machine: none of /dev/nvidia0, /dev/dxg exists
Flags: what to distrust
  [a] noisy, 1 cell: launches differ by 14 %
"""

EIGHTY = """\
                               latency           first      peak      error
                                                 output     memory
---------------------------- ----------------- ---------- --------- ---------
resnet50
  PyTorch 2.13.0 cpu           46.0 ms            2.41 s    612 MiB   1.8e-05
  ONNX Runtime 1.32.0 cpu    * 33.5 ms [a]     * 0.221 s  * 298 MiB   2.2e-05
  TensorRT 11.4.0.106 nvidia   unavailable [1]
---------------------------- ----------------- ---------- --------- ---------
bert, sequence 128
  ONNX Runtime 1.32.0 cpu      57.4 ms             396 ms   560 MiB   6.0e-07
  TensorRT 11.4.0.106 nvidia   unavailable [1]
"""


def test_a_small_matrix_in_a_pipe_looks_like_this() -> None:
    shown = render(small(), header(), CATALOG)
    assert shown.split("\nmachine ")[0].rstrip() == PIPED.rstrip()


def test_a_small_matrix_in_eighty_columns_looks_like_this() -> None:
    records = [r for r in small() if r.state is not State.INCORRECT]
    shown = render(records, header(), CATALOG, style=Style(width=80))
    assert shown.split("\n\n")[1].rstrip() == EIGHTY.rstrip()


def test_eighty_columns_are_enough_for_the_default_sweep_on_one_line_a_cell() -> None:
    shown = render(quick_records(), header(), CATALOG, style=Style(width=80))
    assert visible_width(shown) <= 80
    assert sum(line.startswith("  ONNX Runtime 1.32.0 cpu") for line in shown.splitlines()) == 4


@pytest.mark.parametrize("unicode", [False, True])
@pytest.mark.parametrize("width", [72, 80, 100, 110, 132, 160, 220])
def test_nothing_is_wider_than_the_terminal(width: int, unicode: bool) -> None:
    for records in (quick_records(), eventful_records()):
        shown = render(records, header(), CATALOG, style=Style(unicode, unicode, width))
        assert visible_width(shown) <= width


def test_all_cells_are_shown_at_every_width() -> None:
    records = quick_records()
    for width in (50, 80, 110, 200):
        shown = render(records, header(), CATALOG, style=Style(width=width))
        assert shown.count("unavailable [1]") == 4
        assert all(shown.count(text) >= 1 for text in ("45.9 ms", "5.81 ms", "57.4 ms", "53.0 ms"))


def test_a_pipe_gets_neither_colour_nor_anything_beyond_ascii() -> None:
    assert render(eventful_records(), header(), CATALOG).isascii()
    assert "\x1b" not in render(eventful_records(), header(), CATALOG)
    assert Style.detect(Terminal(tty=False), {}) == Style(width=PIPE_WIDTH)


def test_a_terminal_gets_colour_and_unicode_at_its_own_width() -> None:
    style = Style.detect(Terminal(), {"COLUMNS": "132"})
    assert style == Style(True, True, 132)
    shown = render(quick_records(), header(), CATALOG, style=style)
    assert "★" in shown
    assert "\x1b[1;32m" in shown


@pytest.mark.parametrize(
    ("stream", "environ", "colour", "unicode"),
    [
        (Terminal(), {"NO_COLOR": "1"}, False, True),
        (Terminal(), {"NO_COLOR": ""}, True, True),
        (Terminal(), {"TERM": "dumb"}, False, False),
        (Terminal("ascii"), {}, True, False),
        (Terminal("latin-1"), {}, True, False),
        (Terminal("no-such-encoding"), {}, True, False),
    ],
)
def test_what_the_terminal_supports_is_honoured(
    stream: Terminal, environ: dict[str, str], colour: bool, unicode: bool
) -> None:
    style = Style.detect(stream, environ)
    assert (style.colour, style.unicode) == (colour, unicode)


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    evil = "bad\x1b[2J\x1b]0;title\x07\u202ename"
    records = [
        record("pytorch", evil, {"latency_ms": 1.0}),
        record("tensorflow", evil, state=State.FAILED, reason=ReasonRecord(code="x", text=evil)),
    ]
    for style in (Style(), Style(False, True, 120)):
        shown = render(records, header(name=evil), CATALOG, style=style)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)


def test_a_header_without_anything_in_it_is_no_reason_to_fail() -> None:
    shown = render(quick_records(), {}, CATALOG)
    assert "unnamed run" in shown
    assert "machine" not in shown.split("Not ok")[0]


def test_a_run_of_no_cells_says_so() -> None:
    assert render([], header(), CATALOG) == "quick: no cells were planned.\n"


def test_chosen_metrics_are_shown_and_no_others() -> None:
    shown = render(quick_records(), header(), CATALOG, metrics=["throughput_items_s"])
    assert "29.9 items/s" in shown
    assert "peak memory" not in shown


def test_the_mean_of_a_wide_matrix_stands_under_its_columns_with_the_pass_rate() -> None:
    shown = render(quick_records(), header(), CATALOG, style=Style(width=160))
    line = next(line for line in shown.splitlines() if line.startswith("geomean"))
    assert line.split() == [
        "geomean",
        "1.68x",
        "(4/4",
        "ok)",
        "1.35x",
        "(4/4",
        "ok)",
        "1.00x",
        "(4/4",
        "ok)",
        "-",
        "(0/4",
        "ok)",
    ]


def test_a_number_that_is_absent_is_a_dash_and_never_a_zero() -> None:
    records = [record("pytorch", metrics={"cosine": MetricValue(value=1.0, unit="1")})]
    shown = render(records, {}, CATALOG, metrics=["latency_ms"])
    body = shown.split("\n\n")[1]
    assert body.splitlines()[-1].split() == ["resnet50", "-"]


def test_reports_and_overhead_and_load_are_told() -> None:
    from pathlib import Path

    path = Path("results/20261130-a-rather-long-name-that-nobody-would-type-by-hand/reports/matrix.html")
    shown = render(
        quick_records(), header(), CATALOG, style=Style(width=60), reports=[path.with_suffix(".txt"), path]
    )
    assert f"reports   {path}\n          and .txt beside it\n" in shown  # whole: it can be clicked
    assert "61.0 ns a call (58.0 ns to 66.0 ns)" in shown
    assert "before 0.31 0.22 0.18, after 1.04 0.71 0.40" in shown
    assert "no container engine answered" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"outcome": "interrupted"}, "`matrix run --resume` continues it"),
        ({"outcome": "budget_spent"}, "budget was spent"),
        ({"null_adapter": {"absent": "the worker failed"}}, "not measured: the worker failed"),
        ({"load": {"before": {"load_average": [0.1, 0.2, 0.3]}}}, "before 0.10 0.20 0.30"),
        ({"warnings": [{"code": "busy", "text": "the machine was busy"}]}, "the machine was busy"),
    ],
)
def test_what_the_header_says_of_the_run_is_repeated(changes: dict, said: str) -> None:
    shown = render(quick_records(), header(**changes), CATALOG)
    assert said in " ".join(shown.split())


def test_many_reasons_are_cut_with_a_count_and_never_silently() -> None:
    records = [
        record("pytorch", f"m{i}", state=State.FAILED, reason=ReasonRecord(code="x", text=f"reason {i}"))
        for i in range(30)
    ]
    shown = render(records, {}, CATALOG)
    assert "and 18 more, in the reports" in shown
    assert shown.count("failed [") == 30


def test_three_hundred_cells_fit_too() -> None:
    shown = render(many_records(300), header(), CATALOG, style=Style(width=120))
    assert visible_width(shown) <= 120
