"""The run folder: `results/<run-id>/`, written by one process, read by any.

    run.json          header: what was asked, where, how it went
    plan.jsonl        one planned cell a line; never changes
    attempts.jsonl    one attempt a line (launches, environments, artefacts), appended and
                      synced as it happens: the only truth about what was done
    samples/, logs/   raw samples and logs of the launches, by cell
    cells.jsonl       one record a cell, made from the above when a session ends
    reports/          what the reports wrote

A torn last line (power cut, kill -9, full disk) is passed over by readers and cut off
when the run is opened for writing again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import filelock
import numpy as np
import numpy.typing as npt
import psutil
from pydantic import ValidationError

from matrix.errors import RunLocked, StorageError
from matrix.records import SCHEMA, Cell, LaunchRecord, Model, Record
from matrix.store import durable
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt, RunHeader
from matrix.store.names import HEADER_FILE
from matrix.store.said_once import Locks
from matrix_adapters.protocol import (
    LOG_FILE,
    SAMPLES_FILE,
    ProtocolError,
    from_plain,
    plain,
)

PLAN_FILE, ATTEMPTS_FILE, CELLS_FILE = "plan.jsonl", "attempts.jsonl", "cells.jsonl"
_LOCK, _WRITER, _SCRATCH = ".lock", ".writer.json", "scratch"
_KEPT_LOG_BYTES = 1 << 20

Attempt = LaunchRecord | EnvironmentAttempt | ArtefactAttempt
_KINDS: dict[str, type[Attempt]] = {
    "launch": LaunchRecord,
    "environment": EnvironmentAttempt,
    "artefact": ArtefactAttempt,
}
_Stored = TypeVar("_Stored", bound=Model)
_KIND_OF: dict[type[Any], str] = {cls: kind for kind, cls in _KINDS.items()}


class StoredRun:
    """A run as it lies on the disk, for reading. Everything is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header = read_header(folder)

    @property
    def id(self) -> str:
        return self.header.id

    def cells(self) -> tuple[Cell, ...]:
        """The plan: exactly one entry for each cell that has to be reported.

        Raises StorageError where the file lost or gained some: a cell must not vanish.
        """
        path = self.folder / PLAN_FILE
        cells = tuple(_cell(data, f"{path}:{n}") for n, data in _lines(path))
        planned, distinct = self.header.planned, len({cell.id for cell in cells})
        if distinct != len(cells) or planned not in (None, len(cells)):
            raise StorageError(
                f"{path} is damaged: {planned if planned is not None else distinct} cells were planned, "
                f"it holds {len(cells)}"
            )
        return cells

    def attempts(self) -> Attempts:
        """Where in the file each attempt is; launches are read by cell, when they are asked for."""
        return Attempts(self.folder / ATTEMPTS_FILE)

    def is_consolidated(self) -> bool:
        """Whether cells.jsonl holds all that attempts.jsonl does, for every planned cell."""
        attempts, cells = self.folder / ATTEMPTS_FILE, self.folder / CELLS_FILE
        size = attempts.stat().st_size if attempts.exists() else 0
        if not cells.is_file() or self.header.consolidated_bytes != size:
            return False
        return self.header.planned in (None, _count_lines(cells))

    def stored_records(self) -> Iterator[Record]:
        """The lines of cells.jsonl, whatever was added to the run since."""
        path, locks = self.folder / CELLS_FILE, Locks()
        for number, data in _lines(path):
            yield _validate(Record, locks.put_back(data), f"{path}:{number}")

    def samples(self, launch: LaunchRecord) -> dict[str, npt.NDArray[np.int64]]:
        """Raw samples of a launch by name; empty when it left none. See the format in results/README.md."""
        if launch.samples is None:
            return {}
        path = self.folder / launch.samples
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise StorageError(f"{path} is not in the run's folder")
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            why = "it holds no arrays" if "pickle" in str(error) else str(error)  # NumPy says: allow it
            raise StorageError(f"{path} cannot be read: {why}") from error


