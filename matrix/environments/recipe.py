"""What has to be installed for one environment, resolved from the catalog, and its content key."""

from __future__ import annotations

import dataclasses
import platform
import sys
import sysconfig
from pathlib import Path

from matrix.catalog.types import Framework
from matrix.environments.base import BuildFailed
from matrix.records import Environment
from matrix_adapters.protocol import Reason, content_hash


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One `pip install`. `index`: for this step alone, and only when it answers; `links`: beside it."""

    requirements: tuple[str, ...]
    no_deps: bool = False
    index: str | None = None
    links: str | None = None

    def parts(self) -> list[object]:
        """What decides its outcome, for a content key."""
        parts: list[object] = [self.requirements, self.no_deps, self.index]
        return [*parts, self.links] if self.links else parts


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything that decides what an environment will hold, and what its checks look for."""

    framework: str
    version: str
    build: str
    steps: tuple[Step, ...]
    constraints: str = ""  # text of the pinned set; empty where the catalog has none
    import_package: str = ""
    provided_by: tuple[str, ...] = ()
    disk_mb: float = 0.0

    @property
    def key(self) -> str:
        """Equal for equal instructions, Python and platform. Names the folder of the environment."""
        return content_hash(
            {
                "framework": self.framework,
                "version": self.version,
                "build": self.build,
                "steps": [step.parts() for step in self.steps],
                "constraints": self.constraints,
                "python": [sys.implementation.name, platform.python_version(), _abi()],
                "platform": [sys.platform, platform.machine()],
            }
        )


def recipe_for(framework: Framework, environment: Environment) -> Recipe:
    """The recipe of `environment`. Raises BuildFailed where the catalog has no such build."""
    build = environment.build or framework.hardware[environment.hardware].build
    entry = framework.builds.get(build)
    if entry is None:
        known = ", ".join(sorted(framework.builds))
        raise BuildFailed(
            Reason(code="no_such_build", text=f"{framework.title} has no build {build!r}; it has: {known}")
        )
    return Recipe(
        framework=framework.name,
        version=environment.version,
        build=build,
        steps=tuple(
            Step(
                requirements=s.requirements(environment.version),
                no_deps=s.no_deps,
                index=s.index,
                links=s.links,
            )
            for s in entry.steps
        ),
        constraints=_constraints(framework.constraints(build, environment.version)),
        import_package=entry.import_package or framework.import_package,
        provided_by=tuple(framework.provided_by),
        disk_mb=entry.cost.disk_mb,
    )


def _constraints(path: Path | None) -> str:
    """The pinned set without comments and blank lines, so that those do not change the key."""
    if path is None or not path.is_file():
        return ""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _abi() -> str:
    """Tells a free-threaded or debug interpreter, or another C library, from the usual one."""
    return str(sysconfig.get_config_var("SOABI") or "")
