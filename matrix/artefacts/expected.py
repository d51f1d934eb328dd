"""A user's own expected outputs: can they be read, and do they hold what is compared?"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np


def problem(path: Path, outputs: Sequence[str]) -> str:
    """Why `path` cannot stand in for a reference of these outputs; "" when it can."""
    if not path.is_file():
        return f"there is no file of expected outputs {path}"
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            return f"{path} holds one array: an .npz with an array for each output is needed"
        with archive:
            missing = [name for name in outputs if name not in archive.files]
            if missing:
                has = ", ".join(archive.files[:12]) or "nothing"
                return f"{path} lacks the output {missing[0]!r}; it has {has}"
            for name in outputs:
                if archive[name].dtype.kind not in "fiubUS":
                    return f"{path}: the output {name!r} is of type {archive[name].dtype}"
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        # NumPy takes any other file for a pickle, and advises to open it.
        return f"{path} is no .npz of plain arrays" + ("" if "pickle" in str(error) else f" ({error})")
    return ""
