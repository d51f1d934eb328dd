"""What the doctor makes of an engine's words, and that every finding can be named by a script."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

import matrix
from matrix import catalog
from matrix.commands import doctor
from matrix.errors import UsageError
from matrix.execution.engine_facts import EngineFacts, devices, spoilers

PROFILES = catalog.load_from(catalog.folder(), third_parties=False).hardware
PLAIN = EngineFacts(
    kind="docker",
    version="29.1.0",
    api="1.52",
    local=True,
    system="Debian",
    storage_driver="overlay2",
    storage_folder="/var/lib/docker",
    storage_free_bytes=10**12,
    cgroup_version="2",
    cgroup_driver="systemd",
    cpus=8,
    memory_bytes=2**35,
    cpuset=True,
    memory_limit=True,
    runtimes=("runc",),
    cdi=(),
    rootless=False,
)


def test_an_ordinary_engine_spoils_nothing_and_offers_the_cpu_only() -> None:
    assert spoilers(PLAIN) == []
    seen = devices(PLAIN, PROFILES)
    assert {name for name, answer in seen.items() if answer.found} == {"cpu"}
    assert "NVIDIA Container Toolkit" in seen["nvidia"].reason


@pytest.mark.parametrize("more", [{"runtimes": ("nvidia", "runc")}, {"cdi": ("nvidia.com/gpu=0",)}])
def test_a_vendors_runtime_or_a_named_device_offers_its_profile(more: dict[str, tuple[str, ...]]) -> None:
    assert devices(dataclasses.replace(PLAIN, **more), PROFILES)["nvidia"].found  # type: ignore[arg-type]


def test_podman_without_named_devices_would_ignore_the_request() -> None:
    facts = dataclasses.replace(PLAIN, kind="podman", runtimes=("nvidia",))
    answer = devices(facts, PROFILES)["nvidia"]
    assert not answer.found
    assert "ignore" in answer.reason


def test_nodes_of_a_remote_engine_are_not_looked_for_here(tmp_path: Path) -> None:
    node = tmp_path / "kfd"
    node.touch()
    amd = PROFILES["amd"].model_copy(
        update={"container": PROFILES["amd"].container.model_copy(update={"device_nodes": [str(node)]})}
    )
    assert devices(PLAIN, {"amd": amd})["amd"].found
    answer = devices(dataclasses.replace(PLAIN, local=False), {"amd": amd})["amd"]
    assert not answer.found
    assert "remote" in answer.reason


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ({"storage_free_bytes": 10**9}, "engine_disk"),
        ({"cpuset": False}, "engine_cpuset"),
        ({"memory_limit": False}, "engine_memory"),
        ({"storage_driver": "vfs"}, "engine_storage"),
        ({"kind": "podman"}, "engine_podman"),
    ],
)
def test_each_fault_of_an_engine_is_found_by_itself(fault: dict[str, object], code: str) -> None:
    assert [s.code for s in spoilers(dataclasses.replace(PLAIN, **fault))] == [code]  # type: ignore[arg-type]


def test_every_finding_in_the_code_can_be_named_and_no_other() -> None:
    root = Path(matrix.__file__).parent
    found = {doctor.NO_ENGINE}
    for file in (root / "machine" / "doctor.py", root / "execution" / "engine_facts.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Spoiler":
                assert isinstance(node.args[0], ast.Constant)
                found.add(node.args[0].value)
    assert set(doctor.CODES) == found


def test_an_unknown_code_is_a_usage_error_and_any_means_all() -> None:
    with pytest.raises(UsageError, match="governor"):
        doctor._wanted("no_such_code")
    assert doctor._wanted("any") == set(doctor.CODES)
    assert doctor._wanted("swap, steal") == {"swap", "steal"}
    assert doctor._wanted("") == set()
