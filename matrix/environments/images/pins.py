"""`bases.lock`: which content the official base images' tags stood for when somebody looked.

A digest gets there in one way only: a registry answered with it. Whatever could not be asked
is `unresolved`; nothing is guessed, and an older digest is kept only where it is asked to be.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import docker

from matrix.environments.images import base, failures, sources

UNRESOLVED = "unresolved"
HEADER = """\
# Official base images and the digests that a registry gave for their tags: `matrix images --pin`.
# `unresolved`: no registry answered when the file was written.
"""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_BASE = re.compile(r"^ARG BASE=(\S+)", re.MULTILINE)

#: the name of an image -> its digest, or why there is none
Ask = Callable[[str], "Answer"]


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """A digest that a registry gave, or the reason why there is none."""

    digest: str = ""
    problem: str = ""


def named(folder: Path | None = None) -> list[str]:
    """Every base image that a shipped Dockerfile names, once, sorted."""
    found = set()
    for path in (folder or sources.folder()).glob("*/Dockerfile.*"):
        found.update(_BASE.findall(path.read_text(encoding="utf-8")))
    return sorted(found)


def resolve(names: Iterable[str], ask: Ask) -> dict[str, Answer]:
    """Ask for each; an answer that is no digest counts as none."""
    answers = {}
    for name in names:
        answer = ask(name)
        if answer.digest and not _DIGEST.fullmatch(answer.digest):
            answer = Answer(problem=f"the registry answered {answer.digest[:80]!r}, which is no digest")
        answers[name] = answer
    return answers


def registry(client: docker.DockerClient) -> Ask:
    """Ask through the engine, which has the mirrors and credentials; 10 s for each."""

    def ask(name: str) -> Answer:
        problem = base.registry_problem(client, name)
        if problem:
            return Answer(problem=problem)
        try:
            return Answer(digest=str(client.images.get_registry_data(name).id))
        except failures.ENGINE_ERRORS as error:
            return Answer(problem=" ".join(str(error).split())[:200])

    return ask


def nobody(reason: str) -> Ask:
    """Where there is no engine to ask through."""
    return lambda _: Answer(problem=reason)


def text(answers: Mapping[str, Answer]) -> str:
    """The file's content: one line each, `name digest`."""
    return HEADER + "".join(f"{name} {answers[name].digest or UNRESOLVED}\n" for name in sorted(answers))


def read(path: Path) -> dict[str, str]:
    """Name -> digest or `unresolved`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = (line.split() for line in lines if line.strip() and not line.startswith("#"))
    return {name: digest for name, digest in pairs}  # noqa: C416  (mypy: lists, not pairs)
