"""An image for one environment: found by its content key, else built.

The key is made from the build context (the Dockerfile, the install script, every wheel by its
hash), the base image's id and the few facts besides; the image's tag ends in it, and a label
repeats it. Nothing else decides whether an image is reused: no date, no tag of a registry, and
nothing of the worker's own sources, which are put into containers, never into images.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image
from packaging.utils import canonicalize_name

from matrix.catalog.types import Framework
from matrix.environments import changes, installed, locks, pip, pip_tool
from matrix.environments.base import BuildFailed, Progress, quiet
from matrix.environments.cutoff import CutOff
from matrix.environments.images import base, build, context, failures, index, labels, sources, wheels
from matrix.environments.images.job import Job
from matrix.environments.ready import some
from matrix.environments.recipe import Recipe, recipe_for
from matrix.records import Environment
from matrix_adapters.protocol import Flag, ProtocolError, Reason, from_json, to_json, write_atomic

PYTHON = "/opt/matrix/bin/python"  # of every image; see images/install.sh
SCHEMA = 1
LEFTOVERS_S = 15.0

_LISTING = """\
import json, platform
from importlib.metadata import distributions
found = {}
for d in distributions():
    found.setdefault(d.metadata["Name"], d.version)
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How images are made. `bases`: hardware -> the base image to use instead of the official one."""

    bases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    packages: Literal["offline", "index"] = "offline"
    silence_s: float = build.SILENCE_S
    cutoff: CutOff | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image that a worker can be started in: `python` is the interpreter, `user` runs it."""

    environment: Environment
    key: str
    tag: str
    id: str  # the engine's; pins a container against a moving tag
    base: str
    python: str
    python_version: str
    user: str
    lock: tuple[str, ...]  # read inside the image
    size_bytes: int
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    reused: bool = False
    log: Path | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Inside:
    """What was read inside an image once, kept by its id."""

    image: str
    python: str
    lock: tuple[str, ...]
    schema: int = SCHEMA


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """What is to be built."""

    entries: list[context.Entry]
    base: str
    key: str
    tag: str
    offline: bool


def ensure_image(
    client: docker.DockerClient,
    framework: Framework,
    environment: Environment,
    *,
    home: Path,
    options: ImageOptions | None = None,
    probe: pip.IndexProbe | None = None,
    progress: Progress = quiet,
    cancelled: threading.Event | None = None,
) -> BuiltImage:
    """Reuse the image of that content, else build it.

    Raises BuildFailed: `cannot_change`, `no_image`, `base_unnamed`, `base_missing`, `base_without_python`,
    `base_unfit`, one of the reasons of `pip_errors`, `dockerfile_syntax`, `build_step_failed`,
    `build_silent`, `disk_full`, `engine_refused`, `engine_lost`, `build_error`; BuildCancelled
    when `cancelled` was set meanwhile.
    """
    started = time.monotonic()
    options = options or ImageOptions()
    folder = home / "images"
    folder.mkdir(parents=True, exist_ok=True)
    source = sources.source(framework, environment.hardware)
    if problem := changes.impossible(environment.changes, "docker"):
        raise BuildFailed(Reason(code="cannot_change", text=problem))
    recipe = recipe_for(framework, environment, options.cutoff.of(environment) if options.cutoff else "")
    if framework.builds[recipe.build].needs_index:
        options = dataclasses.replace(options, packages="index")
    name = changes.of(environment.changes).base or base.reference(source, options.bases)
    log = folder / f"{environment.name}.log"
    job = Job(home=home, log=log, progress=progress, cancelled=cancelled, probe=probe or pip.IndexProbe())
    try:
        with contextlib.ExitStack() as held:
            parent = base.ensure(client, name, progress=progress, log=log)
            facts = base.facts(client, parent, name, folder / "bases")
            entries, notes = _context(source, recipe, facts, options, job, held=held)
            key = context.key(entries, str(parent.id), _facts(recipe, environment))
            wanted = _Wanted(
                entries=entries,
                base=name,
                key=key,
                tag=labels.tag(recipe.framework, recipe.version, environment.hardware, key),
                offline=options.packages == "offline",
            )
            job = dataclasses.replace(job, log=folder / f"{key}.log")
            image, reused = _find_or_build(client, wanted, options, job)
            inside = _read_inside(client, image, folder / f"{key}.json")
    except failures.ENGINE_ERRORS as error:
        raise BuildFailed(failures.of_exception(error, silent_s=0, log=job.log), job.log) from error
    return BuiltImage(
        environment=environment,
        key=wanted.key,
        tag=wanted.tag,
        id=str(image.id),
        base=name,
        python=PYTHON,
        python_version=inside.python,
        user=str(image.attrs["Config"].get("User", "")),
        lock=inside.lock,
        size_bytes=int(image.attrs["Size"]),
        flags=_flags(recipe, inside.lock),
        notes=notes,
        seconds=time.monotonic() - started,
        reused=reused,
        log=job.log,
    )


