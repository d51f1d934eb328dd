"""Shared inputs: made once per workload on the host from a seed, given to every framework.

Stored as one `.npz` with an array per input and, beside it, `inputs.json`: logical dtype,
shape, hash and facts (NaN, Inf, subnormal counts) of each. NumPy has no bfloat16 and no
int4: those are stored as raw bits (uint16; uint8 with one value in the low four bits of
each byte) and only the JSON says what they mean.
"""

from __future__ import annotations

import hashlib
import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from matrix.artefacts import checkpoint_folder
from matrix.catalog.types import InputEntry, ModelEntry
from matrix.errors import ConfigError
from matrix_adapters.protocol import write_atomic

INPUTS_FILE = "inputs.npz"
FACTS_FILE = "inputs.json"

#: logical dtypes that NumPy lacks -> how their bits are stored
RAW_BITS: Mapping[str, str] = {"bfloat16": "uint16", "int4": "uint8", "uint4": "uint8"}

#: dtypes of which only whole numbers can be drawn -> the range where the entry gives none
_DEFAULT_HIGH: Mapping[str, int] = {"string": 1000, "bool": 2}


#: bytes of an array from which on its entry needs 64-bit sizes; its own header comes on top
_ZIP64 = (1 << 31) - (1 << 20)
_SHARE_OF_MEMORY = 4  # one input may take this part of it


class InputProblem(ValueError):
    """An input that cannot be made or does not fit; the message names the input and the reason."""


def make_inputs(model: ModelEntry, batch: int, sequence: int | None) -> dict[str, np.ndarray]:
    """One array per input, in the model's order. Raises InputProblem.

    Each input has a random stream of its own (seed and name), so that adding an input or
    reordering them changes no other.
    """
    return {
        name: _array(name, entry, resolve(name, entry, batch, sequence), model.seed)
        for name, entry in model.inputs.items()
    }


def resolve(name: str, entry: InputEntry, batch: int, sequence: int | None) -> tuple[int, ...] | None:
    """The entry's shape in numbers; None where only a file says it. Raises InputProblem."""
    if entry.shape is None:
        if entry.file is None:
            raise InputProblem(f"input {name!r}: give its `shape`, or a `file`")
        return None
    sizes: dict[str, int | None] = {"batch": batch, "sequence": sequence}
    shape = []
    for axis in entry.shape:
        size = axis if isinstance(axis, int) else sizes.get(axis)
        if size is None:
            raise InputProblem(f"input {name!r}: axis {axis!r} has no size (known: batch, sequence, numbers)")
        shape.append(size)
    return tuple(shape)


def problems(model: ModelEntry, batch: int, sequence: int | None) -> list[str]:
    """What is wrong with the inputs of this workload, in words, found without any framework.

    An index beyond an embedding's rows reads foreign memory in one framework and is an error
    in the next, so it never gets as far as a build. Limits come from the model's own config.
    """
    config = model_config(model)
    found = []
    longest = model.max_sequence or checkpoint_folder.positions(config)
    if model.has_sequence and sequence is not None and longest and sequence > longest:
        found.append(f"sequence {sequence} is longer than {model.name} has positions for ({longest})")
    rows = _rows(config)
    for name, entry in model.inputs.items():
        limit = rows.get(name)
        try:
            if entry.file is not None:
                array = _from_file(name, entry, resolve(name, entry, batch, sequence))
                if limit is not None and array.size and not 0 <= array.min() <= array.max() < limit:
                    found.append(
                        f"input {name!r}: {entry.file} holds {array.min()}..{array.max()}, "
                        f"the model has rows 0..{limit - 1}"
                    )
            else:
                _check_size(name, resolve(name, entry, batch, sequence) or ())
                if limit is not None and entry.distribution == "integers":
                    low, high = entry.low or 0, entry.high or 0
                    if low < 0 or high > limit:
                        found.append(
                            f"input {name!r}: generates {low}..{high - 1}, the model has rows 0..{limit - 1}"
                        )
        except InputProblem as problem:
            found.append(str(problem))
    return found


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    """Values are drawn as 8-byte numbers: more than the machine can hold would end the whole run."""
    needed, most = 8 * math.prod(shape), psutil.virtual_memory().total // _SHARE_OF_MEMORY
    if needed > most:
        raise InputProblem(
            f"input {name!r}: {list(shape)} would take {needed / 2**30:,.1f} GiB to make, "
            f"this machine has room for {most / 2**30:,.1f}"
        )


