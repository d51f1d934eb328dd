"""Checkpoint -> ONNX, once: the file that serves every consumer of ONNX.

Opset and IR version are pinned, the axes `batch` and `sequence` stay symbolic where the model
allows it, and what differs from one machine to the next (stack traces in the metadata) is
dropped, so that the same checkpoint gives the same bytes.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matrix_adapters.protocol import ModelSpec
from matrix_adapters.torch_models import open_model

OPSET = 20
IR_VERSION = 10

#: protobuf's own limit is 2 GiB for one file; above this, weights go to a file beside it
_INLINE_BYTES = 1_900_000_000
_LOCAL_METADATA = ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")


def export(
    spec: ModelSpec,
    checkpoint: Path,
    feed: Mapping[str, np.ndarray],
    axes: Mapping[str, Sequence[Any]],
    path: Path,
) -> dict[str, Any]:
    """Write `path` and return its facts. `axes`: input name -> its shape, symbolic axes as names.

    `dynamic` in the facts says whether those axes stayed symbolic; if not, the file serves
    exactly the shapes of `feed`, and `static_because` holds the exporter's reason.
    """
    model = open_model(spec, checkpoint, torch.float32)
    facts: dict[str, Any] = {
        "opset": OPSET,
        "ir_version": IR_VERSION,
        "exporter": f"torch {torch.__version__}",
    }
    wanted = [
        {i: axis for i, axis in enumerate(axes.get(name, ())) if isinstance(axis, str)}
        for name in spec.inputs
    ]
    if any(wanted):
        examples = [_stretched(feed[n], symbols) for n, symbols in zip(spec.inputs, wanted, strict=True)]
        try:
            program = _export(model, spec, examples, wanted)
            _require_symbolic(program, wanted)
            facts["dynamic"] = True
        except Exception as error:  # the exporter's errors have no common base
            facts["static_because"] = (str(error).strip() or repr(error)).splitlines()[0][:300]
    else:
        facts["static_because"] = "no symbolic axis was asked for"
    if "static_because" in facts:
        facts["dynamic"] = False
        program = _export(model, spec, [torch.from_numpy(feed[n]) for n in spec.inputs], None)
    program.model.ir_version = IR_VERSION
    for node in program.model.graph.all_nodes():
        for key in _LOCAL_METADATA:
            node.metadata_props.pop(key, None)
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    program.save(path, external_data=size > _INLINE_BYTES)
    return {**facts, "nodes": len(program.model.graph), "bytes": path.stat().st_size}


def _export(
    model: torch.nn.Module, spec: ModelSpec, tensors: list[torch.Tensor], wanted: list[dict[int, str]] | None
) -> Any:
    shapes = None
    if wanted is not None:
        dims = {axis: torch.export.Dim(axis, min=1) for symbols in wanted for axis in symbols.values()}
        shapes = {"tensors": tuple({i: dims[axis] for i, axis in symbols.items()} for symbols in wanted)}
    with warnings.catch_warnings(), torch.inference_mode(False), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        return torch.onnx.export(
            model,
            tuple(tensors),
            dynamo=True,
            opset_version=OPSET,
            input_names=list(spec.inputs),
            output_names=list(spec.outputs),
            dynamic_shapes=shapes,
            optimize=True,
            verbose=False,
        )


def _stretched(array: np.ndarray, symbols: Mapping[int, str]) -> torch.Tensor:
    """An example with no symbolic axis of length 1, which the tracer would take for a constant."""
    for axis in symbols:
        if array.shape[axis] == 1:
            array = np.repeat(array, 2, axis=axis)
    return torch.from_numpy(np.ascontiguousarray(array))


def _require_symbolic(program: Any, wanted: list[dict[int, str]]) -> None:
    """Raises ValueError naming the axes that were to be symbolic and came out as numbers."""
    fixed = [
        f"{value.name}[{axis}]"
        for value, symbols in zip(program.model.graph.inputs, wanted, strict=True)
        for axis in symbols
        if isinstance(value.shape[axis], int)
    ]
    if fixed:
        raise ValueError(f"the exporter fixed {', '.join(fixed)}")
