"""Folders made once, named by what they were made from, and never used half-made or broken.

A folder is made under a temporary name, described file by file (size and hash), and renamed.
A lock per name keeps two runs, or two threads of one, from making the same folder twice; a
process that dies while making one leaves only a temporary folder, which the next one removes.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from matrix.errors import StorageError
from matrix_adapters.protocol import file_hash, write_atomic

CONTENTS_FILE = "contents.json"

_ABANDONED_S = 86400  # an unfinished folder of that age belongs to nobody

Make = Callable[[Path], tuple[int, Mapping[str, Any]]]


class ContentCache:
    """All folders of one root. Safe for several threads and several processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._trusted: set[Path] = set()  # whose hashes were compared in this process

    def get_or_make(self, kind: str, name: str, keys: Sequence[str], make: Make) -> Path:
        """The folder `root/kind/name-key` for the first of `keys` that is there and intact.

        Else `make(folder)` fills a new one and says under which of the keys it is to be found,
        and which facts to keep with it. Raises StorageError for a full disk, and whatever
        `make` raises, leaving nothing behind.
        """
        home = self.root / kind
        with self._room(f"making {kind} {name}"):
            home.mkdir(parents=True, exist_ok=True)
            with FileLock(home / f".{name}-{keys[0]}.lock"):
                for key in keys:
                    folder = home / f"{name}-{key}"
                    if self._intact(folder):
                        return folder
                return self._made(home, name, keys, make)

    def find(self, kind: str, name: str, key: str) -> Path | None:
        """The folder of that key where it is there and intact; nothing is made, nothing is waited for."""
        folder = self.root / kind / f"{name}-{key}"
        return folder if self._intact(folder) else None

    @contextlib.contextmanager
    def workspace(self, kind: str) -> Iterator[Path]:
        """An empty folder beside those of `kind`: what is made in it becomes one of them by a rename."""
        home = self.root / kind
        with self._room(f"making {kind}"):
            home.mkdir(parents=True, exist_ok=True)
            for left in home.glob(".work-*"):
                with contextlib.suppress(FileNotFoundError):  # of another one that ended just now
                    if time.time() - left.stat().st_mtime > _ABANDONED_S:  # by a process that died
                        shutil.rmtree(left, ignore_errors=True)
            folder = home / f".work-{uuid.uuid4().hex[:8]}"
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _room(self, doing: str) -> Iterator[None]:
        """Raises StorageError for a full disk."""
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageError(
                    f"no space left in {self.root} while {doing}: free some, or set "
                    "FRAMEWORK_MATRIX_HOME to a larger disk"
                ) from error
            raise

    def _made(self, home: Path, name: str, keys: Sequence[str], make: Make) -> Path:
        for left in home.glob(f".{name}-{keys[0]}.making-*"):  # by a process that died: we hold the lock
            shutil.rmtree(left, ignore_errors=True)
        temporary = home / f".{name}-{keys[0]}.making-{uuid.uuid4().hex[:8]}"
        temporary.mkdir()
        try:
            index, facts = make(temporary)
            _describe(temporary, facts)
            folder = home / f"{name}-{keys[index]}"
            shutil.rmtree(folder, ignore_errors=True)  # a broken one, else we would not be here
            temporary.rename(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._trusted.add(folder)
        return folder

    def _intact(self, folder: Path) -> bool:
        """Whether the folder holds what was put there: sizes always, hashes once per process."""
        contents = read_contents(folder)
        if contents is None:
            return False
        for name, entry in contents["files"].items():
            path = folder / name
            if not path.is_file() or path.stat().st_size != entry["bytes"]:
                return False
            if folder not in self._trusted and file_hash(path) != entry["sha256"]:
                return False
        self._trusted.add(folder)
        return True


def read_contents(folder: Path) -> dict[str, Any] | None:
    """`{"files": {name: {"sha256", "bytes"}}, "facts": {...}}`; None where that is missing or torn."""
    try:
        contents = json.loads((folder / CONTENTS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(contents, dict) or not isinstance(contents.get("facts"), dict):
        return None
    files = contents.get("files")
    if not isinstance(files, dict) or not all(map(_is_entry, files, files.values())):
        return None
    return contents


def files_hash(files: Mapping[str, Mapping[str, Any]]) -> str:
    """One SHA-256 over several files' names and hashes; the file's own hash where there is one only."""
    if len(files) == 1:
        return str(next(iter(files.values()))["sha256"])
    lines = "".join(f"{entry['sha256']}  {name}\n" for name, entry in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def _is_entry(name: str, entry: Any) -> bool:
    """Whether a line of a description is one that `_describe` writes: a file below the folder."""
    inside = not Path(name).is_absolute() and ".." not in Path(name).parts
    return (
        inside
        and isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), str)
    )


def _describe(folder: Path, facts: Mapping[str, Any]) -> None:
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    files = {str(p.relative_to(folder)): {"sha256": file_hash(p), "bytes": p.stat().st_size} for p in paths}
    text = json.dumps({"files": files, "facts": dict(facts)}, indent=2, sort_keys=True, allow_nan=False)
    write_atomic(folder / CONTENTS_FILE, text + "\n")
