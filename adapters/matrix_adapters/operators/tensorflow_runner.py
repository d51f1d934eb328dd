"""A prepared operator case run by TensorFlow: eager, as one graph, or compiled by XLA.

The boundary is that of the models: host arrays in, native tensors out. Constants are part of the
function. Shapes, axes and other parameters that a case feeds as tensors are read once, from the
prepared inputs: TensorFlow's functions take them as arguments in Python.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import tensors
from matrix_adapters.adapter import Feed, Unsupported
from matrix_adapters.operators import case_folder, elements, generators, tensorflow_layout
from matrix_adapters.operators.tensorflow_program import Program
from matrix_adapters.protocol import OperatorCase, Task, TensorSpec

#: variant -> how the nodes are run
VARIANTS = {"": "graph", "graph": "graph", "xla": "xla", "eager": "eager"}

#: the case's element type -> our word for it as a precision
_PRECISIONS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}

# What TensorFlow says of a type or operation that it has no kernel for. Its exceptions carry no
# fields; a message that fits no pattern stays what it was: a failure.
_REFUSALS = re.compile(
    r"not in (the )?list of allowed values|No OpKernel was registered|Could not find device for node"
    r"|Detected unsupported operations|must be a compile-time constant"
    r"|XLA does not support|is not (yet )?(implemented|supported)|Unsupported data type"
    r"|currently only supports"
)
#: the operation that XLA lacks, in its list of them; and what says where in a graph something was
_XLA_MISSING = re.compile(r"Detected unsupported operations.* on XLA_\w+: (\w+)", re.DOTALL)
_PLACE = re.compile(r"^\{\{function_node .*?\}\} ")


class OperatorRunner:
    """One case, called with host arrays by position."""

    def __init__(self, tf: Any, folder: Path, task: Task, index: int) -> None:
        self._tf = tf
        self._task = task
        self._index = index
        self._how = VARIANTS[task.variant]
        self._case = case_folder.read_case(folder)
        self._archive = folder / case_folder.INPUTS_FILE
        self._parameters: dict[str, np.ndarray] = {}
        self._plan = tensorflow_layout.plan(self._case)
        self._specs = {spec.name: spec for spec in self._case.inputs}
        constants = {name: spec for name, spec in self._specs.items() if spec.constant}
        self._program = Program(
            tf,
            self._case,
            {name: self._native(name, _made(spec, self._case)) for name, spec in constants.items()},
            self._value_of,
            channels_last=self._plan.channels_last,
            xla=self._how == "xla",
        )
        self._names = self._program.fed
        self._function: Any = None
        self._produced: dict[str, tuple[str, str]] = {}
        self._errors = (tf.errors.OpError, TypeError, ValueError)
        self._slot = Slot(self._first)
        #: one call with host arrays as they are; native outputs: one tensor, or a sequence of them
        self.run: Callable[[Feed], Any] = calling(self._slot, self._names, self._errors)
        #: outputs by name, in ONNX's layout; bfloat16 is widened to float32
        self.fetch: Callable[[Any], dict[str, np.ndarray]] = fetching(self._case.outputs, self._look_at)
        self.synchronous = tf.config.experimental.get_synchronous_execution() and not (
            tf.config.get_visible_devices("GPU")
        )

    def prepare(self, feed: Feed) -> Feed:
        """bfloat16 as TensorFlow's NumPy type; channels last where the case is run so."""
        return {name: self._native(name, feed[name]) for name in self._names}

    def compile(self, feed: Feed) -> bool:
        """Trace one graph for these shapes; XLA compiles it in the first call. Eager: nothing to do."""
        if self._how == "eager":
            return False
        tf = self._tf
        specs = [tf.TensorSpec(feed[name].shape, feed[name].dtype) for name in self._names]
        function = tf.function(
            self._program.build, jit_compile=True if self._how == "xla" else None, autograph=False
        )
        try:
            self._function = function.get_concrete_function(*specs)
        except self._errors as error:
            raise _explained(error) from error
        self._slot.call = self._function
        return True

    def sync(self) -> None:
        """Wait until every kernel enqueued on any device is done."""
        self._tf.test.experimental.sync_devices()

    def effective(self) -> dict[str, Any]:
        """Read back from TensorFlow, the traced function and the first call's outputs."""
        from matrix_adapters.tensorflow import environment_variables

        tf = self._tf
        tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        facts: dict[str, Any] = {
            "device": self._device(),
            "threads": tf.config.threading.get_intra_op_parallelism_threads(),
            "threads_between_operators": tf.config.threading.get_inter_op_parallelism_threads(),
            "precision": _PRECISIONS.get(self._case.dtype, self._case.dtype),
            "math_mode": "tf32" if tf32 else "fp32",
            "layout": self._layout(),
            "soft_placement": tf.config.get_soft_device_placement(),
            "variant": self._how,
            "xla": False,
            "environment": environment_variables(),
        }
        if self._function is not None:
            facts["xla"] = bool(self._function.function_def.attr["_XlaMustCompile"].b)
        if self._parameters:
            facts["read_beforehand"] = sorted(self._parameters)
        if self._produced:
            facts["output_dtypes"] = {name: dtype for name, (_, dtype) in self._produced.items()}
        return facts

    def peak_device_memory(self) -> int | None:
        """What TensorFlow's allocator handed out at most. Not run on hardware."""
        if self.synchronous:
            return None
        return int(self._tf.config.experimental.get_memory_info(f"GPU:{self._index}")["peak"])

    def close(self) -> None:
        """Drop the graph and the constants."""
        self._slot.call = self._function = None
        del self._program

    def _first(self, *arrays: Any) -> Any:
        """The first eager call, which builds the nodes; those after it go through their callables alone."""
        outputs = self._program.build(*[self._tf.convert_to_tensor(array) for array in arrays])
        self._slot.call = self._program.eager()
        return outputs

    def _look_at(self, outputs: Mapping[str, Any]) -> Callable[[str, Any], np.ndarray] | None:
        """The first outputs say what all others are like. None: their arrays are as they should be."""
        self._produced = {name: (tensor.device, tensor.dtype.name) for name, tensor in outputs.items()}
        turned = self._plan.outputs & outputs.keys()
        if not turned and all(t.shape.rank and t.dtype.name != elements.BFLOAT16 for t in outputs.values()):
            return None
        return lambda name, tensor: self._plan.restored(name, _host(tensor))

    def _native(self, name: str, array: np.ndarray) -> np.ndarray:
        if self._specs[name].dtype == elements.BFLOAT16:
            array = array.view(self._tf.bfloat16.as_numpy_dtype)
        return self._plan.arranged(name, array)

    def _value_of(self, name: str) -> np.ndarray | None:
        """The numbers in a tensor of the case, constant or fed; None where it has none of that name."""
        if name not in self._specs:
            return None
        spec = self._specs[name]
        if spec.constant:
            return elements.widened(_made(spec, self._case), spec.dtype)
        if name not in self._parameters:
            self._parameters[name] = elements.widened(tensors.load(self._archive)[name], spec.dtype)
        return self._parameters[name]

    def _layout(self) -> str:
        if not self._plan.channels_last:
            return "as given; where a kernel wants channels last, transposed inside the call"
        filters = ", HWIO filters" if len(self._plan.inputs) > 1 else ""
        return f"NHWC{filters}, transposed outside the call"

    def _device(self) -> str:
        """Where the outputs were computed; before the first call, where they would be."""
        places = {device for device, _ in self._produced.values()}
        if not places:
            return "cpu" if self.synchronous else f"cuda:{self._index}"
        kinds = {self._tf.DeviceSpec.from_string(place).device_type for place in places}
        if kinds == {"GPU"}:
            return f"cuda:{self._index}"
        return "cpu" if kinds == {"CPU"} else ", ".join(sorted(kinds))


