"""Locks that tell a builder, the users and the remover of one cached folder apart.

`flock` on a file beside the folder: any number of shared holders (runs that use it), or one
exclusive holder (who builds or removes it). The kernel lets go when a process ends, however
it ends, so nothing stale is left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from matrix.environments.base import BuildCancelled
from matrix.errors import StorageError

POLL_S = 0.2

#: a file that nobody refers to would be closed, and its lock with it
_kept: set[IO[bytes]] = set()


@contextlib.contextmanager
def exclusive(
    path: Path, *, waiting: Callable[[], None] = lambda: None, cancelled: threading.Event | None = None
) -> Iterator[None]:
    """Hold `path` alone. `waiting` is called once if somebody else holds it."""
    with _opened(path) as stream:
        _acquire(stream, fcntl.LOCK_EX, waiting, cancelled)
        yield


@contextlib.contextmanager
def exclusive_or_none(path: Path) -> Iterator[bool]:
    """Like `exclusive`, but gives False at once instead of waiting."""
    with _opened(path) as stream:
        try:
            _flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def shared(
    path: Path, *, waiting: Callable[[], None] = lambda: None, cancelled: threading.Event | None = None
) -> IO[bytes]:
    """Hold `path` together with others, until `release` or the end of the process."""
    stream = _opened(path)
    try:
        _acquire(stream, fcntl.LOCK_SH, waiting, cancelled)
    except BaseException:
        stream.close()
        raise
    _kept.add(stream)
    return stream


def release(stream: IO[bytes]) -> None:
    """Give a shared lock back."""
    _kept.discard(stream)
    stream.close()


def in_use(path: Path) -> bool:
    """Does anybody hold `path`, this process included?"""
    if not path.exists():
        return False
    with exclusive_or_none(path) as free:
        return not free


def _opened(path: Path) -> IO[bytes]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("ab")
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}. Set FRAMEWORK_MATRIX_HOME to a folder that can be."
        ) from None


def _acquire(
    stream: IO[bytes], mode: int, waiting: Callable[[], None], cancelled: threading.Event | None
) -> None:
    told = False
    pause = cancelled or threading.Event()
    while True:
        try:
            return _flock(stream, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                waiting()
                told = True
        if pause.wait(POLL_S):
            raise BuildCancelled


def _flock(stream: IO[bytes], mode: int) -> None:
    try:
        fcntl.flock(stream, mode)
    except BlockingIOError:
        raise
    except OSError as error:  # a file system without locks
        raise StorageError(
            f"{stream.name}: files cannot be locked here ({error.strerror}). "
            "Set FRAMEWORK_MATRIX_HOME to a folder on a local disk."
        ) from None
