"""Backend `host`: the interpreter that the command runs in. Nothing is built or installed.

For use inside a vendor's own container, or where nothing may be installed.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from matrix.catalog.types import Framework
from matrix.environments import changes, installed
from matrix.environments.base import (
    BuildFailed,
    BuiltEnvironment,
    Progress,
    no_session,
    quiet,
    with_variables,
)
from matrix.environments.bundle import Bundle, third_party_sources
from matrix.records import Environment
from matrix_adapters.protocol import Flag, Reason, content_hash


class HostBackend:
    """Hands out the running interpreter, if the framework asked for is installed in it."""

    name: Literal["host"] = "host"

    def __init__(
        self, frameworks: Mapping[str, Framework], home: Path, *, search_path: list[str] | None = None
    ) -> None:
        self._frameworks = frameworks
        self._bundle = Bundle(home, third_party_sources(frameworks))
        self._path = search_path  # None: this process's own sys.path

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = quiet,
        cancelled: threading.Event | None = None,
    ) -> BuiltEnvironment:
        """Raises BuildFailed: `cannot_change`, `not_installed`, `other_version`, or `two_distributions`."""
        started = time.monotonic()
        if problem := changes.impossible(environment.changes, self.name):
            raise BuildFailed(Reason(code="cannot_change", text=problem))
        variables = changes.of(environment.changes).environ
        framework = self._frameworks[environment.framework]
        lock = installed.lock_of(*(Path(entry) for entry in self._path or sys.path))
        versions = installed.versions_of(lock)
        names = [canonicalize_name(name) for name in framework.provided_by]
        found = [name for name in names if name in versions]
        if not found:
            raise BuildFailed(
                Reason(
                    code="not_installed",
                    text=f"{framework.title} is not installed in {sys.executable} (looked for "
                    f"{', '.join(framework.provided_by)}): install it there, or use `--backend venv`.",
                )
            )
        if len(found) > 1:
            raise BuildFailed(
                Reason(
                    code="two_distributions",
                    text=f"two distributions provide {framework.import_package!r} in {sys.executable}: "
                    f"{' and '.join(found)}. Uninstall one of them, and reinstall the other.",
                )
            )
        version = versions[found[0]]
        if not _same(version, environment.version):
            raise BuildFailed(
                Reason(
                    code="other_version",
                    text=f"{framework.title} {environment.version} was asked for, {sys.executable} has "
                    f"{version}: ask for {version}, or use `--backend venv`.",
                )
            )
        return BuiltEnvironment(
            environment=environment,
            backend=self.name,
            key=with_variables(content_hash({"host": lock, "python": sys.version}), variables),
            python=Path(sys.executable),
            python_version=platform.python_version(),
            worker_path=self._bundle.stage(),
            variables=variables,
            lock=lock,
            flags=(
                Flag(code="not_isolated", text="measured in an interpreter that this product did not build"),
            ),
            import_path=tuple(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))),
            seconds=time.monotonic() - started,
            reused=True,
        )

    def session(self, run: str) -> AbstractContextManager[None]:
        """Nothing that runs here outlives this process."""
        return no_session(run)

    def close(self) -> None:
        """Let `matrix clean` remove the staged worker sources."""
        self._bundle.close()


def _same(installed_version: str, asked: str) -> bool:
    """Equal but for a local part that was not asked for: 2.13.0+cpu is 2.13.0."""
    try:
        here, wanted = Version(installed_version), Version(asked)
    except InvalidVersion:
        return installed_version == asked
    return here == wanted or (wanted.local is None and here.public == wanted.public)
