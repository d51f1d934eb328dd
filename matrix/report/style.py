"""What the terminal can show: colour, Unicode, width. A pipe gets plain ASCII."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping
from typing import TextIO

PIPE_WIDTH = 110

_CODES = {"bold": 1, "dim": 2, "strike": 9, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]+")
_ASCII = str.maketrans({"×": "x", "µ": "u", "–": "-", "—": "-", "’": "'", "…": "...", "·": "-"})


@dataclasses.dataclass(frozen=True, slots=True)
class Style:
    """How text is drawn; the default suits a pipe, a file and a pull request."""

    colour: bool = False
    unicode: bool = False
    width: int = PIPE_WIDTH

    @classmethod
    def detect(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Style:
        """What `stream` supports: nothing but ASCII unless it is a terminal (see no-color.org)."""
        if not stream.isatty() or environ.get("TERM") == "dumb":
            return cls()
        colour = not environ.get("NO_COLOR")
        width = int(environ["COLUMNS"]) if environ.get("COLUMNS", "").isdigit() else 0
        return cls(colour, _can_encode(stream), width or shutil.get_terminal_size((100, 24)).columns)

    def paint(self, text: str, *names: str) -> str:
        if not self.colour or not names or not text.strip():
            return text
        return f"\x1b[{';'.join(str(_CODES[n]) for n in names)}m{text}\x1b[0m"

    def plain(self, text: object) -> str:
        """Text from outside: no control characters (they could redraw the terminal), ASCII if need be."""
        clean = _CONTROL.sub(" ", str(text))
        if self.unicode:
            return clean
        return clean.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def visible_width(text: str) -> int:
    """Columns of the widest line, escape sequences not counted."""
    return max((len(line) for line in _ESCAPE.sub("", text).splitlines()), default=0)


def _can_encode(stream: TextIO) -> bool:
    try:
        "★≈×µ│╭─".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
