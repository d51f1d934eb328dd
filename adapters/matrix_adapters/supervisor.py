"""The first process of a launch's container: it runs the worker and says how it ended.

    python -I -S supervisor.py OUT TIMEOUT_S STALL_S MAX_LOG_BYTES COMMAND...

What has to be seen from close by is seen here, so that nothing crosses the border of the
container while a launch is timed: the heartbeat, the deadline, the size of the log, the
kernel's out-of-memory counters of this very container. `OUT/exit.json` holds the answer.
It wakes once a second, looks at two files and sleeps again. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

HEARTBEAT_FILE, LOG_FILE, EXIT_FILE = "heartbeat.json", "log.txt", "exit.json"
ANSWERS_VARIABLE = "FRAMEWORK_MATRIX_ANSWERS"
TICK_S = 1.0
GRACE_S = 2.0
#: a silent worker that uses more than this share of a core is slow, not hung
BUSY_SHARE = 0.05
_RESERVE = 4096  # room for the answer when the disk is full
_ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_WATCHED = (signal.SIGCHLD, *_ASKED_TO_STOP)


def main(arguments: list[str]) -> int:
    """Exit status of the worker; 128 + n when signal n ended it."""
    out, timeout_s, stall_s, max_log = arguments[0], *map(float, arguments[1:4])
    os.chdir(out)
    with open(EXIT_FILE, "wb") as stream:  # noqa: PTH123 - pathlib would double the start time
        stream.write(b" " * _RESERVE)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)  # they wait for `sigtimedwait`
    kills, clock = oom_kills(), time.time() - time.monotonic()
    began, own_cpu = time.monotonic(), time.process_time()
    child = start(arguments[4:])
    watch = Watch(child, timeout_s=timeout_s, stall_s=stall_s, max_log=int(max_log))
    status, stopped = supervise(child, watch)
    seconds = time.monotonic() - began
    strays = end_the_rest()
    answer: dict[str, object] = {
        "status": status,
        "stopped": stopped,
        "seconds": seconds,
        "silent_s": watch.silent_s,
        "own_cpu_s": time.process_time() - own_cpu,
        "oom_kills": None if kills is None else (oom_kills() or 0) - kills,
        "memory_limit": memory("memory.max", "memory/memory.limit_in_bytes"),
        "memory_peak": memory("memory.peak", "memory/memory.max_usage_in_bytes"),
        "disk_free": disk_free(out),
        "clock_jump_s": time.time() - time.monotonic() - clock,
        "killed_afterwards": strays,
    }
    write(answer)
    return status if status >= 0 else 128 - status


def start(command: list[str]) -> int:
    """The worker, leader of a process group of its own, its output in the log from the first byte.

    One half of a live pair reads this container's standard input, and answers on its standard
    output, which it finds as an open file with the number in the variable.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    answers = os.environ.get(ANSWERS_VARIABLE)
    files = [
        *([(os.POSIX_SPAWN_DUP2, 1, int(answers))] if answers else []),
        (os.POSIX_SPAWN_OPEN, 1, LOG_FILE, flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(command[0], command, os.environ, file_actions=files, setpgroup=0, setsigmask=())


class Watch:
    """Why must the worker be stopped? The same rules as for a worker without a container."""

    def __init__(self, child: int, *, timeout_s: float, stall_s: float, max_log: int) -> None:
        self._child, self._stall_s, self._max_log = child, stall_s, max_log
        self._alive_at = time.monotonic()
        self._deadline = self._alive_at + timeout_s
        self._cpu_then = 0.0
        self._beat: tuple[int, int] | None = None
        self.silent_s = 0.0

    def seconds_to_next_look(self) -> float:
        return max(0.0, min(TICK_S, self._deadline - time.monotonic()))

    def look(self) -> str | None:
        """None, or a word of the orchestrator's `Stop`."""
        now = time.monotonic()
        if now >= self._deadline:
            return "deadline"
        beat = _identity(HEARTBEAT_FILE)
        if beat != self._beat:
            self._beat = beat
            self._mark_alive(now)
        self.silent_s = now - self._alive_at
        if self.silent_s >= self._stall_s:
            busy = cpu_seconds(self._child) - self._cpu_then
            if busy < BUSY_SHARE * self.silent_s:
                return "silence"
            self._mark_alive(now)  # e.g. a long compilation that lets no beat through
        with contextlib.suppress(OSError):
            if os.stat(LOG_FILE).st_size > self._max_log:  # noqa: PTH116
                return "log flood"
        return None

    def _mark_alive(self, now: float) -> None:
        self._alive_at, self._cpu_then = now, cpu_seconds(self._child)


def supervise(child: int, watch: Watch) -> tuple[int, str | None]:
    """Wait for the end of `child`: its status (negative for a signal), and why it was stopped."""
    stopped: str | None = None
    killed_at: float | None = None
    while True:
        wait_s = watch.seconds_to_next_look() if stopped is None else 0.1
        signals = signal.sigtimedwait(_WATCHED, wait_s)
        status = reap(child)
        if status is not None:
            return status, stopped
        if stopped is None:
            asked = signals is not None and signals.si_signo in _ASKED_TO_STOP
            stopped = "cancel" if asked else watch.look()
            if stopped is not None:
                killed_at = time.monotonic() + GRACE_S
                to_group(child, signal.SIGTERM)
                to_group(child, signal.SIGCONT)  # a stopped process does not see SIGTERM
        elif killed_at is not None and time.monotonic() >= killed_at:
            killed_at = None
            to_group(child, signal.SIGKILL)


def reap(child: int) -> int | None:
    """Collect every process that has ended, orphans too; the status of `child` if it was among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = os.waitstatus_to_exitcode(status)
    return found


def end_the_rest() -> int:
    """Kill what the worker left behind and wait until it is gone; how many processes that were."""
    if os.getpid() != 1:  # not in a container: "everything" would be everything
        return 0
    with contextlib.suppress(OSError):
        os.kill(-1, signal.SIGKILL)
    count = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
            count += 1
    return count


def to_group(child: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, number)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and its finished children; 0 where it cannot be read."""
    try:
        ticks = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    except ValueError:
        return 0.0


def oom_kills(cgroups: str = "/sys/fs/cgroup") -> int | None:
    """Processes of this container that the kernel has killed for lack of memory; None: no counter.

    In a container the root of the mounted hierarchy is the container's own group, v2 and v1 alike.
    """
    for name in ("memory.events", "memory/memory.oom_control"):
        for line in _read(f"{cgroups}/{name}").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill" and value.isdigit():
                return int(value)
    return None


def memory(*names: str, cgroups: str = "/sys/fs/cgroup") -> int | None:
    """The first of these files of the memory controller that holds a number of bytes."""
    for name in names:
        text = _read(f"{cgroups}/{name}").strip()
        if text.isdigit() and int(text) < 1 << 60:  # v1 says "unlimited" with a huge number
            return int(text)
    return None


def disk_free(folder: str) -> int | None:
    """Bytes that the worker can still write."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def write(answer: dict[str, object]) -> None:
    """Into the room that was reserved: needs no new block on a full disk."""
    data = json.dumps(answer).encode("ascii")
    with open(EXIT_FILE, "r+b") as stream:  # noqa: PTH123
        stream.write(data)
        stream.truncate()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:  # noqa: PTH123
            return stream.read()
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
