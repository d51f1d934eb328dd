"""Make an empty virtualenv, and run pip against it from outside.

The environment itself holds no pip, so that what is installed in it is what the catalog asked
for, and half the time of `python -m venv` (unpacking pip into it) is saved.
"""

from __future__ import annotations

import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from matrix.environments.base import BuildFailed, Progress, clean_environ
from matrix.environments.installed import interpreter, site_packages
from matrix.environments.interpreters import Interpreter, running
from matrix.environments.pip_errors import explain, not_found
from matrix.environments.pip_tool import pip_environ
from matrix.environments.process import run_owned
from matrix.environments.recipe import Step
from matrix.machine.fingerprint import usable_threads

PROBE_S = 2.0

_AT_WORK = re.compile(r"\s*(?P<verb>Collecting|Downloading|Processing) (?P<what>\S+)(?P<size> \(\d[^)]*B\))?")


def make_virtualenv(
    folder: Path, log: Path, cancelled: threading.Event | None, python: Interpreter | None = None
) -> None:
    """An empty virtualenv of `python`, else of the running interpreter. Raises BuildFailed."""
    made_by = python or running()
    command = [made_by.path, "-m", "venv", "--without-pip", str(folder)]
    status, output = run_owned(command, log=log, environ=clean_environ(), cancelled=cancelled)
    if status != 0:
        raise BuildFailed(explain(output, what="python -m venv", log=log, python=made_by), log)


def install(
    folder: Path,
    step: Step,
    *,
    pip: list[str],
    constraints: Path | None,
    log: Path,
    cancelled: threading.Event | None,
    progress: Progress,
    python: Interpreter | None = None,
    as_of: str = "",
) -> None:
    """One step of a recipe, with nothing in it that was published after `as_of`.

    An unreachable index gets a second try. Raises BuildFailed.
    """
    environ = pip_environ(as_of)
    base = [*pip, "--python", str(interpreter(folder)), "install", "--no-compile"]
    if step.index is not None:
        base += ["--index-url", step.index]
    if step.links is not None:
        base += ["--find-links", step.links]
    command = [*base, *(["--no-deps"] if step.no_deps else [])]
    if constraints is not None:
        command += ["--constraint", str(constraints)]
    command += step.requirements
    for attempt in (1, 2):
        status, output = run_owned(
            command, log=log, environ=environ, cancelled=cancelled, on_line=told(progress)
        )
        if status == 0:
            return
        links = ""
        if missing := not_found(output):  # only verbose output tells "no wheel here" from "no such version"
            lookup = [*base, "-vv", "--dry-run", "--no-deps", "--ignore-installed", missing]
            _, links = run_owned(lookup, log=log, environ=environ, cancelled=cancelled)
        what = "pip install " + " ".join(step.requirements)
        reason = explain(output, what=what, log=log, links=links, python=python)
        if reason.code != "index_unreachable" or attempt == 2:
            raise BuildFailed(reason, log)
        progress("the package index does not answer, trying once more")


def compile_bytecode(folder: Path, log: Path, cancelled: threading.Event | None) -> None:
    """Compile all that was installed, in parallel, so that no launch pays for it.

    pip would do the same in one process, file after file, which takes longer than all the
    rest of an install. Packages' own tests are left out. A file that does not compile (some
    are templates) is its package's business, as it is for pip.
    """
    command = [str(interpreter(folder)), "-I", "-m", "compileall", "-qq", "-j", str(usable_threads())]
    command += ["-x", r"[/\\](tests?|testdata)[/\\]", str(site_packages(folder))]
    run_owned(command, log=log, environ=clean_environ(), cancelled=cancelled)


class IndexProbe:
    """Asks each index once whether it answers; pip itself would take 10 s for every package."""

    def __init__(self, answers: Callable[[str], str] | None = None) -> None:
        self._ask = answers or index_problem
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def problem(self, index: str) -> str:
        """Why `index` is of no use, in words; "" when it answers."""
        with self._lock:
            if index not in self._known:
                self._known[index] = self._ask(index)
            return self._known[index]


def index_problem(index: str) -> str:
    """Ask for the index page; a certificate that only pip is told to trust counts as an answer."""
    if not index.startswith(("http:", "https:")):  # a folder: pip will say what is wrong with it
        return ""
    request = urllib.request.Request(f"{index.rstrip('/')}/", method="HEAD")  # noqa: S310  (catalog data)
    try:
        with urllib.request.urlopen(request, timeout=PROBE_S):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return f"it answers {error.code} {error.reason}"
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            return ""
        return f"no answer ({error.reason})"
    except (OSError, ValueError) as error:
        return f"no answer ({error})"


def told(progress: Progress) -> Callable[[str], None]:
    """Pick the lines of pip's output that say what it is at."""

    def on_line(line: str) -> None:
        found = _AT_WORK.match(line)
        if found:
            progress(f"{found['verb'].lower()} {found['what'].rsplit('/', 1)[-1]}{found['size'] or ''}")
        elif line.startswith(("Building wheel", "Installing collected")):
            progress(line.split(":", 1)[0].strip().lower())

    return on_line
