"""One launch of one framework in one fresh process.

    python -P -m matrix_adapters.worker IN OUT

Reads `IN/task.json`, leaves `OUT/result.json` and, beside it, samples, outputs and a
log. Whatever happens inside Python ends in a result with a state and a reason; what
kills the process (a signal, the kernel) is for the orchestrator to classify. Exit code
0 says that a result was written, whatever its state.

This module and what it imports at the top need the standard library only: variables
that NumPy and the framework read when they are loaded are set first.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

from matrix_adapters import process, words
from matrix_adapters.failures import classify
from matrix_adapters.heartbeat import Heart
from matrix_adapters.launch import Launch, resolved
from matrix_adapters.protocol import (
    RESULT_FILE,
    TASK_FILE,
    Reason,
    Result,
    State,
    Task,
    TaskKind,
    from_json,
    to_json,
    write_atomic,
)

_RESERVE_FILE = ".reserve"
_RESERVE_BYTES = 64 * 1024  # room for a result that says the disk is full


def main(arguments: list[str]) -> int:
    """Run the launch described in the first folder, leave its result in the second."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -P -m matrix_adapters.worker IN OUT\n")
        return 2
    in_dir, out_dir = (Path(argument).absolute() for argument in arguments)
    spoken_to = words.take()
    process.die_with_parent()
    process.offer_to_oom_killer()
    process.redirect_output(out_dir)
    faulthandler.enable()
    with _reserve(out_dir):
        result = _run(in_dir, out_dir, spoken_to)
    _write(out_dir, result)
    return 0


def _run(in_dir: Path, out_dir: Path, spoken_to: words.Words | None) -> Result:
    launch = Launch(out_dir=out_dir, heart=Heart(out_dir))
    launch.heart.enter("start")
    try:
        task = resolved(from_json(Task, (in_dir / TASK_FILE).read_text(encoding="utf-8")), in_dir)
        process.set_environment(process.base_environment(task.threads))
        return _handle(task, launch, spoken_to)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: a result is always left
        with contextlib.suppress(OSError):
            traceback.print_exc()
        return launch.result(*classify(error, launch.heart.phase))


def _handle(task: Task, launch: Launch, spoken_to: words.Words | None) -> Result:
    if task.kind in (TaskKind.CHECKPOINT, TaskKind.EXPORT, TaskKind.REFERENCE):
        from matrix_adapters import artefacts

        launch.heart.enter(task.kind.value)
        with launch.heart.beating():
            return artefacts.handle(task, launch.out_dir)
    if task.kind is TaskKind.ORACLE:
        from matrix_adapters.operators import oracle

        return oracle.handle(task, launch)
    if task.kind is TaskKind.GRAPH:
        from matrix_adapters.operators import graph_cases

        return graph_cases.handle(task, launch)
    if task.kind is TaskKind.FOREIGN:
        from matrix_adapters.operators import foreign

        return foreign.handle(task, launch)
    from matrix_adapters import kinds

    kinds.handle(task, launch, spoken_to)
    return launch.result(State.OK)


@contextlib.contextmanager
def _reserve(out_dir: Path) -> Iterator[None]:
    """Hold a little disk while the launch runs, so that a full disk can still be reported."""
    path = out_dir / _RESERVE_FILE
    with contextlib.suppress(OSError):
        path.write_bytes(b"\0" * _RESERVE_BYTES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _write(out_dir: Path, result: Result) -> None:
    try:
        text = to_json(result)
    except (TypeError, ValueError) as error:
        reason = Reason(code="result_unwritable", text=f"the result cannot be stored: {error}")
        text = to_json(Result(state=State.FAILED, reason=reason, started=result.started, ended=result.ended))
    write_atomic(out_dir / RESULT_FILE, text)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    # The result is on disk. Interpreter and framework teardown can crash or hang, and measures
    # nothing: run what was registered for the exit, then go.
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)
