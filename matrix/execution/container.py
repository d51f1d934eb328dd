"""One launch in a fresh container: sent in by archive, watched from inside, fetched by archive.

While a launch is timed nothing crosses the border: the supervisor inside keeps the deadline
and watches the heartbeat; out here one call waits for the container to end. The container
has no network, a root it cannot write, no capabilities and an ordinary user, and it is
removed whatever happens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker.types

from matrix.execution import leases
from matrix.execution.archives import UID, Entry, pack, unpack
from matrix.execution.cancel import Cancel
from matrix.execution.ending import (
    MAX_LOG_BYTES,
    Ending,
    Stop,
    conclude,
    read_heartbeat,
)
from matrix.execution.engine import ENGINE_ERRORS, Engine, Gone, Refused, Silent
from matrix.execution.volumes import CONTENT, Volumes
from matrix.store.durable import storage
from matrix_adapters.protocol import (
    HEARTBEAT_FILE,
    LOG_FILE,
    RESULT_FILE,
    TASK_FILE,
    Flag,
    Reason,
    Result,
    State,
    Task,
    to_json,
)

JOB, WORKER, MODELS = "/job", "/worker", "/models"
EXIT_FILE = "exit.json"
#: the supervisor keeps the deadline; this much later something is wrong with it or the engine
OUTER_GRACE_S = 20.0
STOP_GRACE_S = 6
_PHASE_EVERY_S = 3.0
_CLOCK_JUMP_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """How the containers of one environment are made."""

    image: str  # the engine's id: a tag may move
    python: str  # the interpreter in the image
    worker: Path  # the staged sources on the host
    run: str = ""
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory_bytes: int | None = None
    cpuset: str = ""  # cores, as the engine's host counts them; "" for all
    pids: int = 4096
    shm_bytes: int | None = None
    devices: tuple[str, ...] = ()  # nodes of the engine's host
    groups: tuple[str, ...] = ()  # group ids that may open them
    device_requests: tuple[Mapping[str, Any], ...] = ()  # as `docker.types.DeviceRequest` takes them
    mounts: tuple[str, ...] = ()  # the driver's own files, read-only


def run_in_container(
    plan: Plan,
    engine: Engine,
    volumes: Volumes,
    task: Task,
    folder: Path,
    *,
    timeout_s: float,
    stall_s: float,
    on_phase: Callable[[str], None] | None = None,
    cancel: Cancel | None = None,
    out_dir: Path | None = None,
) -> Result:
    """Run `task` in a fresh container; `folder` gets `in/` and `out/` as a local launch leaves them.

    Always returns a result for what happens to the launch. Raises EngineLost when the engine
    does not answer before it, StorageError when this machine's disk is full.
    """
    in_dir, out_dir = folder / "in", out_dir or folder / "out"
    with storage(folder):
        in_dir.mkdir(parents=True, exist_ok=True)
        out_dir.mkdir(parents=True, exist_ok=True)
        (out_dir / RESULT_FILE).unlink(missing_ok=True)
        (out_dir / HEARTBEAT_FILE).unlink(missing_ok=True)
    engine.must_answer(cancel)
    launch = _Launch(plan, engine, timeout_s=timeout_s, cancel=cancel, on_phase=on_phase)
    try:
        mounts, inner = _placed(task, plan, volumes)
        with storage(folder):
            (in_dir / TASK_FILE).write_text(to_json(inner), encoding="utf-8")
        with launch.container(mounts, stall_s=stall_s):
            launch.send(inner, task)
            stopped = launch.until_end()
            with storage(out_dir):
                ending = launch.fetch(out_dir, stopped)
        result = conclude(ending, out_dir)
    except Refused as refused:
        result = Result(state=refused.state, reason=refused.reason)
    except Gone as gone:
        volumes.forget()
        text = f"the container was removed by somebody else: {gone}"
        result = _failed("container_removed", text)
    except Silent as silent:
        volumes.forget()
        text = f"the container engine was lost in the middle of the launch: {silent}"
        result = _failed("engine_lost", text)
    return launch.described(result)


class _Launch:
    """One container from its creation to its removal."""

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        *,
        timeout_s: float,
        cancel: Cancel | None,
        on_phase: Callable[[str], None] | None,
    ) -> None:
        self._plan, self._engine = plan, engine
        self._timeout_s, self._cancel, self._on_phase = timeout_s, cancel, on_phase
        # Known before it is made: it can be removed even when the answer to its creation is lost.
        self._name = f"framework-matrix-{plan.run or 'run'}-{secrets.token_hex(6)}"
        self._exit: dict[str, Any] = {}
        self._phase = ""
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def container(self, mounts: list[docker.types.Mount], *, stall_s: float) -> Iterator[None]:
        """Create it; whatever happens, it is gone afterwards, or is left to the next sweep."""
        plan = self._plan
        command = [plan.python, "-I", "-S", f"{WORKER}/matrix_adapters/supervisor.py"]
        command += [f"{JOB}/out", f"{self._timeout_s:g}", f"{stall_s:g}", str(MAX_LOG_BYTES)]
        command += [plan.python, "-P", "-m", "matrix_adapters.worker", f"{JOB}/in", f"{JOB}/out"]
        try:
            with self._measured("create"), self._engine.calling() as api:
                api.create_container(
                    plan.image,
                    command,
                    name=self._name,
                    entrypoint=[],
                    user=f"{UID}:{UID}",
                    working_dir="/",
                    environment=environ(plan),
                    volumes=[JOB],
                    labels=leases.labels(plan.run),
                    healthcheck={"test": ["NONE"]},
                    host_config=_host_config(api, plan, mounts),
                )
            yield
        finally:
            with self._measured("remove"), contextlib.suppress(*ENGINE_ERRORS):
                self._engine.api.remove_container(self._name, v=True, force=True)

    def send(self, inner: Task, task: Task) -> None:
        """The task and its inputs, into the anonymous volume."""
        entries = [
            Entry("in", mode=0o755),
            Entry(f"in/{TASK_FILE}", to_json(inner).encode()),
            *([Entry(f"in/{inner.inputs}", Path(task.inputs))] if task.inputs and inner.inputs else []),
            Entry("out", mode=0o755, uid=UID),
        ]
        with self._measured("send"), self._engine.calling() as api:
            api.put_archive(self._name, JOB, b"".join(pack(entries)))

    def until_end(self) -> Stop | None:
        """Start it and sleep until it has ended; why it was stopped from out here, if it was."""
        with self._measured("start"), self._engine.calling() as api:
            api.start(self._name)
        deadline = time.monotonic() + self._timeout_s + OUTER_GRACE_S
        stopped: Stop | None = None
        with self._measured("run"):
            while True:
                wait = _Wait(self._engine, self._name)
                while not wait.over(min(self._tick(), deadline - time.monotonic()), self._cancel):
                    self._show_phase()
                    if stopped is None and self._cancel is not None and self._cancel.is_set():
                        stopped = Stop.CANCEL
                    elif time.monotonic() >= deadline:
                        stopped = stopped or Stop.DEADLINE
                    else:
                        continue
                    self._stop()
                    deadline = time.monotonic() + STOP_GRACE_S + OUTER_GRACE_S
                    if wait.over(STOP_GRACE_S + OUTER_GRACE_S, None):
                        break
                    raise Silent("it does not stop a container")
                if not wait.broken:
                    return stopped
                # The connection broke, the container may live on. A short loss is nothing.
                if not self._engine.comes_back(self._cancel):
                    raise Silent(wait.broken)
                if not self._runs():
                    return stopped

    def fetch(self, out_dir: Path, stopped: Stop | None) -> Ending:
        """Everything it left, and how it ended."""
        with self._measured("fetch"), self._engine.calling() as api:
            stream, _ = api.get_archive(self._name, f"{JOB}/out", chunk_size=1 << 20)
            apart = unpack(stream, out_dir, apart=frozenset({EXIT_FILE}))
        with contextlib.suppress(ValueError):
            self._exit = json.loads(apart.get(EXIT_FILE, b""))
        heartbeat = read_heartbeat(out_dir)
        self._phase = heartbeat.phase if heartbeat else ""
        if self._exit:
            return self._by_supervisor(stopped)
        return self._by_engine(out_dir, stopped)

    def described(self, result: Result) -> Result:
        """The result with what was seen from outside."""
        seen = {
            "exit_status": self._exit.get("status"),
            "wall_s": self._exit.get("seconds", self._seconds.get("run", 0.0)),
            "own_cpu_s": self._exit.get("own_cpu_s", 0.0),
            "environment": {"set": environ(self._plan)},
            "killed_afterwards": self._exit.get("killed_afterwards", 0),
            "container": {
                "image": self._plan.image,
                "memory_limit": self._exit.get("memory_limit"),
                "memory_peak": self._exit.get("memory_peak"),
                "cpuset": self._plan.cpuset,
                "seconds": {name: round(value, 4) for name, value in self._seconds.items()},
            },
        }
        jump = float(self._exit.get("clock_jump_s") or 0.0)
        if abs(jump) > _CLOCK_JUMP_S:
            text = f"the clock was set by {jump:+.1f} s while it ran; times are taken from another clock"
            result = dataclasses.replace(result, flags=(*result.flags, Flag(code="clock_jump", text=text)))
        return dataclasses.replace(result, probes={**result.probes, "orchestrator": seen})

    def _by_supervisor(self, stopped: Stop | None) -> Ending:
        told = self._exit
        inside = told.get("stopped")
        if stopped is None and inside is not None:
            # A signal that we did not send: somebody stopped the container.
            stopped = None if inside == Stop.CANCEL.value else Stop(inside)
        return Ending(
            status=int(told["status"]),
            phase=self._phase,
            seconds=float(told["seconds"]),
            stopped=stopped,
            silent_s=float(told["silent_s"]),
            oom=(told.get("oom_kills") or 0) > 0,
            own_group=True,
            memory_limit=told.get("memory_limit"),
            memory_peak=told.get("memory_peak"),
            disk_free=told.get("disk_free"),
        )

    def _by_engine(self, out_dir: Path, stopped: Stop | None) -> Ending:
        """The supervisor itself was killed, or never ran: what the engine knows has to do."""
        with self._engine.calling() as api:
            state = api.inspect_container(self._name)["State"]
            said = api.logs(self._name, tail=20)
        if said:
            with contextlib.suppress(OSError), (out_dir / LOG_FILE).open("ab") as log:
                log.write(said)
        code = int(state.get("ExitCode") or 0)
        return Ending(
            status=128 - code if code > 128 else code,
            phase=self._phase,
            seconds=self._seconds.get("run", 0.0),
            stopped=stopped,
            oom=bool(state.get("OOMKilled")),
            own_group=True,
            memory_limit=self._plan.memory_bytes,
            disk_free=1 << 62,  # unknown: what the worker itself could not say stays unsaid
        )

    def _stop(self) -> None:
        """Ask it to end; the supervisor gives the worker a moment, the engine kills what is left."""
        with contextlib.suppress(*ENGINE_ERRORS):
            self._engine.api.stop(self._name, timeout=STOP_GRACE_S)

    def _runs(self) -> bool:
        """Whether it outlived the loss of its engine. Raises Silent where the engine ended it.

        An engine that comes back ends the containers it finds: that says nothing of the worker.
        One that had ended by itself before has its answer, which counts.
        """
        with self._engine.calling() as api:
            state = api.inspect_container(self._name)["State"]
        if state.get("Running"):
            return True
        told: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            told = json.loads(self._read(EXIT_FILE))
        if not told or told["stopped"] == Stop.CANCEL.value:
            raise Silent(f"it came back, and ended the container (exit status {state.get('ExitCode')})")
        return False

    def _read(self, name: str) -> bytes:
        """One small file of the worker's folder."""
        with self._engine.calling() as api:
            stream, _ = api.get_archive(self._name, f"{JOB}/out/{name}")
            return b"".join(stream)[tarfile.BLOCKSIZE :].rstrip(b"\0")

    def _tick(self) -> float:
        return _PHASE_EVERY_S if self._on_phase is not None else 3600.0

    def _show_phase(self) -> None:
        """Only where somebody asked for it, which nobody does of a timed launch."""
        if self._on_phase is None:
            return
        with contextlib.suppress(Refused, Gone, Silent, ValueError, KeyError):
            phase = str(json.loads(self._read(HEARTBEAT_FILE))["phase"])
            if phase != self._phase:
                self._phase = phase
                self._on_phase(phase)

    @contextlib.contextmanager
    def _measured(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[what] = time.monotonic() - began


class _Wait:
    """One call that returns when the container has ended, made from a thread of its own."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self.broken = ""
        self._read, self._write = os.pipe()
        self._over = False
        threading.Thread(target=self._wait, daemon=True, name=f"wait for {name}").start()

    def over(self, timeout_s: float, cancel: Cancel | None) -> bool:
        """Sleep until the container has ended (True), or until the timeout or a stop request (False)."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if cancel is not None:
            poll.register(cancel.fileno(), select.POLLIN)
        ready = poll.poll(max(0.0, timeout_s) * 1000)
        if any(fd == self._read for fd, _ in ready):
            os.close(self._read)
            return True
        return False

    def _wait(self) -> None:
        try:
            self._engine.api.wait(self._name, timeout=None)
        except ENGINE_ERRORS as error:
            self.broken = f"{type(error).__name__} while waiting for the container"
        finally:
            os.close(self._write)  # wakes the reader


def environ(plan: Plan) -> dict[str, str]:
    """The variables of a launch, beside those of the image."""
    return {"HOME": "/tmp", "TMPDIR": "/tmp", "USER": "matrix", **plan.environ, "PYTHONPATH": WORKER}  # noqa: S108


def _placed(task: Task, plan: Plan, volumes: Volumes) -> tuple[list[docker.types.Mount], Task]:
    """Volumes with what the task reads, and the task as it is inside: no path of this machine in it."""
    worker = volumes.of_worker(plan.worker, plan.image, plan.python)
    mounts = [docker.types.Mount(target=WORKER, source=worker, type="volume", read_only=True)]
    artefacts: dict[str, str] = {}
    for kind, text in task.artefacts.items():
        path = Path(text)
        target = f"{MODELS}/{kind}"
        name = volumes.of_path(path, plan.image)
        mounts.append(docker.types.Mount(target=target, source=name, type="volume", read_only=True))
        artefacts[kind] = f"{target}/{CONTENT}" if path.is_dir() else f"{target}/{CONTENT}/{path.name}"
    inputs = None if task.inputs is None else Path(task.inputs).name
    return mounts, dataclasses.replace(task, artefacts=artefacts, inputs=inputs)


def _host_config(api: Any, plan: Plan, mounts: list[docker.types.Mount]) -> dict[str, Any]:
    driver = [docker.types.Mount(target=p, source=p, type="bind", read_only=True) for p in plan.mounts]
    config: dict[str, Any] = api.create_host_config(
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "rw,nosuid,nodev,exec,mode=1777"},  # noqa: S108 - frameworks load what they compile
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=plan.pids,
        mem_limit=plan.memory_bytes,
        memswap_limit=plan.memory_bytes,  # no swap: a cell that needs more is out of memory
        cpuset_cpus=plan.cpuset or None,
        shm_size=plan.shm_bytes,
        devices=[f"{node}:{node}:rw" for node in plan.devices] or None,
        group_add=list(plan.groups) or None,
        device_requests=[docker.types.DeviceRequest(**r) for r in plan.device_requests] or None,
        mounts=[*mounts, *driver],
        log_config=docker.types.LogConfig(type="json-file", config={"max-size": "1m"}),
    )
    return config


def _failed(code: str, text: str) -> Result:
    return Result(state=State.FAILED, reason=Reason(code=code, text=text))
