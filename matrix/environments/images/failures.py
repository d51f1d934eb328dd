"""Why a build did not give an image, told apart, each with what to do about it."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from pathlib import Path

import urllib3
from docker.errors import APIError

from matrix.environments.checks import MORE_SPACE
from matrix.execution.engine import ENGINE_ERRORS
from matrix_adapters.protocol import Reason

__all__ = ["ENGINE_ERRORS", "of_event", "of_exception"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RUN = re.compile(r"The command '(?P<command>.*)' returned a non-zero code: (?P<code>\d+)", re.DOTALL)
_SYNTAX = re.compile(r"dockerfile parse error|unknown instruction|Dockerfile.*(syntax|cannot be empty)", re.I)
_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.I)
_NO_BASE = re.compile(
    r"pull access denied|manifest (for .* )?(unknown|not found)|repository .* not found|"
    r"No such image|lookup .* no such host|dial tcp|i/o timeout|TLS handshake timeout|"
    r"Client\.Timeout|unauthorized|connection refused",
    re.I,
)
_MORE_ROOM = (
    "free some space there (`matrix images prune`, `docker system df`), or give the engine a larger disk."
)


def of_event(message: str, tail: Sequence[str], log: Path) -> Reason:
    """The engine ended the build with an error in its stream; `tail` is what it said before."""
    lines = _COLOUR.sub("", "".join(tail)).splitlines()
    said = [line.strip() for line in lines if line.strip()]
    see = f" Full output: {log}"
    if _NO_SPACE.search(message) or any(_NO_SPACE.search(line) for line in said[-20:]):
        return Reason(code="disk_full", text=f"the engine's disk is full: {_MORE_ROOM}{see}")
    if failed := _RUN.search(message):
        step = next((line for line in reversed(said) if line.startswith(("Step ", "STEP "))), "")
        words = [line for line in said if not line.startswith(("Step ", "STEP ", "--->", "Removing "))]
        text = words[-1][:300] if words else "it printed nothing"
        if failed["code"] == "137":
            text = f"killed, most likely for want of memory (last words: {text})"
        command = step.partition(" : ")[2] or failed["command"]
        return Reason(
            code="build_step_failed",
            text=f"`{command[:120]}` ended with exit status {failed['code']}: {text}. "
            f"Mend the Dockerfile or what it installs.{see}",
        )
    if _NO_BASE.search(message):
        return Reason(code="base_missing", text=f"the base image cannot be had: {_line(message)}.{see}")
    if _SYNTAX.search(message):
        return _syntax(message, see)
    return Reason(code="build_error", text=f"the engine could not build it: {_line(message)}.{see}")


def of_exception(error: BaseException, *, silent_s: float, log: Path) -> Reason:
    """The call itself failed, or the stream broke off."""
    see = f" Full output: {log}"
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:  # ours, not the engine's
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Reason(code="disk_full", text=f"disk full at {error.filename}: {MORE_SPACE}{see}")
        return Reason(code="build_error", text=f"{error.filename}: {error.strerror}.{see}")
    if _NO_SPACE.search(text):
        return Reason(code="disk_full", text=f"the engine's disk is full: {_MORE_ROOM}{see}")
    if isinstance(error, APIError):
        said = str(error.explanation or error)
        if _SYNTAX.search(said):
            return _syntax(said, see)
        return Reason(code="engine_refused", text=f"the engine refused the build: {_line(said)}.{see}")
    if isinstance(error, urllib3.exceptions.ReadTimeoutError) or "Read timed out" in text:
        return Reason(
            code="build_silent",
            text=f"a step of the build said nothing for {silent_s:g} s and was given up: it hangs, or has "
            f"to print what it does.{see}",
        )
    return Reason(
        code="engine_lost",
        text=f"the connection to the container engine was lost in the middle of the build ({_line(text)}): "
        f"see that it runs (`docker version`), then repeat with --resume.{see}",
    )


def _syntax(message: str, see: str) -> Reason:
    return Reason(code="dockerfile_syntax", text=f"the Dockerfile has a mistake: {_line(message)}.{see}")


def _line(text: str) -> str:
    return " ".join(text.split())[:300].rstrip(".")
