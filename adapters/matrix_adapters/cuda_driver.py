"""Device memory and one stream through the CUDA driver library, with ctypes.

For frameworks whose Python interface takes raw addresses (TensorRT). The driver
library comes with the driver itself, so it is there wherever a GPU can be used,
and no further package is needed. Function names and types: CUDA Driver API,
sections "Initialization", "Primary Context Management", "Memory Management",
"Stream Management".

NOT RUN ON HARDWARE: tests drive it with a stand-in for the library.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

_LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR


class CudaError(RuntimeError):
    """The driver is missing, or one of its functions answered with an error."""


class Device:
    """One GPU's primary context (the one that TensorRT's runtime uses) and one stream in it."""

    def __init__(self, index: int, library: Any = None) -> None:
        """Raises CudaError where there is no driver or no such device."""
        self._lib = library if library is not None else _open()
        self._call("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if index >= count.value:
            raise CudaError(f"cuda:{index} asked, the driver sees {count.value} device(s)")
        self.index = index
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(index))
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(0))
        self._stream = stream
        self._allocated: list[int] = []

    @property
    def stream(self) -> int:
        """The stream's handle, as TensorRT takes it."""
        return self._stream.value or 0

    def facts(self) -> dict[str, Any]:
        """Name, compute capability and driver version, as the driver gives them."""
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, ctypes.c_int(len(name)), self._device)
        version, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        for value, attribute in ((major, _MAJOR), (minor, _MINOR)):
            self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), self._device)
        return {
            "device_name": name.value.decode(errors="replace"),
            "compute_capability": f"{major.value}.{minor.value}",
            "cuda_driver": f"{version.value // 1000}.{version.value % 1000 // 10}",
        }

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` of device memory (at least one byte is taken)."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        self._allocated.append(address.value)
        return address.value

    def copy_in(self, address: int, array: np.ndarray) -> None:
        """Host to device, in stream order; `array` must be contiguous and live until `sync`."""
        size = ctypes.c_size_t(array.nbytes)
        host = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), host, size, self._stream)

    def copy_out(self, array: np.ndarray, address: int) -> None:
        """Device to host, in stream order; `array` holds the values only after `sync`."""
        size = ctypes.c_size_t(array.nbytes)
        host = ctypes.c_void_p(array.ctypes.data)
        self._call("cuMemcpyDtoHAsync_v2", host, ctypes.c_uint64(address), size, self._stream)

    def sync(self) -> None:
        """Wait for everything in the stream."""
        self._call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free the memory and the stream, and let go of the context."""
        for address in self._allocated:
            self._call("cuMemFree_v2", ctypes.c_uint64(address))
        self._allocated.clear()
        self._call("cuStreamDestroy_v2", self._stream)
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _call(self, function: str, *arguments: Any) -> None:
        """Call the driver; its only return value is an error code. Raises CudaError for any but 0."""
        code = getattr(self._lib, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
            said = text.value.decode(errors="replace") if text.value else "no text for it"
            raise CudaError(f"{function}: error {code}, {said}")


def _open() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CudaError(f"no NVIDIA driver: {' and '.join(_LIBRARIES)} cannot be loaded")
