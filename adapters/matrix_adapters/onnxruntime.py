"""ONNX Runtime: one session per launch, one execution provider asked for and proved.

ONNX Runtime falls back to the CPU without an error when a provider cannot be
loaded (microsoft/onnxruntime#23612), and its list of available providers is a
fact of the build, not of the machine (#17801). So a CUDA request is believed
only after a one-node session has run with the fallback forbidden, and the
session of the model itself is asked again which provider leads it.

An ONNX file fixes its own arithmetic, so `fp32` is the only precision of a model; a
user's file, and an operator case, is run with whatever types it holds.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters.adapter import Feed, Unavailable, Unsupported
from matrix_adapters.protocol import ModelSpec, Task

#: our word for a device -> the provider that serves it; all but the first two not run on hardware
_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "cann": "CANNExecutionProvider",
}
_CPU = _PROVIDERS["cpu"]

#: variant -> name of the graph optimisation level
_LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "disabled": "ORT_DISABLE_ALL",
}

#: element types that NumPy can hold, as ONNX Runtime writes them
_NUMPY_TYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

# Relu: x[1] -> y[1], float, IR 7, opset 13: the smallest model that has to be computed somewhere.
_PROBE_MODEL = base64.b64decode(
    "CAc6NwoMCgF4EgF5IgRSZWx1EgVwcm9iZVoPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEA0="
)


class Adapter:
    """One framework in one process; see `matrix_adapters.adapter.Adapter`."""

    name = "onnxruntime"
    environment: Mapping[str, str] = {}

    def __init__(self, task: Task) -> None:
        self._task = task
        self._kind, _, index = task.device.partition(":")
        self._index = int(index or 0)
        self._ort: Any = None
        self._library = ""  # of custom operators, of a candidate

    def start(self) -> None:
        """Import ONNX Runtime; for another device than the CPU, prove that it computes there."""
        import onnxruntime

        self._ort = onnxruntime
        if self._kind not in _PROVIDERS:
            raise Unsupported(f"this adapter has no execution provider for device {self._kind!r}")
        if self._task.variant and self._task.variant not in _LEVELS:
            raise Unsupported(f"no graph optimisation level {self._task.variant!r}: use {', '.join(_LEVELS)}")
        if self._kind != "cpu":
            self._prove_device()

    def probe(self) -> dict[str, Any]:
        """Version, build, and the devices seen. `providers_in_build` says nothing about this machine."""
        ort = self._ort
        facts: dict[str, Any] = {
            "version": ort.__version__,
            "build": ort.get_build_info(),
            "devices": [self._task.device],
            "providers_in_build": ort.get_available_providers(),
            "threads": self._task.threads,
        }
        if hasattr(ort, "get_ep_devices"):  # since 1.22
            facts["providers_on_machine"] = sorted({device.ep_name for device in ort.get_ep_devices()})
        return facts

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> OnnxRuntimeRunner:
        """Create the session, which also optimises the graph (it needs no shapes for that).

        An operator case is the folder `artefacts["operator"]`.
        """
        if model.format == "operator":
            return self._load_operator(model, artefacts["operator"])
        if self._task.precision != "fp32":
            raise Unsupported(
                f"the ONNX file fixes the arithmetic and the exported one is fp32: no {self._task.precision}"
            )
        if "onnx" not in artefacts:
            raise Unsupported("ONNX Runtime runs ONNX files only, and this model has none")
        session, created = self._open(artefacts["onnx"])
        return OnnxRuntimeRunner(session, model, self._task, created)

    def _load_operator(self, model: ModelSpec, folder: Path) -> OnnxRuntimeRunner:
        from matrix_adapters import onnxruntime_operator as operator
        from matrix_adapters.operators import onnx_candidate

        custom = onnx_candidate.of(self._task)
        if custom is None:
            with operator.refusals():
                session, created = self._open(folder / "model.onnx")
            return operator.runner(session, model, self._task, created)
        self._library = str(custom.library)
        with operator.refusals(), onnx_candidate.refusals(custom):
            session, created = self._open(onnx_candidate.model(folder, custom))
        return operator.runner(session, model, self._task, created, candidate=custom.candidate)

    def _open(self, model: Path | bytes) -> tuple[Any, int | None]:
        """A session on the device asked for, and how many threads it started."""
        before = _native_threads()
        source = model if isinstance(model, bytes) else str(model)
        session = self._session(source, self._providers(), strict=False)
        after = _native_threads()
        active = session.get_providers()[0]
        if active != _PROVIDERS[self._kind]:
            raise Unavailable(self._fell_back(active))
        return session, None if before is None or after is None else after - before

    def _providers(self) -> list[Any]:
        if self._kind == "cpu":
            return [_CPU]
        if self._task.math_mode == "tf32" and self._kind != "cuda":
            raise Unsupported("TF32 is a mode of CUDA devices")
        options = {"device_id": str(self._index)}
        if self._kind == "cuda":
            # TF32 is on by default in this provider, and would make "fp32" mean another thing than elsewhere.
            options["use_tf32"] = "1" if self._task.math_mode == "tf32" else "0"
        elif self._kind == "openvino":
            # It would run on the CPU, and in fp16 on a GPU, unless told otherwise.
            device = {"device_type": f"GPU.{self._index}"}
            options = {**device, "load_config": json.dumps({"GPU": {"INFERENCE_PRECISION_HINT": "f32"}})}
        return [(_PROVIDERS[self._kind], options), _CPU]

    def _session(self, model: str | bytes, providers: list[Any], *, strict: bool) -> Any:
        """A session with what the task asked. Raises Unsupported for a model it cannot take."""
        ort = self._ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._task.threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        level = _LEVELS[self._task.variant or "all"]
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        # Spinning workers would take the cores of whatever else the launch needs, and inflate CPU time.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if strict:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if self._library:
            options.register_custom_ops_library(self._library)
        try:
            return ort.InferenceSession(model, options, providers=providers)
        except Exception as error:
            unsupported = _refusal(str(error), ort.__version__)
            if unsupported is None:
                raise
            raise Unsupported(unsupported) from error

    def _prove_device(self) -> None:
        """Run one node with the fallback to the CPU forbidden. Raises Unavailable with what happened."""
        ort, wanted = self._ort, _PROVIDERS[self._kind]
        in_build = ort.get_available_providers()
        if wanted not in in_build:
            raise Unavailable(self._fell_back(_CPU, f"this build offers only {', '.join(in_build)}"))
        if hasattr(ort, "preload_dlls"):  # CUDA and cuDNN from wheels beside the package, since 1.21
            ort.preload_dlls()
        try:
            session = self._session(_PROBE_MODEL, self._providers()[:1], strict=True)
            active = session.get_providers()[0]
            session.run(None, {"x": np.ones(1, np.float32)})
        except Exception as error:
            raise Unavailable(self._fell_back(_CPU, first_line(str(error)))) from error
        if active != wanted:
            raise Unavailable(self._fell_back(active))

    def _fell_back(self, active: str, why: str = "") -> str:
        asked = _PROVIDERS[self._kind]
        detail = f": {why}" if why else ""
        return f"provider {asked} requested, {active} active (onnxruntime {self._ort.__version__}{detail})"


class OnnxRuntimeRunner:
    """One session; `run` returns host arrays, so the device is done when it returns."""

    synchronous = True
    #: element types that are passed, and the NumPy dtype of each
    types: Mapping[str, str] = _NUMPY_TYPES

    def __init__(self, session: Any, model: ModelSpec, task: Task, created_threads: int | None) -> None:
        self._session = session
        self._task = task
        self._created_threads = created_threads
        self._types = {value.name: value.type for value in session.get_inputs()}
        produced = {value.name: value.type for value in session.get_outputs()}
        self._outputs = list(model.outputs or produced)
        if missing := [name for name in self._outputs if name not in produced]:
            raise ValueError(f"the ONNX file has no output {missing[0]!r}: it has {', '.join(produced)}")
        self._text = [name for name in self._outputs if produced[name] == "tensor(string)"]
        for name, kind in (self._types | {name: produced[name] for name in self._outputs}).items():
            if kind not in self.types:
                raise Unsupported(f"{name!r} is {kind}: only tensors of types that NumPy has are passed")

    def prepare(self, feed: Feed) -> Feed:
        """The session's own inputs; text as Python objects, which is what its binding takes."""
        if missing := [name for name in self._types if name not in feed]:
            raise ValueError(
                f"no array for input {missing[0]!r}: the feed has {', '.join(feed) or 'nothing'}"
            )
        return {name: _as_input(name, feed[name], kind) for name, kind in self._types.items()}

    def compile(self, feed: Feed) -> bool:
        """Nothing: the graph was optimised when the session was made."""
        return False

    def run(self, feed: Feed) -> list[Any]:
        """One call, host arrays in and out."""
        outputs: list[Any] = self._session.run(self._outputs, feed)
        return outputs

    def sync(self) -> None:
        """Nothing to wait for: `InferenceSession.run` copies its results to the host first."""

    def fetch(self, outputs: list[Any]) -> dict[str, np.ndarray]:
        """Outputs by name; text as NumPy strings, which can be stored without pickle."""
        arrays: dict[str, np.ndarray] = dict(zip(self._outputs, outputs, strict=True))
        for name in self._text:
            arrays[name] = arrays[name].astype(np.str_)
        return arrays

    def effective(self) -> dict[str, Any]:
        """Read back from the session and from the threads that it started."""
        session = self._session
        options = session.get_session_options()
        active = session.get_providers()[0]
        provider_options = session.get_provider_options().get(active, {})
        facts: dict[str, Any] = {
            "device": _device(active, provider_options),
            "providers": session.get_providers(),
            "threads": self._threads(options.intra_op_num_threads),
            "threads_between_operators": options.inter_op_num_threads,
            "spinning": options.get_session_config_entry("session.intra_op.allow_spinning") != "0",
            "graph_optimization": options.graph_optimization_level.name,
            "precision": self._task.precision,
            "math_mode": "tf32" if provider_options.get("use_tf32") == "1" else "fp32",
            "layout": "as in the file",
        }
        nodes = _nodes_per_provider(session)
        if nodes:
            facts["nodes_per_provider"] = nodes
        if flag := partial_fallback(nodes, active):
            facts["flags"] = [flag]
        return facts

    def close(self) -> None:
        """Drop the session: its arena and its threads go with it."""
        self._session = None

    def _threads(self, configured: int) -> int:
        """The calling thread and the pool's own, counted where the system shows them."""
        return configured if self._created_threads is None else self._created_threads + 1


