"""Arrays of an .npz without holding them all: what is large stays in the file, and is mapped.

Archives of this product are stored, not compressed: an array lies in the file as it lies in memory.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

#: bytes of an array from which on it is mapped: below, a copy is cheaper than a page at a time
MAPPED_FROM = 64 << 20
#: a local header of a zip entry: 30 bytes that end in the lengths of its name and of its extra field
_HEADER, _LENGTHS = 30, struct.Struct("<HH")


def open_arrays(path: Path, *, mapped_from: int = MAPPED_FROM) -> dict[str, npt.NDArray[Any]]:
    """All arrays by name. Raises OSError, ValueError (also for pickled objects) or BadZipFile."""
    with zipfile.ZipFile(path) as archive:
        return {
            info.filename.removesuffix(".npy"): _mapped(path, info)
            if info.file_size >= mapped_from and info.compress_type == zipfile.ZIP_STORED
            else _read(archive, info)
            for info in archive.infolist()
        }


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    try:
        with archive.open(info) as stream:
            array: npt.NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
            return array
    except zlib.error as error:
        raise ValueError(f"{info.filename} is damaged: {error}") from error


def _mapped(path: Path, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with path.open("rb") as stream:
        stream.seek(info.header_offset)
        header = stream.read(_HEADER)
        if len(header) < _HEADER:
            raise zipfile.BadZipFile(f"{info.filename} is not where the archive says")
        lengths = _LENGTHS.unpack(header[-_LENGTHS.size :])
        stream.seek(info.header_offset + _HEADER + sum(lengths))
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(np.lib.format.read_magic(stream))
        if read is None:
            raise ValueError(f"{info.filename} is in a format of arrays that is not known here")
        shape, in_columns, dtype = read(stream)
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects")
        if not math.prod(shape):
            return np.zeros(shape, dtype)  # nothing can be mapped
        return np.memmap(path, dtype, "r", stream.tell(), shape, "F" if in_columns else "C")
