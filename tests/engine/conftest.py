"""A real engine for the tests of this folder, and a tiny image with what a worker needs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from private_engine import PrivateEngine, an_engine
from small_engine import a_small_engine
from tiny_image import make_tiny

from matrix.environments.bundle import Bundle
from matrix.execution.container import Plan
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes

PYTHON = "/usr/bin/python3"
MIB = 1 << 20


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One engine is one resource: with several test processes, one of them has all of these tests."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.xdist_group("engine"))


@pytest.fixture(scope="session")
def private() -> Iterator[PrivateEngine]:
    """An engine of our own, with the base image."""
    # Sockets have short paths, and pytest's own folders long ones.
    with an_engine(Path(tempfile.mkdtemp(prefix="fmx-engine-"))) as engine:
        yield engine


@pytest.fixture
def fragile(private: PrivateEngine, tiny: str) -> Iterator[PrivateEngine]:
    """The engine, for a test that kills it; it is there again afterwards."""
    yield private
    private.kill()
    private.start()


@pytest.fixture(scope="module")
def small() -> Iterator[PrivateEngine]:
    """An engine whose disk is so small that it can be filled."""
    with a_small_engine() as engine:
        yield engine


@pytest.fixture
def client(private: PrivateEngine) -> Iterator[docker.DockerClient]:
    with private.client() as found:
        yield found


@pytest.fixture(scope="session")
def tiny(private: PrivateEngine) -> str:
    """The id of an image with Python and NumPy and nothing else."""
    return make_tiny(private)


@pytest.fixture
def engine(client: docker.DockerClient) -> Engine:
    return Engine(client, back_s=60)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def volumes(engine: Engine, home: Path) -> Volumes:
    return Volumes(engine, home, "test")


@pytest.fixture(scope="session")
def plan(tiny: str, home: Path) -> Plan:
    """How containers of the tiny image are made."""
    adapter = Path(__file__).with_name("toy_adapter")
    return Plan(
        image=tiny, python=PYTHON, worker=Bundle(home, [adapter]).stage(), run="test", memory_bytes=256 * MIB
    )


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test provokes, no container and no anonymous volume stays behind."""
    yield
    if "private" not in request.fixturenames:
        return
    private: PrivateEngine = request.getfixturevalue("private")
    with private.client() as client:
        left = client.containers.list(all=True)
        volumes = [v.name for v in client.volumes.list() if not v.name.startswith("framework-matrix-")]
    assert [c.name for c in left] == []
    assert volumes == []
