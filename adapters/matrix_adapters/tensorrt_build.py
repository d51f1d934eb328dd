"""The half of TensorRT that needs no GPU: parse, choose shapes, build a serialised engine.

Networks are strongly typed: the ONNX file says what precision each tensor has,
and the builder picks kernels for it, never another precision (TensorRT 11 knows
no other kind). No engine is kept between launches. An engine belongs to one
TensorRT version, device, set of flags and profile; a foreign one fails to load
or is rebuilt without a word (NVIDIA/TensorRT#2072), and rebuilding in each launch
also shows how much the choice of kernels varies.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix_adapters import tensorrt_api as api
from matrix_adapters.adapter import Unsupported

#: parser error codes that speak of the file itself, not of what TensorRT can do
_BROKEN_FILE = ("MODEL_DESERIALIZE_FAILED", "INVALID_GRAPH", "INVALID_VALUE", "MEM_ALLOC_FAILED")


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ShapeRange:
    """The shapes that one input may have, and the one that speed is tuned for."""

    low: tuple[int, ...]
    best: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def only(cls, shape: Sequence[int]) -> ShapeRange:
        """Exactly one shape: what a measurement at one shape wants."""
        return cls(low=tuple(shape), best=tuple(shape), high=tuple(shape))

    def check(self, name: str) -> None:
        """Raises ValueError unless 1 <= low <= best <= high in every dimension."""
        if not len(self.low) == len(self.best) == len(self.high):
            raise ValueError(f"profile of {name!r}: min, opt and max differ in rank: {self}")
        for axis, (low, best, high) in enumerate(zip(self.low, self.best, self.high, strict=True)):
            if low < 1:
                raise ValueError(f"profile of {name!r}: dimension {axis} has min {low}, at least 1 is needed")
            if not low <= best <= high:
                raise ValueError(
                    f"profile of {name!r}: dimension {axis} needs min <= opt <= max: {low}, {best}, {high}"
                )

    def admit(self, name: str, shape: Sequence[int]) -> None:
        """Raises Unsupported when `shape` lies outside."""
        if len(shape) != len(self.low):
            raise Unsupported(f"input {name!r} has rank {len(shape)}, its profile {len(self.low)}")
        for axis, (size, low, high) in enumerate(zip(shape, self.low, self.high, strict=True)):
            if not low <= size <= high:
                raise Unsupported(
                    f"input {name!r}: dimension {axis} is {size}, outside profile {low}..{high}"
                )


@dataclasses.dataclass(kw_only=True)
class Parsed:
    """A parsed network with everything that must outlive it."""

    logger: Any
    builder: api.Builder
    network: api.Network
    parser: api.Parser

    @property
    def inputs(self) -> tuple[api.Tensor, ...]:
        return tuple(self.network.get_input(i) for i in range(self.network.num_inputs))


def make_logger(trt: Any) -> Any:
    """A logger that repeats warnings and errors on standard error, and keeps the last errors.

    TensorRT answers many failures with None and says the reason only here
    (`logger.errors`, oldest first). A process has one logger: later ones are ignored.
    """

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: collections.deque[str] = collections.deque(maxlen=20)

        def log(self, severity: Any, message: str) -> None:
            if severity.name in ("WARNING", "ERROR", "INTERNAL_ERROR"):
                print(f"tensorrt {severity.name.lower()}: {message}", file=sys.stderr)
            if severity.name in ("ERROR", "INTERNAL_ERROR"):
                self.errors.append(message)

    return Log()


def parse(trt: Any, logger: Any, path: Path) -> Parsed:
    """The network in `path`. Raises Unsupported with every node that the parser refused."""
    builder: api.Builder = trt.Builder(logger)
    flag = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if flag is None else 1 << int(flag))
    parser: api.Parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        _raise_refused([parser.get_error(i) for i in range(parser.num_errors)], trt)
    for tensor in (network.get_input(i) for i in range(network.num_inputs)):
        if tensor.is_shape_tensor:
            raise Unsupported(f"input {tensor.name!r} holds shapes: only inputs that hold data are passed")
    return Parsed(logger=logger, builder=builder, network=network, parser=parser)


def profile_for(
    parsed: Parsed,
    shapes: Mapping[str, Sequence[int]],
    wider: Mapping[str, ShapeRange] | None = None,
) -> dict[str, ShapeRange]:
    """One range per input: `wider` where given, else only the measured shape.

    Raises ValueError for an input without a shape or a range that cannot be,
    Unsupported for a measured shape that the file or the range rules out.
    """
    ranges = {}
    for tensor in parsed.inputs:
        if tensor.name not in shapes:
            raise ValueError(f"no shape for input {tensor.name!r}: given are {', '.join(shapes) or 'none'}")
        shape = tuple(shapes[tensor.name])
        chosen = (wider or {}).get(tensor.name) or ShapeRange.only(shape)
        chosen.check(tensor.name)
        chosen.admit(tensor.name, shape)
        fixed = tuple(tensor.shape)
        if len(fixed) != len(shape) or any(f not in (-1, s) for f, s in zip(fixed, shape, strict=True)):
            raise Unsupported(
                f"input {tensor.name!r} is {list(fixed)} in the file, {list(shape)} is measured"
            )
        ranges[tensor.name] = chosen
    return ranges


def build(
    trt: Any,
    parsed: Parsed,
    ranges: Mapping[str, ShapeRange],
    *,
    tf32: bool,
    compute_capability: str = "",
    threads: int = 1,
) -> tuple[api.HostMemory, dict[str, Any]]:
    """A serialised engine and what the builder says it was built with.

    `compute_capability` (a name such as "SM89") builds for a device that is not here;
    only TensorRT-RTX can do that, and the classic builder needs its device: Unsupported.
    """
    config = parsed.builder.create_builder_config()
    parsed.builder.max_threads = threads
    (config.set_flag if tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    if compute_capability:
        _aim_at(trt, config, compute_capability)
    profile = parsed.builder.create_optimization_profile()
    dynamic = [tensor.name for tensor in parsed.inputs if -1 in tuple(tensor.shape)]
    for name in dynamic:
        profile.set_shape(name, ranges[name].low, ranges[name].best, ranges[name].high)
    if dynamic and config.add_optimization_profile(profile) < 0:
        raise RuntimeError(f"TensorRT refused the profile {dict(ranges)}: {last_error(parsed.logger)}")
    engine = parsed.builder.build_serialized_network(parsed.network, config)
    if engine is None:
        raise RuntimeError(f"TensorRT built no engine: {last_error(parsed.logger)}")
    facts = {
        "math_mode": "tf32" if config.get_flag(trt.BuilderFlag.TF32) else "fp32",
        "threads": parsed.builder.max_threads,
        "layers": parsed.network.num_layers,
        "engine_bytes": engine.nbytes,
        "profile": {name: [list(r.low), list(r.best), list(r.high)] for name, r in ranges.items()},
    }
    return engine, facts


def last_error(logger: Any) -> str:
    """The first line of what TensorRT complained about last."""
    return logger.errors[-1].strip().splitlines()[0] if logger.errors else "it logged no reason"


def _aim_at(trt: Any, config: Any, name: str) -> None:
    capability = getattr(getattr(trt, "ComputeCapability", None), name, None)
    if capability is None:
        known = [n for n in dir(getattr(trt, "ComputeCapability", None)) if n.startswith("SM")]
        offer = f"it offers {', '.join(known)}" if known else "it builds for the device at hand only"
        raise Unsupported(f"{trt.__name__} {trt.__version__} cannot build for {name}: {offer}")
    config.num_compute_capabilities = 1
    if not config.set_compute_capability(capability, 0):
        raise Unsupported(f"{trt.__name__} {trt.__version__} refused compute capability {name}")


def _raise_refused(errors: Sequence[api.Error], trt: Any) -> None:
    sentences = [_sentence(error) for error in errors]
    if not sentences:
        raise ValueError("TensorRT could not parse the file and gave no reason")
    text = f"{trt.__name__} {trt.__version__}: " + "; ".join(sentences[:5])
    if len(sentences) > 5:
        text += f"; and {len(sentences) - 5} more"
    if all(_code(error) in _BROKEN_FILE for error in errors):
        raise ValueError(text)
    raise Unsupported(text)


def _sentence(error: api.Error) -> str:
    reason = " ".join(error.desc().split())
    reason = reason if len(reason) <= 200 else reason[:197] + "..."
    node = f"node {error.node()} {error.node_name()!r} ({error.node_operator()})"
    return f"{node if error.node() >= 0 else 'the file as a whole'}: {_code(error)}, {reason}"


def _code(error: api.Error) -> str:
    return str(error.code()).rpartition(".")[2]
