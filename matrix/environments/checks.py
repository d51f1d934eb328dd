"""What a build must pass besides pip's own exit status. Each raises BuildFailed."""

from __future__ import annotations

import shutil
import signal
import threading
from pathlib import Path

from matrix.environments import installed
from matrix.environments.base import BuildFailed, clean_environ
from matrix.environments.process import run_owned
from matrix.environments.recipe import Recipe
from matrix_adapters.protocol import Reason

MORE_SPACE = (
    "free some space (`matrix clean` lists what the cache holds), "
    "or set FRAMEWORK_MATRIX_HOME (and TMPDIR) to a larger disk."
)


def enough_space(recipe: Recipe, folder: Path) -> None:
    """`disk_full`, before anything is downloaded: the catalog's figure against what is free."""
    free_mb = shutil.disk_usage(folder).free / 1e6
    if free_mb < recipe.disk_mb:
        _fail(
            "disk_full",
            f"disk full at {folder}: {recipe.framework} {recipe.version} needs about "
            f"{recipe.disk_mb:,.0f} MB and {free_mb:,.0f} MB are free: {MORE_SPACE}",
        )


def one_provider(recipe: Recipe, folder: Path) -> None:
    """`two_distributions`: the import package must come from one distribution only."""
    pair = installed.overlapping(recipe.import_package, recipe.provided_by, installed.site_packages(folder))
    if pair:
        _fail(
            "two_distributions",
            f"two distributions provide {recipe.import_package!r}: {pair[0]} and {pair[1]}. The one "
            "installed last has overwritten files of the other, so nobody knows which is measured. Install "
            "one of them; if a dependency brings the second, give the step that does `no_deps: true`.",
        )


def imports(recipe: Recipe, folder: Path, log: Path, cancelled: threading.Event | None) -> None:
    """`import_failed`: import the package once, which also warms the page cache for the first launch."""
    if not recipe.import_package:
        return
    command = [str(installed.interpreter(folder)), "-I", "-c", f"import {recipe.import_package}"]
    status, output = run_owned(command, log=log, environ=clean_environ(), cancelled=cancelled)
    if status == 0:
        return
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = lines[-1][:300] if lines else f"exit status {status}"
    if status > 128:
        name = signal.Signals(status - 128).name
        said = f"killed by {name}"
        if name == "SIGILL":
            said += ", its wheel needs CPU features that this machine lacks"
    _fail(
        "import_failed",
        f"`import {recipe.import_package}` fails in the finished environment: {said}. "
        "Pin versions that fit together in its constraints, or change one for this comparison "
        f"(--base-with, --candidate-with numpy=1.26.4). Full output: {log}",
    )


def _fail(code: str, text: str) -> None:
    raise BuildFailed(Reason(code=code, text=text))