def _device(active: str, options: Mapping[str, str]) -> str:
    """The device of the leading provider, in our own words: "cpu", "cuda:0"."""
    word = next((word for word, provider in _PROVIDERS.items() if provider == active), active)
    if word == "cpu":
        return word
    index = options.get("device_id") or options.get("device_type", "").partition(".")[2]
    return f"{word}:{index or 0}"


def partial_fallback(nodes: Mapping[str, int], active: str) -> dict[str, str] | None:
    """A flag for a session on a device that left nodes to the CPU (#10831), else None."""
    left = nodes.get(_CPU, 0)
    if active == _CPU or not left:
        return None
    total = sum(nodes.values())
    return {"code": "partial_fallback", "text": f"partial fallback: {left} of {total} nodes on the CPU"}


def _nodes_per_provider(session: Any) -> dict[str, int]:
    """How many nodes each provider took, before fusion; {} before version 1.24, which cannot say."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {}
    counts: dict[str, int] = {}
    for subgraph in session.get_provider_graph_assignment_info():
        counts[subgraph.ep_name] = counts.get(subgraph.ep_name, 0) + len(subgraph.get_nodes())
    return counts


def _as_input(name: str, array: np.ndarray, kind: str) -> np.ndarray:
    if kind == "tensor(string)":
        return array.astype(object)
    if array.dtype != np.dtype(_NUMPY_TYPES[kind]):
        raise ValueError(f"input {name!r} is {kind} in the file, the array given is {array.dtype}")
    return np.ascontiguousarray(array)


def _native_threads() -> int | None:
    """Threads of this process, Python's or not; None where the system does not tell."""
    tasks = Path("/proc/self/task")
    return sum(1 for _ in tasks.iterdir()) if tasks.is_dir() else None


