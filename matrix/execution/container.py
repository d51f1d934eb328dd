"""One launch in a fresh container, plain or live: from a task to a result, whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import docker.types

from matrix.execution.box import Box, case_folder
from matrix.execution.cancel import Cancel
from matrix.execution.container_plan import WORKER, Plan
from matrix.execution.ending import conclude
from matrix.execution.engine import Engine, Gone, Refused, Silent
from matrix.execution.folders import prepare, write_task
from matrix.execution.talk import Live
from matrix.execution.volumes import CONTENT, Volumes
from matrix.store.durable import storage
from matrix_adapters.protocol import Reason, Result, State, Task, TaskKind

__all__ = ["Plan", "open_in_container", "run_in_container"]

MODELS = "/models"


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
    with ContainerWorker(
        plan,
        engine,
        volumes,
        task,
        folder,
        timeout_s=timeout_s,
        stall_s=stall_s,
        on_phase=on_phase,
        cancel=cancel,
        out_dir=out_dir,
    ) as worker:
        return worker.conclude()


@contextlib.contextmanager
def open_in_container(
    plan: Plan,
    engine: Engine,
    volumes: Volumes,
    task: Task,
    folder: Path,
    *,
    timeout_s: float,
    stall_s: float,
    cancel: Cancel | None = None,
) -> Iterator[Live]:
    """One half of a live pair in a fresh container; see `matrix.execution.live.open_live`.

    The supervisor inside takes no part in the conversation, so `stall_s` has to be longer than
    the ten seconds between two signs of life of a parked worker.
    """
    with ContainerWorker(
        plan,
        engine,
        volumes,
        task,
        folder,
        timeout_s=timeout_s,
        stall_s=stall_s,
        cancel=cancel,
        talking=True,
    ) as worker:
        yield Live(worker)


class ContainerWorker:
    """A worker in a container, started. As a context manager: leaving it ends what still runs.

    With `talking` it can be spoken to (`execution.talk.Talker`). Raises EngineLost when the
    engine does not answer before anything was begun, StorageError for a full disk here.
    """

    def __init__(
        self,
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
        talking: bool = False,
    ) -> None:
        self._volumes, self._cancel = volumes, cancel
        self._out = out_dir or folder / "out"
        self._failed: Result | None = None
        in_dir = prepare(folder, self._out)
        engine.must_answer(cancel)
        self._box = Box(plan, engine, timeout_s=timeout_s, cancel=cancel, on_phase=on_phase, talking=talking)
        try:
            with self._classified():
                mounts, inner = _placed(task, plan, volumes)
                write_task(inner, in_dir)
                self._box.create(mounts, stall_s=stall_s)
                self._box.send(inner, task)
                self._box.start()
        except BaseException:
            self._box.remove()
            raise

    def __enter__(self) -> ContainerWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._box.remove()

    def say(self, line: str) -> None:
        """One line to the worker; whether it still lives shows when it is listened to."""
        if self._failed is None:
            self._box.say(line)

    def hear(self, wanted: str) -> bool:
        """Sleep until it has said `wanted`. False when it has ended, or was stopped for a reason."""
        heard = False
        if self._failed is None:
            with self._classified():
                heard = self._box.until(wanted)
        return heard

    def conclude(self) -> Result:
        """Sleep until it has ended; how it did, in a result. It is removed then."""
        result = self._failed
        if result is None:
            with self._classified():
                self._box.until()
                with storage(self._out):
                    ending = self._box.fetch(self._out)
                result = self._checked(conclude(ending, self._out))
        self._box.remove()
        return self._box.described(result or self._failed or _failed("engine_lost", "it has no result"))

    def _checked(self, result: Result) -> Result:
        """A worker that was left alone was left by its engine: we were here all the time."""
        if result.reason is not None and result.reason.code == "orchestrator_gone":
            raise Silent("it ended the conversation with the worker")
        return result

    @contextlib.contextmanager
    def _classified(self) -> Iterator[None]:
        """What the engine does to a launch is a result of it."""
        try:
            yield
        except Refused as refused:
            self._failed = Result(state=refused.state, reason=refused.reason)
        except Gone as gone:
            self._volumes.forget()
            text = f"the container was removed by somebody else: {gone}"
            self._failed = _failed("container_removed", text)
        except Silent as silent:
            self._volumes.forget()
            text = f"the container engine was lost in the middle of the launch: {silent}"
            self._failed = _failed("engine_lost", text)


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
    options = dict(task.options)
    if task.kind is TaskKind.OPERATORS:  # many small folders: sent with the task, see `Box.send`
        options["cases"] = [case_folder(n) for n in range(len(options["cases"]))]
    return mounts, dataclasses.replace(task, artefacts=artefacts, inputs=inputs, options=options)


def _failed(code: str, text: str) -> Result:
    return Result(state=State.FAILED, reason=Reason(code=code, text=text))
