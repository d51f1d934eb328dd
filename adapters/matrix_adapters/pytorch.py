"""PyTorch: eager kernels, or torch.compile; on the CPU, or a CUDA device that torch really sees.

A call takes host arrays and ends with host tensors on every device: on the CPU the arrays
are borrowed without a copy, on CUDA both transfers are part of the call.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters.adapter import Feed, Runner, Unavailable, Unsupported
from matrix_adapters.protocol import ModelSpec, Task

_VARIANTS = ("eager", "compile")
_PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_MATH_MODES = ("fp32", "tf32")
#: devices besides the CPU: `torch.<word>` is the module of each, all of them alike; xpu and npu not run
_ACCELERATORS = {"cuda": "CUDA", "xpu": "XPU", "npu": "NPU"}


class Adapter:
    """One framework in one process; see `matrix_adapters.adapter.Adapter`."""

    name = "pytorch"

    def __init__(self, task: Task) -> None:
        self._task = task
        self._kind = task.device.partition(":")[0]
        self._variant = task.variant or "eager"
        self._torch: Any = None
        self._device: Any = None
        self._compile_cache: tempfile.TemporaryDirectory[str] | None = None
        self.environment: Mapping[str, str] = {
            # a compiler that forks helpers onto other cores would not be the same contract
            "TORCHINDUCTOR_COMPILE_THREADS": str(task.threads),
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
        }

    def start(self) -> None:
        """Import torch and the library that loads this task's format; set threads, device, math mode."""
        task = self._task
        if self._variant not in _VARIANTS:
            raise Unsupported(f"PyTorch has no variant {task.variant!r}: use {', '.join(_VARIANTS)}")
        if task.math_mode not in _MATH_MODES:
            raise Unsupported(f"no math mode {task.math_mode!r}: use {', '.join(_MATH_MODES)}")
        if self._variant == "compile":
            # Every launch compiles anew: a cache left by the last one would make `compile_s` mean two things.
            self._compile_cache = tempfile.TemporaryDirectory(prefix="matrix-inductor-")
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = self._compile_cache.name
        import torch

        self._torch = torch
        torch.set_num_threads(task.threads)
        torch.set_num_interop_threads(1)
        if (got := torch.get_num_threads()) != task.threads:
            raise Unavailable(f"{task.threads} threads asked, torch uses {got}")
        self._device = self._find_device()
        self._set_math_mode()
        self._import_library()

    def probe(self) -> dict[str, Any]:
        """Version, build, devices, threads and kernels as torch reports them."""
        torch = self._torch
        facts: dict[str, Any] = {
            "version": torch.__version__,
            "build": torch.version.git_version,
            "cuda_build": torch.version.cuda,
            "hip_build": torch.version.hip,
            "devices": ["cpu", *self._devices()],
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "onednn": torch.backends.mkldnn.is_available(),
            "mkl": torch.backends.mkl.is_available(),
            "openmp": torch.backends.openmp.is_available(),
            "math_mode": self._math_mode(),
        }
        for library in ("transformers", "timm", "safetensors"):
            try:
                facts[library] = importlib.metadata.version(library)
            except importlib.metadata.PackageNotFoundError:
                continue
        return facts

    def load(self, model: ModelSpec, artefacts: Mapping[str, Path]) -> Runner:
        """The checkpoint as a module of the asked precision, in evaluation mode, on the device.

        An operator case (format "operator"): its nodes as one callable, in the case's own types.
        """
        if model.format == "operator":
            from matrix_adapters.operators.torch_runner import open_case

            return open_case(self, artefacts)
        from matrix_adapters.torch_models import open_model

        task, torch = self._task, self._torch
        if task.precision not in _PRECISIONS:
            raise Unsupported(f"no precision {task.precision!r}: use {', '.join(_PRECISIONS)}")
        if task.precision == "fp16" and self._kind == "cpu":
            raise Unsupported(
                "fp16 on the CPU: torch has no fast kernels for it, and a reference loop is no measurement"
            )
        if "checkpoint" not in artefacts:
            raise Unsupported("PyTorch runs checkpoint folders only, and this model has none")
        dtype = getattr(torch, _PRECISIONS[task.precision])
        module = open_model(model, artefacts["checkpoint"], dtype).to(self._device)
        return PyTorchRunner(self, module, model, dtype, compiled=self._variant == "compile")

    def close(self) -> None:
        """Remove what this process left on disk."""
        if self._compile_cache is not None:
            self._compile_cache.cleanup()

    def _find_device(self) -> Any:
        torch, asked = self._torch, self._task.device
        if self._kind == "cpu":
            return torch.device("cpu")
        if self._kind not in _ACCELERATORS:
            words = ", ".join(("cpu", *_ACCELERATORS))
            raise Unsupported(f"this adapter knows the devices {words}, not {asked!r}")
        title = _ACCELERATORS[self._kind]
        if self._kind == "npu":
            self._import_npu()
        if self._kind == "cuda" and torch.version.cuda is None and torch.version.hip is None:
            raise Unavailable(f"torch {torch.__version__} was built without CUDA")
        try:
            self.accelerator.init()
        except (RuntimeError, AssertionError) as error:
            raise Unavailable(f"torch {torch.__version__} sees no {title} device: {error}") from error
        device = torch.device(asked if ":" in asked else f"{self._kind}:0")
        if device.index >= self.accelerator.device_count():
            raise Unavailable(
                f"{asked} asked, torch sees {self.accelerator.device_count()} {title} device(s)"
            )
        self.accelerator.set_device(device)
        return device

    @property
    def accelerator(self) -> Any:
        """`torch.cuda`, or the module of another vendor that mirrors it."""
        return getattr(self._torch, self._kind)

    def _import_npu(self) -> None:
        """The Ascend device is a package of its own, which adds itself to torch."""
        try:
            import torch_npu  # noqa: F401
        except (ImportError, OSError) as error:
            raise Unavailable(f"torch_npu cannot be imported: {error}") from error

    def _devices(self) -> list[str]:
        if self._kind not in _ACCELERATORS or not self.accelerator.is_available():
            return []
        found = range(self.accelerator.device_count())
        return [f"{self._kind}:{i} {self.accelerator.get_device_name(i)}" for i in found]

    def _set_math_mode(self) -> None:
        """TF32 is a request, never a default: cuDNN's own default is on."""
        torch, tf32 = self._torch, self._task.math_mode == "tf32"
        if tf32 and self._kind != "cuda":
            raise Unsupported("TF32 is a mode of CUDA devices; the CPU has none")
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        if self._math_mode() != self._task.math_mode:
            raise Unavailable(f"math mode {self._task.math_mode} asked, torch uses {self._math_mode()}")

    def _math_mode(self) -> str:
        torch = self._torch
        matmul = torch.get_float32_matmul_precision() != "highest"
        if self._kind != "cuda":
            return "tf32" if matmul else "fp32"
        convolution = bool(torch.backends.cudnn.allow_tf32)
        return {(False, False): "fp32", (True, True): "tf32"}.get((matmul, convolution), "mixed")

    def _import_library(self) -> None:
        """Loaders are part of the import phase, as they are in the other frameworks' adapters."""
        model_format = self._task.model.format if self._task.model else ""
        if model_format == "transformers":
            import transformers  # noqa: F401
        elif model_format == "timm":
            from matrix_adapters.timm_import import import_timm

            import_timm()


