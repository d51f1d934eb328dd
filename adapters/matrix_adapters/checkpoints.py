"""Make a checkpoint folder from a seed: config.json, model.safetensors, manifest.json.

A freshly initialised network hides faults: biases are 0, norm scales 1, running statistics
those of nothing, so a converter may drop any of them unseen, and activations of a deep
convolutional net explode. Hence every 1-D parameter is perturbed, and batch norms are
calibrated on random images. The same seed gives the same bytes.
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matrix_adapters.adapter import Unavailable, Unsupported
from matrix_adapters.protocol import HEARTBEAT_FILE, RESULT_FILE, ModelSpec, file_hash

MANIFEST_FILE = "manifest.json"

# The folder is the worker's own: its heartbeat and log lie beside the checkpoint while it works.
_SUFFIXES = (".json", ".safetensors")
_OTHERS = (MANIFEST_FILE, HEARTBEAT_FILE, RESULT_FILE)

_CALIBRATION_BATCHES = 2
_CALIBRATION_BATCH = 8


def make(spec: ModelSpec, folder: Path) -> dict[str, Any]:
    """Fill `folder` (which exists) with the checkpoint of `spec`; returns its manifest."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(spec.seed)
    if "hub" in spec.build:
        _download(spec.build, folder)
    elif spec.format in _MAKERS:
        with torch.no_grad():
            _MAKERS[spec.format](spec, folder)
    else:
        raise Unsupported(f"no checkpoint can be made in the format {spec.format!r}")
    return write_manifest(spec, folder)


def write_manifest(spec: ModelSpec, folder: Path) -> dict[str, Any]:
    """Describe the folder: hash and size of each file, seed, versions, facts of the weights."""
    files = sorted(p for p in folder.iterdir() if p.suffix in _SUFFIXES and p.name not in _OTHERS)
    manifest = {
        "model": spec.name,
        "format": spec.format,
        "seed": spec.seed,
        "versions": _versions("torch", "transformers" if spec.format == "transformers" else spec.format),
        "files": {p.name: {"sha256": file_hash(p), "bytes": p.stat().st_size} for p in files},
        "weights": weight_facts(folder),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True, allow_nan=False)
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")
    return manifest


def weight_facts(folder: Path) -> dict[str, int]:
    """Counts over all weights: parameters, NaN, Inf, and subnormals (which some CPUs crawl on)."""
    from safetensors import safe_open

    facts = dict.fromkeys(("parameters", "nan", "inf", "subnormal"), 0)
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 - not a mapping
                values = tensors.get_tensor(key)
                facts["parameters"] += values.numel()
                if values.is_floating_point():
                    tiny = torch.finfo(values.dtype).tiny
                    facts["nan"] += int(values.isnan().sum())
                    facts["inf"] += int(values.isinf().sum())
                    facts["subnormal"] += int(((values != 0) & (values.abs() < tiny)).sum())
    return facts


def _make_transformers(spec: ModelSpec, folder: Path) -> None:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    config = getattr(transformers, spec.build["config_class"])(**spec.build["config"])
    model = getattr(transformers, spec.build["class"])(config)
    _perturb(model, spec.seed + 1)
    model.eval().save_pretrained(folder)


def _make_timm(spec: ModelSpec, folder: Path) -> None:
    from matrix_adapters.timm_import import import_timm

    config = spec.build["config"]
    model = import_timm().create_model(
        config["architecture"],
        pretrained=False,
        num_classes=config["num_classes"],
        **config.get("arguments", {}),
    )
    _perturb(model, spec.seed + 1, config.get("gains", {}))
    size = (3, config["image_size"], config["image_size"])
    _calibrate(model, spec.seed + 2, size)
    _write_config(
        folder,
        {
            "architecture": config["architecture"],
            "num_classes": config["num_classes"],
            # the width that the classifier sees, which is what readers of this file mean
            "num_features": getattr(model, "head_hidden_size", None) or model.num_features,
            "pretrained_cfg": _lists(
                {**model.pretrained_cfg, "input_size": size, "num_classes": config["num_classes"]}
            ),
        },
    )
    _write_weights(model, folder)


def _make_declarative(spec: ModelSpec, folder: Path) -> None:
    from matrix_adapters import torch_declarative

    model = torch_declarative.build(spec.build["config"])
    _perturb(model, spec.seed + 1)
    _write_config(folder, spec.build["config"])
    _write_weights(model, folder)


_MAKERS = {"transformers": _make_transformers, "timm": _make_timm, "declarative": _make_declarative}


def _perturb(model: torch.nn.Module, seed: int, gains: Mapping[str, float] | None = None) -> None:
    """Random scales near 1 and biases near 0; `gains` multiplies the parameters a pattern names."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if name.endswith("weight") else 0.05 * noise)
        for pattern, gain in (gains or {}).items():
            if fnmatchcase(name, pattern):
                parameter.mul_(gain)


def _calibrate(model: torch.nn.Module, seed: int, size: tuple[int, int, int]) -> None:
    """Batch norms' running statistics as those of random images."""
    generator = torch.Generator().manual_seed(seed)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    for _ in range(_CALIBRATION_BATCHES if norms else 0):
        model(torch.randn(_CALIBRATION_BATCH, *size, generator=generator))
    model.eval()


def _write_config(folder: Path, config: Mapping[str, Any]) -> None:
    text = json.dumps(config, indent=2, sort_keys=True)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _write_weights(model: torch.nn.Module, folder: Path) -> None:
    from safetensors.torch import save_file

    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _lists(value: Any) -> Any:
    """Tuples as lists, and nothing that JSON does not know: readers of the file compare types."""
    if isinstance(value, Mapping):
        return {str(k): _lists(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_lists(v) for v in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _download(build: Mapping[str, Any], folder: Path) -> None:
    """A hub's checkpoint: its JSON files and safetensors only, at one commit."""
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    name, revision = build["hub"], build.get("revision")
    try:
        info = huggingface_hub.HfApi().model_info(name, revision=revision, timeout=10)
        huggingface_hub.snapshot_download(
            name, revision=info.sha, local_dir=folder, allow_patterns=["*.json", "*.safetensors"]
        )
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise Unsupported(f"the hub knows no model {name!r}: {error}") from error
    except Exception as error:  # its HTTP library, and so the errors of the network, changed twice
        raise Unavailable(f"hub not reachable ({type(error).__name__}: {error})") from error
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the download's own notes, with local times
    (folder / "hub.json").write_text(json.dumps({"hub": name, "commit": info.sha}) + "\n", encoding="utf-8")


def _versions(*names: str) -> dict[str, str]:
    found = {"numpy": np.__version__}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
