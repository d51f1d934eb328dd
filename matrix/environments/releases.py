"""Which versions there are to search through: of an index, of local wheels, of base images.

The index is asked through pip, with the user's own configuration (indexes, find-links,
certificates, proxies, credentials); yanked releases and those without a file for the Python
in question are left out by pip itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag, sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from matrix.catalog.types import Framework
from matrix.environments import pip_tool
from matrix.environments.pip_errors import unreachable
from matrix.environments.process import run_owned
from matrix.errors import IndexUnreachable, UsageError
from matrix.paths import given
from matrix.strict_yaml.located import did_you_mean

_AVAILABLE = re.compile(r"^Available versions: (?P<versions>.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """One version to be tried: how people call it, and what its environment is made of."""

    label: str
    version: str
    changes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where a framework's releases come from: a distribution; for some builds an index and a suffix."""

    distribution: str
    index: str | None = None
    local: str | None = None  # "rocm7.2": only releases with that local part
    links: tuple[str, ...] = ()  # pages or folders that list wheels, beside the index


def source_of(framework: Framework, build: str) -> Source:
    """The distribution whose version is the framework's, in one of its builds."""
    wanted = [
        (Requirement(line.replace("{version}", "0")), step.index)
        for step in framework.builds[build].steps
        for line in step.install
        if "{version}" in line
    ]
    if not wanted:
        raise UsageError(f"{framework.title} ({build}) has no versions to choose from in its entry")
    # A vendor's index is asked only where the usual one lacks those builds.
    first, index = next(((r, i) for r, i in wanted if i is None), wanted[0])
    local = next((Version(spec.version).local for spec in first.specifier), None)
    if local and index is None:
        index = next((i for _, i in wanted if i is not None), None)
    links = dict.fromkeys(step.links for step in framework.builds[build].steps if step.links)
    return Source(distribution=first.name, index=index, local=local, links=tuple(links))


def released(
    source: Source, *, home: Path, pre: bool = False, keep: Iterable[str] = (), python: str = ""
) -> list[str]:
    """All releases, oldest first; pre-releases when `pre`, and those in `keep` in any case.

    `python`: the interpreter that they must fit, when it is not the running one. Raises UsageError
    for a name that the index does not know, IndexUnreachable where it does not answer.
    """
    log = home / "tools" / "index.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [*pip_tool.host_pip(home, log, None), *(["--python", python] if python else [])]
    command += ["index", "versions", "--pre", "--retries", "1", source.distribution]
    command += ["--index-url", source.index] if source.index else []
    command += [part for link in source.links for part in ("--find-links", link)]
    status, output = run_owned(command, log=log, environ=pip_tool.pip_environ())
    found = _listed(output) if status == 0 else []
    if not found:
        if unreachable(output):
            raise IndexUnreachable(
                f"the package index does not answer when it is asked for {source.distribution}: check the "
                f"network, the proxy and `pip config list`, or give --wheels. Full output: {log}"
            )
        raise UsageError(
            f"no distribution called {source.distribution} was found: check that the index that pip is "
            f"configured for offers it. Full output: {log}"
        )
    wanted = {_public(Version(text)) for text in keep if _is_version(text)}
    chosen = {
        _public(version)
        for version in found
        if (source.local is None or version.local == source.local)
        and (pre or not version.is_prerelease or _public(version) in wanted)
    }
    return [str(version) for version in sorted(map(Version, chosen))]


def between(candidates: Sequence[Candidate], good: str, bad: str) -> list[Candidate]:
    """From `good` to `bad`, both included, in the order given.

    A version may be written in any form that means the same (1.32 and 1.32.0). Raises UsageError
    where one is missing, or they stand the wrong way round.
    """
    at_good, at_bad = _position(candidates, good), _position(candidates, bad)
    if at_good == at_bad:
        raise UsageError(f"GOOD and BAD are the same ({good}): there is nothing between them")
    if at_good > at_bad:
        raise UsageError(
            f"GOOD ({good}) comes after BAD ({bad}): the search is for the first one that is worse, "
            f"from an older to a newer; write {bad} {good} if that is what is meant"
        )
    return list(candidates[at_good : at_bad + 1])


def of_versions(versions: Iterable[str]) -> list[Candidate]:
    """Releases as candidates."""
    return [Candidate(version, version) for version in versions]


def of_wheels(paths: Iterable[str | Path], framework: Framework) -> list[Candidate]:
    """The framework's wheels among these files and folders that fit here, oldest first.

    Wheels of one version stand in the order of their build tags and names, and are then called by
    their file names. Raises UsageError where there is none.
    """
    names = {str(canonicalize_name(name)) for name in framework.provided_by}
    fitting = set(sys_tags())
    found = sorted({wheel for path in _wheel_files(paths) if (wheel := _wheel(path, names, fitting))})
    if not found:
        looked = ", ".join(map(str, paths))
        raise UsageError(f"--wheels: no wheel of {framework.title} in {looked} fits this Python and platform")
    versions = [version for version, _, _, _ in found]
    return [
        Candidate(
            label=path.name if versions.count(version) > 1 else str(version),
            version=str(version),
            changes=(f"{name}={path}",),
        )
        for version, _, path, name in found
    ]


def of_images(images: Iterable[str], version: str) -> list[Candidate]:
    """Base images, in the order given, each with the same version of the framework."""
    unique = dict.fromkeys(images)
    return [Candidate(image, version, (f"base={image}",)) for image in unique]


def _listed(output: str) -> list[Version]:
    """The versions that `pip index versions` printed (its JSON is newer than many a pip)."""
    line = _AVAILABLE.search(output)
    texts = line["versions"].split(",") if line else []
    return [Version(text.strip()) for text in texts if _is_version(text.strip())]


def _position(candidates: Sequence[Candidate], text: str) -> int:
    labels = [candidate.label for candidate in candidates]
    if text in labels:
        return labels.index(text)
    if Path(text).name in labels:
        return labels.index(Path(text).name)
    if _is_version(text):
        same = [
            at
            for at, c in enumerate(candidates)
            if _is_version(c.label) and Version(c.label) == Version(text)
        ]
        if len(same) == 1:
            return same[0]
    hint = did_you_mean(text, labels)
    shown = ", ".join([*labels[:3], "...", *labels[-3:]] if len(labels) > 7 else labels)
    raise UsageError(f"there is no {text!r}{hint}: there are {shown}")


def _wheel_files(paths: Iterable[str | Path]) -> list[Path]:
    files: list[Path] = []
    for text in paths:
        path = given(text, "--wheels").resolve()
        if path.is_dir():
            files += path.glob("*.whl")
        elif path.is_file() and path.suffix == ".whl":
            files.append(path)
        else:
            raise UsageError(f"--wheels {text}: neither a folder nor a wheel")
    return files


def _wheel(
    path: Path, names: set[str], fitting: set[Tag]
) -> tuple[Version, tuple[object, ...], Path, str] | None:
    try:
        name, version, build, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        return None
    return (version, build, path, name) if name in names and tags & fitting else None


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _public(version: Version) -> str:
    return version.public
