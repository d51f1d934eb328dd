"""The documentation is a test: its commands run, its files load, its output is what comes back.

`pages` says how a block is marked. The blocks of a page run in order and in one folder, so
that a page reads like the session it shows; the quick ones also run without the real ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import Block, blocks, matches, pages, run_block, transcript, write_files


def sessions() -> Iterator[pytest.ParameterSet]:
    """(page, the blocks to run) for each page: the quick ones, and all where some are real."""
    for page in pages():
        shown = [b for b in blocks(page) if b.is_console and b.why_not_run is None]
        quick = [b for b in shown if not b.is_real]
        if quick:
            yield pytest.param(page, quick, id=page.name)
        if len(shown) > len(quick):
            yield pytest.param(page, shown, id=f"{page.name}-real", marks=pytest.mark.real)


@pytest.mark.parametrize(("page", "shown"), list(sessions()))
def test_the_commands_of_the_documentation_do_what_it_says(
    page: Path, shown: list[Block], tmp_path: Path
) -> None:
    write_files(blocks(page), tmp_path)
    for block in shown:
        run_block(block, tmp_path)


def test_the_documentation_shows_commands_at_all() -> None:
    assert sum(1 for _ in sessions()) >= 1


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_block_says_what_it_is_and_why_it_is_not_run(page: Path) -> None:
    for block in blocks(page):
        assert block.info, f"{block.where}: a block without a language"
        if block.is_console:
            options = block.info.partition(" ")[2]
            assert options in ("", "real") or options.startswith("norun="), f"{block.where}: {block.info}"
            assert block.why_not_run != "", f"{block.where}: norun without a reason"
            assert list(transcript(block.text)), f"{block.where}: no line begins with `$ `"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_link_of_the_documentation_leads_somewhere(page: Path) -> None:
    broken = []
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        leads_to = page.parent / target if target else page
        if not leads_to.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(leads_to):
            broken.append(f"{target}#{anchor}")
    assert not broken


def anchors(page: Path) -> set[str]:
    """The anchors that the headings of a Markdown page get: lower case, hyphens, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_transcript_is_read_as_written() -> None:
    text = "$ echo a \\\n> b\na b\n$ false  # exit 1\n"
    assert list(transcript(text)) == [("echo a b", 0, "a b\n"), ("false", 1, "")]


@pytest.mark.parametrize(
    ("expected", "shown", "same"),
    [
        ("a\n...\nb\n", "a\nx\ny\nb\n", True),
        ("took ... s\n", "took 1.5 s\n", True),
        ("a\n", "b\n", False),
        ("a\nb\n", "a\nx\nb\n", False),
    ],
)
def test_an_expectation_with_gaps_matches_only_what_fits(expected: str, shown: str, same: bool) -> None:
    assert matches(expected, shown) is same


@pytest.mark.parametrize(
    "text", ["$ echo right\nwrong\n", "$ exit 3\n", "$ true  # exit 1\n", "$ echo a\n$ echo b\nc\n"]
)
def test_a_page_that_promises_something_else_fails(text: str, tmp_path: Path) -> None:
    page = pages()[0]
    with pytest.raises(AssertionError):
        run_block(Block(page, 1, "console", text), tmp_path)
