"""ONNX Runtime on an operator case: any types, real strides, and refusals told from failures.

NumPy has no bfloat16: such tensors are fed as bits that are declared to be bfloat16 (possible
since ONNX Runtime 1.20), and read back from memory, since ONNX Runtime itself has no way to
give them out. All else goes through the same call as a model.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from matrix_adapters.adapter import Feed, Unavailable, Unsupported
from matrix_adapters.onnxruntime import OnnxRuntimeRunner, first_line
from matrix_adapters.operators import elements
from matrix_adapters.protocol import ModelSpec, Task

_BFLOAT16 = "tensor(bfloat16)"
_BFLOAT16_NUMBER = 16  # in ONNX's TensorProto.DataType

#: what it says of a combination that its kernel does not do, whatever class the exception has
_NOT_DONE = re.compile(
    r"NOT_IMPLEMENTED|not (yet )?(supported|implemented)|unsupported|does not support", re.IGNORECASE
)
_INVALID = ("InvalidGraph", "InvalidProtobuf", "NoSuchFile")


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What ONNX Runtime says it cannot do, as Unsupported in its own words; other errors pass."""
    try:
        yield
    except Exception as error:
        _raise(error)


class OperatorRunner(OnnxRuntimeRunner):
    """One session of one case; see `OnnxRuntimeRunner`. Arrays are passed as they are, strides and all."""

    types: Mapping[str, str] = {**OnnxRuntimeRunner.types, _BFLOAT16: "uint16"}

    def __init__(self, session: Any, model: ModelSpec, task: Task, created_threads: int | None) -> None:
        super().__init__(session, model, task, created_threads)
        kinds = {value.name: value.type for value in session.get_outputs()}
        self._kinds = {name: kinds[name] for name in self._outputs}
        self._only = "" if len(self._outputs) > 1 or self._text else self._outputs[0]
        self.candidate = ""  # whose operator it is, where that is not ONNX Runtime's own

    def prepare(self, feed: Feed) -> Feed:
        """The session's own inputs, checked; text as Python objects."""
        if missing := [name for name in self._types if name not in feed]:
            raise ValueError(
                f"no array for input {missing[0]!r}: the feed has {', '.join(feed) or 'nothing'}"
            )
        return {name: self._as_fed(name, feed[name]) for name in self._types}

    def run(self, feed: Feed) -> list[Any]:
        """One call. Raises Unsupported for what the kernel says it does not do."""
        try:
            return self._session.run(self._outputs, feed)  # type: ignore[no-any-return]
        except Exception as error:
            _raise(error)

    def fetch(self, outputs: list[Any]) -> dict[str, np.ndarray]:
        """As for models; the usual single output without detours, since a case may take a microsecond."""
        return {self._only: outputs[0]} if self._only else super().fetch(outputs)

    def effective(self) -> dict[str, Any]:
        """As for models, and the dtype that each output really has."""
        own = {"candidate": self.candidate} if self.candidate else {}
        dtypes = {n: _word(kind) for n, kind in self._kinds.items()}
        return {**super().effective(), "output_dtypes": dtypes, **own}

    def _as_fed(self, name: str, array: np.ndarray) -> Any:
        kind = self._types[name]
        if kind == "tensor(string)":
            return array.astype(object)
        if array.dtype != np.dtype(self.types[kind]):
            raise ValueError(f"input {name!r} is {kind} in the file, the array given is {array.dtype}")
        return array


class BitsRunner(OperatorRunner):
    """The same where bfloat16 goes in or comes out."""

    def __init__(self, session: Any, model: ModelSpec, task: Task, created_threads: int | None) -> None:
        import onnxruntime

        super().__init__(session, model, task, created_threads)
        self._value = onnxruntime.OrtValue
        if not hasattr(self._value, "ortvalue_from_numpy_with_onnx_type"):
            version = onnxruntime.__version__
            raise Unsupported(f"onnxruntime {version} cannot be fed bfloat16 from NumPy (1.20 can)")

    def run(self, feed: Feed) -> list[Any]:
        """One call, ONNX Runtime's own values in and out."""
        try:
            return self._session.run_with_ort_values(self._outputs, feed)  # type: ignore[no-any-return]
        except Exception as error:
            _raise(error)

    def fetch(self, outputs: list[Any]) -> dict[str, np.ndarray]:
        """Outputs by name; bfloat16 widened to float32, which is exact."""
        return super().fetch([_read(v, k) for v, k in zip(outputs, self._kinds.values(), strict=True)])

    def _as_fed(self, name: str, array: np.ndarray) -> Any:
        """Over contiguous memory: other memory would be read in the wrong order without a word."""
        dense = np.ascontiguousarray(super()._as_fed(name, array)).reshape(array.shape)
        if self._types[name] == _BFLOAT16:
            return self._value.ortvalue_from_numpy_with_onnx_type(dense, _BFLOAT16_NUMBER)
        return self._value.ortvalue_from_numpy(dense)


def runner(
    session: Any, model: ModelSpec, task: Task, created_threads: int | None, *, candidate: str = ""
) -> OperatorRunner:
    """The runner for what goes in and comes out of this session. `candidate`: whose operator it is."""
    kinds = {value.type for value in (*session.get_inputs(), *session.get_outputs())}
    made = (BitsRunner if _BFLOAT16 in kinds else OperatorRunner)(session, model, task, created_threads)
    made.candidate = candidate
    return made


def _read(value: Any, kind: str) -> np.ndarray:
    if kind != _BFLOAT16:
        array: np.ndarray = value.numpy()
        return array
    if value.device_name() != "cpu":
        raise Unsupported(f"a bfloat16 output stayed on {value.device_name()}, where it cannot be read")
    shape = tuple(value.shape())
    size = math.prod(shape)
    if not size:
        return np.zeros(shape, np.float32)
    bits = np.ctypeslib.as_array((ctypes.c_uint16 * size).from_address(value.data_ptr()))
    return elements.from_bits(bits.reshape(shape))


def _word(kind: str) -> str:
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(inner, inner)


def _raise(error: Exception) -> NoReturn:
    """`error`, or Unsupported where that is what its message says of a valid model."""
    kind = type(error).__name__
    if isinstance(error, (Unsupported, Unavailable)) or kind in _INVALID:
        raise error
    if kind != "NotImplemented" and not _NOT_DONE.search(str(error)):
        raise error
    raise Unsupported(f"ONNX Runtime: {first_line(str(error))}") from error
