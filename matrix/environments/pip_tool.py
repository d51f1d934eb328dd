"""Which pip does the installing: the running interpreter's, one made for that, or the pinned newer one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path

from packaging.version import Version

from matrix import catalog
from matrix.environments import locks
from matrix.environments.base import BuildFailed, clean_environ
from matrix.environments.installed import interpreter
from matrix.environments.pip_errors import explain
from matrix.environments.process import run_owned

#: understands `--python`
FIRST_WITH_PYTHON = Version("22.3")
#: understands `--uploaded-prior-to`
FIRST_WITH_CUTOFF = Version("26.0")

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
CUTOFF_VARIABLE = "PIP_UPLOADED_PRIOR_TO"


def host_pip(home: Path, log: Path, cancelled: threading.Event | None) -> list[str]:
    """The command of a pip that can install into another interpreter.

    The running interpreter's own, else one unpacked by `ensurepip` into a virtualenv kept for
    that purpose (uv and some distributions make virtualenvs without pip).
    """
    if own_version() >= FIRST_WITH_PYTHON:
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


def cutting_pip(home: Path, log: Path, cancelled: threading.Event | None) -> list[str]:
    """The command of a pip that knows `--uploaded-prior-to`: the own one, else the pinned one's wheel.

    Raises BuildFailed where that wheel cannot be had.
    """
    command = host_pip(home, log, cancelled)
    if own_version() >= FIRST_WITH_CUTOFF:
        return command
    pin = installer_pin()
    folder = home / "tools" / pin.replace("==", "-")
    with locks.exclusive(folder.with_name(f"{folder.name}.lock"), cancelled=cancelled):
        wheel = next(folder.glob("pip-*.whl"), None)
        if wheel is None:
            download = [*command, "download", "--no-deps", "--only-binary=:all:", "--dest", str(folder), pin]
            status, output = run_owned(download, log=log, environ=pip_environ(), cancelled=cancelled)
            wheel = next(folder.glob("pip-*.whl"), None)
            if status != 0 or wheel is None:
                raise BuildFailed(explain(output, what=f"pip download {pin}", log=log), log)
    return [sys.executable, str(wheel / "pip")]


def installer_pin() -> str:
    """The pip that the catalog pins ("pip==26.1"): the one line of its constraint file that is no comment."""
    path = catalog.folder() / "constraints" / "installer.txt"
    return next(line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#"))


def pip_environ(as_of: str = "") -> dict[str, str]:
    """The user's own pip configuration, less what would install elsewhere or say nothing.

    `as_of`: nothing that was published later counts, for a pip that knows of it.
    """
    environ = {name: value for name, value in clean_environ().items() if name not in _REMOVED}
    return {**environ, **_NOT_HERE, **({CUTOFF_VARIABLE: as_of} if as_of else {})}


def configured() -> dict[str, str]:
    """The user's whole pip configuration, files and variables alike: `global.index-url` -> its value."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
        env=pip_environ(),
    )
    pairs = (line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
    return {name: value.strip("'\"").replace("\\n", " ") for name, value in pairs}


def own_version() -> Version:
    """Of the running interpreter's pip; 0 where it has none."""
    if importlib.util.find_spec("pip") is None:
        return Version("0")
    try:
        return Version(importlib.metadata.version("pip"))
    except importlib.metadata.PackageNotFoundError:
        return Version("0")
