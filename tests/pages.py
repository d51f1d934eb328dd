"""The pages of the documentation as data: their code blocks, and how a block is run and compared.

A fenced block's info string says what it is:

* ```` ```yaml file=sweep.yaml ```` writes the block to that file in the page's folder (any language);
* ```` ```console ```` runs each `$ command` in that folder and compares what follows, where
  a line `...` stands for any lines and `...` within a line for any text; `$ command  # exit 2`
  states the exit code (0 otherwise); a command goes on where a line ends in a backslash;
* `console real` needs the real frameworks, `console norun=why` is shown but not run.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
#: what a page installs must not reach the interpreter of the tests: it goes into the page's folder,
#: where Python finds it as it would in its site-packages
SITE = ".site"
PIP_INSTALL = f"pip install --quiet --no-deps --target {SITE} "


def pages() -> list[Path]:
    """Every page that users read, those that exist."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
    return [page for page in [*found, *sorted((ROOT / "docs").glob("*.md"))] if page.exists()]


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file(self) -> str:
        """The file that the block is; "" where it is none."""
        found = re.search(r"\bfile=(\S+)", self.info)
        return found[1] if found else ""

    @property
    def is_console(self) -> bool:
        return self.info.partition(" ")[0] == "console"

    @property
    def is_real(self) -> bool:
        return self.info == "console real"

    @property
    def why_not_run(self) -> str | None:
        """The reason of a block that is shown only; None for one that is run."""
        _, _, rest = self.info.partition(" ")
        return rest.removeprefix("norun=") if rest.startswith("norun=") else None


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    source = page.read_text(encoding="utf-8")
    for match in FENCE.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        yield Block(page, line, match["info"].strip(), match["text"])


def write_files(found: Iterable[Block], folder: Path) -> None:
    """Write the blocks that are files into `folder`."""
    for block in found:
        if block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")


def environment(folder: Path) -> dict[str, str]:
    """Variables of a page's commands: this interpreter's commands first, and what the page installed."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder / SITE),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "COLUMNS": "110",
    }


def run_block(block: Block, folder: Path) -> None:
    """Run a block's commands in `folder`. Raises AssertionError where one does not do what is promised."""
    for command, code, expected in transcript(block.text):
        done = subprocess.run(
            ["bash", "-c", command.replace("pip install ", PIP_INSTALL)],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert done.returncode == code, (
            f"{block.where}: {command}\nexit {done.returncode}, {code} promised\n{shown}"
        )
        assert matches(expected, shown), (
            f"{block.where}: {command}\n--- promised\n{expected}\n--- printed\n{shown}"
        )


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


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading that starts so, without its head, backticks removed."""
    source = page.read_text(encoding="utf-8")
    start = re.search(rf"^#+ {re.escape(heading)}.*$", source, re.MULTILINE)
    assert start, f"{page.name} has no heading {heading!r}"
    rest = re.split(r"^#+ ", source[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip() for line in rest.splitlines() if line.strip().startswith("|")]
    assert len(lines) > 2, f"{page.name} has no table below {heading!r}"
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in lines]
    return [
        [cell.strip().replace("`", "").replace(r"\|", "|") for cell in row]
        for row in rows
        if not re.fullmatch(r"[\s:|-]+", "|".join(row))
    ][1:]
