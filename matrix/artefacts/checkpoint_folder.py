"""A user's own checkpoint folder, read without any framework.

What is wrong with it is found here, before an environment is built: a missing file, a
Git LFS pointer instead of weights, a truncated safetensors file. What its config.json
says of inputs and outputs fills in what the user did not write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.errors import ConfigError

_POINTER = b"version https://git-lfs"
_MAX_HEADER = 100_000_000  # safetensors' own limit on its JSON header


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder whose weights can be loaded. Raises ConfigError."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError([f"{folder} has no config.json: a checkpoint folder has one"]) from None
    except (ValueError, OSError) as error:
        raise ConfigError([f"{path} is not readable JSON ({error})"]) from None
    if not isinstance(config, dict):
        raise ConfigError([f"{path} does not hold a mapping"])
    if "auto_map" in config:
        raise ConfigError([f"{path} names code of its own (auto_map); code from a model folder is never run"])
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        other = " (pickled weights are never loaded)" if [*folder.glob("*.bin"), *folder.glob("*.pt")] else ""
        raise ConfigError([f"{folder} has no .safetensors weights{other}"])
    for file in [*weights, *_missing_shards(folder)]:
        check_safetensors(file)
    return config


def check_safetensors(path: Path) -> None:
    """Raise ConfigError unless the file is as long as its header says. Reads the header only."""
    try:
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
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
    except FileNotFoundError:
        raise ConfigError([f"{path} is missing, though the index names it"]) from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise ConfigError([f"{path} has a broken safetensors header"]) from None
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror or error}"]) from None
    needed = 8 + length + max(ends, default=0)
    if size < needed:
        raise ConfigError([f"{path} is truncated: {size} bytes of {needed}"])


def describe(config: Mapping[str, Any]) -> dict[str, Any]:
    """`format`, `task`, `inputs`, `outputs`, `max_sequence` as a config.json implies them."""
    kind = config.get("model_type")
    if "architecture" in config:
        return _timm(config)
    if kind in _DECLARATIVE:
        return _DECLARATIVE[str(kind)](config)
    return _transformers(config)


def _missing_shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        raise ConfigError([f"{index} is not a readable index"]) from None
    return [folder / str(name) for name in sorted(names) if not (folder / str(name)).exists()]


def _timm(config: Mapping[str, Any]) -> dict[str, Any]:
    pretrained = config.get("pretrained_cfg")
    size = pretrained.get("input_size") if isinstance(pretrained, Mapping) else None
    shape = list(size) if isinstance(size, list) and len(size) == 3 else [3, 224, 224]
    return {
        "format": "timm",
        "task": "image-classification",
        "inputs": {"pixel_values": {"dtype": "float32", "shape": ["batch", *shape]}},
        "outputs": ["logits"],
    }


def _transformers(config: Mapping[str, Any]) -> dict[str, Any]:
    architectures = config.get("architectures") or [""]
    name = str(architectures[0])
    if "ForImageClassification" in name:
        size = _whole(config.get("image_size"), 224)
        shape = ["batch", _whole(config.get("num_channels"), 3), size, size]
        inputs: dict[str, Any] = {"pixel_values": {"dtype": "float32", "shape": shape}}
        return {
            "format": "transformers",
            "task": "image-classification",
            "inputs": inputs,
            "outputs": ["logits"],
        }
    causal = "ForCausalLM" in name or name.endswith("LMHeadModel")
    inputs = {
        "input_ids": _ids(_whole(config.get("vocab_size"), 2)),
        "attention_mask": {"dtype": "int64", "shape": ["batch", "sequence"], "distribution": "mask"},
    }
    if config.get("model_type") == "bert":
        inputs["token_type_ids"] = _ids(_whole(config.get("type_vocab_size"), 1))
    return {
        "format": "transformers",
        "task": "causal-lm" if causal else "backbone",
        "inputs": inputs,
        "outputs": ["logits" if causal else "last_hidden_state"],
        "max_sequence": config.get("max_position_embeddings") or config.get("n_positions"),
    }


def _lstm(config: Mapping[str, Any]) -> dict[str, Any]:
    shape = ["batch", "sequence", _whole(config.get("input_size"), 1)]
    return {
        "format": "declarative",
        "task": "lstm",
        "inputs": {"features": {"dtype": "float32", "shape": shape}},
        "outputs": ["logits"],
    }


def _dlrm(config: Mapping[str, Any]) -> dict[str, Any]:
    rows = [r for r in config.get("embedding_rows") or [] if isinstance(r, int)] or [1]
    sparse = {**_ids(min(rows)), "shape": ["batch", len(rows)]}
    dense = {"dtype": "float32", "shape": ["batch", _whole(config.get("dense_features"), 1)]}
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


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and value > 0 else otherwise
