"""Open a checkpoint folder as one PyTorch module: inputs by position, outputs as a tuple.

The adapter, the exporter and the reference all open a model here, so that what is timed,
what is exported and what is compared is the same graph. Nothing in a model folder is ever
executed: weights come from safetensors alone, and remote code is refused.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from matrix_adapters.adapter import Unsupported
from matrix_adapters.protocol import ModelSpec

#: task -> the transformers class that loads it, and the arguments of each call
TRANSFORMERS_TASKS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "image-classification": ("AutoModelForImageClassification", {}),
    "backbone": ("AutoModel", {}),
    # a cache of keys and values would be a second output, and work that no other framework does
    "causal-lm": ("AutoModelForCausalLM", {"use_cache": False}),
}


def open_model(spec: ModelSpec, folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    """The model in `folder` with weights of `dtype`, in evaluation mode, on the CPU.

    Its `forward` takes tensors in the order of `spec.inputs` and returns a tuple in the order
    of `spec.outputs`. Raises Unsupported, with the reason, for what cannot be loaded safely.
    """
    if spec.format not in _OPENERS:
        raise Unsupported(
            f"PyTorch runs checkpoint folders (transformers, timm, declarative), not {spec.format!r} files"
        )
    config = read_config(folder)
    model = _OPENERS[spec.format](spec, folder, config, dtype)
    # Evaluation mode is forced, whatever the loader left: dropout and batch statistics off.
    return model.eval().requires_grad_(False)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a checkpoint folder, after the checks that keep foreign code out."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unsupported(f"{folder} has no config.json, so it is not a checkpoint folder") from None
    except ValueError as error:
        raise Unsupported(f"{folder / 'config.json'} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise Unsupported(f"{folder / 'config.json'} does not hold a mapping")
    if "auto_map" in config:
        raise Unsupported(f"{folder / 'config.json'} names code of its own (auto_map), which is never run")
    if not any(folder.glob("*.safetensors")):
        raise Unsupported(
            f"{folder} has no .safetensors weights; pickled weights can run code when opened, and are "
            "never loaded: convert them with safetensors.torch.save_file"
        )
    return config


class _Keywords(torch.nn.Module):  # type: ignore[misc]
    """A transformers model: called by names, answers with a mapping."""

    def __init__(self, model: torch.nn.Module, spec: ModelSpec, constants: Mapping[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.names, self.outputs, self.constants = spec.inputs, spec.outputs, dict(constants)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        result = self.model(**dict(zip(self.names, tensors, strict=True)), **self.constants)
        return tuple(result[name] for name in self.outputs)


class _Single(torch.nn.Module):  # type: ignore[misc]
    """A plain module: called by position, answers with one tensor."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.model(*tensors),)


def _open_transformers(
    spec: ModelSpec, folder: Path, config: Mapping[str, Any], dtype: torch.dtype
) -> torch.nn.Module:
    import transformers

    if spec.task not in TRANSFORMERS_TASKS:
        raise Unsupported(
            f"no transformers class is known for task {spec.task!r}; known: {', '.join(TRANSFORMERS_TASKS)}"
        )
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    name, constants = TRANSFORMERS_TASKS[spec.task]
    try:
        model, loading = getattr(transformers, name).from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            dtype=dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError) as error:
        raise Unsupported(f"transformers cannot load {folder} as {name}: {_one_line(error)}") from error
    if loading["missing_keys"]:
        # transformers would fill these with random numbers and go on.
        missing = sorted(loading["missing_keys"])
        raise Unsupported(
            f"{folder} lacks {len(missing)} tensors of {type(model).__name__}, the first is {missing[0]!r}"
        )
    known = inspect.signature(model.forward).parameters
    unknown = [n for n in spec.inputs if n not in known]
    if unknown:
        raise Unsupported(
            f"{type(model).__name__} takes no input {unknown[0]!r}; it takes {', '.join(known)}"
        )
    return _Keywords(model, spec, constants)


def _open_timm(
    spec: ModelSpec, folder: Path, config: Mapping[str, Any], dtype: torch.dtype
) -> torch.nn.Module:
    from matrix_adapters.timm_import import import_timm

    if spec.task != "image-classification":
        raise Unsupported(f"timm models are image classifiers, the task is {spec.task!r}")
    timm = import_timm()
    # What create_model itself takes: a pickle to open (checkpoint_path), a model from elsewhere.
    taken = sorted(
        config.get("model_args", {}).keys() & inspect.signature(timm.create_model).parameters.keys()
    )
    if taken or ":" in str(config["architecture"]):
        what = f"model_args.{taken[0]}" if taken else f"the architecture {config['architecture']!r}"
        raise Unsupported(f"{folder / 'config.json'}: {what} could load what is not in the folder")
    try:
        model = timm.create_model(
            config["architecture"],
            pretrained=False,
            num_classes=config["num_classes"],
            **config.get("model_args", {}),
        )
    except (KeyError, RuntimeError, TypeError) as error:
        raise Unsupported(
            f"timm cannot build the model of {folder / 'config.json'}: {_one_line(error)}"
        ) from error
    return _Single(_load_weights(model, folder).to(dtype))


def _open_declarative(
    spec: ModelSpec, folder: Path, config: Mapping[str, Any], dtype: torch.dtype
) -> torch.nn.Module:
    from matrix_adapters import torch_declarative

    try:
        model = torch_declarative.build(config)
    except KeyError as error:
        raise Unsupported(f"{folder}/config.json declares no model that is known: {error}") from None
    return _Single(_load_weights(model, folder).to(dtype))


def _load_weights(model: torch.nn.Module, folder: Path) -> torch.nn.Module:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise Unsupported(f"the weights in {folder} do not fit their config: {_one_line(error)}") from error
    return model


def _one_line(error: Exception) -> str:
    """A message without its line breaks: only the first line of a reason is kept."""
    return " ".join(str(error).split())


_OPENERS = {"transformers": _open_transformers, "timm": _open_timm, "declarative": _open_declarative}
