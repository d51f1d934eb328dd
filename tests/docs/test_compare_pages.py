"""The pages on comparing and on CI are held to the code, and the workflow to the command line."""

from __future__ import annotations

import re
import shlex
from typing import Any, get_args

import pytest
import yaml
from pages import ROOT, blocks, table

from matrix import catalog
from matrix.cli import _parser
from matrix.compare import fail_on
from matrix.compare.findings import Finding
from matrix.imported.columns import OPTIONAL, REQUIRED
from matrix.judge.rows import Layout, Word
from matrix.report.comparison import FORMATS
from matrix.report.comparison.as_json import cell
from matrix.report.units import human

COMPARE = ROOT / "docs" / "compare.md"
CI = ROOT / "docs" / "ci.md"


def column(heading: str) -> list[str]:
    return [row[0] for row in table(COMPARE, heading)]


def test_every_verdict_and_layout_is_explained() -> None:
    assert column("Verdicts") == [word.value for word in Word]
    assert column("What can be compared") == list(get_args(Layout))


def test_the_table_of_margins_is_the_registry() -> None:
    told = {
        name: (margin, least)
        for names, margin, least in table(COMPARE, "Margins")
        for name in names.split(", ")
    }
    known = {
        metric.id: (
            f"{100 * metric.margin:.3g} %",
            human(metric.least, metric.unit) if metric.least is not None else "",
        )
        for metric in catalog.load().metrics.values()
        if metric.margin is not None
    }
    assert told == known


def test_every_format_is_explained() -> None:
    assert column("Formats") == list(FORMATS)


def test_every_key_of_the_json_is_explained() -> None:
    assert column("JSON") == list(cell(Finding(workload="w", metric="m", verdict=Word.NO_WORSE)))


def test_every_column_of_a_file_is_explained() -> None:
    assert column("Samples from elsewhere") == [*REQUIRED, *OPTIONAL]


def test_the_default_of_fail_on_is_the_one_that_is_told() -> None:
    assert f"`{fail_on.DEFAULT}`" in COMPARE.read_text(encoding="utf-8")


def workflow() -> dict[str, Any]:
    (text,) = (block.text for block in blocks(CI) if block.file.endswith("framework-upgrade.yml"))
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def commands() -> list[str]:
    """Every matrix command of the page's YAML."""
    text = "\n".join(block.text for block in blocks(CI) if block.info.startswith("yaml"))
    folded = re.sub(r"run: >\n((?: {10}.*\n)+)", lambda m: "run: " + " ".join(m[1].split()) + "\n", text)
    return [
        re.sub(r"\s>>? .*$", "", found[1])
        for line in folded.splitlines()
        if (found := re.match(r"\s*(?:- )?(?:run: )?(matrix .*)$", line))
    ]


def test_the_workflow_is_one_that_github_would_read() -> None:
    found = workflow()
    assert set(found) == {"name", True, "permissions", "concurrency", "jobs"}  # YAML 1.1 reads `on` as true
    (job,) = found["jobs"].values()
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    scripts = "\n".join(step["run"] for step in job["steps"] if "run" in step)
    assert "${{" not in scripts, "an expression in a script is an injection"
    assert job["timeout-minutes"] > 0


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_workflow_is_one_that_the_command_line_takes(command: str) -> None:
    words = shlex.split(command)[1:]
    _parser(words).parse_args(words)
    if "--fail-on" in words:
        fail_on.parse(words[words.index("--fail-on") + 1])


def test_the_workflow_has_commands_at_all() -> None:
    assert len(commands()) >= 8


@pytest.mark.parametrize("words", [row[1] for row in table(CI, "What to gate on")])
def test_every_gate_that_is_told_is_one(words: str) -> None:
    fail_on.parse(words.partition(" ")[0])
