"""What the cache folder holds, and how to remove it without hurting a run that uses it.

Every cached folder `X` has its lock beside it, `X.lock`: whoever uses X holds it shared,
whoever makes or removes X holds it alone. Lock files themselves stay (they are empty, and
removing one that somebody waits for would give two owners).
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from matrix.environments import installed, locks, ready

Kind = Literal["environment", "artefact", "worker", "tool", "wheels"]
FOLDERS: dict[str, Kind] = {
    "environments": "environment",
    "artefacts": "artefact",
    "worker": "worker",
    "tools": "tool",
    "wheels": "wheels",
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Cached:
    """One thing that can be removed by itself."""

    kind: Kind
    name: str  # for people: "pytorch 2.13.0 (cpu)", "resnet50", "unfinished build"
    path: Path
    size_bytes: int
    last_used: float  # time.time()
    in_use: bool
    framework: str = ""  # of environments that were finished


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What became of one of them. `kept` says why it is still there; "" when it is gone."""

    item: Cached
    kept: str = ""


def contents(home: Path) -> list[Cached]:
    """Everything in the cache, the largest first."""
    found = [_describe(kind, path, home) for kind, path in _folders(home)]
    return sorted(found, key=lambda item: (-item.size_bytes, item.path))


def choose(
    items: Iterable[Cached],
    *,
    older_than_s: float | None = None,
    framework: str | None = None,
    kinds: Iterable[Kind] | None = None,
    now: float | None = None,
) -> list[Cached]:
    """Those that fit every condition given; all of them without any."""
    moment = time.time() if now is None else now
    allowed = None if kinds is None else set(kinds)
    return [
        item
        for item in items
        if (older_than_s is None or moment - item.last_used > older_than_s)
        and (framework is None or item.framework == framework)
        and (allowed is None or item.kind in allowed)
    ]


def remove(items: Iterable[Cached]) -> list[Removal]:
    """Remove them. What a run uses is kept, and so is what the system will not let go."""
    return [_remove(item) for item in items]


def any_run(home: Path) -> bool:
    """Does any run use this cache? Each holds its staged worker sources until it ends."""
    return any(locks.in_use(lock) for lock in (home / "worker").glob("*.lock"))


def _remove(item: Cached) -> Removal:
    if item.kind == "artefact" and item.in_use:  # artefacts are shared by all cells of a run
        return Removal(item=item, kept="a run uses it")
    with locks.exclusive_or_none(_lock_file(item.path)) as free:
        if not free:
            return Removal(item=item, kept="a run uses it")
        (item.path / ready.READY_FILE).unlink(missing_ok=True)  # first: half of it never counts as built
        problems: list[str] = []
        shutil.rmtree(item.path, onerror=lambda _f, path, error: problems.append(f"{path}: {error[1]}"))
        item.path.with_name(f"{item.path.name}.log").unlink(missing_ok=True)
    return Removal(item=item, kept=problems[0] if problems else "")


def _folders(home: Path) -> Iterator[tuple[Kind, Path]]:
    """What can be removed by itself: artefacts lie one level deeper, below a folder per kind."""
    for folder, kind in FOLDERS.items():
        below = _subfolders(home / folder)
        for path in below:
            for item in _subfolders(path) if kind == "artefact" else [path]:
                yield kind, item


def _subfolders(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())


def _describe(kind: Kind, path: Path, home: Path) -> Cached:
    marker = ready.read(path) if kind == "environment" else None
    name, framework = path.name, ""
    if marker is not None:
        name, framework = f"{marker.framework} {marker.version} ({marker.build})", marker.framework
    elif kind == "artefact":
        name = f"{path.parent.name} {path.name}"
    elif kind == "environment":
        name = "unfinished build"
    return Cached(
        kind=kind,
        name=name,
        path=path,
        size_bytes=marker.size_bytes if marker else installed.folder_size(path),
        last_used=ready.last_used(path),
        in_use=any_run(home) if kind == "artefact" else locks.in_use(_lock_file(path)),
        framework=framework,
    )


def _lock_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")
