"""What goes to the engine: a tar stream that depends on contents only, and the key made from them.

The order, the owner, the time and the machine's own modes of files leave no trace in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix_adapters.protocol import content_hash, file_hash

CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One file of the context: bytes at hand, or a file on disk with the hash it had when chosen."""

    name: str  # path in the context, with "/"
    data: bytes | None = None
    path: Path | None = None
    sha256: str
    size: int


def of_bytes(name: str, data: bytes | str) -> Entry:
    """A file of the context from its content."""
    raw = data.encode() if isinstance(data, str) else data
    return Entry(name=name, data=raw, sha256=hashlib.sha256(raw).hexdigest(), size=len(raw))


def of_file(name: str, path: Path, sha256: str = "") -> Entry:
    """A file of the context from a file on disk; its hash is taken now unless it is known."""
    return Entry(name=name, path=path, sha256=sha256 or file_hash(path), size=path.stat().st_size)


def key(entries: Sequence[Entry], base_id: str, facts: Mapping[str, Any]) -> str:
    """The identity of an image: the context's contents, the base image's id and what else decides."""
    files = sorted((entry.name, entry.sha256) for entry in entries)
    return content_hash({"context": files, "base": base_id, "facts": dict(facts)})


def tar(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The context as a tar stream, never whole in memory. Equal for equal contents, byte for byte."""
    for entry in sorted(entries, key=lambda e: e.name):
        info = tarfile.TarInfo(entry.name)
        info.size = entry.size
        info.mode = 0o644
        yield info.tobuf(tarfile.GNU_FORMAT)
        yield from _content(entry)
        if rest := -entry.size % tarfile.BLOCKSIZE:
            yield bytes(rest)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(entry: Entry) -> Iterator[bytes]:
    if entry.path is None:
        yield entry.data or b""
        return
    with entry.path.open("rb") as stream:
        left = entry.size  # a file that grew meanwhile must not shift what follows
        while left and (chunk := stream.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk
    if left:
        raise OSError(f"{entry.path} became shorter while it was sent to the engine")