class PyTorchRunner:
    """One module on one device, called with feeds of one shape."""

    def __init__(
        self, adapter: Adapter, module: Any, model: ModelSpec, dtype: Any, *, compiled: bool
    ) -> None:
        self._adapter = adapter
        self._torch: Any = adapter._torch
        self._device = adapter._device
        self._module = module
        self._call: Any = module
        self._model = model
        self._dtype = dtype
        self._compiled = compiled
        self._on_cpu = self._device.type == "cpu"
        #: on the CPU `run` returns only when the result is there
        self.synchronous = self._on_cpu

    def prepare(self, feed: Feed) -> Feed:
        """Floats rounded to the model's precision; bfloat16, which NumPy lacks, as raw bits."""
        torch = self._torch
        prepared = {}
        for name in self._model.inputs:
            tensor = torch.from_numpy(np.ascontiguousarray(feed[name]))
            if tensor.is_floating_point():
                tensor = tensor.to(self._dtype)
            bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
            prepared[name] = bits.numpy()
        return prepared

    def compile(self, feed: Feed) -> bool:
        """torch.compile and the call that compiles; eager has no such step."""
        if not self._compiled:
            return False
        self._call = self._torch.compile(self._module, dynamic=False)
        try:
            self.run(feed)
            self.sync()
        except Exception as error:
            if _cause_named(error, "InvalidCxxCompiler"):
                raise Unavailable("torch.compile needs a C++ compiler, and found none") from error
            raise
        return True

    def run(self, feed: Feed) -> Any:
        """One call; on CUDA the copy back is queued, and `sync` waits for it."""
        torch = self._torch
        with torch.inference_mode():
            tensors = [self._tensor(array) for array in feed.values()]
            if self._on_cpu:
                return self._call(*tensors)
            outputs = self._call(*[t.to(self._device, non_blocking=True) for t in tensors])
            return tuple(output.to("cpu", non_blocking=True) for output in outputs)

    def sync(self) -> None:
        """Wait for the device; CPU kernels are done when `run` returns."""
        if not self._on_cpu:
            self._adapter.accelerator.synchronize(self._device)

    def fetch(self, outputs: Any) -> dict[str, np.ndarray]:
        """Host arrays by output name; bfloat16 widened to float32."""
        bf16 = self._torch.bfloat16
        return {
            name: (output.float() if output.dtype == bf16 else output).numpy()
            for name, output in zip(self._model.outputs, outputs, strict=True)
        }

    def effective(self) -> dict[str, Any]:
        """Read back from torch and from the module's own parameters."""
        torch = self._torch
        parameter = next(self._module.parameters())
        precisions = {getattr(torch, v): k for k, v in _PRECISIONS.items()}
        return {
            "device": str(parameter.device),
            "device_name": None if self._on_cpu else self._adapter.accelerator.get_device_name(self._device),
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "precision": precisions.get(parameter.dtype, str(parameter.dtype)),
            "math_mode": self._adapter._math_mode(),
            "layout": "NCHW",
            "variant": "compile" if self._compiled else "eager",
            "compile_cache": "none" if self._compiled else None,
            "attention": "sdpa" if self._model.format == "transformers" else None,
            "training_mode": bool(self._module.training),
            "outputs_widened": self._dtype == torch.bfloat16,
            "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        }

    def peak_device_memory(self) -> int | None:
        """What torch's allocator reserved at most. Not run on hardware."""
        return None if self._on_cpu else int(self._adapter.accelerator.max_memory_reserved(self._device))

    def close(self) -> None:
        """Drop the model, and what compiling it left on disk."""
        self._call = self._module = None
        self._adapter.close()

    def _tensor(self, array: np.ndarray) -> Any:
        tensor = self._torch.from_numpy(array)
        return tensor.view(self._torch.bfloat16) if array.dtype == np.uint16 else tensor


def _cause_named(error: BaseException | None, name: str) -> bool:
    while error is not None:
        if type(error).__name__ == name:
            return True
        error = error.__cause__ or error.__context__
    return False
