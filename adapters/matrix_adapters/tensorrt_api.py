"""The names of TensorRT that the adapter uses, typed, and checked against the real module.

`tensorrt` and `tensorrt_rtx` ship no type stubs and offer the same classes under
the same names. One `trt` module object of either kind goes through the adapter;
`missing` compares it with the protocols below, so that a renamed method is one
sentence at the start and not an AttributeError in the middle.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

MODULES = ("tensorrt", "tensorrt_rtx")


class Tensor(Protocol):
    """An input or output of the parsed network; -1 is a dimension that only the profile knows."""

    name: str
    shape: Sequence[int]
    dtype: Any
    is_shape_tensor: bool


class Network(Protocol):
    """What the parser fills."""

    num_inputs: int
    num_outputs: int
    num_layers: int

    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...


class Error(Protocol):
    """One thing the parser could not take, and the node it was found at."""

    def code(self) -> Any: ...
    def desc(self) -> str: ...
    def node(self) -> int: ...
    def node_name(self) -> str: ...
    def node_operator(self) -> str: ...


class Parser(Protocol):
    """ONNX -> network."""

    num_errors: int

    def parse_from_file(self, path: str) -> bool: ...
    def get_error(self, index: int) -> Error: ...


class Profile(Protocol):
    """The shapes that an engine is built for. `set_shape` accepts nonsense without a word."""

    def set_shape(self, name: str, low: Sequence[int], best: Sequence[int], high: Sequence[int]) -> Any: ...


class Config(Protocol):
    """How an engine is built."""

    def add_optimization_profile(self, profile: Profile) -> int: ...
    def set_flag(self, flag: Any) -> None: ...
    def clear_flag(self, flag: Any) -> None: ...
    def get_flag(self, flag: Any) -> bool: ...


class HostMemory(Protocol):
    """A serialised engine (buffer protocol)."""

    nbytes: int


class Builder(Protocol):
    """Makes networks, configurations and engines."""

    max_threads: int

    def create_network(self, flags: int) -> Network: ...
    def create_builder_config(self) -> Config: ...
    def create_optimization_profile(self) -> Profile: ...
    def build_serialized_network(self, network: Network, config: Config) -> HostMemory | None: ...


class Context(Protocol):
    """One execution of an engine, with shapes and addresses."""

    def set_input_shape(self, name: str, shape: Sequence[int]) -> bool: ...
    def get_tensor_shape(self, name: str) -> Sequence[int]: ...
    def set_tensor_address(self, name: str, address: int) -> bool: ...
    def execute_async_v3(self, stream: int) -> bool: ...


class Engine(Protocol):
    """A deserialised engine, bound to one device."""

    num_io_tensors: int

    def get_tensor_name(self, index: int) -> str: ...
    def get_tensor_mode(self, name: str) -> Any: ...
    def get_tensor_dtype(self, name: str) -> Any: ...
    def create_execution_context(self) -> Context | None: ...


class Runtime(Protocol):
    """Loads engines. Answers None, and only logs why, where it cannot."""

    def deserialize_cuda_engine(self, engine: Any) -> Engine | None: ...


CLASSES: dict[str, type] = {
    "Builder": Builder,
    "IBuilderConfig": Config,
    "ICudaEngine": Engine,
    "IExecutionContext": Context,
    "IHostMemory": HostMemory,
    "INetworkDefinition": Network,
    "IOptimizationProfile": Profile,
    "ITensor": Tensor,
    "OnnxParser": Parser,
    "ParserError": Error,
    "Runtime": Runtime,
}
OTHERS = ("ILogger", "nptype", "BuilderFlag.TF32", "TensorIOMode.INPUT", "NetworkDefinitionCreationFlag")


def import_module() -> Any:
    """`tensorrt`, or else `tensorrt_rtx`. Raises ImportError with what both said."""
    said = []
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ImportError as error:  # also a bindings package whose libraries are not there
            said.append(f"{name}: {error}")
    raise ImportError("; ".join(said))


def missing(trt: Any) -> list[str]:
    """The names that the adapter needs and this module lacks; [] is what is wanted."""
    needed = [f"{real}.{member}" for real, api in CLASSES.items() for member in _members(api)]
    return [name for name in (*needed, *OTHERS) if not _has(trt, name)]


def _members(api: type) -> list[str]:
    own = {**vars(api), **api.__annotations__}
    return sorted(name for name in own if not name.startswith("_"))


def _has(value: Any, dotted: str) -> bool:
    for name in dotted.split("."):
        if not hasattr(value, name):
            return False
        value = getattr(value, name)
    return True
