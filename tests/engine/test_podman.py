"""A smoke test of podman through its Docker socket: the same code, and the differences that are known."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import numpy as np
import pytest
from conftest import MIB, PYTHON
from private_podman import PrivatePodman, a_podman
from tiny_image import make_tiny
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix.environments.bundle import Bundle
from matrix.environments.images import ImageOptions, base, ensure_image, sources
from matrix.execution import engine_facts
from matrix.execution.container import run_in_container
from matrix.execution.container_plan import Plan
from matrix.execution.engine import Engine
from matrix.execution.volumes import Volumes
from matrix_adapters.protocol import Measure, ModelSpec, Result, State, Task, TaskKind

Launch = Callable[..., Result]


@pytest.fixture(scope="module")
def podman() -> Iterator[PrivatePodman]:
    with a_podman(Path(tempfile.mkdtemp(prefix="fmx-podman-"))) as engine:
        yield engine


@pytest.fixture(scope="module")
def client(podman: PrivatePodman) -> Iterator[docker.DockerClient]:
    with podman.client() as found:
        yield found


@pytest.fixture(scope="module")
def image(podman: PrivatePodman) -> str:
    return make_tiny(podman)


@pytest.fixture
def launch(client: docker.DockerClient, image: str, tmp_path: Path) -> Iterator[Launch]:
    """Launch the toy framework, which does what `does` says; nothing of it is left afterwards."""
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "weights").write_bytes(b"w")
    np.savez(tmp_path / "inputs.npz", x=np.arange(4, dtype=np.float32))
    bundle = Bundle(tmp_path / "home", [Path(__file__).with_name("toy_adapter")])
    plan = Plan(image=image, python=PYTHON, worker=bundle.stage(), run="test", memory_bytes=256 * MIB)
    engine = Engine(client)
    volumes = Volumes(engine, tmp_path / "home", "test")

    def run(does: str, *, device: str = "cpu", **changes: object) -> Result:
        task = Task(
            kind=TaskKind.MEASURE,
            framework="toy",
            adapter="toy_adapter",
            device=device,
            model=ModelSpec(name=does, format="none", task="backbone"),
            artefacts={"checkpoint": str(tmp_path / "checkpoint")},
            inputs=str(tmp_path / "inputs.npz"),
            measure=Measure(samples=5, max_steady_s=0.2, max_warmup_s=0.1),
        )
        changed = dataclasses.replace(plan, **changes)  # type: ignore[arg-type]
        return run_in_container(changed, engine, volumes, task, tmp_path / "job", timeout_s=60, stall_s=60)

    yield run
    bundle.close()
    assert [container.name for container in client.containers.list(all=True)] == []
    assert [v.name for v in client.volumes.list() if not v.name.startswith("framework-matrix-")] == []


def test_podman_is_told_from_docker_and_its_differences_are_said(client: docker.DockerClient) -> None:
    facts = engine_facts.read(client)
    assert facts.kind == "podman"
    assert facts.local
    (spoiler,) = [s for s in engine_facts.spoilers(facts) if s.code == "engine_podman"]
    assert "ignores requests for GPUs" in spoiler.text


def test_an_image_is_built_and_found_again_by_its_key(client: docker.DockerClient, tmp_path: Path) -> None:
    package = tmp_path / "toy_package"
    package.mkdir()
    shipped = (sources.folder() / "onnxruntime" / "Dockerfile.cpu").read_text()
    (package / "Dockerfile.cpu").write_text(shipped.replace("onnxruntime-cpu", "toy-cpu"))
    wheel = make_wheel(tmp_path / "shop", "toy")
    framework = toy_framework([str(wheel)]).model_copy(update={"source_dir": package})
    options = ImageOptions(bases={"cpu": "framework-matrix-test-base:bookworm"})
    home = tmp_path / "home"
    first = ensure_image(client, framework, toy_environment(framework), home=home, options=options)
    again = ensure_image(client, framework, toy_environment(framework), home=home, options=options)
    assert first.lock == ("toy==1.0",)
    assert (again.id, again.reused) == (first.id, True)
    client.images.remove(first.tag, force=True)


def test_a_base_that_no_registry_has_is_told_though_podman_cannot_ask_for_it(
    client: docker.DockerClient,
) -> None:
    said = base.registry_problem(client, "registry.invalid/no/such:1")
    assert "registry.invalid" in said or "no answer from its registry" in said  # it tries several times


def test_a_launch_ends_as_it_does_on_docker(launch: Launch) -> None:
    result = launch("good")
    assert result.state is State.OK, result.reason
    assert result.effective["read"] == {"checkpoint": ["weights"]}


def test_a_worker_can_reach_no_network_write_no_root_and_become_nobody_else(launch: Launch) -> None:
    seen = launch("spy").probes["framework"]
    assert "unreachable" in seen["network"]
    assert "Read-only file system" in seen["root"]
    assert "not permitted" in seen["setuid"]
    assert seen["user"] == 10001
    assert int(seen["capabilities"], 16) == 0


def test_lack_of_memory_is_found_by_our_own_counter_since_podman_flags_none(
    launch: Launch, client: docker.DockerClient, image: str
) -> None:
    eat = "held = []\nwhile True: held.append(b'x' * (16 << 20))"
    plain = client.containers.create(image, [PYTHON, "-c", eat], mem_limit=64 * MIB, memswap_limit=64 * MIB)
    plain.start()
    assert plain.wait()["StatusCode"] == 137
    plain.reload()
    flagged = plain.attrs["State"]["OOMKilled"]
    plain.remove(v=True)
    result = launch("eat")
    assert result.state is State.OOM
    assert result.reason is not None
    assert "(limit 256 MiB, peak 256 MiB)" in result.reason.text
    print(f"podman's own flag says {flagged}")


def test_a_gpu_that_podman_ignores_is_missed_by_the_worker(launch: Launch) -> None:
    request = ({"capabilities": [["gpu"]], "count": -1},)
    assert launch("good", device_requests=request).state is State.OK  # it was ignored
    result = launch("good", device="cuda", device_requests=request)
    assert result.state is State.UNAVAILABLE
    assert result.reason is not None
    assert "cuda asked, cpu used" in result.reason.text
    assert not result.metrics


def test_a_missing_device_node_is_unavailable(launch: Launch) -> None:
    result = launch("good", devices=("/dev/kfd-that-is-not-there",))
    assert result.state is State.UNAVAILABLE
    assert result.reason is not None
    assert result.reason.code == "device_refused"


@pytest.mark.parametrize(
    ("does", "code"), [("segv", "crash"), ("killed", "killed"), ("exit137", "exit_status")]
)
def test_a_worker_that_dies_is_told_as_on_docker(launch: Launch, does: str, code: str) -> None:
    result = launch(does)
    assert result.state is State.FAILED
    assert result.reason is not None
    assert result.reason.code == code
