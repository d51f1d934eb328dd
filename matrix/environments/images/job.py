"""What every part of one image's making needs besides what it makes."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

from matrix.environments.base import Progress
from matrix.environments.pip import IndexProbe


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Where things are kept and told, and how to be told to stop."""

    home: Path  # the cache folder
    log: Path
    progress: Progress
    cancelled: threading.Event | None
    probe: IndexProbe

    @property
    def folder(self) -> Path:
        """Logs, locks and what was read inside images."""
        return self.home / "images"
