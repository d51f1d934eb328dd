"""TensorFlow: one `tf.function` of fixed shapes over a checkpoint's own weights.

KerasHub builds the network of a Hugging Face or timm folder (see `keras_hub_network`), a
short function each builds those that only declare their sizes (see `tensorflow_declarative`).
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from matrix_adapters.adapter import Feed, Runner, Unavailable, Unsupported
from matrix_adapters.keras_hub_network import KerasHubNetwork
from matrix_adapters.protocol import ModelSpec, Task, TaskKind

#: variant -> tf.function's `jit_compile`; operators have "eager" too (see `operators.tensorflow_runner`)
_VARIANTS = {"": False, "graph": False, "xla": True}

#: precision -> Keras dtype policy: weights, arithmetic and activations all have it
_POLICIES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

#: beginnings of the environment variables that choose kernels or change arithmetic
_VARIABLES = (
    "TF_CUDNN_",
    "TF_DETERMINISTIC_",
    "TF_ENABLE_",
    "TF_GPU_",
    "TF_NUM_",
    "TF_XLA_",
    "XLA_",
    "NVIDIA_TF32_",
)


class Adapter:
    """One framework in one process; see `matrix_adapters.adapter.Adapter`."""

    name = "tensorflow"
    environment: Mapping[str, str] = {
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        # A place where no file can be: a user's keras.json would change the default dtype and
        # layout, and Keras would write one where there is none.
        "KERAS_HOME": str(Path(os.devnull) / "keras"),
    }

    def __init__(self, task: Task) -> None:
        self._task = task
        self._kind, _, index = task.device.partition(":")
        self._index = int(index or 0)
        self._tf: Any = None

    def start(self) -> None:
        """Import TensorFlow, and KerasHub where the model needs it; set device, threads, math mode."""
        import tensorflow as tf

        self._tf = tf
        variants = (*_VARIANTS, "eager") if self._is_operator() else (*_VARIANTS,)
        if self._task.variant not in variants:
            known = ", ".join(v for v in variants if v)
            level = "operators" if self._is_operator() else "models"
            raise Unsupported(f"TensorFlow has no variant {self._task.variant!r} of {level}: use {known}")
        self._choose_device()
        # All of this is refused after the first operation.
        tf.config.threading.set_intra_op_parallelism_threads(self._task.threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.set_soft_device_placement(False)
        # On by default, it would make "fp32" mean another thing than elsewhere.
        tf.config.experimental.enable_tensor_float_32_execution(self._task.math_mode == "tf32")
        if _needs_keras_hub(self._task.model):
            import keras_hub  # noqa: F401 - a second of import that belongs to this phase

    def probe(self) -> dict[str, Any]:
        """Version, build, devices, threads, math modes and variables that change the arithmetic."""
        tf = self._tf
        return {
            "version": tf.__version__,
            "build": dict(tf.sysconfig.get_build_info()),
            "devices": [device.name for device in tf.config.list_physical_devices()],
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "math_modes": {"tf32": tf.config.experimental.tensor_float_32_execution_enabled()},
            "libraries": {name: importlib.metadata.version(name) for name in ("keras", "keras-hub")},
            "environment": environment_variables(),
        }

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> Runner:
        """Build the layers and read the checkpoint's weights into them; nothing is traced yet.

        For an operator case: find the mapping of each node.
        """
        if model.format == "operator":
            from matrix_adapters.operators.tensorflow_runner import OperatorRunner

            return OperatorRunner(self._tf, artefacts["operator"], self._task, self._index)
        import keras

        if "checkpoint" not in artefacts:
            raise Unsupported("TensorFlow needs a checkpoint folder to load, and this model has none")
        if self._task.precision not in _POLICIES:
            raise Unsupported(f"no Keras dtype policy for precision {self._task.precision!r}")
        keras.config.set_dtype_policy(_POLICIES[self._task.precision])
        folder = artefacts["checkpoint"]
        if model.format == "declarative":
            from matrix_adapters import tensorflow_declarative

            network: _Network = tensorflow_declarative.open_model(model, folder)
        else:
            network = KerasHubNetwork(model, folder)
        return TensorFlowRunner(self._tf, network, model, self._task, self._index)

    def _is_operator(self) -> bool:
        model = self._task.model
        return self._task.kind is TaskKind.OPERATORS or (model is not None and model.format == "operator")

    def _choose_device(self) -> None:
        """Let TensorFlow see the device asked for and no other. Raises Unavailable if it cannot."""
        tf = self._tf
        gpus = tf.config.list_physical_devices("GPU")
        if self._kind == "cpu":
            tf.config.set_visible_devices([], "GPU")
            return
        if self._kind != "cuda":
            raise Unsupported(f"this adapter does not know the device {self._kind!r}")
        cuda = tf.test.is_built_with_cuda()
        if not cuda or self._index >= len(gpus):
            seen = f"{len(gpus)} GPU(s)" if gpus else "no GPU"
            answer = f"tensorflow {tf.__version__} lists {seen} (built with CUDA: {cuda})"
            raise Unavailable(f"{self._task.device} asked, {answer}")
        tf.config.set_visible_devices([gpus[self._index]], "GPU")
        # By default all of the device's memory is taken at once, and a peak says nothing.
        tf.config.experimental.set_memory_growth(gpus[self._index], True)


class TensorFlowRunner:
    """One network as a `tf.function` of fixed shapes, called with host arrays by position."""

    def __init__(self, tf: Any, network: _Network, model: ModelSpec, task: Task, index: int) -> None:
        self._tf = tf
        self._network = network
        self._outputs = list(model.outputs)
        self._task = task
        self._index = index
        self._names: list[str] = []
        self._call: Any = None
        self._produced: list[tuple[str, str]] = []
        # Kernels on the CPU run inside the call; on a device they are only enqueued by it.
        eager = tf.config.experimental.get_synchronous_execution()
        self.synchronous = eager and not tf.config.get_visible_devices("GPU")

    def prepare(self, feed: Feed) -> Feed:
        """KerasHub's names, 32-bit token ids, images as NHWC."""
        return self._network.prepare(feed)

    def compile(self, feed: Feed) -> bool:
        """Trace one graph for these shapes. XLA compiles it in the first call, and not before."""
        tf = self._tf
        self._names = list(feed)
        specs = [tf.TensorSpec(array.shape, array.dtype, name) for name, array in feed.items()]
        # No Python control flow depends on data in these models: without autograph the graph is
        # the same, and there sooner. (Keras exports its models this way too.)
        function = tf.function(
            self._network.call, jit_compile=_VARIANTS[self._task.variant] or None, autograph=False
        )
        self._call = function.get_concrete_function(*specs)
        return True

    def run(self, feed: Feed) -> Any:
        """One call of the concrete function, which takes host arrays as they are."""
        return self._call(*[feed[name] for name in self._names])

    def sync(self) -> None:
        """Wait until every kernel enqueued on any device is done."""
        self._tf.test.experimental.sync_devices()

    def fetch(self, outputs: Sequence[Any]) -> dict[str, np.ndarray]:
        """Outputs by name; 16-bit floats are widened to float32."""
        if not self._produced:
            self._produced = [(tensor.device, tensor.dtype.name) for tensor in outputs]
        return {name: _widened(tensor.numpy()) for name, tensor in zip(self._outputs, outputs, strict=True)}

    def effective(self) -> dict[str, Any]:
        """Read back from TensorFlow, the variables, the traced function and the first call's outputs."""
        tf = self._tf
        weights = sorted({v.dtype for v in self._network.weights if "float" in v.dtype})
        facts: dict[str, Any] = {
            "device": self._device(),
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "threads_between_operators": tf.config.threading.get_inter_op_parallelism_threads(),
            "precision": _precision(weights),
            "precision_recipe": f"Keras dtype policy {_POLICIES[self._task.precision]!r}",
            "weights_dtype": ", ".join(weights),
            "math_mode": "tf32" if tf.config.experimental.tensor_float_32_execution_enabled() else "fp32",
            "layout": self._network.layout,
            "soft_placement": tf.config.get_soft_device_placement(),
            "model": self._network.title,
            "environment": environment_variables(),
        }
        if self._call is not None:
            facts["xla"] = bool(self._call.function_def.attr["_XlaMustCompile"].b)
        if self._produced:
            facts["output_dtype"] = ", ".join(sorted({dtype for _, dtype in self._produced}))
            facts["fetched_as"] = "float32 where it is a 16-bit float, else unchanged"
        return facts

    def peak_device_memory(self) -> int | None:
        """What TensorFlow's allocator handed out at most. Not run on hardware."""
        if self.synchronous:
            return None
        return int(self._tf.config.experimental.get_memory_info(f"GPU:{self._index}")["peak"])

    def close(self) -> None:
        """Drop the graph and the weights."""
        self._call = None
        del self._network

    def _device(self) -> str:
        """Where the outputs were computed; before the first call, where the weights lie."""
        places = {device for device, _ in self._produced} or {
            v.value.device for v in self._network.weights if "float" in v.dtype
        }
        kinds = {self._tf.DeviceSpec.from_string(place).device_type for place in places}
        if kinds == {"GPU"}:
            return f"cuda:{self._index}"
        return "cpu" if kinds == {"CPU"} else ", ".join(sorted(kinds))


