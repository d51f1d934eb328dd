"""Make an empty virtualenv, and run pip against it from outside.

The environment itself holds no pip, so that what is installed in it is what the catalog asked
for, and half the time of `python -m venv` (unpacking pip into it) is saved.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from matrix.environments import locks
from matrix.environments.base import BuildFailed, Progress, clean_environ
from matrix.environments.installed import interpreter, site_packages
from matrix.environments.interpreters import Interpreter, running
from matrix.environments.pip_errors import explain, not_found
from matrix.environments.process import run_owned
from matrix.environments.recipe import Step
from matrix.machine.fingerprint import usable_threads

PROBE_S = 2.0
FIRST_PIP_WITH_PYTHON_OPTION = Version("22.3")

# Options that a user may have set for everyday installs and that would send packages elsewhere
# or hide what happened. Indexes, find-links, certificates, proxies and time-outs stay theirs.
_NOT_HERE = {
    "PIP_USER": "0",
    "PIP_REQUIRE_VIRTUALENV": "0",
    "PIP_QUIET": "0",
    "PIP_DRY_RUN": "0",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_PROGRESS_BAR": "off",
}
_REMOVED = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_LOG", "PIP_REPORT", "PIP_NO_DEPS")
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
) -> None:
    """One step of a recipe. An unreachable index gets a second try. Raises BuildFailed."""
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
            command, log=log, environ=pip_environ(), cancelled=cancelled, on_line=told(progress)
        )
        if status == 0:
            return
        links = ""
        if missing := not_found(output):  # only verbose output tells "no wheel here" from "no such version"
            lookup = [*base, "-vv", "--dry-run", "--no-deps", "--ignore-installed", missing]
            _, links = run_owned(lookup, log=log, environ=pip_environ(), cancelled=cancelled)
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


def host_pip(home: Path, log: Path, cancelled: threading.Event | None) -> list[str]:
    """The command of a pip that can install into another interpreter.

    The running interpreter's own, else one unpacked by `ensurepip` into a virtualenv kept for
    that purpose (uv and some distributions make virtualenvs without pip).
    """
    if _own_pip_will_do():
        return [sys.executable, "-m", "pip"]
    tool = home / "tools" / f"pip-{sys.implementation.cache_tag}"
    with locks.exclusive(tool.with_name(f"{tool.name}.lock"), cancelled=cancelled):
        if not (tool / "ready").is_file():
            command = [sys.executable, "-m", "venv", "--clear", str(tool)]
            status, output = run_owned(command, log=log, environ=clean_environ(), cancelled=cancelled)
            if status != 0:
                raise BuildFailed(explain(output, what="python -m venv (with pip)", log=log), log)
            (tool / "ready").touch()
    return [str(interpreter(tool)), "-m", "pip"]


def pip_environ() -> dict[str, str]:
    """The user's own pip configuration, less what would install elsewhere or say nothing."""
    environ = {name: value for name, value in clean_environ().items() if name not in _REMOVED}
    return {**environ, **_NOT_HERE}


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


def _own_pip_will_do() -> bool:
    if importlib.util.find_spec("pip") is None:
        return False
    try:
        return Version(importlib.metadata.version("pip")) >= FIRST_PIP_WITH_PYTHON_OPTION
    except importlib.metadata.PackageNotFoundError:
        return False


def told(progress: Progress) -> Callable[[str], None]:
    """Pick the lines of pip's output that say what it is at."""

    def on_line(line: str) -> None:
        found = _AT_WORK.match(line)
        if found:
            progress(f"{found['verb'].lower()} {found['what'].rsplit('/', 1)[-1]}{found['size'] or ''}")
        elif line.startswith(("Building wheel", "Installing collected")):
            progress(line.split(":", 1)[0].strip().lower())

    return on_line
