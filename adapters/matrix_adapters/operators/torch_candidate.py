"""A candidate in PyTorch: the user's callable in the place of the mapping; all else as for a stock case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matrix_adapters.adapter import Feed, Unavailable, Unsupported
from matrix_adapters.operators import candidate as candidates
from matrix_adapters.operators.candidate import Candidate, CandidateError
from matrix_adapters.operators.torch_program import Layout
from matrix_adapters.operators.torch_runner import OperatorRunner
from matrix_adapters.protocol import OperatorCase

#: elements of all inputs together up to which a gradient is checked: it takes two calls for each
MOST_ELEMENTS = 128

#: what loading ended with, once for a whole batch: it may have to be compiled first
_LOADED: dict[Candidate, Callable[..., Any] | Exception] = {}


class CandidateRunner(OperatorRunner):
    """See `OperatorRunner`; no input shapes the call: all of them are tensors."""

    def __init__(self, adapter: Any, folder: Path, candidate: Candidate) -> None:
        self._candidate = candidate
        self._callable = _loaded(candidate)
        super().__init__(adapter, folder, compiled=False)

    def effective(self) -> dict[str, Any]:
        """As for a stock case, and whose implementation it was."""
        return {**super().effective(), "candidate": self._candidate.name}

    def gradient(self, feed: Feed) -> dict[str, Any] | None:
        """Its gradient against differences, where it has one and the case is fit for it; else None.

        {"passed": ..., "text": ...}. Only in float64, where differences are exact enough, on finite
        values, and on cases that are small.
        """
        if not self._candidate.gradient or self._case.dtype != "float64" or "/edge-" in self._case.name:
            return None
        arrays = [feed[name] for name in self._layout.takes]
        finite = all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")
        if not finite or sum(array.size for array in arrays) > MOST_ELEMENTS:
            return None
        with torch.inference_mode(False), torch.enable_grad():
            tensors = [torch.from_numpy(np.array(array)).to(self._device) for array in arrays]
            for tensor in tensors:
                tensor.requires_grad_(tensor.is_floating_point() and tensor.numel() > 0)
            if not any(tensor.requires_grad for tensor in tensors):
                return None
            kernel = self._kernel({})
            return _checked(kernel, tensors)

    def _plan(self, case: OperatorCase) -> Layout:
        fed = tuple(spec.name for spec in case.inputs if not spec.constant)
        return Layout(takes=fed, statics=())

    def _kernel(self, tensors: Mapping[str, Any]) -> Any:
        """From the fed tensors, in order, to the outputs."""
        case, call, constants = self._case, self._callable, self._constants
        attributes: dict[str, Any] = {}
        names = [spec.name for spec in case.inputs]
        if len(case.nodes) == 1:
            attributes, names = dict(case.nodes[0].attributes), list(case.nodes[0].inputs)
        takes = self._layout.takes
        if tuple(names) == takes and not attributes:
            return self._watched(call)
        place = {name: i for i, name in enumerate(takes)}

        def kernel(*fed: Any) -> Any:
            given = [fed[place[n]] if n in place else constants[n] if n else None for n in names]
            return call(*given, **attributes)

        return self._watched(kernel)

    def _watched(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The same; after the first call it is known to keep its promises.

        Its inputs are as they were, and its outputs as many tensors as the case has.
        """
        wanted, takes = len(self._case.outputs), self._layout.takes
        watched = False

        def call(*fed: Any) -> Any:
            nonlocal watched
            if not watched:
                before = [tensor.detach().clone() for tensor in fed]
                outputs = kernel(*fed)
                self._check(outputs)
                for name, old, new in zip(takes, before, fed, strict=True):
                    if not _same_bits(old, new.detach()):
                        raise CandidateError(f"{self._candidate.name} changed its input {name}")
                watched = True
            else:
                outputs = kernel(*fed)
            return outputs[0] if wanted == 1 and not isinstance(outputs, torch.Tensor) else outputs

        return call

    def _check(self, outputs: Any) -> None:
        """Raises CandidateError for what is not as many tensors as the case has outputs."""
        wanted = len(self._case.outputs)
        several = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        if len(several) == wanted and all(isinstance(output, torch.Tensor) for output in several):
            return
        kinds = ", ".join(type(output).__name__ for output in several[:4]) or "nothing"
        tensors = "a tensor" if wanted == 1 else f"{wanted} tensors"
        raise CandidateError(f"{self._candidate.name} returned {kinds}: the operator has {tensors}")


def open_candidate(adapter: Any, artefacts: Mapping[str, Path], candidate: Candidate) -> CandidateRunner:
    """Raises Unsupported for what only a stock case can do."""
    if adapter._variant == "compile":
        raise Unsupported("a candidate is run as it is: it has no variants")
    return CandidateRunner(adapter, artefacts["operator"], candidate)


def _same_bits(a: Any, b: Any) -> bool:
    """NaN is equal to itself here, and -0.0 is not 0.0."""
    first, second = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return bool(torch.equal(first, second))


def _loaded(candidate: Candidate) -> Callable[..., Any]:
    """Raises what its loading raised, each time anew; Unavailable where there is no compiler for it."""
    if candidate not in _LOADED:
        try:
            _LOADED[candidate] = candidates.load(candidate)
        except Exception as error:  # the user's code may raise anything
            _LOADED[candidate] = error
    found = _LOADED[candidate]
    if isinstance(found, Exception):
        if missing := candidates.missing_tool(str(found)):
            raise Unavailable(missing) from found
        raise found
    return found


def _checked(kernel: Callable[..., Any], tensors: list[Any]) -> dict[str, Any]:
    try:
        torch.autograd.gradcheck(kernel, tensors, raise_exception=True)
    except (RuntimeError, ValueError, NotImplementedError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = " ".join(lines)[:300] or type(error).__name__
        return {"passed": False, "text": f"its gradient is wrong: {text}"}
    return {"passed": True, "text": "torch.autograd.gradcheck in float64"}