# What ONNX Runtime says of a model that it cannot run. Its exceptions carry no fields, so the
# message is all there is; one that fits no pattern stays what it was: a failure.
_REFUSALS = (
    (
        re.compile(r"model IR version: (\d+), max supported IR version: (\d+)"),
        "the file's IR version is {0}, ONNX Runtime {version} takes up to {1}",
    ),
    (
        re.compile(r"Opset (\d+) is under development.*?domain (\S+) is till opset (\d+)", re.DOTALL),
        "the file wants opset {0} of domain {1}, ONNX Runtime {version} offers up to {2}",
    ),
    (
        re.compile(r"Could not find an implementation for (\S+)\((\d+)\) node with name '([^']*)'"),
        "no kernel here for operator {0} (version {1}) in node {2!r}, for the types it is given",
    ),
    (
        re.compile(r"Fatal error: (\S+?):(\S+?)\((-?\d+)\) is not a registered function/op"),
        "operator {1} of domain {0} is unknown to ONNX Runtime {version}",
    ),
    (
        re.compile(
            r"In Node, \(\"([^\"]*)\", (\w+), .*?No Op registered for .*?domain_version of (\d+)", re.DOTALL
        ),
        "operator {1} of node {0!r} does not exist in opset {2}",
    ),
    (
        re.compile(r"In Node, \(\"([^\"]*)\", (\w+), .*?No opset import for domain '([^']*)'", re.DOTALL),
        "node {0!r} ({1}) is in domain {2!r}, which the file does not import",
    ),
)


def _refusal(message: str, version: str) -> str | None:
    """A sentence for a model that this version cannot run, or None for any other error."""
    for pattern, sentence in _REFUSALS:
        if found := pattern.search(message):
            said = sentence.format(*found.groups(), version=version)
            return f"{said} (ONNX Runtime: {first_line(message)})"
    return None


def first_line(message: str) -> str:
    """The first line, without the path of a source file and the signature that may lead it."""
    line = message.strip().splitlines()[0] if message.strip() else "no message"
    line = re.sub(r"/onnxruntime_src/\S+ .*?\) (?=[A-Z])", "", line)
    return line if len(line) <= 300 else line[:297] + "..."
