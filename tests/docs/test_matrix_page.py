"""docs/matrix.md lists what the code knows: states, flags, reason codes and metrics, in both directions.

A new flag or metric fails here until the page has it, and a page cannot keep one that is gone.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pages import ROOT, blocks, table
from synthetic_runs import NO_GPU, header, record

from matrix import catalog
from matrix.catalog.types import Metric
from matrix.records import ReasonRecord, Record
from matrix.report.summary import STATE_HELP
from matrix.report.terminal import render
from matrix_adapters.protocol import State

PAGE = ROOT / "docs" / "matrix.md"
SOURCES = [*(ROOT / "matrix").rglob("*.py"), *(ROOT / "adapters").rglob("*.py")]
_CODE = re.compile(r"[a-z0-9_*]+")  # a text has blanks


def test_every_state_is_documented_with_the_meaning_that_the_reports_give() -> None:
    rows = {row[0]: row[1] for row in table(PAGE, "States")}
    assert rows == {state.value: STATE_HELP[state].replace("`", "") for state in State}


def test_every_state_but_ok_has_an_example_of_a_reason() -> None:
    assert all(len(row[2]) > 10 for row in table(PAGE, "States") if row[0] != "ok")


def test_every_flag_that_the_code_can_raise_is_documented_and_no_other() -> None:
    documented = [row[0] for row in table(PAGE, "Flags")]
    raised = flag_codes()
    assert len(documented) == len(set(documented))
    missing = {code for code in raised if not fnmatch.filter(documented, code)}
    stale = {code for code in documented if not any(fnmatch.fnmatch(code, known) for known in raised)}
    assert (missing, stale) == (set(), set())


def test_a_new_flag_would_be_seen() -> None:
    source = """
LATER = "named_above"
def look(name):
    keep = bound.flag("keepdims", 1) or bound.flag("exclusive")
    flags = [Note(code="of_a_verdict", text=""), ReasonRecord(code=LATER, text="")]
    launch.flag("brand_new", f"some {name} text")
    it = _flagged(it, "of_a_result", "text")
    return Flag(code=f"{name}_odd", text="")
def some_flags():
    return [ReasonRecord(code="of_a_cell", text=""), {"code": "of_an_adapter", "text": ""}]
def state():
    return ReasonRecord(code="a_reason", text="")
"""
    assert set(codes_in(ast.parse(source))) == {
        "brand_new",
        "of_a_result",
        "*_odd",
        "of_a_cell",
        "of_an_adapter",
        "of_a_verdict",
        "named_above",
    }


def test_the_reader_of_flags_finds_those_that_exist() -> None:
    known = {"noisy", "outlier", "*_differs", "*_changed", "non_deterministic", "partial_fallback"}
    assert known <= set(flag_codes())


def test_every_reason_code_that_the_page_names_is_in_the_code() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    rows = [
        row[1].replace("; of operators also ", ", ").replace("; of operators ", ", ")
        for row in table(PAGE, "Reason codes")
    ]
    codes = [code for row in rows for code in row.split(", ")]
    assert len(codes) > 20
    assert [code for code in codes if f'"{code}"' not in text] == []


def test_the_table_of_metrics_is_the_registry() -> None:
    wanted = [metric_row(metric) for metric in catalog.load().metrics.values()]
    lines = "\n".join(f"| `{name}` | {' | '.join(rest)} |" for name, *rest in wanted)
    assert table(PAGE, "Metrics") == wanted, f"the table should be\n{lines}"


def test_the_example_is_what_the_tool_prints() -> None:
    shown = next(block.text for block in blocks(PAGE) if block.info == "text")
    assert shown == example()


def metric_row(metric: Metric) -> list[str]:
    """id, title, unit, better, how the number is made, whether it is ranked; in the page's words."""
    across = {"mean": "mean of launches", "max": "largest of launches", "min": "smallest of launches"}
    how = across.get(metric.across, f"pooled samples, at least {metric.min_samples}")
    how = f"{metric.within} of samples, {how}" if metric.within else how
    how = f"derived: {metric.derived}; {how}" if metric.derived else how
    return [metric.id, metric.title, metric.unit, metric.better, how, "yes" if metric.ranked else "no"]


