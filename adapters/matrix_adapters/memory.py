"""Peak memory of each phase of one process.

Linux: writing 5 to `/proc/self/clear_refs` resets the high-water mark of the resident
set (`VmHWM`), so one process gives a peak per phase (proc(5)). Elsewhere `ru_maxrss`,
which only ever grows: then later phases show the peak so far. Bytes throughout.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matrix_adapters.launch import Launch


class Peaks:
    """Collects `{phase: bytes}`. `method` says how, since the two do not mean quite the same."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self.method = "VmHWM, reset per phase" if self._reset() else "ru_maxrss, growing over phases"
        self.bytes: dict[str, int] = {"start": self._peak()}

    @contextlib.contextmanager
    def of(self, phase: str) -> Iterator[None]:
        self._reset()
        yield
        self.bytes[phase] = self._peak()

    def _reset(self) -> bool:
        try:
            (self._proc / "clear_refs").write_text("5")
        except OSError:
            return False
        return True

    def _peak(self) -> int:
        peak = _high_water(self._proc) if self.method.startswith("VmHWM") else None
        return _lifetime_peak() if peak is None else peak


def own_peak(proc: Path = Path("/proc/self")) -> tuple[int, str]:
    """The peak of this process over its whole life, and how that was read.

    `ru_maxrss` may still hold what the orchestrator used before it became this process, so
    the high-water mark of this very program comes first.
    """
    peak = _high_water(proc)
    return (_lifetime_peak(), "ru_maxrss") if peak is None else (peak, "VmHWM")


def report_own(runner: Any, launch: Launch) -> None:
    """The peak of a process that was timed too: no phases, since resetting the mark costs time."""
    peak, method = own_peak()
    launch.metrics["peak_memory_bytes"] = float(peak)
    launch.sampling["peak_memory_method"] = f"{method} of the live process, from its start to its last slice"
    _report_device(runner, launch)


def report(peaks: Peaks, runner: Any, launch: Launch) -> None:
    """Write the peaks into the launch: the largest as the metric, each phase beside it."""
    launch.sampling["peak_memory_by_phase"] = dict(peaks.bytes)
    launch.sampling["peak_memory_method"] = peaks.method
    launch.metrics["peak_memory_bytes"] = float(max(peaks.bytes.values()))
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    launch.sampling["peak_memory_largest_child"] = _bytes(children)
    _report_device(runner, launch)


def _report_device(runner: Any, launch: Launch) -> None:
    counter = getattr(runner, "peak_device_memory", None)
    device_peak = None if counter is None else counter()
    if device_peak is None:
        launch.absent["peak_device_memory_bytes"] = "the adapter has no counter of device memory here"
    else:
        launch.metrics["peak_device_memory_bytes"] = float(device_peak)


def _high_water(proc: Path) -> int | None:
    with contextlib.suppress(OSError):
        for line in (proc / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return None


def _lifetime_peak() -> int:
    return _bytes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _bytes(maxrss: int) -> int:
    return maxrss if sys.platform == "darwin" else maxrss * 1024  # kibibytes on Linux
