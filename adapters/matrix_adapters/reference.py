"""What is right: the model's outputs in float64, and how far float32 arithmetic strays from it.

Three files of outputs by name: `float64.npz` is the reference; `float32.npz` and
`float32_again.npz` are two runs of the same model in float32: their distance from the
reference is the model's own noise floor, their distance from each other must be nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from matrix_adapters.protocol import ModelSpec
from matrix_adapters.torch_models import open_model

FLOAT64, FLOAT32, FLOAT32_AGAIN = "float64.npz", "float32.npz", "float32_again.npz"
ABOUT_FILE = "reference.json"


def write_reference(
    spec: ModelSpec, checkpoint: Path, feed: Mapping[str, np.ndarray], folder: Path
) -> dict[str, Any]:
    """Fill `folder`; returns what reference.json says, with the floor of the worst output."""
    with torch.inference_mode():
        single = open_model(spec, checkpoint, torch.float32)
        first, again = _run(single, spec, feed), _run(single, spec, feed)
        del single
        model = open_model(spec, checkpoint, torch.float64)
        with _KeepDouble():
            double = _run(model, spec, _promoted(feed))
    for name, outputs in ((FLOAT64, double), (FLOAT32, first), (FLOAT32_AGAIN, again)):
        np.savez(folder / name, **outputs)
    about = {
        "framework": "pytorch",
        "version": torch.__version__,
        "floor": max(_distance(first[n], double[n]) for n in double),
        "repeats": all(np.array_equal(first[n], again[n], equal_nan=True) for n in first),
    }
    # A floor that is not finite is a fault of the model: JSON has no NaN, so it is left out.
    about = {k: v for k, v in about.items() if k != "floor" or np.isfinite(v)}
    (folder / ABOUT_FILE).write_text(json.dumps(about, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return about


class _KeepDouble(TorchFunctionMode):  # type: ignore[misc]
    """Within it, every request for float32 gives float64.

    Several models drop to float32 on purpose inside (root mean square norms, rotary
    embeddings), which would leave a "float64" reference with float32 noise.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        double = lambda v: torch.float64 if v is torch.float32 else v  # noqa: E731
        return func(*map(double, args), **{k: double(v) for k, v in (kwargs or {}).items()})


def _run(model: torch.nn.Module, spec: ModelSpec, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    outputs = model(*(torch.from_numpy(feed[n]) for n in spec.inputs))
    return {n: o.numpy().copy() for n, o in zip(spec.outputs, outputs, strict=True)}


def _promoted(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in feed.items()}


def _distance(got: np.ndarray, reference: np.ndarray) -> float:
    scale = float(np.abs(reference).max(initial=0.0))
    return float(np.abs(got - reference).max(initial=0.0)) / scale if scale else 0.0
