"""How did a launch end? Everything known about a finished process becomes one `Result`.

The worker's own result counts first: it is written in one step when the work is
done. Where there is none, the way the process died says what happened, in a state,
a code and a sentence. The log is quoted for people and never decides anything.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import shutil
import signal
from pathlib import Path

from matrix_adapters.protocol import (
    HEARTBEAT_FILE,
    LOG_FILE,
    RESULT_FILE,
    SCHEMA,
    Flag,
    Heartbeat,
    ProtocolError,
    Reason,
    Result,
    State,
    from_json,
    to_json,
)

MAX_RESULT_BYTES = 64 << 20
MAX_LOG_BYTES = 256 << 20
_TAIL_BYTES, _TAIL_LINES, _TAIL_CHARACTERS = 16384, 3, 300
_FULL_DISK_BYTES = 1 << 20
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r(?!\n)")

#: what a person should know about a signal that nobody sent on purpose
_CRASHES = {
    signal.SIGSEGV: "a memory access error in native code",
    signal.SIGBUS: "a mapped file or shared memory was too short: is the disk or /dev/shm full?",
    signal.SIGILL: "an instruction this CPU does not have: the build expects other CPU features",
    signal.SIGABRT: "native code gave up (an assertion, or an uncaught C++ exception)",
    signal.SIGFPE: "an arithmetic error in native code",
}


class Stop(enum.Enum):
    """Why the orchestrator ended a launch that had not ended by itself."""

    DEADLINE = "deadline"
    SILENCE = "silence"
    CANCEL = "cancel"
    LOG_FLOOD = "log flood"
    NONSENSE = "nonsense"  # a live worker answered something that is no answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """What was seen from outside. `status` as `subprocess` gives it: negative for a signal."""

    status: int
    phase: str  # from the last heartbeat; "" when there was none
    seconds: float
    stopped: Stop | None = None
    silent_s: float = 0.0
    oom: bool = False  # the kernel's counters grew
    memory_limit: int | None = None
    memory_peak: int | None = None  # of the container
    disk_free: int | None = None  # bytes, where the worker wrote; None: look at the folder
    own_group: bool = False  # the counters are those of this launch alone, so `oom` is about it


def conclude(ending: Ending, out: Path) -> Result:
    """The result of a launch: the worker's own, or one that says how it died."""
    result = read_result(out)
    if isinstance(result, Result):
        result = _with_unclean_exit(result, ending)
        return _with_killed_child(result, ending) if ending.oom and ending.own_group else result
    return _without_result(ending, out, result)


def read_result(out: Path) -> Result | Reason | None:
    """The worker's result; None when there is none, a reason when it cannot be used."""
    path = out / RESULT_FILE
    try:
        size = path.stat().st_size
        if size > MAX_RESULT_BYTES:
            return Reason(
                code="oversized_result",
                text=f"{RESULT_FILE} has {size >> 20} MiB, at most {MAX_RESULT_BYTES >> 20} are read",
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        return Reason(code="broken_result", text=f"{RESULT_FILE} cannot be read: {error}")
    try:
        schema = _schema_of(text)
        if schema != SCHEMA:
            return Reason(
                code="wrong_schema",
                text=f"{RESULT_FILE} has schema {schema!r}, this version reads schema {SCHEMA}",
            )
        result = from_json(Result, text)
        to_json(result)  # a number like 1e999 is JSON, and infinite
    except (ProtocolError, ValueError) as error:
        return Reason(code="broken_result", text=f"{RESULT_FILE} is broken: {error}")
    return result


def read_heartbeat(out: Path) -> Heartbeat | None:
    """The worker's last sign of life; None when there is none that can be read."""
    try:
        return from_json(Heartbeat, (out / HEARTBEAT_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ProtocolError):
        return None


def log_tail(out: Path) -> str:
    """What the worker printed last, in one line; "" when it was silent.

    Python's own dump of a crash is left out: it follows what native code had to say.
    """
    try:
        with (out / LOG_FILE).open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - _TAIL_BYTES))
            text = stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
    text = _ESCAPES.sub("", text).partition("Fatal Python error: ")[0]
    lines = ("".join(c for c in line if c.isprintable()).strip() for line in text.splitlines())
    return " | ".join([line for line in lines if line][-_TAIL_LINES:])[-_TAIL_CHARACTERS:]


