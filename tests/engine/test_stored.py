"""What stays on an engine on purpose: seen, counted and removed; and that nothing else can stay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest
from private_engine import BASE_TAG, PrivateEngine

from matrix import cli
from matrix.environments.images import base
from matrix.execution import leases, stored_volumes
from matrix.execution.container import Plan
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes


@pytest.fixture
def filled(engine: Engine, plan: Plan, tmp_path: Path) -> Iterator[str]:
    """A volume with a model of 3 MB; its name."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"w" * 3_000_000)
    name = Volumes(engine, tmp_path / "locks", "test").of_path(model, plan.image)
    yield name
    for item in stored_volumes.contents(engine):
        engine.api.remove_volume(item.name, force=True)


@pytest.fixture
def ask(
    private: PrivateEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:
    """`matrix images ...` on the engine of the tests, with a cache folder of its own."""
    monkeypatch.setenv("DOCKER_HOST", private.url)
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(tmp_path / "home"))

    def run(*arguments: str) -> tuple[int, str]:
        code = cli.main(["images", *arguments])
        return code, capsys.readouterr().out

    return run


def test_volumes_are_listed_with_their_size_and_removed_by_prune_all(
    filled: str, ask: Callable[..., tuple[int, str]], engine: Engine
) -> None:
    (row,) = [v for v in json.loads(ask("list", "--json")[1])["volumes"] if v["name"] == filled]
    assert row["what"] == "model"
    assert row["size_bytes"] >= 3_000_000
    assert "volumes with models and worker sources" in ask("list")[1]
    assert ask("prune") == (0, "removed 0 of 0, up to 0 B freed\n")
    assert ask("prune", "--all", "--hardware", "ascend")[0] == 0
    assert filled in [item.name for item in stored_volumes.contents(engine)]
    code, said = ask("prune", "--all")
    assert code == 0
    freed = re.fullmatch(r"removed (\d+) of \1, up to ([\d.]+) ([MG])iB freed\n", said)
    assert freed, said
    assert float(freed[2]) * {"M": 1, "G": 1024}[freed[3]] >= 2.86, "with what other tests left here"
    assert stored_volumes.contents(engine) == []


def test_a_volume_is_kept_while_any_run_lives_even_between_its_launches(
    filled: str, ask: Callable[..., tuple[int, str]], engine: Engine, client: docker.DockerClient
) -> None:
    elsewhere = client.containers.create(
        BASE_TAG, "true", labels={leases.LEASE_LABEL: "another:machine:0:1:2"}
    )
    try:
        code, said = ask("prune", "--all")
    finally:
        elsewhere.remove(v=True)
    assert code == 1
    assert f"kept {filled}: a run uses it" in said
    assert filled in [item.name for item in stored_volumes.contents(engine)]


def test_a_volume_of_a_container_is_kept_by_the_engine_itself(
    filled: str, engine: Engine, client: docker.DockerClient
) -> None:
    container = client.containers.create(BASE_TAG, "true", volumes={filled: {"bind": "/x", "mode": "ro"}})
    try:
        (item,) = [item for item in stored_volumes.contents(engine) if item.name == filled]
        assert item.in_use
        (removal,) = stored_volumes.remove(engine, [item])
        assert "in use" in removal.kept
    finally:
        container.remove(v=True)


def test_every_container_that_is_ever_made_carries_a_lease(
    engine: Engine, client: docker.DockerClient, plan: Plan, tmp_path: Path
) -> None:
    """Those that fill a volume and those that ask an image something, too: a sweep finds all of them."""
    made: list[dict[str, str]] = []
    create = client.api.create_container_from_config

    def watched(config: dict[str, object], *more: object, **named: object) -> object:
        made.append(dict(config["Labels"] or {}))  # type: ignore[call-overload]
        return create(config, *more, **named)

    client.api.create_container_from_config = watched  # type: ignore[method-assign]
    (tmp_path / "a").write_text("a")
    volumes = Volumes(engine, tmp_path / "locks", "test")
    volumes.of_path(tmp_path / "a", plan.image)
    volumes.of_worker(plan.worker, plan.image, plan.python)
    assert base.ask(client, plan.image, ["true"])[0] == 0
    for item in stored_volumes.contents(engine):
        client.api.remove_volume(item.name)
    assert len(made) >= 2
    assert {labels.get(leases.LEASE_LABEL) for labels in made} == {leases.own_lease()}
