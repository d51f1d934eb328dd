"""What a pilot finds out, and every block of its pair then keeps to."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from matrix.judge import warmup
from matrix.sweep.pair import Ended, Frozen, rounds_for, slice_samples
from matrix_adapters.protocol import SAMPLES_FILE

#: how a pilot looks for the end of the warm-up
PILOT = {"calls": 200, "seconds": 10.0}


def frozen_by(ended: Ended, scratch: Sequence[Path]) -> Frozen:
    """The larger of what both sides of a pilot need."""
    own = [int(result.sampling.get("calls_per_sample", 1)) for result in ended.results]
    calls, call_s = max(own), 2 * (ended.sample_s or 0.0) / sum(own)
    samples = slice_samples(call_s * calls)
    series = [_warmup_series(folder / "out" / SAMPLES_FILE) for folder in scratch]
    measured_s = warmup.tau(ended.ready_s, call_s)
    return Frozen(
        warmup_calls=warmup.frozen_warmup(*series),
        calls=calls,
        samples=samples,
        rounds=rounds_for(measured_s, call_s * calls, samples),
    )


def _warmup_series(path: Path) -> npt.NDArray[np.int64]:
    """Nanoseconds of each call of a pilot's warm-up; empty where it left none."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return np.asarray(archive["warmup_ns"], np.int64)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return np.zeros(0, np.int64)