class ImageBuilder:
    """`ensure_image` with everything but the environment said once; for `build_all`."""

    def __init__(
        self,
        client: docker.DockerClient,
        frameworks: Mapping[str, Framework],
        home: Path,
        options: ImageOptions | None = None,
        *,
        probe: pip.IndexProbe | None = None,
    ) -> None:
        self._client, self._frameworks, self._home = client, frameworks, home
        self._options, self._probe = options, probe or pip.IndexProbe()

    def build(
        self,
        environment: Environment,
        *,
        progress: Progress = quiet,
        cancelled: threading.Event | None = None,
    ) -> BuiltImage:
        """See `ensure_image`."""
        return ensure_image(
            self._client,
            self._frameworks[environment.framework],
            environment,
            home=self._home,
            options=self._options,
            probe=self._probe,
            progress=progress,
            cancelled=cancelled,
        )


def _context(
    source: sources.Source,
    recipe: Recipe,
    facts: base.BaseFacts,
    options: ImageOptions,
    job: Job,
    *,
    held: contextlib.ExitStack,
) -> tuple[list[context.Entry], tuple[str, ...]]:
    """The files that go to the engine, and what was left out of them; `held` keeps `matrix clean` away."""
    archive, own = wheels.installer(pip_tool.installer_pin(), job)
    entries = [
        context.of_file("Dockerfile", source.path),
        context.of_file("context/install.sh", sources.install_script()),
        context.of_bytes("context/import", f"{recipe.import_package}\n"),
        context.of_file("context/pip.whl", archive, own.sha256),
    ]
    if options.packages == "index":
        steps, notes = index.entries(recipe, job.probe)
        return [*entries, *steps], notes
    folder, found = wheels.ensure(recipe, facts, job)
    lock = locks.shared(wheels.lock_of(folder), cancelled=job.cancelled)
    held.callback(locks.release, lock)
    packages = [context.of_file(f"context/wheels/{w.name}", folder / w.name, w.sha256) for w in found.wheels]
    return [*entries, *packages], found.notes


def _facts(recipe: Recipe, environment: Environment) -> dict[str, str]:
    """What decides on an image besides its context and its base."""
    return {
        "framework": recipe.framework,
        "version": recipe.version,
        "build": recipe.build,
        "hardware": environment.hardware,
    }


def _find_or_build(
    client: docker.DockerClient, wanted: _Wanted, options: ImageOptions, job: Job
) -> tuple[Image, bool]:
    """The image, and whether it was there already."""
    with contextlib.suppress(ImageNotFound):
        return client.images.get(wanted.tag), True
    with locks.exclusive(
        job.folder / f"{wanted.key}.lock",
        waiting=lambda: job.progress("waiting: another run builds it"),
        cancelled=job.cancelled,
    ):
        with contextlib.suppress(ImageNotFound):  # somebody else was quicker
            return client.images.get(wanted.tag), True
        job.log.write_text(f"{wanted.tag}\n", encoding="utf-8")
        proxies = {} if wanted.offline else index.proxies()
        try:
            build.build(
                client,
                wanted.entries,
                tag=wanted.tag,
                buildargs={"BASE": wanted.base, "KEY": wanted.key, **proxies},
                network="none" if wanted.offline else "host",
                log=job.log,
                progress=job.progress,
                cancelled=job.cancelled,
                silence_s=options.silence_s,
            )
        finally:
            with contextlib.suppress(*failures.ENGINE_ERRORS):
                remove_leftovers(client, wanted.key)
    return client.images.get(wanted.tag), False


def remove_leftovers(client: docker.DockerClient, key: str) -> None:
    """Remove the build stage of one image, wheels included: the key alone decides on reuse, not a cache.

    The engine needs a moment to end a build that was given up, and keeps what it uses until then.
    """
    mine = {"dangling": True, "label": f"{labels.KEY}={key}"}
    deadline = time.monotonic() + LEFTOVERS_S
    while client.api.images(filters=mine):
        client.images.prune(filters=mine)
        if time.monotonic() > deadline:
            return  # `matrix images prune` finds it
        time.sleep(0.1)


def _read_inside(client: docker.DockerClient, image: Image, stored: Path) -> _Inside:
    """Python and packages as the image itself lists them; asked once per image."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ProtocolError):
        known = from_json(_Inside, stored.read_text(encoding="utf-8"))
        if known.image == image.id and known.schema == SCHEMA:
            return known
    status, said = base.ask(client, str(image.id), [PYTHON, "-I", "-c", _LISTING])
    try:
        answer = json.loads(said.strip().splitlines()[-1])
        versions = {canonicalize_name(name): f"{name}=={at}" for name, at in answer["packages"].items()}
        lock = tuple(versions[name] for name in sorted(versions))
        found = _Inside(image=str(image.id), python=answer["python"], lock=lock)
    except (IndexError, KeyError, TypeError, ValueError):
        raise BuildFailed(
            Reason(
                code="image_unfit",
                text=f"{PYTHON} of the finished image does not list its packages "
                f"(exit status {status}: {said.strip()[-200:]}).",
            )
        ) from None
    write_atomic(stored, to_json(found))
    return found


def _flags(recipe: Recipe, lock: tuple[str, ...]) -> tuple[Flag, ...]:
    if recipe.constraints and (wrong := installed.differences(lock, recipe.expected)):
        text = f"the environment differs from its constraints: {some(wrong)}"
        return (Flag(code="differs_from_constraints", text=text),)
    return ()
