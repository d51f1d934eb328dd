"""One operator case in PyTorch: eager, or compiled as a whole.

A call takes host arrays and ends with host tensors, as for models. Gradients are off for as long
as the runner lives, not per call: entering that mode costs as much as a small operator.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from matrix_adapters.adapter import Feed, Unavailable, Unsupported
from matrix_adapters.operators import candidate, case_folder, elements, generators, torch_program
from matrix_adapters.protocol import OperatorCase

_WORDS = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}
_MISSING = re.compile(r"not implemented for|not currently implemented|is not supported|not support", re.I)


class OperatorRunner:
    """A case folder, ready to be called with feeds of its shapes."""

    def __init__(self, adapter: Any, folder: Path, *, compiled: bool) -> None:
        self._adapter = adapter
        self._device = adapter._device
        self._on_cpu = self._device.type == "cpu"
        self._compiled = compiled
        self._case = case_folder.read_case(folder)
        self._layout = self._plan(self._case)
        self._narrow = {s.name for s in self._case.inputs if s.dtype == elements.BFLOAT16}
        self._constants = {
            spec.name: self._tensor(spec.name, generators.tensor(spec, self._case.seed)).to(self._device)
            for spec in self._case.inputs
            if spec.constant
        }
        self._call: Any = None
        self._bound: dict[str, np.ndarray] = {}  # the values of static inputs that `_call` is built for
        self._only = self._case.outputs[0] if len(self._case.outputs) == 1 else None
        self._output_dtypes: dict[str, str] = {}
        self._used_device: Any = self._device
        #: one call: host arrays in, native outputs out; on CUDA `sync` waits for them
        self.run: Callable[[Feed], Any] = self._run_unbound
        self._run_bound: Callable[[Feed], Any] = self._run_unbound  # the same without a look at static inputs
        #: native outputs -> host arrays by name; bfloat16 widened to float32
        self.fetch: Callable[[Any], dict[str, np.ndarray]] = (
            self._fetch_several if self._only is None else self._fetch_of(self._only)
        )
        #: on the CPU `run` returns only when the result is there
        self.synchronous = self._on_cpu
        self._mode: Any = torch.inference_mode()
        self._mode.__enter__()

    def prepare(self, feed: Feed) -> Feed:
        """The fed tensors in the order of the call, each with the strides of its layout; static ones last."""
        specs = {spec.name: spec for spec in self._case.inputs}
        names = dict.fromkeys((*self._layout.takes, *self._layout.statics))
        prepared = {name: case_folder.laid_out(feed[name], specs[name]) for name in names}
        if self._call is None:
            self._bind(prepared)
        # the very array that the call was built for is known again at a glance
        same = {n: a for n, a in self._bound.items() if _same(a, prepared[n])}
        return {**prepared, **same}

    def compile(self, feed: Feed) -> bool:
        """torch.compile and the call that compiles; eager has no such step."""
        if not self._compiled:
            return False
        try:
            self.run(feed)
            self.sync()
        except Exception as error:
            if _cause_named(error, "InvalidCxxCompiler"):
                raise Unavailable("torch.compile needs a C++ compiler, and found none") from error
            raise
        return True

    def sync(self) -> None:
        """Wait for the device; CPU kernels are done when `run` returns."""
        if not self._on_cpu:
            self._adapter.accelerator.synchronize(self._device)

    def effective(self) -> dict[str, Any]:
        """Read back from torch, and from the tensors of the last first call."""
        return {
            "device": str(self._used_device),
            "device_name": None if self._on_cpu else self._adapter.accelerator.get_device_name(self._device),
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "precision": _WORDS.get(self._case.dtype, self._case.dtype),
            "math_mode": self._adapter._math_mode(),
            "variant": "compile" if self._compiled else "eager",
            "compile_cache": "none" if self._compiled else None,
            "output_dtypes": dict(self._output_dtypes),
            "outputs_widened": elements.BFLOAT16 in self._output_dtypes.values(),
            "built_for_values_of": list(self._layout.statics),
        }

    def peak_device_memory(self) -> int | None:
        """What torch's allocator reserved at most."""
        return None if self._on_cpu else int(self._adapter.accelerator.max_memory_reserved(self._device))

    def close(self) -> None:
        """Drop the callable, and give gradients back to whoever comes next."""
        self._call = None
        self.run = self._run_unbound
        if self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
        if self._compiled:
            torch.compiler.reset()

    def _plan(self, case: OperatorCase) -> torch_program.Layout:
        return torch_program.layout(case)

    def _kernel(self, tensors: Mapping[str, Any]) -> Any:
        return torch_program.bind(self._case, self._constants, tensors, torch, self._device)

    def _run_unbound(self, feed: Feed) -> Any:
        raise RuntimeError("`prepare` comes before `run`: it builds the call for the feed's shapes")

    def _run_static(self, feed: Feed) -> Any:
        for name, known in self._bound.items():
            if feed[name] is not known and not _same(feed[name], known):
                self._bind(feed)
                break
        return self._run_bound(feed)

    def _run_on_device(self, feed: Feed) -> Any:
        try:
            tensors = [self._tensor(name, feed[name]) for name in self._layout.takes]
            outputs = self._call(*[t.to(self._device, non_blocking=True) for t in tensors])
            if self._only is not None:
                self._used_device = outputs.device
                return outputs.to("cpu", non_blocking=True)
            self._used_device = outputs[0].device
            return tuple([output.to("cpu", non_blocking=True) for output in outputs])
        except (RuntimeError, TypeError) as error:
            _translate(error)

    def _fetch_several(self, outputs: Any) -> dict[str, np.ndarray]:
        if not self._output_dtypes:
            self._look_at(outputs)
        return {name: _array(t) for name, t in zip(self._case.outputs, outputs, strict=True)}

    def _fetch_of(self, name: str) -> Callable[[Any], dict[str, np.ndarray]]:
        """Of a single output: after the first call nothing but the array and its name."""
        plain = False

        def fetch(output: Any) -> dict[str, np.ndarray]:
            nonlocal plain
            if plain:
                return {name: output.numpy()}
            if not self._output_dtypes:
                self._look_at((output,))
                plain = output.dtype != torch.bfloat16
            return {name: _array(output)}

        return fetch

    def _look_at(self, outputs: Any) -> None:
        """The first outputs say which types all others will have."""
        names = zip(self._case.outputs, outputs, strict=True)
        self._output_dtypes = {name: str(t.dtype).removeprefix("torch.") for name, t in names}

    def _bind(self, feed: Feed) -> None:
        tensors = {name: self._tensor(name, array).to(self._device) for name, array in feed.items()}
        try:
            kernel = self._kernel(tensors)
        except (RuntimeError, TypeError) as error:
            _translate(error)
        self._call = torch.compile(kernel, dynamic=False) if self._compiled else kernel
        self._bound = {name: feed[name] for name in self._layout.statics}
        takes = self._layout.takes
        narrow = self._narrow.intersection(takes)
        self._run_bound = _run_of(self._call, takes, narrow) if self._on_cpu else self._run_on_device
        self.run = self._run_static if self._bound else self._run_bound

    def _tensor(self, name: str, array: np.ndarray) -> Any:
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if name in self._narrow else tensor


