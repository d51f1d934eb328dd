"""Weights beside an ONNX file: found, inside the model's folder, long enough, real."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from matrix.artefacts.onnx_file.facts import OnnxRefused

_LONGEST = 200  # no file system takes a longer name
LFS_MARK = b"version https://git-lfs.github.com/spec/"


def check_side_files(model_path: Path, tensors: Iterable[Any]) -> tuple[str, ...]:
    """The names of all side files, sorted. Raises OnnxRefused for one that cannot be used.

    A location is data from a stranger: it is looked at as text first, and opened only when
    it stays inside the model's folder, also after links are followed.
    """
    folder = model_path.parent
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if location not in sizes:
            sizes[location] = _size(folder, location)
        _check_range(tensor.name, location, entries, sizes[location])
    return tuple(sorted(sizes))


def is_pointer(path: Path) -> bool:
    """Whether `path` is the small text that Git LFS leaves in place of a file."""
    with path.open("rb") as stream:
        return stream.read(len(LFS_MARK)) == LFS_MARK


def _size(folder: Path, location: str) -> int:
    shown = f"external data {location[:80]!r}"
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise OnnxRefused("external_data_escapes", "a tensor's external data names no file")
    if (
        PurePosixPath(location).is_absolute()
        or windows.drive
        or windows.root
        or ".." in PurePosixPath(location).parts
        or ".." in windows.parts
    ):
        raise OnnxRefused(
            "external_data_escapes",
            f"{shown} leads out of the model's folder: only files inside it are read",
        )
    path = folder / location
    if len(location) > _LONGEST or not path.exists():
        raise OnnxRefused(
            "external_data_missing", f"{shown} is missing: put the file into {folder}, beside the model"
        )
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OnnxRefused(
            "external_data_escapes",
            f"{shown} is a link out of the model's folder: copy the file itself there (cp -L)",
        )
    if not path.is_file():
        raise OnnxRefused("external_data_missing", f"{shown} is no file")
    if is_pointer(path):
        raise OnnxRefused("lfs_pointer", f"{shown} is a Git LFS pointer: run git lfs pull")
    return path.stat().st_size


def _check_range(tensor: str, location: str, entries: dict[str, str], size: int) -> None:
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or 0)
    except ValueError:
        offset = length = -1
    if offset < 0 or length < 0:
        raise OnnxRefused("external_data_truncated", f"tensor {tensor!r}: offset or length is no size")
    if offset + length > size:
        raise OnnxRefused(
            "external_data_truncated",
            f"external data {location!r} ends early: tensor {tensor!r} needs "
            f"{offset + length} bytes, the file has {size}",
        )
