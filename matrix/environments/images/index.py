"""The online half: the build stage asks an index itself, for sets of wheels too large to copy twice.

The host's pip configuration goes along as a file of the build stage, which is removed after the
build and whose layers are in no image. All the same nothing secret goes there: an index with
credentials is refused, and its packages have to come the offline way.
"""

from __future__ import annotations

import configparser
import io
import os
from pathlib import Path
from urllib.parse import urlsplit

from matrix.environments import pip, pip_tool
from matrix.environments.base import BuildFailed
from matrix.environments.images import context
from matrix.environments.recipe import Recipe, Step
from matrix_adapters.protocol import Reason

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")

_INDEXES = ("index-url", "extra-index-url", "find-links")
_PLAIN = ("trusted-host", "timeout", "retries")
_CERTIFICATES = "context/ca.pem"


def entries(recipe: Recipe, probe: pip.IndexProbe) -> tuple[list[context.Entry], tuple[str, ...]]:
    """The files that replace the wheels, and what was left out. Raises BuildFailed (`secret_in_index`,
    `cannot_change`).
    """
    notes = []
    lines = []
    if "@ file:" in recipe.pins:
        said = "a local wheel is no use to an index build: leave `images.packages` at `offline`"
        raise BuildFailed(Reason(code="cannot_change", text=said))
    for step in recipe.steps:
        if step.index and (problem := probe.problem(step.index)):
            notes.append(f"index {step.index} was left out: {problem}")
            continue
        lines.append(_line(step, constrained=bool(recipe.all_constraints)))
    settings = _pip_settings()
    if recipe.as_of:
        settings["uploaded-prior-to"] = recipe.as_of
    files = [context.of_bytes("context/steps", "".join(f"{line}\n" for line in lines))]
    if recipe.all_constraints:
        files.append(context.of_bytes("context/constraints.txt", recipe.all_constraints))
    certificate = settings.pop("cert", "")
    if certificate and Path(certificate).is_file():
        files.append(context.of_file(_CERTIFICATES, Path(certificate)))
        settings["cert"] = f"/build/{Path(_CERTIFICATES).name}"
    config = configparser.ConfigParser(interpolation=None)
    config["global"] = settings
    text = io.StringIO()
    config.write(text)
    files.append(context.of_bytes("context/pip.conf", text.getvalue()))
    return files, tuple(notes)


def proxies() -> dict[str, str]:
    """The host's proxy settings: build arguments that an engine itself keeps out of history and cache."""
    return {name: os.environ[name] for name in PROXIES if os.environ.get(name)}


def _line(step: Step, *, constrained: bool) -> str:
    options = ["--index-url", step.index] if step.index else []
    options += ["--find-links", step.links] if step.links else []
    options += ["--no-deps"] if step.no_deps else []
    options += ["--constraint", "constraints.txt"] if constrained else []
    return " ".join([*options, *step.requirements])


def _pip_settings() -> dict[str, str]:
    """What matters in a container of the user's own pip configuration, files and variables alike."""
    found: dict[str, str] = {}
    for name, value in pip_tool.configured().items():
        section, _, option = name.rpartition(".")
        if section not in ("global", "download", "install", ":env:"):
            continue
        if option in _INDEXES:
            reachable = [part for part in value.split() if urlsplit(part).scheme in ("http", "https")]
            for part in reachable:
                _no_secret(part, option)
            if reachable:
                found[option] = " ".join(reachable)
        elif option in (*_PLAIN, "cert"):
            found[option] = " ".join(value.split())
    return found


def _no_secret(url: str, option: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise BuildFailed(
            Reason(
                code="secret_in_index",
                text=f"pip's {option} holds credentials (for {parts.hostname}), which would be readable in "
                "the build stage: leave `images.packages` at `offline`, the wheels are downloaded here then.",
            )
        )
