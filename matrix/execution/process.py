"""A child process with everything it starts: begun, waited for and ended as one.

The child leads a session of its own, so that Ctrl-C in the terminal does not reach
it and one signal reaches all its children. A child that left the session is found
by a variable in its environment. Ends are seen before the child is reaped: until
then its number cannot be given to another process, so no stranger is ever killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.execution.answers import Answers
from matrix.execution.cancel import Cancel
from matrix_adapters.protocol import ANSWERS_VARIABLE

LAUNCH_VARIABLE = "FRAMEWORK_MATRIX_LAUNCH"
PARENT_VARIABLE = "FRAMEWORK_MATRIX_PARENT"  # the worker ends at once when it finds another parent
_NO_PIDFD_TICK_S = 0.1
_SCAN_EVERY_S = 0.01
_MOST_SCANS = 200

_live: set[ProcessGroup] = set()
_live_lock = threading.Lock()


def kill_all() -> None:
    """SIGKILL to every process group that is still alive: the last resort of a second Ctrl-C."""
    for group in tuple(_live):
        group.signal(signal.SIGKILL)


class ProcessGroup:
    """One started child. Use it as a context manager: leaving it ends whatever still runs.

    Start it from a thread that lives as long as the child: a worker asks the kernel
    to end it when the *thread* that started it is gone.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        cwd: Path,
        log: Path,
        talking: bool = False,
    ) -> None:
        self._token = secrets.token_hex(8)
        variables = {**environ, LAUNCH_VARIABLE: self._token, PARENT_VARIABLE: str(os.getpid())}
        self._answers: Answers | None = None
        with contextlib.ExitStack() as ours, log.open("ab") as output:
            theirs: tuple[int, ...] = ()
            if talking:
                read, write = os.pipe()
                ours.callback(os.close, write)
                self._answers, theirs = Answers(read), (write,)
                variables[ANSWERS_VARIABLE] = str(write)
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if talking else subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env=variables,
                    pass_fds=theirs,
                    start_new_session=True,
                )
            except BaseException:
                self._close()
                raise
        self.pid = self._child.pid
        self.strays = 0  # processes that outlived the child and were killed
        self._pidfd = _pidfd(self.pid)
        with _live_lock:
            _live.add(self)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def wait(self, timeout: float, cancel: Cancel | None = None, *, answers: bool = False) -> bool:
        """Sleep until the child has exited (True), or until the timeout or a stop request (False).

        With `answers`, also until there is something to hear (False).
        """
        poll = select.poll()
        if cancel is not None:
            poll.register(cancel.fileno(), select.POLLIN)
        if answers and self._answers is not None and self._answers.is_open:
            poll.register(self._answers.fd, select.POLLIN)
        if self._pidfd is None:
            return self._wait_by_polling(timeout, poll)
        poll.register(self._pidfd, select.POLLIN)
        ready = poll.poll(max(0.0, timeout) * 1000)
        return any(fd == self._pidfd for fd, _ in ready)

    def say(self, line: str) -> None:
        """One line to the child's standard input, where it was started to be spoken to."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended, which `wait` tells
                os.write(self._child.stdin.fileno(), f"{line}\n".encode("ascii"))

    def answer(self) -> str | None:
        """What it has answered next; None when it has not yet."""
        return None if self._answers is None else self._answers.next()

    def cpu_seconds(self) -> float:
        """Processor time of the child and its finished children so far; 0 where it cannot be read."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
            ticks = fields.rpartition(")")[2].split()[11:15]  # utime, stime, cutime, cstime
            return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            return 0.0

    def signal(self, number: int) -> None:
        """Send a signal to the child and everything in its session's process group."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to whatever is left after `grace_s` seconds."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process does not see SIGTERM
        if not self.wait(grace_s):
            self.signal(signal.SIGKILL)

    def end(self) -> int:
        """Kill what is left of the group, reap the child, return its exit status (negative: signal).

        A child that still runs is killed. Can be called again.
        """
        if self._child.returncode is None:
            self.signal(signal.SIGKILL)
        status = self._child.wait()
        with _live_lock:
            if self not in _live:
                return status
            _live.discard(self)
        if self._pidfd is not None:
            os.close(self._pidfd)
        if self._child.stdin is not None:
            self._child.stdin.close()
        self._close()
        self.strays = _kill_marked(self._token)
        return status

    def _close(self) -> None:
        if self._answers is not None:
            self._answers.close()

    def _wait_by_polling(self, timeout: float, poll: select.poll) -> bool:
        deadline = time.monotonic() + timeout
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT  # seen, not reaped
        while os.waitid(os.P_PID, self.pid, flags) is None:
            left = deadline - time.monotonic()
            if left <= 0 or poll.poll(min(left, _NO_PIDFD_TICK_S) * 1000):
                return False
        return True


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or a kernel before 5.3
        return None


def _kill_marked(token: str) -> int:
    """SIGKILL to every process that carries `token` in its environment; how many there were.

    The whole group is dead by now, so what is found has left the session (a daemon).
    """
    mark = f"{LAUNCH_VARIABLE}={token}".encode()
    killed: set[int] = set()
    for _ in range(_MOST_SCANS):  # until they are gone: a dying parent may have forked once more
        found = {pid for pid in _process_ids() if _carries(pid, mark)}
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(_SCAN_EVERY_S)
    return len(killed)


def _process_ids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:  # not Linux: the process group is all that can be reached
        return []


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:  # noqa: PTH123
            return mark in stream.read()
    except OSError:  # gone, or not ours
        return False
