"""What makes an environment differ on purpose: `--base-with` and `--candidate-with KEY=VALUE`.

| KEY=VALUE | what changes |
|---|---|
| `numpy=2.2.0` | a distribution in exactly that version, whatever constraints and dependencies chose |
| `numpy=PATH.whl` | a distribution from a local wheel; the framework's own too |
| `numpy=1.20.0!` | the same (of either), put in last and even against what others declare to need |
| `python=3.12`, `python=PATH` | the interpreter of the virtualenv |
| `base=IMAGE` | the image that the environment's image is built from |
| `env:NAME=VALUE` | an environment variable of every worker |
| `variant=NAME` | the framework's variant: a matter of the workload, not of the environment |

An environment keeps them as sorted texts of exactly this form (`Environment.changes`).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from matrix.catalog.types import Framework
from matrix.environments import interpreters
from matrix.errors import UsageError
from matrix.execution.environ import REMOVED_NAMES, REMOVED_PREFIXES
from matrix.paths import given
from matrix.strict_yaml.located import did_you_mean
from matrix_adapters.protocol import WORKER_VARIABLES

FORMS = "numpy=2.2.0, numpy=PATH.whl, python=3.12, base=IMAGE, env:NAME=VALUE or variant=NAME"
ENV = "env:"
WHEEL = ".whl"
FORCED = "!"

_WORDS = ("python", "base", "variant")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = "FRAMEWORK_MATRIX_"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Side:
    """How one side of a comparison differs from the catalog: its environment, and its variant ("": usual)."""

    changes: tuple[str, ...] = ()
    variant: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """`Environment.changes` taken apart."""

    requirements: Mapping[str, str] = dataclasses.field(default_factory=dict)  # normal name: version or wheel
    forced: Mapping[str, str] = dataclasses.field(default_factory=dict)  # the same, whatever others declare
    python: str = ""
    base: str = ""
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)


def parse(texts: Iterable[str], framework: Framework, option: str) -> Side:
    """What `option` (`--candidate-with`) says of one side. Raises UsageError with what to write instead."""
    changes: dict[str, str] = {}
    variant = ""
    for text in texts:
        key, value = _split(text, option)
        if key == "variant":
            _unique(variant, value, text, option)
            variant = _variant(value, framework, f"{option} {text}")
            continue
        key, value = _change(key, value, framework, f"{option} {text}")
        _unique(changes.get(key, value), value, text, option)
        changes[key] = value
    return Side(changes=tuple(sorted(f"{key}={value}" for key, value in changes.items())), variant=variant)


def of(changes: Sequence[str]) -> Changes:
    """`Environment.changes` as fields."""
    requirements: dict[str, str] = {}
    forced: dict[str, str] = {}
    environ: dict[str, str] = {}
    words = dict.fromkeys(_WORDS, "")
    for text in changes:
        key, _, value = text.partition("=")
        if key.startswith(ENV):
            environ[key.removeprefix(ENV)] = value
        elif key in words:
            words[key] = value
        elif value.endswith(FORCED):
            forced[key] = value.removesuffix(FORCED)
        else:
            requirements[key] = value
    return Changes(
        requirements=requirements, forced=forced, python=words["python"], base=words["base"], environ=environ
    )


def check(changes: Sequence[str], backend: Literal["docker", "venv", "host"], option: str) -> None:
    """Whether that backend can make such an environment here. Raises UsageError, before anything is built."""
    if problem := impossible(changes, backend):
        raise UsageError(f"{option} {problem}")


def impossible(changes: Sequence[str], backend: Literal["docker", "venv", "host"]) -> str:
    """Why that backend cannot make such an environment, in words; "" where it can."""
    wanted = of(changes)
    if wanted.base and backend != "docker":
        return f"base={wanted.base}: only a container has a base image: use --backend docker"
    if wanted.python and backend == "docker":
        return (
            f"python={wanted.python}: a container has the Python of its base image: give base=IMAGE, "
            "or use --backend venv"
        )
    if backend == "host" and (wanted.python or wanted.requirements or wanted.forced):
        first = next(text for text in changes if not text.startswith(ENV))
        return f"{first}: --backend host measures the interpreter as it is: use --backend venv"
    if wanted.python:
        try:
            interpreters.find(wanted.python)
        except interpreters.NoInterpreter as missing:
            return f"python={wanted.python}: {missing}"
    return ""


# --- one KEY=VALUE ------------------------------------------------------------------------


def _split(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UsageError(f"{option} {text!r}: write KEY=VALUE: {FORMS}")
    return key, value if key.startswith(ENV) else value.strip()


def _change(key: str, value: str, framework: Framework, where: str) -> tuple[str, str]:
    """The key and value as an environment keeps them."""
    if key.startswith(ENV):
        return key, _environ(key.removeprefix(ENV), value, where)
    if not value:
        raise UsageError(f"{where}: there is nothing after the =")
    if key == "python":
        return key, _python(value)
    if key == "base":
        if re.search(r"\s", value):
            raise UsageError(f"{where}: an image's name has no spaces")
        return key, value
    return _requirement(key, value, framework, where)


def _environ(name: str, value: str, where: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise UsageError(f"{where}: {name!r} is no name of a variable: write env:NAME=VALUE")
    if "\0" in value:
        raise UsageError(f"{where}: a variable cannot hold a null byte")
    if name in WORKER_VARIABLES or name.startswith(_OWN):
        raise UsageError(
            f"{where}: the worker sets {name} itself, the same for every framework; "
            "threads are asked for in the sweep (`threads:`)"
        )
    if name in REMOVED_NAMES or name.startswith(REMOVED_PREFIXES):
        raise UsageError(f"{where}: {name} is kept from every worker, since it changes what is measured")
    return value


def _python(value: str) -> str:
    """A version stays; anything else is a path, made absolute (not resolved: a virtualenv's is a link)."""
    if re.fullmatch(r"\d+(\.\d+)*t?", value):
        return value
    return str(given(value, "python="))


def _requirement(key: str, value: str, framework: Framework, where: str) -> tuple[str, str]:
    if re.search(r"[<>!~=]$", key) or value[:1] in "=<>~!":
        name = re.sub(r"[\s<>!~=]+$", "", key)
        raise UsageError(
            f"{where}: write one exact version, {name}=2.2.0: a range would mean another one tomorrow"
        )
    if not _DISTRIBUTION.fullmatch(key):
        raise UsageError(f"{where}: {key!r} is no name of a distribution: write {FORMS}")
    name = canonicalize_name(key)
    own = name in {canonicalize_name(known) for known in framework.provided_by}
    if near := _mistyped(name, framework):
        raise UsageError(f"{where}: there is no {key!r} to change; did you mean {near!r}? ({FORMS})")
    bare = value.removesuffix(FORCED)
    mark = value[len(bare) :]
    if bare.endswith(WHEEL):
        return name, _wheel(name, bare, where) + mark
    if own:
        raise UsageError(
            f"{where}: that is {framework.title} itself, whose version the command names; another build of "
            f"it is a local wheel, {key}=PATH.whl"
        )
    try:
        return name, str(Version(bare)) + mark
    except InvalidVersion:
        raise UsageError(
            f"{where}: {value!r} is neither a version nor a wheel: write {key}=2.2.0 or {key}=PATH.whl"
        ) from None


def _mistyped(name: str, framework: Framework) -> str:
    """The key or distribution that was most likely meant; "" where `name` may well be what was meant."""
    if name in ("env", "environ", "environment"):
        return f"{ENV}NAME"
    known = framework.distributions()
    if name in known:
        return ""
    near = difflib.get_close_matches(name, [*_WORDS, *known], n=5, cutoff=0.8)
    return next((word for word in near if word[0] == name[0] and abs(len(word) - len(name)) <= 1), "")


def _wheel(name: str, value: str, where: str) -> str:
    path = given(value, where).resolve()
    if not path.is_file():
        raise UsageError(f"{where}: there is no file {path}")
    try:
        found = parse_wheel_filename(path.name)[0]
    except InvalidWheelFilename:
        raise UsageError(f"{where}: {path.name} is no wheel's file name") from None
    if found != name:
        raise UsageError(f"{where}: {path.name} is a wheel of {found}: write {found}={value}")
    return str(path)


def _variant(value: str, framework: Framework, where: str) -> str:
    if value in framework.variants:
        return value
    if not framework.variants:
        raise UsageError(f"{where}: {framework.title} has no variants")
    names = ", ".join(framework.variants)
    hint = did_you_mean(value, framework.variants)
    raise UsageError(f"{where}: {framework.title} has no variant {value!r}{hint}: it has {names}")


def _unique(before: str, now: str, text: str, option: str) -> None:
    if before and before != now:
        raise UsageError(f"{option} {text}: it was given as {before} already")
