"""The worker as a process among others: who it dies with, who dies first, what it inherits.

Standard library only, and run before anything else is imported: OpenMP and BLAS read
their variables when NumPy or the framework loads them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from matrix_adapters.protocol import ASKED_VARIABLE, LOG_FILE

#: The orchestrator may name its process id here; a worker that finds another parent ends at once.
PARENT_VARIABLE = "FRAMEWORK_MATRIX_PARENT"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OOM_SCORE = 900  # of 1000: taken before the orchestrator, whatever that one uses


def die_with_parent() -> None:
    """Linux: have the kernel kill this process when its parent ends. Elsewhere nothing.

    The kernel means the parent's *thread* that started us: it has to outlive the worker.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    # It may have died before the call above took effect.
    expected = os.environ.get(PARENT_VARIABLE, "")
    if os.getppid() != parent or (expected.isdigit() and int(expected) != parent):
        os._exit(1)


def offer_to_oom_killer() -> None:
    """Make the kernel take the worker, not the orchestrator, when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))


def redirect_output(out_dir: Path) -> None:
    """Append everything printed, by Python or native code, to the log. Nothing is read from it."""
    with contextlib.suppress(OSError):
        log = os.open(out_dir / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)


def base_environment(threads: int) -> dict[str, str]:
    """Variables that every framework's worker runs under, before the adapter's own.

    Spinning is off for all alike: on a shared machine spinning pools steal from each other.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "VECLIB_MAXIMUM_THREADS": count,
        "OMP_DYNAMIC": "FALSE",
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "KMP_BLOCKTIME": "0",
        # NVML counts devices in this order; CUDA's own default is "fastest first".
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def overridden(variables: Mapping[str, str]) -> str:
    """Which of `variables` this launch was asked to have another value of, in words; "" for none."""
    for name in os.environ.get(ASKED_VARIABLE, "").split():
        if name in variables and variables[name] != os.environ.get(name):
            asked = os.environ.get(name, "")
            return f"{name}={asked} was asked for, but the adapter itself sets {name}={variables[name]}"
    return ""


def set_environment(variables: Mapping[str, str]) -> None:
    """Set the variables for this process and what it loads from now on."""
    os.environ.update(variables)