def _schema_of(text: str) -> object:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ProtocolError(f"a mapping is needed, got {type(data).__name__}")
    return data.get("schema")


def _with_unclean_exit(result: Result, ending: Ending) -> Result:
    """The work was done and written down; that the process could not end properly is a flag."""
    if ending.status == 0 and ending.stopped is None:
        return result
    if ending.stopped is not None:
        how = f"did not end and was stopped after {ending.seconds:.0f} s"
    else:
        how = _death(ending.status)
    flag = Flag(code="unclean_exit", text=f"the worker had written its result, then {how}")
    return dataclasses.replace(result, flags=(*result.flags, flag))


def _with_killed_child(result: Result, ending: Ending) -> Result:
    """The worker came through, but what it had started did not: its numbers are not those of the task."""
    text = f"out of memory: the kernel killed a process that the worker had started{_memory(ending)}"
    reason = Reason(code="oom_kill", text=text)
    return dataclasses.replace(result, state=State.OOM, reason=reason, metrics={})


def _memory(ending: Ending) -> str:
    facts = {"limit": ending.memory_limit, "peak": ending.memory_peak}
    known = [f"{name} {value >> 20} MiB" for name, value in facts.items() if value]
    return f" ({', '.join(known)})" if known else ""


def _without_result(ending: Ending, out: Path, problem: Reason | None) -> Result:
    during = f"during {ending.phase}" if ending.phase else "before its first phase"
    tail = log_tail(out)
    if ending.stopped is not None:
        return _stopped(ending, ending.stopped, during, tail)
    if ending.oom and (ending.status != 0 or ending.own_group):
        text = f"out of memory {during}: the kernel killed it{_memory(ending)}"
        return _result(State.OOM, "oom_kill", text, tail)
    if _disk_is_full(out) if ending.disk_free is None else ending.disk_free < _FULL_DISK_BYTES:
        text = f"disk full at {out}: the worker could not write its result"
        return _result(State.FAILED, "disk_full", text, tail)
    if ending.status < 0:
        return _killed(-ending.status, during, tail)
    return _ended(ending.status, during, problem, tail)


def _stopped(ending: Ending, stop: Stop, during: str, tail: str) -> Result:
    if stop is Stop.CANCEL:
        return _result(State.INTERRUPTED, "interrupted", f"stopped {during}, on request")
    if stop is Stop.LOG_FLOOD:
        return _result(
            State.FAILED, "log_flood", f"printed more than {MAX_LOG_BYTES >> 20} MiB {during}", tail
        )
    if stop is Stop.NONSENSE:
        return _result(State.FAILED, "wrong_answer", f"answered something that is no answer {during}", tail)
    if stop is Stop.DEADLINE:
        text = f"not done after {ending.seconds:.0f} s, the time allowed; stopped {during}"
        return _result(State.TIMEOUT, "deadline", text, tail)
    text = f"no sign of life for {ending.silent_s:.0f} s {during}, and no processor time used: it hangs"
    return _result(State.TIMEOUT, "no_sign_of_life", text, tail)


def _ended(status: int, during: str, problem: Reason | None, tail: str) -> Result:
    if status > 0:
        text = f"ended with exit status {status} {during}, without a result"
        return _result(State.FAILED, "exit_status", text, tail)
    if problem is not None:
        return _result(State.FAILED, problem.code, problem.text, tail)
    text = f"ended with exit status 0 {during}, but wrote no {RESULT_FILE}"
    return _result(State.FAILED, "missing_result", text, tail)


def _killed(number: int, during: str, tail: str) -> Result:
    name = _signal_name(number)
    if number in _CRASHES:
        hint = _CRASHES[signal.Signals(number)]
        return _result(State.FAILED, "crash", f"killed by {name} {during}: {hint}", tail)
    text = f"killed by {name} {during}, from outside"
    if number == signal.SIGKILL:
        text += " (the kernel's out-of-memory counters did not move)"
    return _result(State.FAILED, "killed", text, tail)


def _death(status: int) -> str:
    if status < 0:
        return f"was killed by {_signal_name(-status)}"
    return f"ended with exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _result(state: State, code: str, text: str, tail: str = "") -> Result:
    if tail:
        text = f"{text}; the end of its log: {tail}"
    return Result(state=state, reason=Reason(code=code, text=text))


def _disk_is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_DISK_BYTES
    except OSError:
        return False
