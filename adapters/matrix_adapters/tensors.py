"""Arrays on their way in and out: load, keep, fingerprint, compare bit by bit."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters.protocol import TensorFacts

Arrays = Mapping[str, np.ndarray]


def load(path: Path) -> dict[str, np.ndarray]:
    """Every array of an `.npz` by name. Raises ValueError for pickled content."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


#: bytes of an array from which on its entry needs 64-bit sizes; its own header comes on top
_ZIP64 = (1 << 31) - (1 << 20)


def save(path: Path, arrays: Arrays) -> None:
    """Write an `.npz` in one step. Unlike `np.savez`, any name will do (ONNX outputs are free text)."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, array in arrays.items():
                # Pythons differ in the header of an entry for which 64 bits are forced, and files are hashed.
                large = array.nbytes >= _ZIP64
                with archive.open(f"{name}.npy", "w", force_zip64=large) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def host_copy(outputs: Any) -> dict[str, np.ndarray]:
    """The outputs of `fetch` as contiguous arrays of our own, strings as fixed-width text.

    Raises TypeError when the adapter breaks its contract.
    """
    if not isinstance(outputs, Mapping) or not outputs:
        raise TypeError(f"fetch must return a non-empty mapping of arrays, got {type(outputs).__name__}")
    copies = {}
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise TypeError(f"fetch must return NumPy arrays, {name!r} is a {type(value).__name__}")
        array = value.astype(str) if value.dtype.kind == "O" else value
        copies[str(name)] = np.array(array, order="C", copy=True)
    return copies


def fingerprints(arrays: Mapping[str, Any]) -> dict[str, TensorFacts]:
    """Facts of every value that is an array; others (a framework's own tensors) are left out."""
    return {name: fingerprint(value) for name, value in arrays.items() if isinstance(value, np.ndarray)}


def fingerprint(array: np.ndarray) -> TensorFacts:
    """Shape, dtype, SHA-256 of the bytes in C order, and counts of NaN, infinities, subnormals."""
    if array.dtype.kind == "O":
        array = array.astype(str)
    nan = inf = subnormal = 0
    if array.dtype.kind in "fc":
        nan = int(np.isnan(array).sum())
        inf = int(np.isinf(array).sum())
        subnormal = _subnormals(array)
    return TensorFacts(
        shape=tuple(int(n) for n in array.shape),
        dtype=str(array.dtype),
        sha256=hashlib.sha256(array.tobytes()).hexdigest(),
        nan=nan,
        inf=inf,
        subnormal=subnormal,
    )


def difference(first: Arrays, last: Arrays) -> str:
    """How two sets of outputs differ, in words; empty when every bit agrees."""
    if first.keys() != last.keys():
        return f"outputs {sorted(first)} became {sorted(last)}"
    found = (_array_difference(name, first[name], last[name]) for name in first)
    return "; ".join(text for text in found if text)


def _array_difference(name: str, a: np.ndarray, b: np.ndarray) -> str:
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{name}: {a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}"
    if a.tobytes() == b.tobytes():
        return ""
    changed = f"{name}: {int((a != b).sum())} of {a.size} values differ"
    if a.dtype.kind not in "fciub":
        return changed
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(a.astype(wide) - b.astype(wide))
    finite = gap[np.isfinite(gap)]
    if not finite.size:
        return f"{changed}, none of them finite"
    return f"{changed}, max difference {finite.max():.3g}"


def _subnormals(array: np.ndarray) -> int:
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    tiny = np.finfo(array.dtype).tiny
    return sum(int(((part != 0) & (np.abs(part) < tiny)).sum()) for part in parts)
