"""A model that KerasHub loads from a Hugging Face or timm folder, in KerasHub's own graph.

Some converters give another function than the checkpoint's and say nothing (BERT's exact
GELU, ViT's and Llama's epsilon, RoBERTa's token types, DenseNet's padding): nothing is mended
here, parity finds it.

KerasHub draws random weights for every layer before it reads the checkpoint over them; no
public switch stops it, so the load of a large model is mostly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters.adapter import Feed, Unsupported
from matrix_adapters.protocol import ModelSpec

#: task -> the KerasHub class that loads it, and what it is told. No tokenizer files are needed
#: without a preprocessor, and no activation leaves the logits as they are.
_CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "image-classification": ("ImageClassifier", {"preprocessor": None, "activation": None}),
    "backbone": ("Backbone", {}),
    "causal-lm": ("CausalLM", {"preprocessor": None}),
}

#: Hugging Face's names of inputs and outputs -> KerasHub's
_INPUTS = {"input_ids": "token_ids", "attention_mask": "padding_mask", "token_type_ids": "segment_ids"}
_OUTPUTS = {"last_hidden_state": "sequence_output", "pooler_output": "pooled_output"}

#: how KerasHub says that it cannot load a folder at all; any other ValueError is a failure
_REFUSALS = ("KerasHub has no converter", "Unable to find a subclass")


class KerasHubNetwork:
    """One loaded model: what it is called with, and how."""

    def __init__(self, model: ModelSpec, folder: Path) -> None:
        self._model = _from_preset(model, folder)
        self._spec = model
        self._images = model.task == "image-classification"
        self.title = f"keras_hub.models.{type(self._model).__name__}"
        self.layout = "NHWC" if self._images else "as given"
        self.weights = self._model.variables
        if not self._images:
            taken = list(self._model.input)
            unknown = [n for n in model.inputs if _INPUTS.get(n, n) not in taken]
            if unknown:
                raise Unsupported(f"{self.title} takes no {unknown[0]!r}: it takes {', '.join(taken)}")
            # The order of the arguments; what the feed lacks gets transformers' own default.
            self._taken = taken

    def prepare(self, feed: Feed) -> Feed:
        if self._images:
            (images,) = (feed[name] for name in self._spec.inputs)
            return {"images": np.ascontiguousarray(images.transpose(0, 2, 3, 1))}
        given = {_INPUTS.get(n, n): feed[n].astype(np.int32) for n in self._spec.inputs}
        tokens = given["token_ids"]
        defaults = {"padding_mask": np.ones_like(tokens), "segment_ids": np.zeros_like(tokens)}
        return {name: given[name] if name in given else defaults[name] for name in self._taken}

    def call(self, *tensors: Any) -> list[Any]:
        inputs = tensors[0] if self._images else dict(zip(self._taken, tensors, strict=True))
        result = self._model(inputs, training=False)
        if isinstance(result, Mapping):
            return [result[_OUTPUTS.get(name, name)] for name in self._spec.outputs]
        return [result]


def _from_preset(model: ModelSpec, folder: Path) -> Any:
    """The KerasHub model of one folder. Raises Unsupported where KerasHub has no way to load it."""
    import keras_hub
    from safetensors import SafetensorError

    if model.task not in _CLASSES or model.format not in ("transformers", "timm"):
        raise Unsupported(f"KerasHub loads no {model.format} folder for the task {model.task!r}")
    name, arguments = _CLASSES[model.task]
    try:
        # An absolute path: KerasHub takes any other word for the name of a preset to download.
        return getattr(keras_hub.models, name).from_preset(str(folder.absolute()), **arguments)
    except ValueError as error:
        if str(error).startswith(_REFUSALS):
            raise Unsupported(f"keras-hub {keras_hub.__version__}: {error}") from error
        raise
    except SafetensorError as error:
        # Converters look for the tensor names of one head: DistilBERT's and RoBERTa's for those of a
        # masked language model, where the bare encoder's have no prefix.
        raise Unsupported(
            f"keras-hub {keras_hub.__version__} cannot read these weights as {name}: {error}"
        ) from error