class Attempts:
    """An index over attempts.jsonl: the last word on each environment and artefact, launches by cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.environments: dict[str, EnvironmentAttempt] = {}  # by environment name
        self.artefacts: dict[tuple[str, int, int | None, str], ArtefactAttempt] = {}
        self._launches: dict[str, list[tuple[int, int]]] = {}
        offset = 0
        for number, data, length in _lines_with_length(path):
            self.add(_attempt(data, f"{path}:{number}"), offset, length)
            offset += length

    def add(self, attempt: Attempt, offset: int, length: int) -> None:
        """Take in one attempt that lies at `offset`."""
        if isinstance(attempt, EnvironmentAttempt):
            self.environments[attempt.environment.name] = attempt
        elif isinstance(attempt, ArtefactAttempt):
            self.artefacts[attempt.key] = attempt
        else:
            self._launches.setdefault(attempt.cell, []).append((offset, length))

    def launches(self, cell: str) -> list[LaunchRecord]:
        """Every launch of one cell, in the order in which they ended."""
        places = self._launches.get(cell, ())
        if not places:
            return []
        found = []
        with self._path.open("rb") as stream:
            for offset, length in places:
                stream.seek(offset)
                found.append(_attempt(json.loads(stream.read(length)), f"{self._path} at byte {offset}"))
        return [launch for launch in found if isinstance(launch, LaunchRecord)]

    def count(self) -> int:
        """Launches of all cells."""
        return sum(len(places) for places in self._launches.values())


class RunStore:
    """The one writer of a run. Holds a lock that the system takes back when the process dies."""

    def __init__(self, folder: Path, header: RunHeader, lock: filelock.BaseFileLock) -> None:
        self.folder, self.header, self._lock = folder, header, lock
        self._spare: list[Path] = []
        with durable.storage(folder):
            shutil.rmtree(folder / _SCRATCH, ignore_errors=True)  # of a session that was killed
            for name in ("samples", "logs", "reports", _SCRATCH):
                (folder / name).mkdir(exist_ok=True)
        self._lines = durable.LineFile(folder / ATTEMPTS_FILE)
        self.attempts = Attempts(folder / ATTEMPTS_FILE)

    @classmethod
    def create(cls, results: Path, header: RunHeader, cells: Sequence[Cell]) -> RunStore:
        """Make the folder of a new run. Raises StorageError."""
        folder = results / header.id
        header = header.model_copy(update={"planned": len(cells)})
        with durable.storage(folder):
            folder.mkdir(parents=True)
        lock = _lock(folder)
        try:
            durable.replace(folder / PLAN_FILE, (durable.dump_line(plain(cell)) for cell in cells))
            durable.replace(folder / HEADER_FILE, dump_header(header))
            return cls(folder, header, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: Path) -> RunStore:
        """Open a run to go on with it. Raises RunLocked, StorageError (also for a damaged plan)."""
        header = read_header(folder)
        StoredRun(folder).cells()
        lock = _lock(folder)
        try:
            return cls(folder, header, lock)
        except BaseException:
            lock.release()
            raise

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the lock. Can be called again."""
        if self._lock.is_locked:
            self._lines.close()
            shutil.rmtree(self.folder / _SCRATCH, ignore_errors=True)
            (self.folder / _WRITER).unlink(missing_ok=True)
            self._lock.release()

    def cells(self) -> tuple[Cell, ...]:
        """The plan."""
        return self.reader().cells()

    def reader(self) -> StoredRun:
        """The same run, for reading."""
        return StoredRun(self.folder)

    def append(self, attempt: Attempt) -> None:
        """Add one attempt; it is on the disk when this returns. Raises StorageError."""
        offset, length = self._lines.append({"kind": _KIND_OF[type(attempt)], **dump(attempt)})
        self.attempts.add(attempt, offset, length)

    def append_all(self, attempts: Sequence[Attempt]) -> None:
        """Add many at the price of one. Raises StorageError."""
        places = self._lines.append_all({"kind": _KIND_OF[type(a)], **dump(a)} for a in attempts)
        for attempt, (offset, length) in zip(attempts, places, strict=True):
            self.attempts.add(attempt, offset, length)

    def update_header(self, **changes: Any) -> None:
        """Replace fields of run.json. Raises StorageError."""
        self.header = self.header.model_copy(update=changes)
        durable.replace(self.folder / HEADER_FILE, dump_header(self.header))

    def write_records(self, records: Iterable[Record]) -> None:
        """Replace cells.jsonl, and say in the header what it was made from. Raises StorageError."""
        locks = Locks()
        lines = (durable.dump_line(locks.left_out(dump(record))) for record in records)
        durable.replace(self.folder / CELLS_FILE, lines)
        self.update_header(consolidated_bytes=self._lines.size)

    def scratch(self) -> Path:
        """An empty folder for one launch, on the same file system. Give it back with `drop_scratch`."""
        with durable.storage(self.folder / _SCRATCH):
            with contextlib.suppress(IndexError):  # making and removing folders costs more than emptying them
                return self._spare.pop()
            return Path(tempfile.mkdtemp(dir=self.folder / _SCRATCH))

    def drop_scratch(self, folder: Path) -> None:
        """Empty what `scratch` gave and keep it for the next launch."""
        try:
            for part in folder.iterdir():
                for entry in part.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    else:
                        entry.unlink()
        except OSError:  # not as we left it: the next launch gets a fresh one
            shutil.rmtree(folder, ignore_errors=True)
        else:
            self._spare.append(folder)

    def keep_samples(self, out: Path, cell: str, name: str) -> str | None:
        """Move a launch's raw samples into the run; their path in it, None when there are none."""
        return self._keep(out / SAMPLES_FILE, Path("samples") / cell / f"{name}.npz")

    def keep_file(self, path: Path, cell: str, name: str) -> str | None:
        """Move any other file of a launch beside its samples (outputs that were wrong)."""
        return self._keep(path, Path("samples") / cell / name)

    def keep_log(self, out: Path, cell: str, name: str) -> str | None:
        """Move a launch's log into the run (its end, where it is long); None when it is empty."""
        source = out / LOG_FILE
        with durable.storage(source):
            if not source.is_file() or not (size := source.stat().st_size):
                return None
            if size > _KEPT_LOG_BYTES:
                with source.open("rb") as stream:
                    stream.seek(size - _KEPT_LOG_BYTES)
                    end = stream.read()
                source.write_bytes(b"[...]\n" + end)
        return self._keep(source, Path("logs") / cell / f"{name}.txt")

    def _keep(self, source: Path, relative: Path) -> str | None:
        if not source.is_file():
            return None
        target = self.folder / relative
        with durable.storage(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
        return relative.as_posix()


def read_header(folder: Path) -> RunHeader:
    """Read run.json. Raises StorageError for a file that is missing, damaged or of a newer version."""
    path = folder / HEADER_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path} is damaged: {error}") from error
    return _validate(RunHeader, data, str(path))


