"""Requirements with some distributions replaced on purpose. Texts in, texts out."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from matrix_adapters.protocol import file_hash


def exact(name: str, value: str) -> str:
    """`value` is a version, or the absolute path of a wheel, which is named with its hash.

    The hash makes a rebuilt wheel another requirement, and pip checks it. Raises OSError.
    """
    if not value.startswith("/"):
        return f"{name}=={value}"
    path = Path(value)
    status = path.stat()
    return f"{name} @ {path.as_uri()}#sha256={_hash(path, status.st_mtime_ns, status.st_size)}"


def names(name: str, requirements: Iterable[str]) -> bool:
    """Whether one of `requirements` is for the distribution of that normal name."""
    return any(_name(line) == name for line in requirements)


def replaced(requirements: Iterable[str], by: Mapping[str, str]) -> tuple[str, ...]:
    """`requirements` with the exact ones of `by` (by normal name) in their places; extras stay."""
    return tuple(
        _with_extras(line, by[name]) if (name := _name(line)) in by else line for line in requirements
    )


def without(constraints: str, dropped: Container[str]) -> str:
    """Lines of constraints, less those for the distributions in `dropped`."""
    lines = constraints.splitlines(keepends=True)
    return "".join(line for line in lines if _name(line) not in dropped)


def limits(by_versions: Mapping[str, Iterable[str]], version: str) -> str:
    """The constraints that a framework's entry has for `version`, by specifiers of versions."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return ""
    lines = [
        line
        for specifier, pins in by_versions.items()
        if SpecifierSet(specifier).contains(wanted, prereleases=True)
        for line in pins
    ]
    return "".join(f"{line}\n" for line in lines)


def _name(line: str) -> str:
    """The normal name of a requirement; "" for a URL or an option."""
    try:
        return canonicalize_name(Requirement(line.strip()).name)
    except InvalidRequirement:
        return ""


def _with_extras(line: str, by: str) -> str:
    old = Requirement(line.strip())
    if not old.extras:
        return by
    name = canonicalize_name(old.name)
    return f"{name}[{','.join(sorted(old.extras))}]{by.removeprefix(name)}"


@functools.lru_cache(maxsize=256)
def _hash(path: Path, modified_ns: int, size: int) -> str:
    """Hashed again only when it changed: some wheels have gigabytes."""
    del modified_ns, size
    return file_hash(path)
