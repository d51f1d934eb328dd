"""The offline half: wheels for an image's Python, chosen and downloaded by the host's own pip.

The user's pip configuration (indexes, find-links, certificates, proxies, credentials) stays on
the host; what enters an image is packages only. A set is kept in a folder of its own, named by
what was asked and for which Python, and counts once `set.json` is there, which is written last.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from matrix.environments import checks, locks, pip, pip_tool, substitute
from matrix.environments.base import BuildFailed, Progress
from matrix.environments.cutoff import Cut
from matrix.environments.images.base import BaseFacts
from matrix.environments.images.job import Job
from matrix.environments.pip_errors import explain
from matrix.environments.process import run_owned
from matrix.environments.recipe import Recipe, Step
from matrix_adapters.protocol import (
    ProtocolError,
    Reason,
    content_hash,
    file_hash,
    from_json,
    to_json,
    write_atomic,
)

SET_FILE = "set.json"
OLDEST_GLIBC_MINOR = 5  # manylinux1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """One wheel of a set."""

    name: str  # file name
    sha256: str
    size: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class WheelSet:
    """What `set.json` holds: all wheels of an environment, and what was left out."""

    wheels: tuple[Wheel, ...]
    notes: tuple[str, ...] = ()


def set_key(recipe: Recipe, base: BaseFacts) -> str:
    """Equal for equal instructions and an equal Python (its patch level left out) on an equal platform."""
    return content_hash(
        {
            "steps": [step.parts() for step in recipe.steps],
            "constraints": recipe.all_constraints,
            "python": [base.implementation, _minor(base)],
            "platform": [base.machine, base.libc],
            **({"as_of": recipe.as_of} if recipe.as_of else {}),
        }
    )


def read(folder: Path) -> WheelSet | None:
    """The set in `folder`; None where it is not complete."""
    try:
        found = from_json(WheelSet, (folder / SET_FILE).read_text(encoding="utf-8"))
        for wheel in found.wheels:
            if (folder / wheel.name).stat().st_size != wheel.size:
                return None
    except (OSError, UnicodeDecodeError, ProtocolError):
        return None
    return found


def ensure(recipe: Recipe, base: BaseFacts, job: Job) -> tuple[Path, WheelSet]:
    """The folder of the wheels and its set, downloaded when they are not there. Raises BuildFailed."""

    def download(folder: Path) -> WheelSet:
        checks.enough_space(recipe, folder)
        return _download(recipe, base, folder, job)

    return _cached(job.home / "wheels" / set_key(recipe, base), download, job)


def installer(pin: str, job: Job) -> tuple[Path, Wheel]:
    """The wheel of the pip that a build stage runs; `pin`: "pip==26.1"."""

    def download(folder: Path) -> WheelSet:
        job.progress(f"downloading {pin}")
        command = [*pip_tool.host_pip(job.home, job.log, job.cancelled), "download", "--dest", str(folder)]
        step = Step(requirements=(pin,), no_deps=True)
        _pip_download([*command, "--only-binary=:all:"], step, job, job.progress)
        return WheelSet(wheels=_hashed(folder))

    folder, found = _cached(job.home / "wheels" / content_hash(pin), download, job)
    return folder / found.wheels[0].name, found.wheels[0]


def _cached(folder: Path, download: Callable[[Path], WheelSet], job: Job) -> tuple[Path, WheelSet]:
    """The set in `folder`, downloaded under a lock when it is not there, or not whole."""
    if found := read(folder):
        return folder, found
    with locks.exclusive(
        lock_of(folder),
        waiting=lambda: job.progress("waiting: another run downloads the wheels"),
        cancelled=job.cancelled,
    ):
        if found := read(folder):  # somebody else was quicker
            return folder, found
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            found = download(folder)
            write_atomic(folder / SET_FILE, to_json(found))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return folder, found


def lock_of(folder: Path) -> Path:
    """Held shared by who copies a set, alone by who downloads or removes it."""
    return folder.with_name(f"{folder.name}.lock")


def pip_platforms(base: BaseFacts) -> list[str]:
    """The platform tags that fit, the newest first: pip wants each by name."""
    kind, *rest = base.libc
    try:
        major, minor = (int(n) for n in (rest[0] if rest else "").split(".")[:2])
    except ValueError:
        kind = ""
    if kind != "glibc":
        raise BuildFailed(
            Reason(
                code="base_unfit",
                text=f"the base image's C library is {' '.join(base.libc) or 'unknown'}, and the frameworks' "
                "wheels need glibc: take a base of Debian, Ubuntu or Red Hat.",
            )
        )
    tags = [f"manylinux_{major}_{n}_{base.machine}" for n in range(minor, OLDEST_GLIBC_MINOR - 1, -1)]
    legacy = [f"manylinux{n}_{base.machine}" for n in ("2014", "2010", "1")]
    return [*tags, *legacy, f"linux_{base.machine}"]


def _download(recipe: Recipe, base: BaseFacts, folder: Path, job: Job) -> WheelSet:
    cut = Cut(recipe.as_of, job.home, job.log, job.cancelled)
    target = ["--only-binary=:all:", "--implementation", "cp", "--python-version", _minor(base)]
    target += [arg for tag in pip_platforms(base) for arg in ("--platform", tag)]
    pinned = folder / "pinned.txt"
    notes = []
    for number, step in enumerate(recipe.steps, 1):

        def told(text: str, number: int = number) -> None:
            job.progress(f"wheels, step {number} of {len(recipe.steps)}: {text}")

        if step.index and (problem := job.probe.problem(step.index)):
            notes.append(f"index {step.index} was left out: {problem}")
            continue
        if step.forced:
            _remove(folder, step.requirements)
        # What earlier steps brought stays as it is, as it would in a virtualenv.
        pinned.write_text(recipe.all_constraints + _pins(folder), encoding="utf-8")
        options = ["--dest", str(folder), "--find-links", str(folder), "--constraint", str(pinned)]
        told(f"pip download {step.requirements[0]}")
        command = [*cut.pip, "download", *target, *options]
        try:
            cut.run(functools.partial(_pip_download, command, step, job, told))
        except BuildFailed as failure:
            if step.index is None or failure.reason.code not in ("index_unreachable", "no_such_version"):
                raise
            notes.append(f"index {step.index} was left out: {failure.reason.text}")
    pinned.unlink(missing_ok=True)
    return WheelSet(wheels=_hashed(folder), notes=(*cut.notes, *notes))


def _pip_download(command: list[str], step: Step, job: Job, progress: Progress, as_of: str = "") -> None:
    options = ["--index-url", step.index] if step.index is not None else []
    options += ["--find-links", step.links] if step.links is not None else []
    options += ["--no-deps"] if step.no_deps else []
    status, output = run_owned(
        [*command, *options, *step.requirements],
        log=job.log,
        environ=pip_tool.pip_environ(as_of),
        cancelled=job.cancelled,
        on_line=pip.told(progress),
    )
    if status != 0:
        what = "pip download " + " ".join(step.requirements)
        raise BuildFailed(explain(output, what=what, log=job.log), job.log)


def _pins(folder: Path) -> str:
    """The wheels that are there already, as constraints."""
    lines = []
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, *_ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        lines.append(f"{name}=={version}\n")
    return "".join(lines)


def _remove(folder: Path, requirements: Iterable[str]) -> None:
    """What earlier steps brought of these distributions."""
    for path in folder.glob("*.whl"):
        if substitute.names(canonicalize_name(path.name.partition("-")[0]), requirements):
            path.unlink()


def _hashed(folder: Path) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(name=path.name, sha256=file_hash(path), size=path.stat().st_size)
        for path in sorted(folder.glob("*.whl"))
    )


def _minor(base: BaseFacts) -> str:
    return ".".join(base.python.split(".")[:2])