class _Network(Protocol):
    """What the runner needs of a model: a function of tensors by position, and facts about it."""

    @property
    def title(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def weights(self) -> Sequence[Any]:
        """Keras variables."""
        ...

    def prepare(self, feed: Feed) -> Feed:
        """The feed by this network's names, in the order of its arguments."""
        ...

    def call(self, *tensors: Any) -> list[Any]:
        """Outputs in the order of the model's output names."""
        ...


def _needs_keras_hub(model: ModelSpec | None) -> bool:
    return model is not None and model.format in ("transformers", "timm")


def _precision(weights: Sequence[str]) -> str:
    """The precision that the weights' dtypes amount to; the dtypes themselves when they differ."""
    names = {policy: precision for precision, policy in _POLICIES.items()}
    return names.get(weights[0], weights[0]) if len(weights) == 1 else "+".join(weights)


def _widened(array: np.ndarray) -> np.ndarray:
    """bfloat16 (a type of its own to NumPy) and float16 as float32."""
    return array.astype(np.float32) if array.dtype.name in ("bfloat16", "float16") else array


def environment_variables() -> dict[str, str]:
    """Those that are set of the variables that choose kernels or change arithmetic.

    oneDNN's kernels are on unless its own says 0.
    """
    return {"TF_ENABLE_ONEDNN_OPTS": "default"} | {
        k: v for k, v in os.environ.items() if k.startswith(_VARIABLES)
    }
