"""`matrix doctor` beside a real engine, and without one."""

from __future__ import annotations

import json

import pytest
from private_engine import PrivateEngine

from matrix import cli


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, object]]:
    code = cli.main(["doctor", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_the_doctor_says_what_the_engine_is_and_what_it_offers(
    private: PrivateEngine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", private.url)
    code, said = asked(capsys, "--fail-on", "engine_absent")
    assert code == 0
    container_engine = said["container_engine"]
    assert isinstance(container_engine, dict)
    facts = container_engine["engine"]
    assert facts["kind"] == "docker"
    assert facts["local"]
    assert facts["cpuset"]
    assert facts["cgroup_version"] in ("1", "2")
    assert facts["storage_free_bytes"] > 0
    assert container_engine["devices"]["cpu"]["found"]


def test_a_script_learns_by_the_exit_code_that_no_engine_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    code, said = asked(capsys, "--fail-on", "engine_absent")
    assert code == 1
    assert said["container_engine"]["answers"] is False  # type: ignore[index]
    assert asked(capsys)[0] == 0
