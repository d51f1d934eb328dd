"""What is known of an ONNX file, and how one is refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from matrix.errors import UsageError
from matrix_adapters.protocol import Reason


class OnnxRefused(UsageError):
    """The file cannot be used, whatever the framework. `reason.code` tells the ways apart."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code=code, text=text)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TensorInfo:
    """One input or output as the file declares it.

    `dtype` is NumPy's name, or `string`, `bfloat16`, ...; `shape` has a number, a symbol or
    None (nothing said) per dimension and is None where not even the rank is declared.
    `index_limit` is the size of the table that this integer input picks rows from.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None
    index_limit: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OnnxFacts:
    """What `inspect` found. `opsets` and `operators` use `ai.onnx` for the default domain.

    `sha256` is the file's own, or with side files a hash over all of them; `unchecked` are the
    operators of domains that the `onnx` package does not define (only a runtime knows them).
    """

    path: Path
    sha256: str
    size_bytes: int
    side_files: tuple[str, ...]
    ir_version: int
    opsets: Mapping[str, int]
    operators: Mapping[str, int]
    unchecked: tuple[str, ...]
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]

    @property
    def has_external_data(self) -> bool:
        """Whether weights lie beside the file."""
        return bool(self.side_files)
