"""What a page reads from the run folder beside the records: raw samples and the ends of logs."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from matrix.records import LaunchRecord

_TAIL_BYTES = 4096
_TAIL_LINES = 40


@dataclasses.dataclass(frozen=True, slots=True)
class RunFiles:
    """A run folder, or None where the records came alone. Missing or broken files are simply absent."""

    folder: Path | None = None

    def per_call_ms(self, launch: LaunchRecord) -> npt.NDArray[np.float64]:
        """Milliseconds per call of each timed sample, float64[n]; empty when there are none."""
        path = self.path(launch.samples)
        if path is None:
            return np.empty(0)
        try:
            with np.load(path, allow_pickle=False) as archive:
                per_call: npt.NDArray[np.float64] = archive["wall_ns"] / archive["calls"] / 1e6
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return np.empty(0)
        return per_call[np.isfinite(per_call)] if per_call.ndim == 1 else np.empty(0)

    def log_tail(self, launch: LaunchRecord) -> str:
        """The last lines of a launch's log; empty when there is none."""
        path = self.path(launch.log)
        if path is None:
            return ""
        try:
            with path.open("rb") as stream:
                stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                text = stream.read(_TAIL_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def path(self, name: str | None) -> Path | None:
        """A file of the run by its relative name; None when it lies elsewhere or is not there."""
        if not name or self.folder is None:
            return None
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            return None
        path = self.folder / relative
        return path if path.is_file() else None
