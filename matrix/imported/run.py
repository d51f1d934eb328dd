"""A file of samples becomes a run folder: all of it, or nothing."""

from __future__ import annotations

import hashlib
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from matrix import __version__
from matrix.catalog.types import Metric
from matrix.errors import UsageError
from matrix.imported import checking, columns, records, samples
from matrix.store import durable
from matrix.store.formats import RunHeader, utc_now
from matrix.store.names import HEADER_FILE, check_new_name, new_id
from matrix.store.runs import CELLS_FILE, PLAN_FILE, StoredRun, dump, dump_header
from matrix_adapters.protocol import plain

SWEEP = "import"


def import_file(results: Path, path: Path, name: str, registry: Mapping[str, Metric]) -> StoredRun:
    """Store the samples of `path` as a run of this name.

    Raises UsageError (no such file, a name that is taken), ConfigError (all that is wrong in
    the file), StorageError. A run that could not be written leaves nothing behind.
    """
    check_new_name(results, name)
    content = _content(path)
    found = checking.samples_of(columns.read(path, content), registry)
    cells = records.cells_of(found)
    header = RunHeader(
        id=new_id(name),
        name=name,
        created=utc_now(),
        ended=utc_now(),
        outcome="complete",
        sweep=SWEEP,
        config={
            "source": {
                "file": path.name,
                "sha256": hashlib.sha256(content).hexdigest(),
                "samples": len(found),
            }
        },
        seed=0,
        blocks=len(found.names["block"]),
        planned=len(cells),
        version=__version__,
        versions={"python": platform.python_version()},
        command=tuple(sys.argv),
        consolidated_bytes=0,
    )
    folder = results / header.id
    with durable.storage(folder):
        folder.mkdir(parents=True)
    try:
        samples.write(folder, found)
        durable.replace(folder / PLAN_FILE, (durable.dump_line(plain(cell)) for cell in cells))
        made = records.records_of(found, registry)
        durable.replace(folder / CELLS_FILE, (durable.dump_line(dump(record)) for record in made))
        durable.replace(folder / HEADER_FILE, dump_header(header))  # last: only now it is a run
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return StoredRun(folder)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from None
