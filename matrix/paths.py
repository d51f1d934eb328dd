"""Where things lie: the per-user cache, and the folder of runs.

Environments, model artefacts and staged worker sources live in `home()`, which is never
inside a checkout (a virtualenv there would be scanned by every tool that walks the tree).
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from matrix.errors import UsageError

HOME_VARIABLE = "FRAMEWORK_MATRIX_HOME"


def home() -> Path:
    """The cache folder: `FRAMEWORK_MATRIX_HOME`, else the platform's user cache. Made when missing.

    Raises UsageError when it lies inside a source checkout of this product or cannot be made.
    """
    asked = os.environ.get(HOME_VARIABLE, "").strip()
    folder = Path(platformdirs.user_cache_dir("framework-matrix", False))
    if asked:
        folder = given(asked, HOME_VARIABLE).resolve()
    checkout = enclosing_checkout(folder)
    if checkout:
        raise UsageError(
            f"{HOME_VARIABLE}={folder} lies inside the checkout {checkout}: "
            "environments of several GB do not belong there. Name a folder outside it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"the cache folder {folder} cannot be made ({error.strerror}): "
            f"set {HOME_VARIABLE} to a folder that can be written."
        ) from None
    return folder


def results_dir(option: str | os.PathLike[str] | None = None) -> Path:
    """The folder of runs: the one asked for, else `results/` of the checkout or the current folder.

    It is not made here: reading commands must not leave an empty folder behind.
    """
    if option is not None:
        return given(option, "--results")
    here = given(".", "the current folder")
    return (enclosing_checkout(here) or here) / "results"


def given(text: str | os.PathLike[str], what: str) -> Path:
    """The path that a user wrote, absolute, `~` followed. `what` is what messages call it.

    Raises UsageError for what no system call takes: nobody's home, a null byte, a name that
    is too long. Whether anything lies there is for the caller to find out.
    """
    try:
        path = Path(text).expanduser().absolute()
    except FileNotFoundError:  # from getcwd
        raise UsageError(f"{what}: the current folder is gone: change to one that exists") from None
    except RuntimeError as error:
        raise _no_path(text, what, str(error)) from None
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except ValueError as error:
        raise _no_path(text, what, str(error)) from None
    except OSError as error:
        raise _no_path(text, what, error.strerror or str(error)) from None
    return path


def _no_path(text: str | os.PathLike[str], what: str, why: str) -> UsageError:
    shown = os.fspath(text)
    shown = shown if len(shown) <= 120 else f"{shown[:117]}..."
    return UsageError(f"{what} {shown!r} is no path: {why}")


def enclosing_checkout(folder: Path) -> Path | None:
    """The checkout of this product that `folder` lies in (the folder itself included), if any."""
    for candidate in (folder, *folder.parents):
        if (candidate / "matrix" / "catalog").is_dir() and (candidate / "pyproject.toml").is_file():
            return candidate
    return None
