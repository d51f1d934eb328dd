"""Start helpers (pip, `python -m venv`) so that none outlives this process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matrix.environments import guard
from matrix.environments.base import BuildCancelled


def run_owned(
    command: Sequence[str],
    *,
    log: Path,
    environ: Mapping[str, str],
    cancelled: threading.Event | None = None,
    on_line: Callable[[str], None] = lambda _: None,
) -> tuple[int, str]:
    """Run to the end; (exit status, everything it printed). The output is appended to `log`.

    Raises BuildCancelled when `cancelled` is set meanwhile. Whatever ends the call, the
    command and all that it started are gone.
    """
    guarded = [sys.executable, "-I", "-S", guard.__file__, *command]
    lines: list[str] = []
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"$ {' '.join(command)}\n")
        stream.flush()
        process = subprocess.Popen(
            guarded,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        watcher = _kill_when(cancelled, process)
        try:
            assert process.stdout is not None  # noqa: S101  (asked for above)
            for line in process.stdout:
                stream.write(line)
                lines.append(line)
                on_line(line.rstrip())
            status = process.wait()
        finally:
            _kill_group(process)
            process.wait()
            watcher.set()
    if cancelled is not None and cancelled.is_set():
        raise BuildCancelled
    return status, "".join(lines)


def _kill_when(cancelled: threading.Event | None, process: subprocess.Popen[str]) -> threading.Event:
    """Watch `cancelled` while the reader blocks on output; set the result to end the watch."""
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            if cancelled is not None and cancelled.wait(0.1):
                _kill_group(process)
                return

    if cancelled is not None:
        threading.Thread(target=watch, daemon=True, name="cancel").start()
    return over


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
