"""Which Python an environment is made with: the running one, or one asked for by version or path."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from matrix.environments.base import clean_environ

#: what the worker's own sources need
OLDEST = (3, 11)
_VERSION = re.compile(r"(?P<major>\d+)\.(?P<minor>\d+)(?P<patch>\.\d+)?(?P<threads>t?)")
_TITLES = {"cpython": "CPython", "pypy": "PyPy", "graalpy": "GraalPy"}
_QUESTION = """\
import importlib.util, json, platform, sys, sysconfig
print(json.dumps({"version": platform.python_version(), "implementation": sys.implementation.name,
"abi": str(sysconfig.get_config_var("SOABI") or ""), "venv": importlib.util.find_spec("venv") is not None}))
"""


class NoInterpreter(Exception):
    """There is no such Python here, or none that will do; the message says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """A Python, and what decides which wheels fit it. `path` is "" for one in an image."""

    path: str
    version: str  # "3.12.1"
    implementation: str  # "cpython"
    abi: str = ""  # tells a free-threaded or debug interpreter, or another C library, from the usual one

    @property
    def title(self) -> str:
        """For people: CPython 3.12."""
        name = _TITLES.get(self.implementation, self.implementation)
        return f"{name} {'.'.join(self.version.split('.')[:2])}"

    @property
    def tag(self) -> str:
        """The interpreter tag of its wheels: cp312."""
        major, minor = self.version.split(".")[:2]
        return f"{'cp' if self.implementation == 'cpython' else 'pp'}{major}{minor}"


@functools.cache
def running() -> Interpreter:
    """The interpreter that this process runs in."""
    return Interpreter(
        path=sys.executable,
        version=platform.python_version(),
        implementation=sys.implementation.name,
        abi=str(sysconfig.get_config_var("SOABI") or ""),
    )


@functools.cache
def find(asked: str) -> Interpreter:
    """`asked` is a version (3.12, 3.12.1, 3.13t), looked for on PATH, or the path of an interpreter.

    Raises NoInterpreter where there is none, it does not start, has no `venv`, or is too old for a worker.
    """
    version = _VERSION.fullmatch(asked)
    if version is None:
        found, why = _ask(asked)
        if found is None:
            raise NoInterpreter(f"{asked} {why}")
        return _fit(found)
    tried = []
    for path in _on_path(version):
        found, why = _ask(path)
        if found is None:
            tried.append(f"{path} {why}")
        elif _is(found, version):
            return _fit(found)
    also = f" ({'; '.join(tried)})" if tried else ""
    raise NoInterpreter(
        f"there is no Python {asked} on PATH{also}: install it, or name the interpreter by its path, "
        f"python=/path/to/python{version['major']}.{version['minor']}"
    )


def _on_path(version: re.Match[str]) -> Iterator[str]:
    """Files on PATH that may be that Python, the likeliest first."""
    names = [f"python{version['major']}.{version['minor']}{version['threads']}", "python3", "python"]
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    for name in names:
        for folder in folders:
            path = Path(folder) / name
            if path.is_file() and os.access(path, os.X_OK):
                yield str(path)


def _ask(path: str) -> tuple[Interpreter | None, str]:
    """What the interpreter at `path` says of itself, or why it says nothing."""
    command = [path, "-I", "-c", _QUESTION]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env=clean_environ()
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"does not start: {getattr(error, 'strerror', None) or error}"
    try:
        said = json.loads(done.stdout)
        if not said["venv"]:
            return None, "has no `venv` module (on Debian: python3-venv)"
        return Interpreter(
            path=str(Path(path).absolute()),
            version=said["version"],
            implementation=said["implementation"],
            abi=said["abi"],
        ), ""
    except (ValueError, KeyError, TypeError):
        words = (done.stderr or done.stdout).strip().splitlines()
        return None, f"does not start: {words[0] if words else f'exit status {done.returncode}'}"


def _is(found: Interpreter, version: re.Match[str]) -> bool:
    parts = [version["major"], version["minor"], *([version["patch"][1:]] if version["patch"] else [])]
    threads = "t" in found.abi.partition("-")[2].partition("-")[0]  # cpython-313t-x86_64-linux-gnu
    return found.version.split(".")[: len(parts)] == parts and threads == bool(version["threads"])


def _fit(found: Interpreter) -> Interpreter:
    if tuple(int(part) for part in found.version.split(".")[:2]) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise NoInterpreter(f"{found.path} is Python {found.version}; a worker needs {least} or newer")
    return found