def model_config(model: ModelEntry) -> dict[str, Any]:
    """The sizes the model was (or will be) built with; empty where nothing says them."""
    if model.path is not None and (model.path / "config.json").is_file():
        try:
            config = checkpoint_folder.read_json(model.path / "config.json")
        except ConfigError:
            return {}  # the folder's own check reports it
        return config if isinstance(config, dict) else {}
    return dict(model.build.get("config", {}))


def write_inputs(model: ModelEntry, arrays: Mapping[str, np.ndarray], folder: Path) -> dict[str, Any]:
    """Write both files into `folder`; returns what inputs.json says."""
    _save(folder / INPUTS_FILE, arrays)
    facts = {
        "sha256": arrays_hash(arrays),
        "seed": model.seed,
        "inputs": {n: describe(a, logical_dtype(model.inputs[n], a)) for n, a in arrays.items()},
    }
    write_atomic(folder / FACTS_FILE, json.dumps(facts, indent=2, sort_keys=True) + "\n")
    return facts


def logical_dtype(entry: InputEntry, array: np.ndarray) -> str:
    """What the values are, which for raw bits is not how they are stored."""
    return entry.dtype if entry.dtype in RAW_BITS else str(array.dtype)


def describe(array: np.ndarray, dtype: str) -> dict[str, Any]:
    """Shape, logical dtype, hash, and counts of the values that slow a CPU down or spoil a result."""
    values = bfloat16_to_float32(array) if dtype == "bfloat16" else array
    floating = values.dtype.kind == "f"
    # bfloat16 has float32's exponents, hence the same smallest normal number.
    tiny = np.finfo(values.dtype).tiny if floating else 0
    return {
        "shape": list(array.shape),
        "dtype": dtype,
        "stored_as": str(array.dtype),
        "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        "nan": int(np.isnan(values).sum()) if floating else 0,
        "inf": int(np.isinf(values).sum()) if floating else 0,
        "subnormal": int(((values != 0) & (np.abs(values) < tiny)).sum()) if floating else 0,
    }


def arrays_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, whatever file format holds them."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def float32_to_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 -> bfloat16 bits (uint16), rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet_nan = (bits >> 16) | 0x0040
    return np.where(np.isnan(values), quiet_nan, rounded).astype(np.uint16)


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) -> float32, exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An `.npz` whatever the names are (np.savez takes them as keyword arguments: `file` is lost)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            # Pythons differ in the header of an entry for which 64 bits are forced, and the file is hashed.
            large = array.nbytes >= _ZIP64
            with archive.open(f"{name}.npy", "w", force_zip64=large) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _array(name: str, entry: InputEntry, shape: tuple[int, ...] | None, seed: int) -> np.ndarray:
    if entry.file is not None:
        return _from_file(name, entry, shape)
    if shape is None:  # resolve() has refused it
        raise InputProblem(f"input {name!r}: no shape")
    _check_size(name, shape)
    random = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    try:
        values = _values(entry, shape, random)
    except (ValueError, OverflowError) as error:  # NumPy's own limits on ranges and shapes
        raise InputProblem(f"input {name!r}: values cannot be made ({error})") from None
    if entry.dtype == "string":
        words: np.ndarray = np.char.add("w", values.astype(np.int64).astype(str))
        return words
    if entry.dtype == "bfloat16":
        return float32_to_bfloat16(values.astype(np.float32))
    if entry.dtype in ("int4", "uint4"):
        nibbles: np.ndarray = (values.astype(np.int64) & 0x0F).astype(np.uint8)
        return nibbles
    try:
        dtype = np.dtype(entry.dtype)
    except TypeError:
        raise InputProblem(f"input {name!r}: there is no dtype {entry.dtype!r}") from None
    return _as_type(name, values, dtype)


