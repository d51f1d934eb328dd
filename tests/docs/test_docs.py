"""The documentation is a test: its commands run, its files load, its output is what comes back.

A fenced block's info string says what it is:

* ```` ```yaml file=sweep.yaml ```` writes the block to that file in the page's folder;
* ```` ```python file=toy/adapter.py ```` likewise;
* ```` ```console ```` runs each `$ command` in that folder and compares what follows, where
  a line `...` stands for any lines and `...` within a line for any text; `$ command  # exit 2`
  states the exit code (0 otherwise);
* `console real` needs the real frameworks, `console norun=why` is shown but not run.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Block:
    page: Path
    line: int
    info: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    source = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["info"].strip(), match["text"])


def parameters() -> Iterator[pytest.ParameterSet]:
    for page in PAGES:
        if not page.exists():
            continue
        for block in blocks(page):
            language, _, rest = block.info.partition(" ")
            if language == "console" and rest.startswith("norun="):
                yield pytest.param(block, id=block.id, marks=pytest.mark.skip(reason=rest[6:]))
            elif language == "console":
                marks = [pytest.mark.real] if rest == "real" else []
                yield pytest.param(block, id=block.id, marks=marks)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """One working folder per page, with the files that the page shows."""
    made = {}
    for page in PAGES:
        if not page.exists():
            continue
        folder = tmp_path_factory.mktemp(page.stem)
        for block in blocks(page):
            if found := re.search(r"\bfile=(\S+)", block.info):
                target = folder / found[1]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")
        made[page] = folder
    return made


@pytest.mark.parametrize("block", parameters())
def test_the_commands_of_the_documentation_do_what_it_says(block: Block, folders: dict[Path, Path]) -> None:
    environment = dict(os.environ)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment["COLUMNS"] = "110"
    for command, code, expected in transcript(block.text):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folders[block.page],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert done.returncode == code, f"{command}\nexit {done.returncode}, {code} promised\n{shown}"
        assert matches(expected, shown), f"{command}\n--- promised\n{expected}\n--- printed\n{shown}"


def transcript(text: str) -> Iterator[tuple[str, int, str]]:
    """(command, exit code, expected output) for each `$ ` line of a block."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    for part in parts:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command = command[:-1] + more.removeprefix("> ")
        code = 0
        if found := re.search(r"\s+# exit (\d+)$", command):
            code, command = int(found[1]), command[: found.start()]
        yield command, code, expected


def matches(expected: str, shown: str) -> bool:
    """Whether `shown` is `expected`, `...` standing for anything. No expectation: anything goes."""
    if not expected.strip():
        return True
    pattern = ""
    for line in expected.strip().splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ \t]*\n"
    return (
        re.search(rf"\A\s*{pattern}\s*\Z", "\n".join(s.rstrip() for s in shown.splitlines()) + "\n")
        is not None
    )


def test_the_documentation_shows_commands_at_all() -> None:
    assert sum(1 for _ in parameters()) >= 1


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        if not page.exists():
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if (
                not target.startswith(("http://", "https://", "mailto:"))
                and not (page.parent / target).exists()
            ):
                broken.append(f"{page.name}: {target}")
    assert not broken


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