def open_case(adapter: Any, artefacts: Mapping[str, Path]) -> OperatorRunner:
    """Raises Unsupported, naming it, for an operator that is not mapped."""
    if "operator" not in artefacts:
        raise Unsupported("an operator case needs its folder")
    if (given := candidate.of(adapter._task)) is not None:
        from matrix_adapters.operators.torch_candidate import open_candidate

        return open_candidate(adapter, artefacts, given)
    return OperatorRunner(adapter, artefacts["operator"], compiled=adapter._variant == "compile")


def _run_of(call: Any, names: Sequence[str], narrow: Collection[str]) -> Callable[[Feed], Any]:
    """The shortest way on the CPU: what a runner's own indirections cost is what a small operator costs.

    `narrow`: inputs in bfloat16, which NumPy lacks; they come as their bits.
    """
    borrow, bf16 = torch.from_numpy, torch.bfloat16
    first, last = (names[0], names[-1]) if names else ("", "")
    opened = [(name, name in narrow) for name in names]
    all_of = operator.itemgetter(*names) if names else None

    def run_one(feed: Feed) -> Any:
        try:
            return call(borrow(feed[first]))
        except (RuntimeError, TypeError) as error:
            _translate(error)

    def run_two(feed: Feed) -> Any:
        try:
            return call(borrow(feed[first]), borrow(feed[last]))
        except (RuntimeError, TypeError) as error:
            _translate(error)

    def run_several(feed: Feed) -> Any:
        try:
            return call(*map(borrow, all_of(feed)))  # type: ignore[misc]
        except (RuntimeError, TypeError) as error:
            _translate(error)

    def run_bits(feed: Feed) -> Any:
        try:
            return call(*[borrow(feed[n]).view(bf16) if bits else borrow(feed[n]) for n, bits in opened])
        except (RuntimeError, TypeError) as error:
            _translate(error)

    if narrow or not names:
        return run_bits
    return {1: run_one, 2: run_two}.get(len(names), run_several)


def _array(tensor: Any) -> np.ndarray:
    """bfloat16 widened to float32, which is exact."""
    array: np.ndarray = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _translate(error: Exception) -> NoReturn:
    """A kernel that torch does not have is no fault of the case."""
    text = " ".join(str(error).split())
    if isinstance(error, NotImplementedError) or _MISSING.search(text):
        raise Unsupported(f"torch {torch.__version__} has no such kernel: {text[:300]}") from error
    raise error


def _cause_named(error: BaseException | None, name: str) -> bool:
    while error is not None:
        if type(error).__name__ == name:
            return True
        error = error.__cause__ or error.__context__
    return False
