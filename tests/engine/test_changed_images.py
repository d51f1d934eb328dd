"""Images that differ on purpose: another package, base or variable; and what an image cannot change."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from private_engine import BASE_TAG
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix import catalog
from matrix.catalog.types import Framework
from matrix.environments import pip_tool
from matrix.environments.base import BuildFailed, quiet
from matrix.environments.docker import ContainerEnvironment, DockerBackend, Setup
from matrix.environments.images import ImageOptions, shelf, sources, wheels
from matrix.environments.images.job import Job
from matrix.environments.pip import IndexProbe
from matrix.records import Environment
from matrix_adapters.protocol import ASKED_VARIABLE

HARDWARE = catalog.load().hardware
OTHER_BASE = "another-base:7"


@pytest.fixture
def toy(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Framework:
    """A framework with a helper in three versions, and its Dockerfile."""
    job = Job(home=home, log=tmp_path / "log", progress=quiet, cancelled=None, probe=IndexProbe())
    wheels.installer(pip_tool.installer_pin(), job)  # what build stages run comes from where it always does
    shop = tmp_path / "shop"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    make_wheel(shop, "toy", requires=["helper<2"])
    for version in ("1.0", "1.1", "2.0"):
        make_wheel(shop, "helper", version)
    package = tmp_path / "toy_package"
    package.mkdir()
    shipped = (sources.folder() / "onnxruntime" / "Dockerfile.cpu").read_text()
    (package / "Dockerfile.cpu").write_text(shipped.replace("onnxruntime-cpu", "toy-cpu"))
    return toy_framework().model_copy(update={"source_dir": package})


@pytest.fixture
def backend(client: docker.DockerClient, home: Path, toy: Framework) -> Iterator[DockerBackend]:
    made = DockerBackend({"toy": toy}, HARDWARE, home, client, options=ImageOptions(bases={"cpu": BASE_TAG}))
    yield made
    for item in shelf.contents(client):
        if item.image.startswith("toy"):
            for name in item.tags or (item.id,):
                client.images.remove(name, force=True)


def changed(toy: Framework, *texts: str) -> Environment:
    return dataclasses.replace(toy_environment(toy), changes=texts)


def build(backend: DockerBackend, toy: Framework, *texts: str) -> ContainerEnvironment:
    return backend.build(changed(toy, *texts))


def test_an_image_holds_the_package_that_was_asked_for(
    backend: DockerBackend, toy: Framework, tmp_path: Path
) -> None:
    usual, other = build(backend, toy), build(backend, toy, "helper=1.0")
    assert usual.lock == ("helper==1.1", "toy==1.0")
    assert other.lock == ("helper==1.0", "toy==1.0")
    assert other.key != usual.key
    own = make_wheel(tmp_path, "helper", "1.5", files={"helper/__init__.py": "own = True\n"})
    assert build(backend, toy, f"helper={own}").lock == ("helper==1.5", "toy==1.0")


def test_a_package_that_is_forbidden_is_there_only_where_it_is_forced(
    backend: DockerBackend, toy: Framework
) -> None:
    with pytest.raises(BuildFailed) as caught:
        build(backend, toy, "helper=2.0")
    assert caught.value.reason.code == "resolver_conflict"
    assert build(backend, toy, "helper=2.0!").lock == ("helper==2.0", "toy==1.0")


def test_an_image_is_built_from_the_base_that_was_asked_for(
    backend: DockerBackend, toy: Framework, client: docker.DockerClient
) -> None:
    client.images.get(BASE_TAG).tag("another-base", "7")
    try:
        wanted = changed(toy, f"base={OTHER_BASE}")
        setup = Setup(frameworks={"toy": toy}, hardware=HARDWARE, home=Path(), environments=(wanted,))
        assert list(setup._bases()) == [OTHER_BASE]
        assert backend.build(wanted).lock == ("helper==1.1", "toy==1.0")
        with pytest.raises(BuildFailed) as caught:
            build(backend, toy, "base=no-such-base:1")
        assert caught.value.reason.code == "base_missing"
    finally:
        client.images.remove(OTHER_BASE)


def test_a_variable_is_given_to_containers_and_needs_no_image_of_its_own(
    backend: DockerBackend, toy: Framework
) -> None:
    usual, other = build(backend, toy), build(backend, toy, "env:TOY_MODE=fast")
    assert other.plan.image == usual.plan.image
    assert other.key != usual.key
    assert other.plan.environ["TOY_MODE"] == "fast"
    assert other.plan.environ[ASKED_VARIABLE] == "TOY_MODE"
    assert "TOY_MODE" not in usual.plan.environ


def test_an_interpreter_is_the_bases_own(backend: DockerBackend, toy: Framework) -> None:
    with pytest.raises(BuildFailed) as caught:
        build(backend, toy, "python=3.12")
    assert caught.value.reason.code == "cannot_change"
    assert "a container has the Python of its base image: give base=IMAGE" in caught.value.reason.text
