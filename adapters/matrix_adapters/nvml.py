"""The state of an NVIDIA GPU through NVML, with ctypes: it comes with the driver, so no package is needed.

Every reading is nullable: what the card or driver does not answer is listed with the
reason. Function names: NVML API reference. NOT RUN ON HARDWARE: tests drive it with a
stand-in for the library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

_SM_CLOCK, _MEMORY_CLOCK, _TEMPERATURE_GPU = 1, 2, 0

# nvmlClocksThrottleReason*: what holds the clocks down. Idle and application settings are left out.
_THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class NvmlError(Exception):
    """NVML is not there, or one of its functions answered with an error code."""


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read(index: int, library: Any = None) -> dict[str, Any]:
    """Clocks, temperature, throttle reasons, power, energy and memory of CUDA device `index` now.

    `absent` names what could not be read, and why. Raises NvmlError where there is no
    NVML or no such device. Units are in the names.
    """
    lib = library if library is not None else _open()
    _check("nvmlInit_v2", lib.nvmlInit_v2())
    try:
        return _read(lib, _handle(lib, index))
    finally:
        lib.nvmlShutdown()


def _read(lib: Any, handle: ctypes.c_void_p) -> dict[str, Any]:
    def number(name: str, kind: type[Any], *arguments: ctypes.c_uint) -> int:
        value = kind()
        _check(name, getattr(lib, name)(handle, *arguments, ctypes.byref(value)))
        return int(value.value)

    def memory_used() -> int:
        value = _Memory()
        _check("nvmlDeviceGetMemoryInfo", lib.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(value)))
        return int(value.used)

    def text(name: str) -> str:
        buffer = ctypes.create_string_buffer(96)
        _check(name, getattr(lib, name)(handle, buffer, ctypes.c_uint(len(buffer))))
        return buffer.value.decode(errors="replace")

    uint, ulong = ctypes.c_uint, ctypes.c_ulonglong
    readers: dict[str, Callable[[], Any]] = {
        "name": lambda: text("nvmlDeviceGetName"),
        "sm_clock_mhz": lambda: number("nvmlDeviceGetClockInfo", uint, uint(_SM_CLOCK)),
        "memory_clock_mhz": lambda: number("nvmlDeviceGetClockInfo", uint, uint(_MEMORY_CLOCK)),
        "temperature_c": lambda: number("nvmlDeviceGetTemperature", uint, uint(_TEMPERATURE_GPU)),
        "throttle_reasons": lambda: [
            words
            for bit, words in _THROTTLE_REASONS.items()
            if number("nvmlDeviceGetCurrentClocksThrottleReasons", ulong) & bit
        ],
        "power_w": lambda: number("nvmlDeviceGetPowerUsage", uint) / 1e3,
        "energy_j": lambda: number("nvmlDeviceGetTotalEnergyConsumption", ulong) / 1e3,
        "memory_used_bytes": memory_used,
    }
    facts: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for name, reader in readers.items():
        try:
            facts[name] = reader()
        except (NvmlError, AttributeError) as error:  # AttributeError: an older library lacks it
            facts[name] = None
            absent[name] = str(error)
    return {**facts, "absent": absent} if absent else facts


def _open() -> Any:
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        raise NvmlError(f"no NVML: {error}") from None


def _handle(lib: Any, index: int) -> ctypes.c_void_p:
    """NVML does not know CUDA_VISIBLE_DEVICES, so the index is translated here."""
    handle = ctypes.c_void_p()
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    name = visible[index] if index < len(visible) else str(index)
    if name.isdigit():
        status = lib.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(handle))
    else:
        status = lib.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle))
    _check(f"device {name}", status)
    return handle


def _check(what: str, status: int) -> None:
    if status != 0:
        raise NvmlError(f"{what}: NVML error {status}")
