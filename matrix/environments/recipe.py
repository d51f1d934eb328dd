"""What has to be installed for one environment, resolved from the catalog, and its content key."""

from __future__ import annotations

import dataclasses
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from matrix.catalog.types import Framework
from matrix.environments import changes, interpreters, substitute
from matrix.environments.base import BuildFailed
from matrix.environments.interpreters import Interpreter
from matrix.records import Environment
from matrix_adapters.protocol import Reason, content_hash


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One `pip install`. `index`: for this step alone, and only when it answers; `links`: beside it.

    `forced`: it replaces what earlier steps brought, whatever they declare to need.
    """

    requirements: tuple[str, ...]
    no_deps: bool = False
    index: str | None = None
    links: str | None = None
    forced: bool = False

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
    pins: str = ""  # more of them: what was changed on purpose, limits of versions that have no pinned set
    as_of: str = ""  # nothing published later counts (UTC, ISO 8601); "": the catalog's pins, or today
    python: Interpreter | None = None  # None: the running one
    import_package: str = ""
    provided_by: tuple[str, ...] = ()
    disk_mb: float = 0.0

    @property
    def all_constraints(self) -> str:
        """What pip is given as constraints."""
        return self.constraints + self.pins

    @property
    def expected(self) -> str:
        """What the finished environment is held to, as constraints."""
        forced = [line for step in self.steps if step.forced for line in step.requirements]
        return self.all_constraints + "".join(f"{line}\n" for line in forced)

    @property
    def interpreter(self) -> Interpreter:
        """The Python that the environment is made with."""
        return self.python or interpreters.running()

    @property
    def key(self) -> str:
        """Equal for equal instructions, Python and platform. Names the folder of the environment."""
        python = self.interpreter
        facts: dict[str, object] = {
            "framework": self.framework,
            "version": self.version,
            "build": self.build,
            "steps": [step.parts() for step in self.steps],
            "constraints": self.all_constraints,
            "python": [python.implementation, python.version, python.abi],
            "platform": [sys.platform, platform.machine()],
        }
        if self.python is not None:  # another build of the same version is another interpreter
            facts["interpreter"] = self.python.path
        if self.as_of:
            facts["as_of"] = self.as_of
        return content_hash(facts)


def recipe_for(framework: Framework, environment: Environment, as_of: str = "") -> Recipe:
    """The recipe of `environment`, its changes made.

    `as_of`: resolve with what was published before that moment, in place of the catalog's pins.

    Raises BuildFailed where the catalog has no such build (`no_such_build`), there is no such Python
    (`no_python`), or a local wheel is gone (`no_wheel`).
    """
    build = environment.build or framework.hardware[environment.hardware].build
    entry = framework.builds.get(build)
    if entry is None:
        known = ", ".join(sorted(framework.builds))
        raise BuildFailed(
            Reason(code="no_such_build", text=f"{framework.title} has no build {build!r}; it has: {known}")
        )
    steps = [
        Step(
            requirements=s.requirements(environment.version),
            no_deps=s.no_deps,
            index=s.index,
            links=s.links,
        )
        for s in entry.steps
    ]
    # A moment stands for the pins: all sides of a comparison are resolved by one rule.
    constraints = "" if as_of else _constraints(framework.constraints(build, environment.version))
    pins = "" if constraints else substitute.limits(entry.limits, environment.version)
    wanted = changes.of(environment.changes)
    exact, forced = _exact(wanted.requirements), _exact(wanted.forced)
    missing = [
        line for name, line in exact.items() if not any(substitute.names(name, s.requirements) for s in steps)
    ]
    return Recipe(
        framework=framework.name,
        version=environment.version,
        build=build,
        steps=(*_with(missing, [_changed(step, exact) for step in steps]), *_forced(forced)),
        constraints=substitute.without(constraints, {*exact, *forced}),
        pins=substitute.without(pins, {*exact, *forced}) + "".join(f"{line}\n" for line in exact.values()),
        as_of=as_of,
        python=_python(wanted.python),
        import_package=entry.import_package or framework.import_package,
        provided_by=tuple(framework.provided_by),
        disk_mb=entry.cost.disk_mb,
    )


def _exact(requirements: Mapping[str, str]) -> dict[str, str]:
    """Normal name -> the one requirement that stands for it, a wheel with its hash."""
    try:
        return {name: substitute.exact(name, value) for name, value in requirements.items()}
    except OSError as error:
        text = f"the wheel {error.filename} cannot be read: {error.strerror}"
        raise BuildFailed(Reason(code="no_wheel", text=text)) from error


def _changed(step: Step, exact: Mapping[str, str]) -> Step:
    return dataclasses.replace(step, requirements=substitute.replaced(step.requirements, exact))


def _with(missing: list[str], steps: list[Step]) -> tuple[Step, ...]:
    """What no step names is asked for in the last that resolves dependencies from the usual index."""
    if not missing:
        return tuple(steps)
    for at in reversed(range(len(steps))):
        if not steps[at].no_deps and steps[at].index is None:
            more = (*steps[at].requirements, *missing)
            return (*steps[:at], dataclasses.replace(steps[at], requirements=more), *steps[at + 1 :])
    return (*steps, Step(requirements=tuple(missing)))


def _forced(exact: Mapping[str, str]) -> tuple[Step, ...]:
    return (Step(requirements=tuple(exact.values()), no_deps=True, forced=True),) if exact else ()


def _python(asked: str) -> Interpreter | None:
    if not asked:
        return None
    try:
        return interpreters.find(asked)
    except interpreters.NoInterpreter as missing:
        raise BuildFailed(Reason(code="no_python", text=f"python={asked}: {missing}")) from None


def _constraints(path: Path | None) -> str:
    """The pinned set without comments and blank lines, so that those do not change the key."""
    if path is None or not path.is_file():
        return ""
    lines = (line.split("#", 1)[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return "".join(f"{line}\n" for line in lines if line)
