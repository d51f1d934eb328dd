"""The sessions of Framework Matrix; each is a few lines over the same commands.

`nox -s matrix` is the product, `nox -s tests` proves it, `nox -l` explains the rest.
"""

from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["matrix"]

PYPROJECT = nox.project.load_toml("pyproject.toml")


def _install(session: nox.Session, *groups: str) -> None:
    wanted = [line for group in groups for line in nox.project.dependency_groups(PYPROJECT, group)]
    session.install("--quiet", "-e", ".", *wanted)


def _run(session: nox.Session, *command: str) -> None:
    # nox would kill its child half a second after Ctrl-C: a run needs longer to stop its
    # workers and to store what it has.
    session.run(*command, interrupt_timeout=30, terminate_timeout=10)


@nox.session
def matrix(session: nox.Session) -> None:
    """Run the comparison matrix; arguments after -- go to `matrix run`."""
    _install(session)
    _run(session, "matrix", "run", *session.posargs)


@nox.session
def upgrade(session: nox.Session) -> None:
    """Judge a newer version; arguments after --: FRAMEWORK OLD NEW, and those of `matrix upgrade`."""
    _install(session)
    _run(session, "matrix", "upgrade", *session.posargs)


@nox.session
def report(session: nox.Session) -> None:
    """Show a stored run again; arguments after -- go to `matrix report` (default: latest)."""
    _install(session)
    _run(session, "matrix", "report", *(session.posargs or ["latest"]))


IMAGES = sorted((path.parent.name, path.suffix[1:]) for path in Path("images").glob("*/Dockerfile.*"))


@nox.session
@nox.parametrize("framework, hardware", IMAGES, ids=["-".join(pair) for pair in IMAGES])
def images(session: nox.Session, framework: str, hardware: str) -> None:
    """Build one container image; arguments after -- go to `matrix images build`."""
    _install(session)
    wanted = ["--framework", framework, "--hardware", hardware]
    _run(session, "matrix", "images", "build", *wanted, *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole test suite; quick ones: nox -s tests -- -m "not real and not engine"."""
    _install(session, "test")
    # A framework takes up to 2 GB: no more than four at once, however many cores there are.
    _run(session, "pytest", "-n", "auto", "--maxprocesses", "4", "--dist", "loadgroup", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style with ruff, and the Dockerfiles with hadolint."""
    session.install("--quiet", *nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    dockerfiles = [f"images/{framework}/Dockerfile.{hardware}" for framework, hardware in IMAGES]
    session.run("hadolint", "--config", "images/.hadolint.yaml", *dockerfiles)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy --strict."""
    _install(session, "types")
    session.run("mypy")


@nox.session
def docs(session: nox.Session) -> None:
    """Run the commands and examples of README and docs."""
    _install(session, "test")
    _run(session, "pytest", "tests/docs", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmark our own overhead (clock, planning, storing, rendering)."""
    _install(session, "test")
    _run(session, "pytest", "tests/bench", "--benchmark-enable", "--benchmark-only", *session.posargs)
