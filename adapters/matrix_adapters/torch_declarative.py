"""`lstm` and `dlrm` in PyTorch: the two models whose checkpoint only declares sizes.

No library's format holds them, so config.json gives the sizes, model.safetensors the tensors
(by the names that the modules below give them), and each framework builds them in one short
function. Everything else in the model set is loaded by a library.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn


def build(config: Mapping[str, Any]) -> nn.Module:
    """The module that `config` declares, with untrained weights. KeyError names an unknown type."""
    return {"lstm": Lstm, "dlrm": Dlrm}[config["model_type"]](config)


class Lstm(nn.Module):  # type: ignore[misc]
    """Stacked LSTM and a linear head on the last time step.

    `features` float32 [batch, sequence, input_size] -> logits [batch, num_classes].
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            config["input_size"], config["hidden_size"], config["num_layers"], batch_first=True
        )
        self.head = nn.Linear(config["hidden_size"], config["num_classes"])

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(features)
        return self.head(states[:, -1])


class Dlrm(nn.Module):  # type: ignore[misc]
    """Deep learning recommendation model (Naumov et al. 2019, arXiv:1906.00091), dot interaction.

    `dense` float32 [batch, dense_features], `sparse` int64 [batch, tables] -> logits [batch, 1].
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        rows, dim = config["embedding_rows"], config["embedding_dim"]
        self.embedding = nn.ModuleList(nn.Embedding(n, dim) for n in rows)
        self.bottom = _layers(config["dense_features"], config["bottom_mlp"])
        vectors = 1 + len(rows)
        self.top = _layers(dim + vectors * (vectors - 1) // 2, config["top_mlp"])
        row, column = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("row", row, persistent=False)
        self.register_buffer("column", column, persistent=False)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        bottom = dense
        for layer in self.bottom:
            bottom = torch.relu(layer(bottom))
        vectors = torch.stack([bottom, *(e(sparse[:, i]) for i, e in enumerate(self.embedding))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.row, self.column]
        x = torch.cat([bottom, dots], dim=1)
        for layer in self.top[:-1]:
            x = torch.relu(layer(x))
        return self.top[-1](x)


def _layers(width: int, widths: list[int]) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise([width, *widths]))
