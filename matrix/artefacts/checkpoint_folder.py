"""A user's own checkpoint folder, read without any framework.

What is wrong with it is found here, before an environment is built: a missing file, a
Git LFS pointer instead of weights, a truncated safetensors file. What its config.json
says of inputs and outputs fills in what the user did not write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.errors import ConfigError

_POINTER = b"version https://git-lfs"
_MAX_HEADER = 100_000_000  # safetensors' own limit on its JSON header
_MAX_JSON = 64 << 20
_MOST = 2**31 - 1  # of anything that a config.json counts
_SHARD = re.compile(r"[^/\\\0]{1,200}\.safetensors")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder whose weights can be loaded. Raises ConfigError."""
    path = folder / "config.json"
    try:
        config = read_json(path)
    except FileNotFoundError:
        raise ConfigError([f"{folder} has no config.json: a checkpoint folder has one"]) from None
    if not isinstance(config, dict):
        raise ConfigError([f"{path} does not hold a mapping"])
    _refuse_code(path, config)
    weights = weight_files(folder)
    if not weights:
        other = " (pickled weights are never loaded)" if [*folder.glob("*.bin"), *folder.glob("*.pt")] else ""
        raise ConfigError([f"{folder} has no .safetensors weights{other}"])
    for file in weights:
        check_safetensors(file)
    return config


def weight_files(folder: Path) -> list[Path]:
    """Every safetensors file of the folder: what its weights are known by.

    Raises ConfigError for an index that names a file elsewhere: its content would be loaded
    and belong to no hash.
    """
    found = set(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = read_json(index)
        names = names.get("weight_map") if isinstance(names, dict) else None
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ConfigError([f"{index} is not a readable index"])
        for name in sorted(set(names.values())):
            if not _SHARD.fullmatch(name):
                raise ConfigError(
                    [f"{index} names {_short(name)}: weights are .safetensors files beside the index"]
                )
            if not (folder / name).exists():
                raise ConfigError([f"{folder / name} is missing, though the index names it"])
            found.add(folder / name)
    return sorted(found)


def check_safetensors(path: Path) -> None:
    """Raise ConfigError unless the file is as long as its header says. Reads the header only."""
    try:
        if not path.is_file():  # a pipe would be waited for, for ever
            what = "a link to nothing" if path.is_symlink() and not path.exists() else "no file"
            raise ConfigError([f"{path} is {what}"])
        size = path.stat().st_size
        with path.open("rb") as stream:
            start = stream.read(len(_POINTER))
            stream.seek(0)
            length = int.from_bytes(stream.read(8), "little")
            if start == _POINTER:
                raise ConfigError([f"{path} is a Git LFS pointer, not the weights: run `git lfs pull`"])
            if size == 0:
                raise ConfigError([f"{path} is empty"])
            if not 2 <= length <= min(size - 8, _MAX_HEADER):
                raise ConfigError([f"{path} is truncated or no safetensors file"])
            header = json.loads(stream.read(length))
    except (ValueError, RecursionError):
        raise ConfigError([f"{path} has a broken safetensors header"]) from None
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror or error}"]) from None
    needed = 8 + length + _end_of_data(path, header)
    if size < needed:
        raise ConfigError([f"{path} is truncated: {size} bytes of {needed}"])


def _end_of_data(path: Path, header: Any) -> int:
    """Where the last tensor ends, by a header that may be anything. Raises ConfigError."""
    end = 0
    tensors = (
        [entry for name, entry in header.items() if name != "__metadata__"]
        if isinstance(header, dict)
        else [None]
    )
    if not tensors:
        raise ConfigError([f"{path} holds no tensors"])
    for entry in tensors:
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int for o in offsets)):
            raise ConfigError([f"{path} has a broken safetensors header"])
        if not 0 <= offsets[0] <= offsets[1]:
            raise ConfigError([f"{path} has a broken safetensors header"])
        end = max(end, offsets[1])
    return end


