"""The record types that cross the border between orchestrator and worker.

The only module that both sides import, so it needs nothing but the standard
library. A worker gets a folder `in/` that holds `task.json` and leaves a folder
`out/` that holds `result.json` and, beside it, arrays and a log. Nothing is ever
read from a worker's standard output: no value, no status.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import os
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

SCHEMA = 1

# File names inside `in/` and `out/`; nobody spells them twice.
TASK_FILE = "task.json"
RESULT_FILE = "result.json"
SAMPLES_FILE = "samples.npz"
OUTPUTS_FILE = "outputs.npz"
HEARTBEAT_FILE = "heartbeat.json"
LOG_FILE = "log.txt"

# One half of a live pair is spoken to in bare lines on its standard input, and answers in bare
# lines on the open file whose number this variable holds: no data, only whose turn it is.
ANSWERS_VARIABLE = "FRAMEWORK_MATRIX_ANSWERS"
RUN_WORD, QUIT_WORD = "run", "quit"  # "run 12": time 12 samples
READY_WORD, DONE_WORD = "ready", "done"

# Names, separated by spaces, of variables that this launch was asked to have (`env:` of a comparison).
ASKED_VARIABLE = "FRAMEWORK_MATRIX_ASKED"
#: what the worker sets for every framework alike (see `process.base_environment`): nobody may ask for it
WORKER_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "OMP_DYNAMIC",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "CUDA_DEVICE_ORDER",
)


class State(enum.StrEnum):
    """How a planned cell ended; exactly one per cell."""

    OK = "ok"
    INCORRECT = "incorrect"
    UNSUPPORTED = "unsupported"
    UNAVAILABLE = "unavailable"
    BUILD_FAILED = "build_failed"
    FAILED = "failed"
    OOM = "oom"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


class TaskKind(enum.StrEnum):
    """What a worker is asked to do in its one launch."""

    MEASURE = "measure"  # phases, warm-up, timed samples, outputs
    SLICES = "slices"  # one half of a live pair: as MEASURE, but timed in slices, when told
    MEMORY = "memory"  # the same calls untimed, peak memory per phase
    PROBE = "probe"  # import the framework and say what it sees
    CHECKPOINT = "checkpoint"  # make a checkpoint folder (PyTorch environment)
    EXPORT = "export"  # checkpoint -> ONNX (PyTorch environment)
    REFERENCE = "reference"  # float64 outputs and the noise floor (PyTorch environment)
    ORACLE = "oracle"  # operator cases: model file, inputs, float64 outputs (an environment with `onnx`)
    OPERATORS = "operators"  # many operator cases, one after the other, each once: right or wrong
    GRAPH = "graph"  # the operators of a model's ONNX file as cases (an environment with `onnx`)
    PEAKS = "peaks"  # what the machine can: products of matrices, memory traffic
    FOREIGN = "foreign"  # others' tests as operator cases (an environment that holds them)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why a cell is in its state: a code for scripts, a sentence for people."""

    code: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """Something to distrust about a number that is otherwise ok."""

    code: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A model as a worker needs to know it; the catalog entry, resolved.

    `format` says how the weights lie on disk, `task` which head is compared
    (`image-classification`, `backbone`, `causal-lm`, `lstm`, `dlrm`, `onnx`),
    `build` how a checkpoint is made from a seed (empty for a user's own model).
    """

    name: str
    format: str  # "transformers" | "timm" | "declarative" | "onnx"
    task: str
    seed: int = 0
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    build: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node of an operator case: names of tensors, "" for an optional one that is left out."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # as ONNX names them
    domain: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """One tensor that goes into an operator case, and how its values are made.

    `dtype` in ONNX's words, lower case ("float32", "bfloat16", "int64", "bool"). `generator` is a
    name of `matrix_adapters.operators.generators`, `options` its parameters. `layout` other than
    "contiguous": the same values with other strides ("transposed", "strided", "broadcast").
    `constant`: part of the model file (an initialiser) in place of a fed input.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    generator: str = "normal"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    layout: str = "contiguous"
    constant: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class OperatorCase:
    """One operator (or a few) on tensors of stated shapes: a model file of a node or a few.

    `name` is unique in its suite together with `dtype`: "Gelu/tanh". `dtype` is the type under
    test, as in `TensorSpec`. `oracle`: "float64" (inputs rounded to their types, then promoted), or
    "as-is" where the types are the meaning (casts, quantisation, integers).
    """

    name: str
    dtype: str
    nodes: tuple[Node, ...]
    inputs: tuple[TensorSpec, ...]  # constants too
    outputs: tuple[str, ...]
    opset: int
    oracle: str = "float64"
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """How the steady phase is sampled. Times in seconds."""

    samples: int = 22  # timed samples wanted in this launch
    max_steady_s: float = 3.0  # stop sampling after this long, whatever the count
    min_samples: int = 3  # but never with fewer than these
    warmup_calls: int = 3
    max_warmup_s: float = 2.0
    min_sample_s: float = 200e-6  # calls shorter than this are batched into one sample
    cache: str = "warm"  # the same inputs in every call; or "rotating": through more than a cache holds


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Pilot:
    """A warm-up whose every call is timed and kept: at most so many calls or seconds, at least 3 calls."""

    calls: int = 200
    seconds: float = 10.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class SliceOptions:
    """`Task.options` of kind SLICES. What a pilot found is frozen for all blocks of both arms."""

    warmup_calls: int | None = None  # None: as `Measure` says
    calls: int | None = None  # per sample; None: calibrated here
    pilot: Pilot | None = None  # in place of `warmup_calls`


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One launch. Paths are absolute, or relative to the `in/` folder."""

    kind: TaskKind
    framework: str
    adapter: str  # module that defines `Adapter`
    device: str = "cpu"  # as asked: "cpu", "cuda", "cuda:1"
    threads: int = 1
    precision: str = "fp32"
    variant: str = ""  # the adapter's own word: "eager", "compile", "xla", ...
    math_mode: str = "fp32"  # "tf32" lets fp32 matmuls use it
    model: ModelSpec | None = None
    artefacts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # kind -> path
    inputs: str | None = None  # .npz
    measure: Measure = dataclasses.field(default_factory=Measure)
    keep_outputs: bool = True
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class TensorFacts:
    """What is known of one tensor without keeping it."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str
    nan: int = 0
    inf: int = 0
    subnormal: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one launch left. Every number is finite; what is missing has a reason.

    `phases` in seconds (`import_s`, `load_s`, `compile_s`, `first_call_s`,
    `warmup_s`, `steady_s`); `metrics` by the ids of the metric registry;
    `absent` metric id -> why it has no value; `effective` is what the framework
    said it really used (device, threads, precision, math_mode, layout, ...);
    `probes` hold the machine before and after.
    """

    state: State
    reason: Reason | None = None
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    effective: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    probes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    outputs: Mapping[str, TensorFacts] = dataclasses.field(default_factory=dict)
    sampling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    artefacts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    started: str = ""
    ended: str = ""
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """Written at every phase change, and about once a second within one where that is free."""

    phase: str
    since: float  # time.time() when the phase began
    at: float  # time.time() of this beat


class ProtocolError(ValueError):
    """A record that does not fit its type; the message names the field."""


_Record = TypeVar("_Record")


def to_json(record: Any) -> str:
    """Serialise a record. Raises ValueError for NaN or Infinity: JSON has neither."""
    return json.dumps(plain(record), allow_nan=False, sort_keys=True, separators=(",", ":"))


_SCALARS = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as what JSON knows, recursively."""
    if type(value) in _SCALARS:  # most values are: ten thousand cells are hashed at once
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} cannot be stored: give the state and a reason instead")
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a NumPy scalar
        return plain(value.item())
    return value


