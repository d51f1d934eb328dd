"""Which hardware profiles of the catalog this machine has, found without any framework.

A device node and the driver's library decide; each answer comes with its reason. The
worker looks again from inside its framework, so a yes here is never the last word.

For tests of that second look, `FRAMEWORK_MATRIX_ASSUME_HARDWARE` makes the probe believe
that a device is there: `nvidia`, or `nvidia:cpu` to use the frameworks' `cpu` builds for it
(nothing large is downloaded then); several are separated by commas. `probe` consults it, and
so does `assume`, through which the commands pass the catalog before planning and building.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from matrix.catalog.types import Catalog, Framework, Hardware
from matrix.errors import UsageError

ASSUME_VARIABLE = "FRAMEWORK_MATRIX_ASSUME_HARDWARE"


@dataclasses.dataclass(frozen=True, slots=True)
class HardwareFound:
    """One profile on this machine: there or not, and how that is known."""

    found: bool
    reason: str


def probe(profiles: Mapping[str, Hardware]) -> dict[str, HardwareFound]:
    """Profile name -> whether this machine has it. Reads nothing but device nodes and a library."""
    believed = assumed()
    unknown = sorted(believed.keys() - profiles.keys())
    if unknown:
        known = ", ".join(sorted(profiles))
        raise UsageError(f"{ASSUME_VARIABLE} names the hardware {unknown[0]!r}; the catalog has: {known}")
    return {
        name: HardwareFound(True, f"{profile.title}: assumed, because {ASSUME_VARIABLE} says so")
        if name in believed
        else _probe(profile)
        for name, profile in profiles.items()
    }


def assumed() -> dict[str, str | None]:
    """What the test hook says: profile -> build to use for it, or None for the framework's own."""
    parts = [part.strip() for part in os.environ.get(ASSUME_VARIABLE, "").split(",")]
    believed: dict[str, str | None] = {}
    for part in filter(None, parts):
        name, _, build = part.partition(":")
        believed[name] = build or None
    return believed


def assume(catalog: Catalog) -> Catalog:
    """The catalog with the builds that the test hook asks for; the same object without the hook."""
    builds = {name: build for name, build in assumed().items() if build}
    if not builds:
        return catalog
    frameworks = {name: _with_builds(framework, builds) for name, framework in catalog.frameworks.items()}
    return dataclasses.replace(catalog, frameworks=frameworks)


def _with_builds(framework: Framework, builds: Mapping[str, str]) -> Framework:
    """A framework without the build asked for keeps its own."""
    hardware = {
        name: support.model_copy(update={"build": builds[name]})
        if builds.get(name) in framework.builds
        else support
        for name, support in framework.hardware.items()
    }
    return framework.model_copy(update={"hardware": hardware})


def _probe(profile: Hardware) -> HardwareFound:
    if profile.always:
        return HardwareFound(True, f"{profile.title}: every machine has one")
    nodes = profile.probe.device_nodes
    present = [node for node in nodes if Path(node).exists()]
    if nodes and not present:
        what = f"none of {', '.join(nodes)} exists" if len(nodes) > 1 else f"{nodes[0]} does not exist"
        return HardwareFound(False, f"no {profile.title}: {what}")
    usable = [node for node in present if os.access(node, os.R_OK | os.W_OK)]
    if present and not usable:
        return HardwareFound(
            False, f"no usable {profile.title}: {present[0]} exists, but this user may not open it"
        )
    known = [f"{usable[0]} exists"] if usable else []
    if profile.probe.library:
        problem = _library_problem(profile.probe.library)
        if problem:
            there = f"{usable[0]} exists, but " if usable else ""
            return HardwareFound(
                False,
                f"no usable {profile.title}: {there}the driver's library {profile.probe.library} "
                f"does not load ({problem})",
            )
        known.append(f"{profile.probe.library} loads")
    if not known:
        return HardwareFound(False, f"no {profile.title}: its profile does not say how to find one")
    return HardwareFound(True, f"{profile.title}: {' and '.join(known)}")


def _library_problem(name: str) -> str:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        return str(error)
    return ""