def read_json(path: Path) -> Any:
    """A JSON file of a stranger. Raises FileNotFoundError, and ConfigError for everything else."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, for ever
            raise ConfigError([f"{path} is no file"])
        if path.stat().st_size > _MAX_JSON:
            raise ConfigError([f"{path} has over {_MAX_JSON >> 20} MB"])
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except RecursionError:
        raise ConfigError([f"{path} is not readable JSON (nested too deeply)"]) from None
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror or error}"]) from None
    except ValueError as error:
        raise ConfigError([f"{path} is not readable JSON ({error})"]) from None


def _refuse_code(path: Path, config: Mapping[str, Any]) -> None:
    """What makes a library run code, open a pickle or load another model, anywhere in config.json."""
    if "registered_name" in config:
        raise ConfigError([f"{path} is a Keras preset: give a Hugging Face or timm folder"])
    if ":" in str(config.get("architecture", "")):
        raise ConfigError([f"{path} names an architecture from elsewhere: {_short(config['architecture'])}"])
    open_: list[Any] = [config]
    while open_:
        value = open_.pop()
        if isinstance(value, dict):
            if "auto_map" in value:
                raise ConfigError(
                    [f"{path} names code of its own (auto_map); code from a model folder is never run"]
                )
            if value.get("checkpoint_path"):
                raise ConfigError([f"{path} names weights elsewhere (checkpoint_path); they are not loaded"])
            open_ += value.values()
        elif isinstance(value, list):
            open_ += value


def _short(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def describe(config: Mapping[str, Any]) -> dict[str, Any]:
    """`format`, `task`, `inputs`, `outputs`, `max_sequence` as a config.json implies them."""
    kind = config.get("model_type")
    if "architecture" in config:
        return _timm(config)
    if isinstance(kind, str) and kind in _DECLARATIVE:
        return _DECLARATIVE[kind](config)
    return _transformers(config)


def _timm(config: Mapping[str, Any]) -> dict[str, Any]:
    pretrained = config.get("pretrained_cfg")
    size = pretrained.get("input_size") if isinstance(pretrained, Mapping) else None
    given = size if isinstance(size, list) and len(size) == 3 else []
    shape = given if given and all(whole(axis, 0) for axis in given) else [3, 224, 224]
    return {
        "format": "timm",
        "task": "image-classification",
        "inputs": {"pixel_values": {"dtype": "float32", "shape": ["batch", *shape]}},
        "outputs": ["logits"],
    }


def _transformers(config: Mapping[str, Any]) -> dict[str, Any]:
    architectures = config.get("architectures")
    name = str(architectures[0]) if isinstance(architectures, list) and architectures else ""
    if "ForImageClassification" in name:
        size = whole(config.get("image_size"), 224)
        shape = ["batch", whole(config.get("num_channels"), 3), size, size]
        inputs: dict[str, Any] = {"pixel_values": {"dtype": "float32", "shape": shape}}
        return {
            "format": "transformers",
            "task": "image-classification",
            "inputs": inputs,
            "outputs": ["logits"],
        }
    causal = "ForCausalLM" in name or name.endswith("LMHeadModel")
    inputs = {
        "input_ids": _ids(whole(config.get("vocab_size"), 2)),
        "attention_mask": {"dtype": "int64", "shape": ["batch", "sequence"], "distribution": "mask"},
    }
    if config.get("model_type") == "bert":
        inputs["token_type_ids"] = _ids(whole(config.get("type_vocab_size"), 1))
    return {
        "format": "transformers",
        "task": "causal-lm" if causal else "backbone",
        "inputs": inputs,
        "outputs": ["logits" if causal else "last_hidden_state"],
        "max_sequence": positions(config),
    }


def _lstm(config: Mapping[str, Any]) -> dict[str, Any]:
    shape = ["batch", "sequence", whole(config.get("input_size"), 1)]
    return {
        "format": "declarative",
        "task": "lstm",
        "inputs": {"features": {"dtype": "float32", "shape": shape}},
        "outputs": ["logits"],
    }


def _dlrm(config: Mapping[str, Any]) -> dict[str, Any]:
    rows = embedding_rows(config) or [1]
    sparse = {**_ids(min(rows)), "shape": ["batch", len(rows)]}
    dense = {"dtype": "float32", "shape": ["batch", whole(config.get("dense_features"), 1)]}
    return {
        "format": "declarative",
        "task": "dlrm",
        "inputs": {"dense": dense, "sparse": sparse},
        "outputs": ["logits"],
    }


_DECLARATIVE = {"lstm": _lstm, "dlrm": _dlrm}


def _ids(rows: int) -> dict[str, Any]:
    return {
        "dtype": "int64",
        "shape": ["batch", "sequence"],
        "distribution": "integers",
        "low": 0,
        "high": rows,
    }


def positions(config: Mapping[str, Any]) -> int | None:
    """How long a sequence may be; None where the config does not say."""
    return whole(config.get("max_position_embeddings"), 0) or whole(config.get("n_positions"), 0) or None


def embedding_rows(config: Mapping[str, Any]) -> list[int]:
    """Rows of each table of a dlrm; empty where the config gives no usable list."""
    rows = config.get("embedding_rows")
    return rows if isinstance(rows, list) and all(whole(r, 0) for r in rows) else []


def whole(value: Any, otherwise: int) -> int:
    """`value` where it is a number that a config can count with."""
    return value if type(value) is int and 0 < value <= _MOST else otherwise
