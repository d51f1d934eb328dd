"""TensorRT, classic or RTX: an engine built for the measured shapes, run with raw device buffers.

Written against one module object, `tensorrt` or `tensorrt_rtx`. Parsing and
building need no GPU with TensorRT-RTX and are tested; loading and running an
engine do, and have NOT BEEN RUN ON HARDWARE (tests drive them with stand-ins).

The task option `compute_capability` ("SM89") asks for an engine for a device
that is not here: everything up to the engine is done, and then the launch ends
as `Unavailable` with what the runtime said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import tensorrt_api as api
from matrix_adapters import tensorrt_build as building
from matrix_adapters.adapter import Feed, Unavailable, Unsupported
from matrix_adapters.cuda_driver import CudaError, Device
from matrix_adapters.operators import elements
from matrix_adapters.protocol import ModelSpec, Task


class Adapter:
    """One framework in one process; see `matrix_adapters.adapter.Adapter`."""

    name = "tensorrt"
    environment: Mapping[str, str] = {}

    def __init__(self, task: Task) -> None:
        self._task = task
        self._trt: Any = None
        self._logger: Any = None
        self._device: Device | None = None

    def start(self) -> None:
        """Import whichever TensorRT is here and take the device, unless only an engine is wanted."""
        kind, _, index = self._task.device.partition(":")
        if kind != "cuda":
            raise Unsupported(f"TensorRT runs on NVIDIA GPUs only, not on {self._task.device!r}")
        if self._task.variant not in ("", "engine"):
            raise Unsupported(f"no variant {self._task.variant!r}: use engine")
        self._trt = trt = api.import_module()
        if lacking := api.missing(trt):
            raise Unsupported(f"{trt.__name__} {trt.__version__} lacks {', '.join(lacking)}")
        self._logger = building.make_logger(trt)
        if not self._task.options.get("compute_capability"):
            try:
                self._device = Device(int(index or 0))
            except CudaError as error:
                raise Unavailable(f"{trt.__name__} {trt.__version__} needs a GPU: {error}") from error

    def probe(self) -> dict[str, Any]:
        """Version and flavour, and the device as its driver describes it."""
        facts = {
            "version": self._trt.__version__,
            "build": self._trt.__name__,
            "devices": [f"cuda:{self._device.index}"] if self._device else [],
            "threads": self._task.threads,
        }
        return {**facts, **(self._device.facts() if self._device else {})}

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> TensorRtRunner:
        """Parse the ONNX file, weights and all. Raises Unsupported naming the nodes it refuses.

        An operator case is the folder `artefacts["operator"]`, and has whatever types it has.
        """
        if model.format == "operator":
            parsed = building.parse(self._trt, self._logger, artefacts["operator"] / "model.onnx")
            # Each case frees its memory and stream when it closes; the adapter's own stays for the next.
            device = None if self._device is None else Device(self._device.index)
            return TensorRtRunner(self._trt, parsed, device, model, self._task)
        if self._task.precision != "fp32":
            raise Unsupported(
                f"networks are strongly typed and the exported ONNX file is fp32: no {self._task.precision}"
            )
        if "onnx" not in artefacts:
            raise Unsupported("TensorRT builds engines from ONNX files only, and this model has none")
        parsed = building.parse(self._trt, self._logger, artefacts["onnx"])
        return TensorRtRunner(self._trt, parsed, self._device, model, self._task)


class TensorRtRunner:
    """One engine, its execution context, and a device buffer for each input and output."""

    def __init__(
        self, trt: Any, parsed: building.Parsed, device: Device | None, model: ModelSpec, task: Task
    ) -> None:
        self._trt = trt
        self._parsed = parsed
        self._device = device
        self._task = task
        self._wanted = model.outputs
        self._is_operator = model.format == "operator"
        self._types = {tensor.name: self._type(tensor.name, tensor.dtype) for tensor in parsed.inputs}
        self._bits: set[str] = set()  # outputs that are bfloat16
        self._built: dict[str, Any] = {}
        self._runtime: api.Runtime | None = None
        self._engine: api.Engine | None = None
        self._context: api.Context | None = None
        self._inputs: dict[str, int] = {}
        self._outputs: dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]] = {}
        self._pending: dict[str, np.ndarray] = {}

    def prepare(self, feed: Feed) -> Feed:
        """The network's own inputs, contiguous, in exactly the types of the file."""
        if missing := [name for name in self._types if name not in feed]:
            raise ValueError(
                f"no array for input {missing[0]!r}: the feed has {', '.join(feed) or 'nothing'}"
            )
        for name, dtype in self._types.items():
            if feed[name].dtype != dtype:
                raise ValueError(
                    f"input {name!r} is {dtype} in the file, the array given is {feed[name].dtype}"
                )
        return {name: np.ascontiguousarray(feed[name]).reshape(feed[name].shape) for name in self._types}

    def compile(self, feed: Feed) -> bool:
        """Build the engine for these shapes, load it, and lay out its buffers."""
        shapes = {name: array.shape for name, array in feed.items()}
        if empty := [name for name, shape in shapes.items() if 0 in shape]:
            raise Unsupported(f"input {empty[0]!r} is empty: engines are built for at least one element")
        ranges = building.profile_for(self._parsed, shapes, _wider(self._task.options.get("profile", {})))
        target = str(self._task.options.get("compute_capability", ""))
        serialised, self._built = building.build(
            self._trt,
            self._parsed,
            ranges,
            tf32=self._task.math_mode == "tf32",
            compute_capability=target,
            threads=self._task.threads,
        )
        runtime: api.Runtime = self._trt.Runtime(self._parsed.logger)
        engine = runtime.deserialize_cuda_engine(serialised)
        context = engine.create_execution_context() if engine is not None else None
        if engine is None or context is None:
            raise Unavailable(
                f"an engine of {serialised.nbytes} bytes was built for {target or 'this device'}, "
                f"and cannot be loaded here: {building.last_error(self._parsed.logger)}"
            )
        if self._device is None:
            raise Unavailable(f"an engine for {target} was built and loaded; it was not asked to run")
        self._runtime, self._engine, self._context = runtime, engine, context
        self._lay_out(engine, context, self._device, shapes)
        return True

    def run(self, feed: Feed) -> dict[str, np.ndarray]:
        """Copies in, kernels, copies out, all in one stream; nothing is waited for."""
        device, context = self._ready()
        for name, address in self._inputs.items():
            device.copy_in(address, feed[name])
        if not context.execute_async_v3(device.stream):
            raise RuntimeError(f"TensorRT did not start: {building.last_error(self._parsed.logger)}")
        outputs = {name: np.empty(shape, dtype) for name, (_, shape, dtype) in self._outputs.items()}
        for name, (address, _, _) in self._outputs.items():
            device.copy_out(outputs[name], address)
        self._pending = outputs  # the copies still write here, whatever the caller drops
        return outputs

    def sync(self) -> None:
        """Wait for the stream."""
        self._ready()[0].sync()

    def fetch(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Already host arrays, filled once `sync` has returned; bfloat16 is widened to float32."""
        if not self._bits:
            return outputs
        return {n: elements.from_bits(a) if n in self._bits else a for n, a in outputs.items()}

    def effective(self) -> dict[str, Any]:
        """What the builder and the driver say."""
        device, _ = self._ready()
        dtypes = {
            n: elements.BFLOAT16 if n in self._bits else d.name for n, (_, _, d) in self._outputs.items()
        }
        return {
            **({"output_dtypes": dtypes} if self._is_operator else {}),
            "device": f"cuda:{device.index}",
            **device.facts(),
            "precision": self._task.precision,
            "layout": "as in the file",
            "flavour": self._trt.__name__,
            **self._built,
        }

    def close(self) -> None:
        """Context before engine before runtime, then the device's memory."""
        self._context = None
        self._engine = None
        self._runtime = None
        if self._device is not None:
            self._device.close()
            self._device = None

    def _ready(self) -> tuple[Device, api.Context]:
        if self._device is None or self._context is None:
            raise RuntimeError("no engine is loaded: compile first")
        return self._device, self._context

    def _lay_out(
        self, engine: api.Engine, context: api.Context, device: Device, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Bind a device buffer to every input and output, at the measured shapes."""
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        is_input = {n: engine.get_tensor_mode(n) == self._trt.TensorIOMode.INPUT for n in names}
        for name in (n for n in names if is_input[n]):
            if not context.set_input_shape(name, shapes[name]):
                raise Unsupported(f"input {name!r}: TensorRT refused shape {list(shapes[name])}")
            size = int(np.prod(shapes[name])) * self._types[name].itemsize
            self._inputs[name] = self._bind(context, name, device.allocate(size))
        for name in (n for n in names if not is_input[n]):
            shape = tuple(context.get_tensor_shape(name))
            if any(size < 0 for size in shape):
                raise Unsupported(f"output {name!r} has a shape that depends on the data: {list(shape)}")
            dtype = self._type(name, engine.get_tensor_dtype(name))
            if _is_bfloat16(engine.get_tensor_dtype(name)):
                self._bits.add(name)
            address = device.allocate(int(np.prod(shape)) * dtype.itemsize)
            self._outputs[name] = (self._bind(context, name, address), shape, dtype)
        if absent := [name for name in self._wanted if name not in self._outputs]:
            raise ValueError(f"the engine has no output {absent[0]!r}: it has {', '.join(self._outputs)}")
        if self._wanted:  # every output needs an address; only the compared ones are copied back
            self._outputs = {name: self._outputs[name] for name in self._wanted}

    def _type(self, name: str, dtype: Any) -> np.dtype[Any]:
        """An operator case's bfloat16 is fed and read as its bits."""
        if self._is_operator and _is_bfloat16(dtype):
            return np.dtype(np.uint16)
        return _numpy_type(self._trt, name, dtype)

    @staticmethod
    def _bind(context: api.Context, name: str, address: int) -> int:
        if not context.set_tensor_address(name, address):
            raise RuntimeError(f"TensorRT refused the address of {name!r}")
        return address


def _numpy_type(trt: Any, name: str, dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(trt.nptype(dtype))
    except TypeError:
        raise Unsupported(f"{name!r} is {dtype}: only tensors of types that NumPy has are passed") from None
    return found


def _is_bfloat16(dtype: Any) -> bool:
    return str(dtype).rpartition(".")[2] in ("BF16", "bfloat16")


def _wider(option: Mapping[str, Mapping[str, Any]]) -> dict[str, building.ShapeRange]:
    """The task option `profile`: input -> {min, opt, max}."""
    return {
        name: building.ShapeRange(low=tuple(r["min"]), best=tuple(r["opt"]), high=tuple(r["max"]))
        for name, r in option.items()
    }