@dataclasses.dataclass(slots=True)
class Slot:
    """What is called: it may be exchanged while others hold on to what calls it."""

    call: Any


def calling(slot: Slot, names: Sequence[str], errors: tuple[type[Exception], ...]) -> Callable[[Feed], Any]:
    """feed -> `slot.call` of its arrays in the order of `names`. Raises Unsupported without a kernel.

    The usual operators have one tensor or two: what an indirection costs is what a small one costs.
    """
    first, last = (names[0], names[-1]) if names else ("", "")

    def run_one(feed: Feed) -> Any:
        try:
            return slot.call(feed[first])
        except errors as error:
            raise _explained(error) from error

    def run_two(feed: Feed) -> Any:
        try:
            return slot.call(feed[first], feed[last])
        except errors as error:
            raise _explained(error) from error

    def run_any(feed: Feed) -> Any:
        try:
            return slot.call(*[feed[name] for name in names])
        except errors as error:
            raise _explained(error) from error

    return {1: run_one, 2: run_two}.get(len(names), run_any)


def fetching(
    names: Sequence[str], look_at: Callable[[Mapping[str, Any]], Callable[[str, Any], np.ndarray] | None]
) -> Callable[[Any], dict[str, np.ndarray]]:
    """Native outputs -> host arrays by name.

    `look_at` gets the first outputs, by name, and says how each becomes an array; None: as TensorFlow
    gives it, which is then all that is done.
    """
    (only,) = names if len(names) == 1 else ("",)
    plain, convert = False, None

    def fetch(outputs: Any) -> dict[str, np.ndarray]:
        nonlocal plain, convert
        if plain and only:
            return {only: outputs.numpy()}
        named = {only: outputs} if only else dict(zip(names, outputs, strict=True))
        if not plain and convert is None:
            convert = look_at(named)
            plain = convert is None
        if convert is None:
            return {name: tensor.numpy() for name, tensor in named.items()}
        return {name: convert(name, tensor) for name, tensor in named.items()}

    return fetch


def _made(spec: TensorSpec, case: OperatorCase) -> np.ndarray:
    """A constant's values, which are made from the case as the model file's were."""
    return generators.tensor(spec, case.seed)


def _host(tensor: Any) -> np.ndarray:
    array = np.asarray(tensor.numpy())  # a tensor without axes comes as a scalar
    return np.asarray(array, np.float32) if array.dtype.name == elements.BFLOAT16 else array


def _explained(error: Exception) -> Exception:
    """Unsupported, where TensorFlow says that it has no kernel for this; else the error itself."""
    if isinstance(error, Unsupported):
        return error
    message = str(error)
    if type(error).__name__ != "UnimplementedError" and not _REFUSALS.search(message):
        return error
    if missing := _XLA_MISSING.search(message):
        return Unsupported(f"XLA has no kernel for {missing[1]}")
    lines = [_PLACE.sub("", line).strip() for line in message.splitlines() if line.strip()]
    told = next((line for line in lines if _REFUSALS.search(line)), lines[0] if lines else "no message")
    return Unsupported(f"TensorFlow has no kernel for this: {told[:300]}")
