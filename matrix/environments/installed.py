"""What is really installed in an environment, read from its metadata without running it."""

from __future__ import annotations

import csv
import os
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from matrix.environments.lock_difference import lock_difference

BYTECODE = (".pyc", ".pyo")


def site_packages(environment: Path) -> Path:
    """The folder that holds the packages of a virtualenv, whichever Python it was made with."""
    base = str(environment)
    found = sorted(environment.glob("lib/p*/site-packages"))  # POSIX: lib/python3.12, lib/pypy3.11
    if len(found) == 1:
        return found[0]
    return Path(sysconfig.get_path("purelib", "venv", {"base": base, "platbase": base}))


def interpreter(environment: Path) -> Path:
    """The Python of a virtualenv."""
    base = str(environment)
    scripts = Path(sysconfig.get_path("scripts", "venv", {"base": base, "platbase": base}))
    return scripts / ("python.exe" if os.name == "nt" else "python")


def lock_of(*folders: Path) -> tuple[str, ...]:
    """Every installed distribution as "name==version", sorted by normal name.

    Of two with one name the first on the path counts: that is the one Python imports.
    """
    found: dict[str, str] = {}
    for distribution in _installed(folders):
        name = canonicalize_name(distribution.name)
        found.setdefault(name, f"{distribution.name}=={distribution.version}")
    return tuple(found[name] for name in sorted(found))


def versions_of(lock: tuple[str, ...]) -> dict[str, str]:
    """A lock as normal name -> version."""
    pairs = (item.partition("==") for item in lock)
    return {canonicalize_name(name): version for name, _, version in pairs}


def damaged_file(*folders: Path) -> str:
    """The first file that an installer recorded and that is gone or has another size; "" if none.

    Half a unpacked wheel, a cleaned temporary folder or a full disk show here; contents are
    not hashed, which would take longer than installing.
    """
    for distribution in _installed(folders):
        for name, size in _recorded(distribution):
            try:
                actual = os.stat(str(distribution.locate_file(name))).st_size  # noqa: PTH116  (20,000 of them)
            except OSError:
                return f"{name} of {distribution.name} is gone"
            if actual != size:
                return f"{name} of {distribution.name} has {actual} bytes instead of {size}"
    return ""


def providers(import_package: str, *folders: Path) -> dict[str, set[str]]:
    """Distribution -> the files it owns of `import_package`, for those that own any."""
    prefix = f"{import_package}/"
    owners: dict[str, set[str]] = {}
    for distribution in _installed(folders):
        files = {name for name, _ in _recorded(distribution) if name.startswith(prefix)}
        if files:
            owners[distribution.name] = files
    return owners


def overlapping(import_package: str, provided_by: tuple[str, ...], *folders: Path) -> tuple[str, str] | None:
    """Two distributions that both wrote `import_package`: the later one won, in silence.

    Either both own one of its files, or both are listed as bringing it (`provided_by`).
    """
    owners = providers(import_package, *folders)
    listed = {canonicalize_name(name) for name in provided_by}
    names = sorted(owners)
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            both_listed = {canonicalize_name(one), canonicalize_name(two)} <= listed
            if both_listed or owners[one] & owners[two]:
                return one, two
    return None


def differences(lock: tuple[str, ...], constraints: str) -> tuple[str, ...]:
    """How `lock` departs from a complete pinned set: a version not allowed, or a name not pinned."""
    pins: dict[str, Requirement] = {}
    for line in constraints.splitlines():
        try:
            pin = Requirement(line)
        except InvalidRequirement:  # a URL or an option: pip itself judges those
            continue
        pins[canonicalize_name(pin.name)] = pin
    found = []
    for item in lock:
        name, _, version = item.partition("==")
        known = pins.get(canonicalize_name(name))
        if known is None:
            found.append(f"{item} is not pinned")
        elif not known.specifier.contains(version, prereleases=True):
            found.append(f"{item} instead of {known.specifier}")
    return tuple(found)


def changes(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """How one lock became another: "numpy 2.4.5 -> 2.4.6", "six 1.17 added", "six 1.17 removed"."""
    return tuple(str(change) for change in lock_difference(before, after))


def folder_size(folder: Path) -> int:
    """Bytes that the files below `folder` take on the disk; links are not followed."""
    return sum(getattr(status, "st_blocks", 0) * 512 or status.st_size for _, status in _files_below(folder))


def content_size(folder: Path) -> int:
    """Bytes in the files below `folder`, without bytecode: equal installations have more or less of it."""
    return sum(status.st_size for name, status in _files_below(folder) if not name.endswith(BYTECODE))


def _files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    pending = [os.fspath(folder)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    yield entry.name, entry.stat(follow_symlinks=False)


def _installed(folders: tuple[Path, ...]) -> Iterator[Distribution]:
    yield from distributions(path=[str(folder) for folder in folders])


def _recorded(distribution: Distribution) -> Iterator[tuple[str, int]]:
    """Path (relative to the site folder) and size of each recorded file that has a size."""
    text = distribution.read_text("RECORD") or ""
    for row in csv.reader(text.splitlines()):
        if len(row) == 3 and row[2].isdigit() and not row[0].endswith(BYTECODE):
            yield row[0], int(row[2])
