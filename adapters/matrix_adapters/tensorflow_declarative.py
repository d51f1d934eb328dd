"""`lstm` and `dlrm` in TensorFlow: the two models whose checkpoint only declares sizes.

The tensors have the names that PyTorch gives them (see `torch_declarative`, where the same
two networks are built); a linear layer's weight is [out, in] there and [in, out] here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file

from matrix_adapters.adapter import Feed, Unsupported
from matrix_adapters.protocol import ModelSpec

Tensors = Mapping[str, np.ndarray]

#: Weights are read over whatever is there; LSTM's own draw has no kernel for bfloat16.
_NO_DRAW = {"kernel_initializer": "zeros", "recurrent_initializer": "zeros"}


class DeclarativeNetwork:
    """One of the two networks, as the runner wants it."""

    layout = "as given"

    def __init__(
        self, model: ModelSpec, title: str, weights: Sequence[Any], function: Callable[..., Any]
    ) -> None:
        self.title = title
        self.weights = weights
        self._inputs = model.inputs
        self._function = function

    def prepare(self, feed: Feed) -> Feed:
        return {name: np.ascontiguousarray(feed[name]) for name in self._inputs}

    def call(self, *tensors: Any) -> list[Any]:
        return [self._function(*tensors)]


def open_model(model: ModelSpec, folder: Path) -> DeclarativeNetwork:
    """The network that config.json declares, in Keras's current dtype policy."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = config.get("model_type")
    if kind not in _BUILDERS:
        raise Unsupported(f"no declarative model {kind!r}: known are {', '.join(_BUILDERS)}")
    layers, function = _BUILDERS[kind](config, load_file(folder / "model.safetensors"))
    weights = [variable for layer in layers for variable in layer.variables]
    return DeclarativeNetwork(model, f"declarative {kind} in Keras layers", weights, function)


def _lstm(config: Mapping[str, Any], tensors: Tensors) -> tuple[list[Any], Callable[..., Any]]:
    """`features` float32 [batch, sequence, input_size] -> logits [batch, num_classes], last step's."""
    layers = []
    size = config["input_size"]
    for k in range(config["num_layers"]):
        last = k == config["num_layers"] - 1
        layer = keras.layers.LSTM(config["hidden_size"], return_sequences=not last, **_NO_DRAW)
        layer.build((None, None, size))
        # Both order their gates input, forget, cell, output; PyTorch has two biases, used as a sum.
        bias = tensors[f"lstm.bias_ih_l{k}"] + tensors[f"lstm.bias_hh_l{k}"]
        layer.set_weights([tensors[f"lstm.weight_ih_l{k}"].T, tensors[f"lstm.weight_hh_l{k}"].T, bias])
        layers.append(layer)
        size = config["hidden_size"]
    layers.append(_dense(tensors, "head"))

    def function(features: Any) -> Any:
        for layer in layers:
            features = layer(features)
        return features

    return layers, function


def _dlrm(config: Mapping[str, Any], tensors: Tensors) -> tuple[list[Any], Callable[..., Any]]:
    """`dense` float32 [batch, features], `sparse` int64 [batch, tables] -> logits [batch, 1]."""
    tables = [_embedding(tensors, f"embedding.{i}.weight") for i in range(len(config["embedding_rows"]))]
    bottom = [_dense(tensors, f"bottom.{i}", "relu") for i in range(len(config["bottom_mlp"]))]
    depth = len(config["top_mlp"])
    top = [_dense(tensors, f"top.{i}", "relu" if i < depth - 1 else None) for i in range(depth)]
    vectors = 1 + len(tables)
    # Dot products of each vector with those before it: the lower triangle, row by row.
    rows, columns = np.tril_indices(vectors, -1)
    below = (rows * vectors + columns).astype(np.int32)

    def function(dense: Any, sparse: Any) -> Any:
        for layer in bottom:
            dense = layer(dense)
        looked_up = [table(rows) for table, rows in zip(tables, tf.unstack(sparse, axis=1), strict=True)]
        stacked = tf.stack([dense, *looked_up], axis=1)
        dots = tf.reshape(tf.matmul(stacked, stacked, transpose_b=True), (-1, vectors * vectors))
        x = tf.concat([dense, tf.gather(dots, below, axis=1)], axis=1)
        for layer in top:
            x = layer(x)
        return x

    return [*tables, *bottom, *top], function


_BUILDERS = {"lstm": _lstm, "dlrm": _dlrm}


def _dense(tensors: Tensors, name: str, activation: str | None = None) -> Any:
    weight = tensors[f"{name}.weight"]
    layer = keras.layers.Dense(weight.shape[0], activation=activation, kernel_initializer="zeros")
    layer.build((None, weight.shape[1]))
    layer.set_weights([weight.T, tensors[f"{name}.bias"]])
    return layer


def _embedding(tensors: Tensors, name: str) -> Any:
    weight = tensors[name]
    layer = keras.layers.Embedding(*weight.shape, embeddings_initializer="zeros")
    layer.build(None)
    layer.set_weights([weight])
    return layer
