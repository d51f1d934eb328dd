"""Backend `venv`: one virtualenv per framework, version and build, below the cache folder.

A virtualenv cannot be moved, so it is built in place, under an exclusive lock, and counts as
built only when `ready.json` is there, which is written last. A folder without it is what a
killed build left, and is removed.
"""

from __future__ import annotations

import errno
import functools
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Literal

from matrix.catalog.types import Framework
from matrix.environments import changes, checks, installed, locks, pip, ready
from matrix.environments.base import (
    BuildFailed,
    BuiltEnvironment,
    Progress,
    no_session,
    quiet,
    with_variables,
)
from matrix.environments.bundle import Bundle, third_party_sources
from matrix.environments.cutoff import Cut, CutOff
from matrix.environments.recipe import Recipe, recipe_for
from matrix.records import Environment
from matrix_adapters.protocol import Reason

CONSTRAINTS_FILE = "constraints.txt"


class VenvBackend:
    """Builds virtualenvs with the running interpreter and the user's own pip configuration.

    Environments that it returned stay locked against `matrix clean` until this process ends
    or `close` is called.
    """

    name: Literal["venv"] = "venv"

    def __init__(
        self,
        frameworks: Mapping[str, Framework],
        home: Path,
        *,
        probe: pip.IndexProbe | None = None,
        cutoff: CutOff | None = None,
    ) -> None:
        self._frameworks = frameworks
        self._home = home
        self._probe = probe or pip.IndexProbe()
        self._cutoff = cutoff
        self._bundle = Bundle(home, third_party_sources(frameworks))
        self._held: dict[str, IO[bytes]] = {}
        self._guard = threading.Lock()

    @property
    def folder(self) -> Path:
        """Where the virtualenvs lie, each named by its key."""
        return self._home / "environments"

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = quiet,
        cancelled: threading.Event | None = None,
    ) -> BuiltEnvironment:
        """Reuse the environment when it is ready and healthy, else build it.

        Raises BuildFailed with one of the reasons of `pip_errors`, or `two_distributions`,
        `import_failed`, `disk_full`; BuildCancelled when `cancelled` was set meanwhile.
        """
        started = time.monotonic()
        if problem := changes.impossible(environment.changes, self.name):
            raise BuildFailed(Reason(code="cannot_change", text=problem))
        recipe = self._recipe(environment)
        variables = changes.of(environment.changes).environ
        worker_path = self._bundle.stage()
        target = self.folder / recipe.key
        lock_file = self.folder / f"{recipe.key}.lock"
        log = self.folder / f"{recipe.key}.log"
        built_here = False
        while True:
            self._hold(recipe.key, lock_file, progress, cancelled)
            marker = ready.read(target)
            trouble = ready.trouble(target, marker)
            if marker is not None and not trouble:
                break
            self._release(recipe.key)
            with locks.exclusive(
                lock_file, waiting=lambda: progress("waiting: another run uses it"), cancelled=cancelled
            ):
                if ready.trouble(target, ready.read(target)):  # nobody built it while we waited
                    if target.exists():
                        progress(f"building it anew: {trouble}")
                    remove_tree(target)
                    self._build(recipe, target, log, progress, cancelled)
                    built_here = True
        ready.touch(target)
        return BuiltEnvironment(
            environment=environment,
            backend=self.name,
            key=with_variables(recipe.key, variables),
            python=installed.interpreter(target),
            python_version=marker.python,
            worker_path=worker_path,
            variables=variables,
            lock=marker.lock,
            size_bytes=marker.content_bytes or installed.content_size(target),
            flags=marker.flags,
            notes=marker.notes,
            seconds=time.monotonic() - started,
            reused=not built_here,
            log=log,
        )

    def built(self, environments: Iterable[Environment]) -> set[Environment]:
        """Those that are there already, by their markers alone: what a plan need not pay for."""
        found = set()
        for environment in environments:
            try:
                recipe = self._recipe(environment)
            except BuildFailed:
                continue
            if ready.read(self.folder / recipe.key) is not None:
                found.add(environment)
        return found

    def session(self, run: str) -> AbstractContextManager[None]:
        """Nothing that runs here outlives this process."""
        return no_session(run)

    def close(self) -> None:
        """Let `matrix clean` remove what this backend returned."""
        with self._guard:
            while self._held:
                locks.release(self._held.popitem()[1])
        self._bundle.close()

    def _recipe(self, environment: Environment) -> Recipe:
        as_of = self._cutoff.of(environment) if self._cutoff else ""
        return recipe_for(self._frameworks[environment.framework], environment, as_of)

    def _hold(self, key: str, lock_file: Path, progress: Progress, cancelled: threading.Event | None) -> None:
        with self._guard:
            if key in self._held:
                return
        stream = locks.shared(
            lock_file, waiting=lambda: progress("waiting: another run is building it"), cancelled=cancelled
        )
        with self._guard:
            if key in self._held:  # another thread of ours was quicker
                locks.release(stream)
            else:
                self._held[key] = stream

    def _release(self, key: str) -> None:
        with self._guard:
            stream = self._held.pop(key, None)
        if stream is not None:
            locks.release(stream)

    def _build(
        self, recipe: Recipe, target: Path, log: Path, progress: Progress, cancelled: threading.Event | None
    ) -> None:
        """Make `target` from nothing. Whatever goes wrong, no folder is left."""
        started = time.monotonic()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            log.write_text(f"{recipe.framework} {recipe.version} ({recipe.build})\n", encoding="utf-8")
            checks.enough_space(recipe, self.folder)
            notes = self._install(recipe, target, log, progress, cancelled)
            progress("checking what was installed")
            checks.one_provider(recipe, target)
            progress("compiling bytecode")
            pip.compile_bytecode(target, log, cancelled)
            progress("importing it once")
            checks.imports(recipe, target, log, cancelled)
            ready.write(recipe, target, notes=notes, seconds=time.monotonic() - started)
        except BuildFailed as failure:
            remove_tree(target)
            failure.log = failure.log or log
            raise
        except OSError as error:
            remove_tree(target)
            raise BuildFailed(_system_reason(error, self.folder), log) from error
        except BaseException:
            remove_tree(target)
            raise

    def _install(
        self, recipe: Recipe, target: Path, log: Path, progress: Progress, cancelled: threading.Event | None
    ) -> list[str]:
        """Make the virtualenv and run the steps; what was left out and why."""
        notes: list[str] = []
        progress("making a virtualenv")
        pip.make_virtualenv(target, log, cancelled, recipe.python)
        constraints = None
        if recipe.all_constraints:
            constraints = target / CONSTRAINTS_FILE
            constraints.write_text(recipe.all_constraints, encoding="utf-8")
        cut = Cut(recipe.as_of, self._home, log, cancelled)
        started = time.monotonic()
        for number, step in enumerate(recipe.steps, 1):

            def told(text: str, number: int = number) -> None:
                progress(f"step {number} of {len(recipe.steps)}: {text} ({time.monotonic() - started:.0f} s)")

            if step.index and (problem := self._probe.problem(step.index)):
                notes.append(f"index {step.index} was left out: {problem}")
                continue
            told(f"pip install {step.requirements[0]}")
            install = functools.partial(
                pip.install,
                target,
                step,
                pip=cut.pip,
                constraints=constraints,
                log=log,
                cancelled=cancelled,
                progress=told,
                python=recipe.python,
            )
            try:
                cut.run(lambda as_of, install=install: install(as_of=as_of))  # type: ignore[misc]
            except BuildFailed as failure:
                if step.index is None or failure.reason.code not in ("index_unreachable", "no_such_version"):
                    raise
                notes.append(f"index {step.index} was left out: {failure.reason.text}")
        return [*cut.notes, *notes]


def remove_tree(folder: Path) -> None:
    """Remove a folder; the marker first, so that what is left of a removal never counts as built."""
    (folder / ready.READY_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _system_reason(error: OSError, folder: Path) -> Reason:
    where = error.filename or folder
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Reason(code="disk_full", text=f"disk full at {where}: {checks.MORE_SPACE}")
    return Reason(code="build_error", text=f"{where}: {error.strerror or error}")
