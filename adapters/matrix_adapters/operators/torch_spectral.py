"""Fourier transforms; complex numbers are a last axis of two."""

from __future__ import annotations

from typing import Any

import torch

from matrix_adapters.operators.torch_bound import Bound, Kernel, Operator


def _dft(bound: Bound) -> Kernel:
    """The axis is an attribute (default 1) before opset 20, an input (default -2) from then on."""
    axis = bound.integer("axis", 1) if bound.opset < 20 else int(_or(bound.scalar(2), -2))
    axis = bound.positive(axis)
    inverse, onesided = bound.flag("inverse"), bound.flag("onesided")
    real = bound.shape()[-1] == 1
    size = bound.shape()[axis]
    length = int(_or(bound.scalar(1), 2 * (size - 1) if inverse and onesided else size))
    if onesided and inverse == real:
        bound.refuse("onesided of a complex signal, or the inverse of a real one")

    if onesided and inverse:
        return lambda x: torch.fft.irfft(torch.view_as_complex(x.contiguous()), length, axis).unsqueeze(-1)
    if onesided:
        return lambda x: torch.view_as_real(torch.fft.rfft(x.squeeze(-1), length, axis))
    transform = torch.fft.ifft if inverse else torch.fft.fft

    def dft(x: Any) -> Any:
        signal = x.squeeze(-1) if real else torch.view_as_complex(x.contiguous())
        return torch.view_as_real(transform(signal, length, axis).resolve_conj())

    return dft


def _stft(bound: Bound) -> Kernel:
    """Frames are not centred; [batch, samples, 1] -> [batch, frames, bins, 2]."""
    step, length = int(bound.scalar(1)), bound.scalar(3)
    onesided = bound.flag("onesided", 1)
    if bound.rank() != 3 or bound.shape()[-1] != 1:
        bound.refuse("complex signals")
    window = bound.shape(2)[0] if bound.has(2) else None
    size = int(_or(length, _or(window, bound.shape()[1])))
    if window not in (None, size):
        bound.refuse("a window of another length than the frame")

    def stft(x: Any, shape: Any = None) -> Any:
        found = torch.stft(
            x.squeeze(-1), size, step, size, shape, False, "constant", False, onesided, return_complex=True
        )
        return torch.view_as_real(found.transpose(1, 2))

    if window is None:
        ones = torch.ones(size, dtype=bound.dtype(), device=bound.device)
        return lambda x, *_: stft(x, ones)
    return stft


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


OPERATORS: dict[str, Operator] = {
    "DFT": Operator(build=_dft, static=(1, 2)),
    "STFT": Operator(build=_stft, static=(1, 3)),
}