def from_json(cls: type[_Record], text: str) -> _Record:
    """Parse `text` as a `cls`. Raises ProtocolError for anything that does not fit."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    return from_plain(cls, data)


def from_plain(cls: type[_Record], data: Any) -> _Record:
    """The inverse of `plain`, with types checked as far as a record needs it."""
    return typing.cast(_Record, _build(cls, data, cls.__name__))


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _build(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any:
        return data
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(kind)
        if data is None and type(None) in options:
            return None
        (inner,) = (o for o in options if o is not type(None))
        return _build(inner, data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise ProtocolError(f"{where}: a list is needed, got {data!r}")
        inner = typing.get_args(kind)[0]
        return tuple(_build(inner, item, f"{where}[{i}]") for i, item in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise ProtocolError(f"{where}: a mapping is needed, got {data!r}")
        inner = typing.get_args(kind)[1]
        return {key: _build(inner, item, f"{where}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, data, where)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError:
            raise ProtocolError(f"{where}: {data!r} is no {kind.__name__}") from None
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise ProtocolError(f"{where}: {kind.__name__} is needed, got {data!r}")
    return data


def _build_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ProtocolError(f"{where}: a mapping is needed, got {data!r}")
    hints = _hints(kind)
    unknown = sorted(set(data) - set(hints))
    if unknown:
        raise ProtocolError(f"{where}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: _build(hints[name], v, f"{where}.{name}") for name, v in data.items()})
    except TypeError as error:  # a field without a default is missing
        raise ProtocolError(f"{where}: {error}") from None


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """Evaluated once a class: it costs more than the record of a plan of thousands."""
    return typing.get_type_hints(kind)


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` in one step: a reader sees the old text or the new, never half."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # a full disk leaves an empty one


def content_hash(value: Any, length: int = 16) -> str:
    """A short SHA-256 over the canonical JSON of `value`: the one way keys are made."""
    return hashlib.sha256(to_json(value).encode()).hexdigest()[:length]


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