def example() -> str:
    """A small matrix with every mark in it. Its numbers are invented."""
    noisy = ReasonRecord(code="noisy", text="launches differ by 14% (48.1 to 55.2 ms)")
    wrong = ReasonRecord(
        code="tolerance",
        text="scaled error 0.0031 is above 1e-05 at logits[0, 99]: got 0.713, reference 0.716",
    )
    records = [
        _cell("pytorch", "resnet50", (46.1, 45.6, 46.9), 2.41, 612, 1.8e-6),
        _cell("tensorflow", "resnet50", (51.6, 48.1, 55.2), 4.36, 983, 1.7e-6, flags=(noisy,)),
        _cell("onnxruntime", "resnet50", (33.4, 33.1, 33.6), 0.221, 298, 2.2e-6),
        record("tensorrt", "resnet50", hardware="nvidia", state=State.UNAVAILABLE, reason=NO_GPU),
        _cell("pytorch", "distilbert", (58.6, 57.2, 60.4), 3.2, 721, 4.4e-7, sequence=128),
        _cell(
            "tensorflow",
            "distilbert",
            (41.2, 40.9, 41.5),
            4.8,
            1320,
            3.1e-3,
            sequence=128,
            state=State.INCORRECT,
            reason=wrong,
        ),
        _cell("onnxruntime", "distilbert", (57.9, 57.4, 58.3), 0.396, 560, 6.0e-7, sequence=128),
        record(
            "tensorrt",
            "distilbert",
            hardware="nvidia",
            state=State.UNAVAILABLE,
            reason=NO_GPU,
            sequence=128,
        ),
    ]
    return render(records, header(id="example", name="", warnings=[]), catalog.load())


def _cell(
    framework: str,
    subject: str,
    latency: tuple[float, float, float],
    first_output_s: float,
    memory_mib: int,
    error: float,
    **changes: Any,
) -> Record:
    metrics = {
        "latency_ms": latency,
        "time_to_first_output_s": first_output_s,
        "peak_memory_bytes": float(memory_mib * 2**20),
        "max_scaled_error": error,
    }
    return record(framework, subject, metrics, **changes)


@functools.cache
def flag_codes() -> tuple[str, ...]:
    """Codes of all flags in the sources; `*` stands for what is filled in at run time."""
    found: list[str] = []
    for path in SOURCES:
        found += codes_in(ast.parse(path.read_text(encoding="utf-8")))
    return tuple(dict.fromkeys(found))


def codes_in(
    tree: ast.AST, inside: str = "", constants: Mapping[str, ast.expr] | None = None
) -> Iterator[str]:
    """`Flag(code=...)`, `flag("...", text)`, `flagged(it, "...")`; and records in functions about flags,
    or that are given the name `flags`."""
    known = _constants(tree) if constants is None else constants
    for node in ast.iter_child_nodes(tree):
        within = node.name if isinstance(node, ast.FunctionDef) else inside
        if isinstance(node, ast.Assign) and any(getattr(to, "id", "") == "flags" for to in node.targets):
            within = "flags"
        about_flags = "flag" in within or within in ("differing", "partial_fallback")
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("Flag", "Note") or (name == "ReasonRecord" and about_flags):
                code = next((k.value for k in node.keywords if k.arg == "code"), None)
                yield from _words(known.get(getattr(code, "id", ""), code))
            elif name.lstrip("_") in ("flag", "flagged") and not _reads_an_attribute(node):
                yield from (word for arg in node.args[:2] for word in _words(arg))
        elif isinstance(node, ast.Dict) and about_flags:
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    yield from _words(value)
        yield from codes_in(node, within, known)


def _constants(tree: ast.AST) -> dict[str, ast.expr]:
    """What a module calls by a name: DIFFERS = "differs_by_definition"."""
    assigned = [node for node in ast.iter_child_nodes(tree) if isinstance(node, ast.Assign)]
    return {to.id: node.value for node in assigned for to in node.targets if isinstance(to, ast.Name)}


def _reads_an_attribute(call: ast.Call) -> bool:
    """`bound.flag("keepdims", 1)` of a mapping: a default, or nothing, where a flag has its text."""
    return len(call.args) < 2 or isinstance(getattr(call.args[1], "value", None), int)


def _words(value: ast.expr | None) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield from [value.value] if _CODE.fullmatch(value.value) else []
    elif isinstance(value, ast.JoinedStr):
        parts = (str(p.value) if isinstance(p, ast.Constant) else "*" for p in value.values)
        code = "".join(parts)
        yield from [code] if _CODE.fullmatch(code) else []
