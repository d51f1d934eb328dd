"""A small catalog of operators for tests: one of each form that an entry can have."""

from __future__ import annotations

from pathlib import Path

TEXT = """\
# what the tests of the host know of operators
Gelu:
  kind: transcendental
  opset: 20
  dtypes: [float32, bfloat16]
  inputs: [X]
  edges: [special, nan_at_each, empty, size_one, strided, broadcast]
  cases:
    basic: {in: {X: [3, 5]}}
    tanh: {in: {X: {shape: [64], generator: uniform, low: -6, high: 6}}, attributes: {approximate: tanh}}
    values: {in: {X: {values: [[.nan, 1.0], [-0.0, -.inf]]}}, dtypes: [float32]}
Add:
  kind: elementwise
  dtypes: [float32, int32]
  inputs: [A, B]
  outputs: [C]
  edges: [special, nan_at_each, broadcast]
  cases:
    basic: {in: {A: [3, 4], B: [3, 4]}}
LayerNormalization:
  kind: normalisation
  inputs: [X, Scale, B]
  attributes: {axis: -1}
  in_defaults: {Scale: [16]}
  cases:
    last_axis: {in: {X: [2, 3, 16], B: [16]}}
    no_bias: {in: {X: [2, 3, 16]}, attributes: {epsilon: 1.0e-6}}
MatMul:
  kind: matmul
  inputs: [A, B]
  cases:
    square: {in: {A: [8, 32], B: [32, 4]}}
    huge: {in: {A: [3000000, 900], B: [900, 4]}}
BiasGelu:
  kind: transcendental
  opset: 20
  nodes:
    - {op: Add, inputs: [X, B], outputs: [T]}
    - {op: Gelu, inputs: [T], outputs: [Y]}
  cases:
    basic: {in: {X: [2, 8], B: [8]}}
"""


def write(folder: Path, text: str = TEXT, name: str = "small.yaml") -> Path:
    """The catalog's folder, with one file in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder
