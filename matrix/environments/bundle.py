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
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from matrix.catalog.types import Framework
from matrix.environments import locks

IGNORED = frozenset({"__pycache__", ".git", ".mypy_cache", ".ruff_cache", ".pytest_cache"})


class Bundle:
    """The folder for `PYTHONPATH`, made once per content below `home/worker`, then reused.

    `third_party`: package folders (each is copied under its own name). `matrix clean` keeps
    away from it until `close`, or until the process ends.
    """

    def __init__(self, home: Path, third_party: Iterable[Path] = ()) -> None:
        self._home = home
        self._sources = [adapters_source(), *sorted({path.resolve() for path in third_party})]
        self._guard = threading.Lock()
        self._lock: IO[bytes] | None = None
        self._path: Path | None = None

    def stage(self) -> Path:
        """Make it, or find it."""
        with self._guard:
            if self._path is None:
                target = self._home / "worker" / _content_key(self._sources)
                self._lock = locks.shared(target.with_name(f"{target.name}.lock"))
                _make(target, self._sources)
                self._path = target
            return self._path

    def close(self) -> None:
        """Nothing runs from it any more."""
        with self._guard:
            if self._lock is not None:
                locks.release(self._lock)
            self._lock = self._path = None


def third_party_sources(frameworks: Mapping[str, Framework]) -> list[Path]:
    """The package folders of frameworks that do not ship with this product."""
    return [f.source_dir for f in frameworks.values() if f.source_dir is not None]


def adapters_source() -> Path:
    """The folder of `matrix_adapters`, wherever it was installed; nothing in it is imported."""
    spec = importlib.util.find_spec("matrix_adapters")
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise RuntimeError("matrix_adapters is not installed beside matrix: reinstall framework-matrix")
    return Path(locations[0]).resolve()


def _make(target: Path, sources: list[Path]) -> None:
    """Copy under a temporary name, then rename: a folder of that name is always complete."""
    if target.is_dir():
        with contextlib.suppress(OSError):
            os.utime(target)
        return
    temporary = Path(tempfile.mkdtemp(prefix=".staging-", dir=target.parent))
    try:
        for source in sources:
            shutil.copytree(source, temporary / source.name, ignore=shutil.ignore_patterns(*IGNORED))
        temporary.chmod(0o755)
        temporary.rename(target)
    except OSError:
        if not target.is_dir():  # else somebody staged the same content first
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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
