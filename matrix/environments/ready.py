"""The marker of a finished virtualenv: what was there when it was built, and is it still?"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from matrix.environments import installed
from matrix.environments.base import clean_environ
from matrix.environments.recipe import Recipe
from matrix_adapters.protocol import Flag, ProtocolError, from_json, to_json, write_atomic

READY_FILE = "ready.json"
SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """What `ready.json` holds."""

    framework: str
    version: str
    build: str
    python: str  # e.g. "3.11.7"
    lock: tuple[str, ...]
    size_bytes: int  # that it takes on the disk
    content_bytes: int | None = None  # of its files, without bytecode: equal for equal installations
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]
    built: str  # UTC, ISO 8601
    seconds: float  # what the build took
    schema: int = SCHEMA


def read(folder: Path) -> Ready | None:
    """The marker; None where a build was not finished or another version of this product made it."""
    try:
        marker = from_json(Ready, (folder / READY_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ProtocolError):
        return None
    return marker if marker.schema == SCHEMA else None


def trouble(folder: Path, marker: Ready | None) -> str:
    """Why the environment cannot be used as it is; "" for a healthy one."""
    if marker is None:
        return "an earlier build was not finished" if folder.exists() else "it was never built"
    said = _interpreter_says(folder)
    if said != marker.python:
        return f"its interpreter should answer {marker.python}, and answers: {said}"
    site = installed.site_packages(folder)
    changed = installed.changes(marker.lock, installed.lock_of(site))
    if changed:
        return f"its packages were changed after it was built: {some(changed)}"
    return installed.damaged_file(site)


def write(recipe: Recipe, folder: Path, *, notes: list[str], seconds: float) -> None:
    """Compare what is there with what was wanted and with the last build of this key; mark it built."""
    lock = installed.lock_of(installed.site_packages(folder))
    last = folder.with_name(f"{folder.name}.lock.json")
    marker = Ready(
        framework=recipe.framework,
        version=recipe.version,
        build=recipe.build,
        python=recipe.interpreter.version,
        lock=lock,
        size_bytes=installed.folder_size(folder),
        content_bytes=installed.content_size(folder),
        flags=tuple(_flags(recipe, lock, last)),
        notes=tuple(notes),
        built=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=round(seconds, 2),
    )
    write_atomic(last, "".join(f"{item}\n" for item in lock))
    write_atomic(folder / READY_FILE, to_json(marker))


def touch(folder: Path) -> None:
    """Remember that the environment was used now."""
    with contextlib.suppress(OSError):
        os.utime(folder / READY_FILE)


def last_used(folder: Path) -> float:
    """When it was used or begun last (`time.time()`)."""
    for path in (folder / READY_FILE, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def some(items: tuple[str, ...]) -> str:
    """The first few of many, and how many more there are."""
    rest = len(items) - 5
    return ", ".join(items[:5]) + (f" and {rest} more" if rest > 0 else "")


def _interpreter_says(folder: Path) -> str:
    question = "import platform; print(platform.python_version())"
    command = [str(installed.interpreter(folder)), "-I", "-S", "-c", question]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env=clean_environ()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = (answer.stdout if answer.returncode == 0 else answer.stderr).strip().splitlines()
    return lines[-1] if lines else f"nothing (exit status {answer.returncode})"


def _flags(recipe: Recipe, lock: tuple[str, ...], last: Path) -> list[Flag]:
    found = []
    if recipe.constraints and (wrong := installed.differences(lock, recipe.expected)):
        found.append(
            Flag(
                code="differs_from_constraints",
                text=f"the environment differs from its constraints: {some(wrong)}",
            )
        )
    if last.is_file():
        before = tuple(last.read_text(encoding="utf-8").split())
        if changed := installed.changes(before, lock):
            found.append(
                Flag(
                    code="differs_from_last_build",
                    text=f"the environment differs from the last build of the same key: {some(changed)}",
                )
            )
    return found
