"""Writing that survives a power cut and tells a full disk from a mistake.

A line is on the disk when `append` returns; a file is replaced in one step. What
the file system refuses becomes a StorageError that names the place.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from matrix.errors import StorageError

#: contents and length reach the disk; times of the file may not, and nobody reads them
_sync = getattr(os, "fdatasync", os.fsync)
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def storage(place: Path) -> Iterator[None]:
    """Translate an OSError inside into a StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, place) from error


def storage_error(error: OSError, place: Path) -> StorageError:
    """What to tell the user: where, and what to do."""
    where = error.filename or place
    if error.errno in _FULL:
        return StorageError(
            f"disk full at {where}. What was written is kept: free space, then continue with --resume"
        )
    return StorageError(f"{where} cannot be written: {error.strerror or error}")


def replace(path: Path, content: str | Iterable[bytes]) -> None:
    """Write `content` to `path`: a reader sees the old file or the new one, after a power cut too."""
    pieces = (content.encode("utf-8"),) if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            stream.writelines(pieces)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # the temporary name means nothing to anybody
            raise storage_error(error, path) from error
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and new files in `folder` durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def dump_line(data: Any) -> bytes:
    """One line of strict JSON. Raises ValueError for NaN and Infinity."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", errors="replace") + b"\n"


class LineFile:
    """An append-only file of JSON lines. Opening it cuts off a last line that was torn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self.size = whole_lines(path)
            os.ftruncate(self._descriptor, self.size)
            os.lseek(self._descriptor, self.size, os.SEEK_SET)

    def append(self, data: Any) -> tuple[int, int]:
        """Add one line; returns its offset and length. Nothing is left of it when that fails."""
        return self.append_all([data])[0]

    def append_all(self, items: Iterable[Any]) -> list[tuple[int, int]]:
        """Add a line for each, synced once; their offsets and lengths. All of them, or none."""
        lines = [dump_line(data) for data in items]
        offset, text = self.size, b"".join(lines)
        try:
            written = 0
            while written < len(text):
                written += os.write(self._descriptor, text[written:])
            _sync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, offset)
                os.lseek(self._descriptor, offset, os.SEEK_SET)
            raise storage_error(error, self.path) from error
        self.size += len(text)
        ends = list(itertools.accumulate(map(len, lines), initial=offset))
        return [(start, len(line)) for start, line in zip(ends, lines, strict=False)]

    def close(self) -> None:
        os.close(self._descriptor)


def whole_lines(path: Path) -> int:
    """Bytes of `path` up to the end of its last whole line that is JSON."""
    end = size = path.stat().st_size
    with path.open("rb") as stream:
        while end:
            start = _line_start(stream, end)
            stream.seek(start)
            line = stream.read(end - start)
            if line.endswith(b"\n") and _is_json(line):
                break
            end = start
            if size - end > _MOST_TORN:  # not a torn line: a file that is something else
                raise StorageError(f"{path} is damaged: its last {_MOST_TORN >> 20} MiB hold no whole line")
    return end


_MOST_TORN = 64 << 20
_STEP = 1 << 16


def _line_start(stream: Any, end: int) -> int:
    """Where the line that ends before `end` begins."""
    position = end - 1
    while position > 0:
        step = min(_STEP, position)
        stream.seek(position - step)
        found = stream.read(step).rfind(b"\n")
        if found >= 0:
            return int(position - step + found + 1)
        position -= step
    return 0


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
