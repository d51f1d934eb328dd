"""How people name runs: by id, a unique prefix of it, `latest`, or the name given with `--name`."""

from __future__ import annotations

import contextlib
import datetime
import difflib
import json
import re
import secrets
from pathlib import Path

from matrix.errors import UsageError

HEADER_FILE = "run.json"
LATEST = "latest"


def new_id(sweep: str) -> str:
    """An id that sorts by time and can be read: 20261130-202640-quick-3f2a."""
    word = re.sub(r"[^a-z0-9]+", "_", sweep.lower()).strip("_")[:24] or "run"
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%d-%H%M%S}-{word}-{secrets.token_hex(2)}"


def all_runs(results: Path) -> list[Path]:
    """The run folders under `results`, oldest first."""
    if not results.is_dir():
        return []
    try:
        return sorted(folder for folder in results.iterdir() if _is_run(folder))
    except OSError as error:
        raise UsageError(f"{results} cannot be read: {error.strerror or error}") from None


def find_run(results: Path, text: str) -> Path:
    """The one run that `text` names. A path to a run folder is taken as it is. Raises UsageError."""
    if _is_run(Path(text)):
        return Path(text)
    runs = all_runs(results)
    if not runs:
        raise UsageError(f"there is no run in {results}; `matrix run` makes one")
    if text == LATEST:
        return runs[-1]
    found = [run for run in runs if run.name == text]
    found = found or [run for run in runs if text and _given_name(run) == text]
    found = found or [run for run in runs if text and run.name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(run.name for run in found[:5])
        raise UsageError(f"{text!r} names {len(found)} runs: {names}; write more of the id")
    known = [run.name for run in runs] + [name for run in runs if (name := _given_name(run))]
    near = difflib.get_close_matches(text, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the newest is {runs[-1].name}"
    raise UsageError(f"no run is called {text!r} in {results}; {hint}")


def find_run_and_environment(results: Path, text: str) -> tuple[Path, str]:
    """`RUN` or `RUN:ENVIRONMENT`: the run, and the environment's name or ""."""
    if _is_run(Path(text)):  # a path may hold a colon
        return Path(text), ""
    run, _, environment = text.partition(":")
    return find_run(results, run), environment


def check_new_name(results: Path, name: str) -> None:
    """Raises UsageError for a `--name` that would be ambiguous or cannot be typed back."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) or name == LATEST:
        raise UsageError(
            f"--name {name!r}: letters, digits, '.', '_' and '-' are possible, `latest` is taken"
        )
    if any(name in (run.name, _given_name(run)) for run in all_runs(results)):
        raise UsageError(f"--name {name!r}: there is a run of that name already in {results}")


def _is_run(folder: Path) -> bool:
    try:
        return (folder / HEADER_FILE).is_file()
    except OSError:  # a text that is too long for a name, a folder that may not be looked into
        return False


def _given_name(run: Path) -> str:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(json.loads((run / HEADER_FILE).read_text(encoding="utf-8")).get("name") or "")
    return ""
