"""Tar streams to and from a container: small ones as bytes, large ones piece by piece.

Nothing that comes out of a container is trusted: only plain files and folders below the
one that was asked for are written, whatever the archive says.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

#: who a launch runs as inside its container; owns what it may write
UID = 10001
_BLOCK = 512
_PIECE = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One member: a folder (no content), bytes, or a file of the host, which is read when sent."""

    name: str
    content: bytes | Path | None = None
    mode: int = 0o644
    uid: int = 0


def pack(entries: Iterable[Entry]) -> Iterator[bytes]:
    """A tar archive in pieces. A file that shrinks while it is read is an OSError."""
    for entry in entries:
        info = tarfile.TarInfo(entry.name)
        info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.uid
        if entry.content is None:
            info.type = tarfile.DIRTYPE
        elif isinstance(entry.content, bytes):
            info.size = len(entry.content)
        else:
            info.size = entry.content.stat().st_size
        yield info.tobuf(tarfile.GNU_FORMAT)
        if isinstance(entry.content, bytes):
            yield entry.content
        elif entry.content is not None:
            yield from _read(entry.content, info.size)
        yield b"\0" * (-info.size % _BLOCK)
    yield b"\0" * (2 * _BLOCK)


def folder_entries(folder: Path, prefix: str = "", *, uid: int = 0) -> Iterator[Entry]:
    """All files below `folder` and their folders, links followed, in a fixed order."""
    for path in sorted(folder.rglob("*")):
        name = prefix + path.relative_to(folder).as_posix()
        if path.is_dir():
            yield Entry(name, mode=0o755, uid=uid)
        elif path.is_file():
            yield Entry(name, path, uid=uid)


def unpack(pieces: Iterable[bytes], target: Path, *, apart: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """Write an archive of one folder into `target`; members named in `apart` are returned instead.

    Names are taken relative to the archive's first component, which is the folder's own name.
    """
    kept: dict[str, bytes] = {}
    stream = io.BufferedReader(_Pieces(pieces), _PIECE)
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            name = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if name.is_absolute() or ".." in name.parts or not name.parts:
                continue
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None and str(name) in apart:
                kept[str(name)] = content.read()
            elif content is not None:
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as out:
                    shutil.copyfileobj(content, out, _PIECE)
                os.utime(path, (member.mtime, member.mtime))
            elif member.isdir():
                (target / name).mkdir(parents=True, exist_ok=True)
    return kept


def _read(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as stream:
        while left:
            piece = stream.read(min(left, _PIECE))
            if not piece:
                raise OSError(f"{path} became shorter while it was read")
            left -= len(piece)
            yield piece


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file to read from."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
