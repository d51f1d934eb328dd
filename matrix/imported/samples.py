"""Imported samples as columns of codes, and their reduction by block and by launch.

One entry a sample: which environment, workload, metric, block and launch it is of (as an
index into the names of each), and its value in the registry's unit. The order is canonical,
so that a shuffled file gives the same numbers to the last bit.
"""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.errors import StorageError
from matrix.records import AA
from matrix.store import durable

FILE = "values.npz"
#: what each sample belongs to, from the widest to the narrowest
KEYS = ("environment", "metric", "workload", "block", "launch")

Codes = npt.NDArray[np.int32]
Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Samples:
    """Columns of one length in canonical order; `names[key][codes[key][i]]` is what sample i is of."""

    names: dict[str, tuple[str, ...]]
    codes: dict[str, Codes]
    value: Values

    def __len__(self) -> int:
        return len(self.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reduced:
    """One entry per group of samples: the codes of its keys, and its value."""

    codes: dict[str, Codes]
    value: Values


def ordered(names: dict[str, tuple[str, ...]], codes: dict[str, Codes], value: Values) -> Samples:
    """Samples in canonical order: environments, metrics and workloads as they first appeared."""
    keys: list[npt.NDArray[Any]] = [value, *(codes[key] for key in reversed(KEYS))]
    by = np.lexsort(keys)
    return Samples(names=names, codes={key: codes[key][by] for key in KEYS}, value=value[by])


def per_launch(samples: Samples) -> Reduced:
    """The median of each launch's samples."""
    starts, ends = _groups(samples.codes, KEYS, len(samples))
    counts = ends - starts  # sorted by value within a launch, so that the middle is the median
    median = (samples.value[starts + (counts - 1) // 2] + samples.value[starts + counts // 2]) / 2
    return Reduced(codes={key: samples.codes[key][starts] for key in KEYS}, value=median)


def per_block(samples: Samples) -> Reduced:
    """The mean over the launches of each block."""
    launches = per_launch(samples)
    starts, ends = _groups(launches.codes, KEYS[:-1], len(launches.value))
    mean = np.add.reduceat(launches.value, starts) / (ends - starts) if len(starts) else launches.value
    return Reduced(codes={key: launches.codes[key][starts] for key in KEYS[:-1]}, value=mean)


def groups(reduced: Reduced, keys: Sequence[str]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Where each run of equal `keys` begins and ends."""
    return _groups(reduced.codes, keys, len(reduced.value))


def split_arm(environment: str) -> tuple[str, str]:
    """NAME@aa is the arm `aa` of NAME."""
    name, mark, arm = environment.rpartition("@")
    return (name, arm) if mark and arm == AA else (environment, "")


def pack(samples: Samples) -> bytes:
    """The file `values.npz`: one array of names and one of codes for each key, and the values."""
    arrays: dict[str, npt.NDArray[Any]] = {"value": samples.value}
    for key in KEYS:
        arrays[key] = samples.codes[key]
        arrays[f"{key}_names"] = np.array(samples.names[key], dtype=np.str_)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def write(folder: Path, samples: Samples) -> None:
    """Store them in a run folder. Raises StorageError."""
    durable.replace(folder / FILE, iter([pack(samples)]))


def is_imported(folder: Path) -> bool:
    """Whether the run in `folder` is made of imported samples."""
    return (folder / FILE).is_file()


def load(folder: Path) -> Samples:
    """The samples of an imported run. Raises StorageError."""
    path = folder / FILE
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = {key: tuple(archive[f"{key}_names"].tolist()) for key in KEYS}
            codes = {key: archive[key] for key in KEYS}
            value = archive["value"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    _check(path, names, codes, value)
    return Samples(names=names, codes=codes, value=value)


def _check(path: Path, names: dict[str, tuple[str, ...]], codes: dict[str, Codes], value: Values) -> None:
    def fits(key: str) -> bool:
        column, known = codes[key], len(names[key])
        if column.shape != value.shape or column.dtype != np.int32:
            return False
        return not len(column) or bool(column.min() >= 0 and column.max() < known)

    if value.ndim != 1 or value.dtype != np.float64 or not all(fits(key) for key in KEYS):
        raise StorageError(f"{path} is damaged: its columns do not fit together")
    if not np.isfinite(value).all():
        raise StorageError(f"{path} is damaged: a value is not finite")


def _groups(
    codes: dict[str, Codes], keys: Sequence[str], count: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    if not count:
        return np.empty(0, np.intp), np.empty(0, np.intp)
    new = np.zeros(count, bool)
    new[0] = True
    for key in keys:
        new[1:] |= codes[key][1:] != codes[key][:-1]
    starts = np.flatnonzero(new)
    return starts, np.append(starts[1:], count)