def dump(record: Model) -> dict[str, Any]:
    """A record as it is stored: defaults left out, NaN and Infinity left in for `dump_line` to refuse.

    (Pydantic's own JSON mode would write them as null where a field takes anything.)
    """
    return record.model_dump(exclude_defaults=True)


def is_running(folder: Path) -> int | None:
    """The process that is writing this run now, as far as this machine can tell; None when nobody does."""
    pid = _writer(folder)
    return pid if pid is not None and psutil.pid_exists(pid) else None


def _lock(folder: Path) -> filelock.BaseFileLock:
    lock = filelock.FileLock(folder / _LOCK, thread_local=False)
    with durable.storage(folder):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            pid = _writer(folder)
            who = f"process {pid}" if pid else "another process"
            raise RunLocked(f"{folder.name} is being written by {who}: wait for it, or end it") from None
        (folder / _WRITER).write_text(json.dumps({"pid": os.getpid()}), encoding="utf-8")
    return lock


def _writer(folder: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((folder / _WRITER).read_text(encoding="utf-8"))["pid"])
    return None


def dump_header(header: RunHeader) -> str:
    """The text of `run.json`."""
    return json.dumps(plain(header.model_dump()), indent=1, ensure_ascii=False) + "\n"


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, data, _ in _lines_with_length(path):
        yield number, data


def _lines_with_length(path: Path) -> Iterator[tuple[int, Any, int]]:
    """Line number, content and length in bytes of each line. A torn last line ends the file."""
    if not path.exists():
        return
    with path.open("rb") as stream:
        lines = enumerate(stream, start=1)
        for number, line in lines:
            try:
                data = json.loads(line) if line.endswith(b"\n") else None
            except (ValueError, RecursionError) as error:
                if next(lines, None) is None:
                    return
                raise StorageError(f"{path}:{number} is damaged: {error}") from None
            if data is None:
                return
            yield number, data, len(line)


def _count_lines(path: Path) -> int:
    with path.open("rb") as stream:
        return sum(1 for _ in stream)


def _attempt(data: Any, where: str) -> Attempt:
    if not isinstance(data, dict) or data.get("kind") not in _KINDS:
        raise StorageError(f"{where}: not an attempt that this version knows")
    fields = {name: value for name, value in data.items() if name != "kind"}
    return _validate(_KINDS[data["kind"]], fields, where)


def _cell(data: Any, where: str) -> Cell:
    try:
        return from_plain(Cell, data)
    except ProtocolError as error:
        raise StorageError(f"{where}: {error}") from error


def _validate(cls: type[_Stored], data: Any, where: str) -> _Stored:
    version = data.get("schema_version", SCHEMA) if isinstance(data, dict) else None
    if isinstance(version, int) and version > SCHEMA:
        raise StorageError(
            f"{where} was written by a newer version of framework-matrix (schema {version}, this one "
            f"reads up to {SCHEMA}): pip install --upgrade framework-matrix"
        )
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise StorageError(f"{where} does not fit: {field}: {first['msg']}") from error