def _as_type(name: str, values: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """`values` in the input's dtype. Raises InputProblem where that would wrap or overflow."""
    if dtype.kind not in "fiub":
        raise InputProblem(f"input {name!r}: values of type {dtype} cannot be made")
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise InputProblem(
                f"input {name!r}: values up to {values.max()} were asked, {dtype} holds "
                f"{limits.min}..{limits.max}"
            )
    with np.errstate(over="ignore"):
        made: np.ndarray = values.astype(dtype)
    if dtype.kind == "f" and not np.isfinite(made).all():
        raise InputProblem(f"input {name!r}: values were asked that {dtype} cannot hold")
    return made


def _values(entry: InputEntry, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    low = 0 if entry.low is None else entry.low
    kind = "integers" if entry.dtype in _DEFAULT_HIGH else entry.distribution
    made: np.ndarray
    match kind:
        case "normal":
            made = random.standard_normal(shape)
        case "uniform":
            made = random.uniform(low, 1.0 if entry.high is None else entry.high, size=shape)
        case "integers":
            high = _DEFAULT_HIGH.get(entry.dtype, 2) if entry.high is None else entry.high
            made = random.integers(int(low), int(high), size=shape)
        case "mask":
            made = _mask(shape, entry.padded)
        case "constant":
            made = np.full(shape, low)
    return made


def _mask(shape: tuple[int, ...], padded: int) -> np.ndarray:
    """Ones with zeros at the end of each row: `padded` in the first, ever fewer in the next ones.

    At most a quarter of a row is padding, so that one entry serves short sequences too.
    """
    mask = np.ones(shape, dtype=np.int64)
    rows, length = (shape[0], shape[-1]) if len(shape) > 1 else (1, shape[-1])
    most = min(padded, length // 4)
    for row in range(rows):
        zeros = most * (rows - row) // rows
        if zeros:
            mask.reshape(rows, -1, length)[row, :, length - zeros :] = 0
    return mask


def _from_file(name: str, entry: InputEntry, shape: tuple[int, ...] | None) -> np.ndarray:
    path = entry.file
    if path is None:
        raise InputProblem(f"input {name!r}: no file")
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, for ever
            raise InputProblem(f"input {name!r}: {path} is no file")
        loaded = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputProblem(f"input {name!r}: there is no file {path}") from None
    except (OSError, EOFError, ValueError) as error:
        raise InputProblem(f"input {name!r}: {path} is not a plain .npy file ({error})") from None
    if not isinstance(loaded, np.ndarray):
        raise InputProblem(f"input {name!r}: {path} holds several arrays; give one .npy file per input")
    expected = RAW_BITS.get(entry.dtype, entry.dtype)
    fits = loaded.dtype.kind == "U" if expected == "string" else str(loaded.dtype) == expected
    if not fits:
        raise InputProblem(f"input {name!r}: {path} holds {loaded.dtype}, {expected} is needed")
    if shape is not None and loaded.shape != shape:
        raise InputProblem(f"input {name!r}: {path} has shape {loaded.shape}, {shape} is needed")
    _within(name, path, entry, loaded)
    return loaded


def _within(name: str, path: Path, entry: InputEntry, array: np.ndarray) -> None:
    """`low` and `high` of an entry with a file are what its values must keep to."""
    if array.dtype.kind not in "iuf" or not array.size or entry.dtype in RAW_BITS:
        return
    if entry.low is not None and array.min() < entry.low:
        raise InputProblem(f"input {name!r}: {path} holds {array.min()}, `low` is {entry.low}")
    if entry.high is not None and array.max() >= entry.high:
        raise InputProblem(f"input {name!r}: {path} holds {array.max()}, values must stay below {entry.high}")


def _rows(config: Mapping[str, Any]) -> dict[str, int]:
    """Input name -> rows of the table it indexes, as far as the config says."""
    named = {"input_ids": config.get("vocab_size"), "token_type_ids": config.get("type_vocab_size")}
    if tables := checkpoint_folder.embedding_rows(config):
        named["sparse"] = min(tables)
    sizes = {name: checkpoint_folder.whole(rows, 0) for name, rows in named.items()}
    return {name: rows for name, rows in sizes.items() if rows}
