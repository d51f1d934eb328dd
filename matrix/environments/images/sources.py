"""The Dockerfiles: where they lie, and what they say of themselves."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
from pathlib import Path

from matrix.catalog.types import Framework
from matrix.environments.base import BuildFailed
from matrix_adapters.protocol import Reason

INSTALL_SCRIPT = "install.sh"
LOCK_FILE = "bases.lock"

_BASE = re.compile(r"^ARG BASE=(?P<base>\S+)\s*$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One Dockerfile. `base`: its official base image by exact tag; "" where it names none."""

    framework: str
    hardware: str
    path: Path
    base: str


def folder() -> Path:
    """`images/` of the checkout, or its copy in an installed wheel."""
    package = Path(str(importlib.resources.files("matrix")))
    shipped = package / "images"
    return shipped if shipped.is_dir() else package.parent / "images"


def install_script() -> Path:
    """The script that every build stage runs."""
    return folder() / INSTALL_SCRIPT


def described(framework: Framework, hardware: str) -> bool:
    """Whether there is a Dockerfile."""
    return (_folder_of(framework) / f"Dockerfile.{hardware}").is_file()


def source(framework: Framework, hardware: str) -> Source:
    """Raises BuildFailed where no Dockerfile describes that framework on that hardware."""
    path = _folder_of(framework) / f"Dockerfile.{hardware}"
    if not path.is_file():
        known = ", ".join(sorted(p.suffix[1:] for p in path.parent.glob("Dockerfile.*"))) or "none"
        raise BuildFailed(
            Reason(
                code="no_image",
                text=f"no image of {framework.title} is described for {hardware!r} (there are: {known}): "
                f"add {path.name} beside them, or use `--backend venv`.",
            )
        )
    found = _BASE.search(path.read_text(encoding="utf-8"))
    return Source(framework.name, hardware, path, found["base"] if found else "")


def _folder_of(framework: Framework) -> Path:
    """A third party's Dockerfiles lie in its own package."""
    return framework.source_dir or folder() / framework.name
