"""Stage the worker's own sources where nothing else is importable beside them.

A worker's `PYTHONPATH` is one folder that holds `matrix_adapters` (and third-party adapter
packages), never a site-packages folder: the host's own packages must not leak into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from matrix.environments import locks

_held: dict[Path, IO[bytes]] = {}
_guard = threading.Lock()

IGNORED = frozenset({"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


def stage(home: Path, third_party: Iterable[Path] = ()) -> Path:
    """The folder for `PYTHONPATH`: made once per content below `home/worker`, then reused.

    `third_party`: package folders (each is copied under its own name).
    """
    sources = [adapters_source(), *sorted({path.resolve() for path in third_party})]
    target = home / "worker" / _content_key(sources)
    _hold(target)
    if target.is_dir():
        with contextlib.suppress(OSError):
            os.utime(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".staging-", dir=target.parent))
    try:
        for source in sources:
            shutil.copytree(source, temporary / source.name, ignore=shutil.ignore_patterns(*IGNORED))
        temporary.chmod(0o755)
        with contextlib.suppress(OSError):  # somebody else staged the same content first
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def adapters_source() -> Path:
    """The folder of `matrix_adapters`, wherever it was installed; nothing in it is imported."""
    spec = importlib.util.find_spec("matrix_adapters")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise RuntimeError("matrix_adapters is not installed beside matrix: reinstall framework-matrix")
    return Path(locations[0]).resolve()


def _hold(target: Path) -> None:
    """Keep `matrix clean` away from `target` until this process ends."""
    with _guard:
        if target not in _held:
            _held[target] = locks.shared(target.with_name(f"{target.name}.lock"))


def _content_key(sources: list[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        for path in _files(source):
            digest.update(f"{source.name}/{path.relative_to(source).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not IGNORED.intersection(path.relative_to(folder).parts):
            yield path
