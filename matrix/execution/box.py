"""One container from its creation to its removal: sent in and fetched by archive, watched from inside.

While a launch is timed nothing crosses the border, but, of a live pair, whose turn it is: the
supervisor inside keeps the deadline and watches the heartbeat; out here one call waits for the
container to end. The container has no network, a root it cannot write, no capabilities and an
ordinary user, and it is removed whatever happens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http
import json
import os
import secrets
import select
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker.errors
import docker.types

from matrix.execution import leases
from matrix.execution.answers import Answers
from matrix.execution.archives import UID, Entry, folder_entries, pack, unpack
from matrix.execution.attach import Attachment
from matrix.execution.cancel import Cancel
from matrix.execution.container_plan import WORKER, Plan, environ, host_config
from matrix.execution.ending import MAX_LOG_BYTES, Ending, Stop, read_heartbeat
from matrix.execution.engine import ENGINE_ERRORS, Engine, Gone, Refused, Silent
from matrix.execution.environ import shaken
from matrix_adapters.protocol import (
    ANSWERS_VARIABLE,
    HEARTBEAT_FILE,
    LOG_FILE,
    TASK_FILE,
    Flag,
    Result,
    Task,
    TaskKind,
    to_json,
)

JOB = "/job"
EXIT_FILE = "exit.json"
#: the supervisor keeps the deadline; this much later something is wrong with it or the engine
OUTER_GRACE_S = 20.0
STOP_GRACE_S = 6
_PHASE_EVERY_S = 3.0
_CLOCK_JUMP_S = 1.0
_REMOVAL_S = 20
_ON_ITS_WAY_OUT = ("removing", "dead")
_ANSWERS_FD = "3"  # in the worker; the supervisor makes it of its own standard output


def case_folder(number: int) -> str:
    """Where an operator case lies inside."""
    return f"{JOB}/in/cases/{number}"


def _case_entries(task: Task) -> Iterator[Entry]:
    if task.kind is TaskKind.OPERATORS:
        yield Entry("in/cases", mode=0o755)
        for number, folder in enumerate(task.options["cases"]):
            inside = case_folder(number).removeprefix(f"{JOB}/")
            yield Entry(inside, mode=0o755)
            yield from folder_entries(Path(folder), f"{inside}/")


class Box:
    """One container. As a context manager: whatever happens, it is gone afterwards, or is left to a sweep.

    With `talking` it holds one half of a live pair. Errors are Refused, Gone or Silent.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        *,
        timeout_s: float,
        cancel: Cancel | None,
        on_phase: Callable[[str], None] | None = None,
        talking: bool = False,
    ) -> None:
        self._plan, self._engine, self._talking = plan, engine, talking
        self._timeout_s, self._cancel, self._on_phase = timeout_s, cancel, on_phase
        # Known before it is made: it can be removed even when the answer to its creation is lost.
        self._name = f"framework-matrix-{plan.run or 'run'}-{secrets.token_hex(6)}"
        self._stopped: Stop | None = None  # from out here, and why
        self._exit: dict[str, Any] = {}
        self._phase = ""
        self._seconds: dict[str, float] = {}
        self._shaken: dict[str, dict[str, str]] = {}
        self._created = self._ended = False
        self._attachment: Attachment | None = None

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def create(self, mounts: list[docker.types.Mount], *, stall_s: float) -> None:
        """Make it; nothing runs yet."""
        plan = self._plan
        command = [plan.python, "-I", "-S", f"{WORKER}/matrix_adapters/supervisor.py"]
        command += [f"{JOB}/out", f"{self._timeout_s:g}", f"{stall_s:g}", str(MAX_LOG_BYTES)]
        command += [plan.python, "-P", "-m", "matrix_adapters.worker", f"{JOB}/in", f"{JOB}/out"]
        variables = environ(plan)
        if self._talking:
            shake, self._shaken = shaken()
            variables |= {**shake, ANSWERS_VARIABLE: _ANSWERS_FD}
        self._created = True
        with self._measured("create"), self._engine.calling() as api:
            api.create_container(
                plan.image,
                command,
                name=self._name,
                entrypoint=[],
                user=f"{UID}:{UID}",
                working_dir="/",
                environment=variables,
                volumes=[JOB],
                labels=leases.labels(plan.run),
                healthcheck={"test": ["NONE"]},
                host_config=host_config(api, plan, mounts),
                stdin_open=self._talking,  # until we, and nobody else, let go of it
            )

    def remove(self) -> None:
        """Kill what runs in it and remove it with all that it wrote. Can be called again."""
        if self._attachment is not None:
            self._attachment.close()
        if self._created:
            self._created = False
            with self._measured("remove"), contextlib.suppress(*ENGINE_ERRORS):
                try:
                    self._engine.api.remove_container(self._name, v=True, force=True)
                except docker.errors.APIError as error:
                    if error.status_code != http.HTTPStatus.CONFLICT:
                        raise
                    # Somebody else is at it: it has to be gone when we say so.
                    self._engine.api.wait(self._name, timeout=_REMOVAL_S, condition="removed")

    def send(self, inner: Task, task: Task) -> None:
        """The task with its inputs, or with the folders of its operator cases, into the anonymous volume."""
        entries = [
            Entry("in", mode=0o755),
            Entry(f"in/{TASK_FILE}", to_json(inner).encode()),
            *([Entry(f"in/{inner.inputs}", Path(task.inputs))] if task.inputs and inner.inputs else []),
            *_case_entries(task),
            Entry("out", mode=0o755, uid=UID),
        ]
        with self._measured("send"), self._calling() as api:
            api.put_archive(self._name, JOB, b"".join(pack(entries)))

    def start(self) -> None:
        """Begin; nothing is waited for."""
        with self._measured("start"), self._calling() as api:
            if self._talking:
                self._attachment = Attachment(api, self._name)
            api.start(self._name)
        self._began = time.monotonic()
        self._deadline = self._began + self._timeout_s + OUTER_GRACE_S
        self._wait = _Wait(self._engine, self._name)

    def say(self, line: str) -> None:
        """One line to the worker; whether it still lives shows when it is listened to."""
        if self._attachment is not None:
            self._attachment.say(line)

    def until(self, wanted: str | None = None) -> bool:
        """Sleep until the worker says `wanted` (True), or its container has ended."""
        try:
            return self._until(wanted)
        finally:
            self._seconds["run"] = time.monotonic() - self._began

    def _until(self, wanted: str | None) -> bool:
        while not self._ended:
            answers = self._attachment.answers if wanted is not None and self._attachment else None
            said = None if answers is None else answers.next()
            if said is not None:
                if said == wanted:
                    return True
                self._halt(Stop.NONSENSE)
            elif self._wait.over(min(self._tick(), self._left()), self._cancel, answers):
                self._look_whether_it_ended()
            else:
                self._show_phase()
                if self._cancel is not None and self._cancel.is_set():
                    self._halt(Stop.CANCEL)
                elif self._left() <= 0:
                    self._halt(Stop.DEADLINE)
        return False

    def fetch(self, out_dir: Path) -> Ending:
        """Everything it left, and how it ended."""
        with self._measured("fetch"), self._calling() as api:
            stream, _ = api.get_archive(self._name, f"{JOB}/out", chunk_size=1 << 20)
            apart = unpack(stream, out_dir, apart=frozenset({EXIT_FILE}))
        with contextlib.suppress(ValueError):
            self._exit = json.loads(apart.get(EXIT_FILE, b""))
        heartbeat = read_heartbeat(out_dir)
        self._phase = heartbeat.phase if heartbeat else ""
        return self._by_supervisor() if self._exit else self._by_engine(out_dir)

    def described(self, result: Result) -> Result:
        """The result with what was seen from outside."""
        seen = {
            "exit_status": self._exit.get("status"),
            "wall_s": self._exit.get("seconds", self._seconds.get("run", 0.0)),
            "own_cpu_s": self._exit.get("own_cpu_s", 0.0),
            "environment": {"set": environ(self._plan), **self._shaken},
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

    def _by_supervisor(self) -> Ending:
        told, stopped = self._exit, self._stopped
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

    def _by_engine(self, out_dir: Path) -> Ending:
        """The supervisor itself was killed, or never ran: what the engine knows has to do."""
        with self._calling() as api:
            state = api.inspect_container(self._name)["State"]
            if state.get("Status") in _ON_ITS_WAY_OUT:
                raise Gone("its removal is under way")
            said = api.logs(self._name, stdout=not self._talking, tail=20)
        if said:
            with contextlib.suppress(OSError), (out_dir / LOG_FILE).open("ab") as log:
                log.write(said)
        code = int(state.get("ExitCode") or 0)
        return Ending(
            status=128 - code if code > 128 else code,
            phase=self._phase,
            seconds=self._seconds.get("run", 0.0),
            stopped=self._stopped,
            oom=bool(state.get("OOMKilled")),
            own_group=True,
            memory_limit=self._plan.memory_bytes,
            disk_free=1 << 62,  # unknown: what the worker itself could not say stays unsaid
        )

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _halt(self, why: Stop) -> None:
        """Ask it to end; the supervisor gives the worker a moment, the engine kills what is left."""
        self._stopped = self._stopped or why
        with contextlib.suppress(*ENGINE_ERRORS):
            self._engine.api.stop(self._name, timeout=STOP_GRACE_S)
        if not self._wait.over(STOP_GRACE_S + OUTER_GRACE_S, None):
            raise Silent("it does not stop a container")
        self._look_whether_it_ended()

    def _look_whether_it_ended(self) -> None:
        """After the wait for it returned: the connection may have broken, and the container live on."""
        if self._wait.broken:
            if not self._engine.comes_back(self._cancel):  # a short loss is nothing
                raise Silent(self._wait.broken)
            if self._runs():
                self._wait = _Wait(self._engine, self._name)
                return
        self._ended = True

    def _runs(self) -> bool:
        """Whether it outlived the loss of its engine. Raises Silent where the engine ended it.

        An engine that comes back ends the containers it finds: that says nothing of the worker.
        One that had ended by itself before has its answer, which counts.
        """
        with self._calling() as api:
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
        with self._calling() as api:
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
    def _calling(self) -> Iterator[docker.APIClient]:
        """As `Engine.calling`, of the container that was made.

        What an engine says of one that somebody removes depends on how far it has come, in words
        that are refusals too: whether it is still there, it is asked.
        """
        try:
            with self._engine.calling() as api:
                yield api
        except Refused as refused:
            if self._is_there():
                raise
            raise Gone(refused.reason.text) from refused

    def _is_there(self) -> bool:
        try:
            with self._engine.calling() as api:
                state = api.inspect_container(self._name)["State"]
        except Gone:
            return False
        return not state.get("Dead") and state.get("Status") not in _ON_ITS_WAY_OUT

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

    def over(self, timeout_s: float, cancel: Cancel | None, answers: Answers | None = None) -> bool:
        """Sleep until the container has ended (True); or the timeout, a stop request or an answer (False)."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if answers is not None and answers.is_open:
            poll.register(answers.fd, select.POLLIN)
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
