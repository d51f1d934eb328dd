"""How large the caches of this machine's CPU are, as the kernel says. Standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

_CPU = Path("/sys/devices/system/cpu/cpu0/cache")
#: where nothing says: more than most machines have
ASSUMED_BYTES = 64 << 20
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclasses.dataclass(frozen=True, slots=True)
class Caches:
    """Bytes by level, data caches only; `last` of the largest level, `assumed` where nobody said."""

    levels: dict[int, int]
    last: int
    assumed: bool = False


def read(folder: Path = _CPU) -> Caches:
    """From sysfs, of the first CPU. Never raises: what is not said is assumed, and marked."""
    levels: dict[int, int] = {}
    for index in sorted(folder.glob("index*")):
        with contextlib.suppress(OSError, ValueError):
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            levels[level] = max(levels.get(level, 0), _bytes((index / "size").read_text().strip()))
    sizes = [size for size in levels.values() if size > 0]
    return Caches(levels, max(sizes)) if sizes else Caches({}, ASSUMED_BYTES, assumed=True)


def _bytes(text: str) -> int:
    """Bytes of "32768K". Raises ValueError."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * _UNITS[found[2]]
