"""An exception as a state and a reason: what a script can branch on and a person can act on.

Standard library only: it has to explain a NumPy that cannot be imported. Frameworks'
own exceptions are known by name and message, since no framework may be imported here.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from matrix_adapters.protocol import Reason, State

_LONGEST = 400  # characters of a message that are kept in the reason; the log has all of it

_OOM_NAMES = {"OutOfMemoryError", "ResourceExhaustedError"}
_OOM_MESSAGES = re.compile(
    r"out of memory|can't allocate memory|not enough memory|failed to allocate memory"
    r"|std::bad_alloc|CUDA_ERROR_OUT_OF_MEMORY|CUBLAS_STATUS_ALLOC_FAILED|cannot allocate memory",
    re.IGNORECASE,
)

# What breaks an import, told apart by what people would do about it. First match wins.
_IMPORT_FAULTS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        "numpy_abi",
        "NumPy ABI",
        re.compile(
            r"_ARRAY_API|compiled using NumPy 1|multiarray failed to import|numpy\.\w+ size changed", re.I
        ),
    ),
    ("protobuf_version", "protobuf version", re.compile(r"protobuf|Descriptors cannot be created", re.I)),
    (
        "library_mismatch",
        "shared library of another version",
        re.compile(r"undefined symbol|symbol not found|version `?[\w.]+'? not found", re.I),
    ),
    (
        "missing_library",
        "missing shared library",
        re.compile(
            r"cannot open shared object file|Library not loaded|DLL load failed|image not found", re.I
        ),
    ),
)


class ContractError(Exception):
    """An adapter broke a rule of `matrix_adapters.adapter`; the message says which."""


class Measured(Exception):
    """The launch ran, but its numbers cannot stand: a reason code and why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Interrupted(Exception):
    """A live worker was not needed to the end, through no fault of its own: a reason code and why."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Misunderstood(Exception):
    """A live worker was told something that it has no word for; the message says what."""


def classify(error: BaseException, phase: str) -> tuple[State, Reason]:
    """How a launch that ended with `error` in `phase` is recorded."""
    chain = tuple(_chain(error))
    for judge in (_said_so, _disk_full, _out_of_memory, _import_fault):
        verdict = judge(chain, phase)
        if verdict is not None:
            return verdict
    return _failed(f"{phase}_failed", f"{phase} failed: {_line(error)}")


Verdict = tuple[State, Reason]
Chain = tuple[BaseException, ...]


def _said_so(chain: Chain, phase: str) -> Verdict | None:
    """Our own exceptions: the adapter or the worker said what is the matter."""
    error = chain[0]
    if isinstance(error, KeyboardInterrupt):
        return State.INTERRUPTED, Reason(code="interrupted", text=f"interrupted during {phase}")
    if isinstance(error, Interrupted):
        return State.INTERRUPTED, Reason(code=error.code, text=_message(error))
    if isinstance(error, Misunderstood):
        return _failed("unknown_word", _message(error))
    if isinstance(error, Measured):
        return _failed(error.code, _message(error))
    if isinstance(error, ContractError):
        return _failed("adapter_contract", f"the adapter broke its contract: {error}")
    # By name: the module needs NumPy, which may be what is broken.
    names = {c.__name__ for c in type(error).__mro__ if c.__module__ == "matrix_adapters.adapter"}
    for name, state in (("Unsupported", State.UNSUPPORTED), ("Unavailable", State.UNAVAILABLE)):
        if name in names:
            return state, Reason(code=state.value, text=_message(error))
    return None


def _disk_full(chain: Chain, phase: str) -> Verdict | None:
    for cause in chain:
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            where = f" at {cause.filename}" if cause.filename else ""
            return _failed("disk_full", f"disk full{where} during {phase}")
    return None


def _out_of_memory(chain: Chain, phase: str) -> Verdict | None:
    if not any(_is_oom(cause) for cause in chain):
        return None
    return State.OOM, Reason(code="framework_oom", text=f"out of memory during {phase}: {_line(chain[0])}")


def _import_fault(chain: Chain, phase: str) -> Verdict | None:
    """Something could not be imported: in the import phase, or later where a framework imports lazily."""
    if phase != "import" and not any(isinstance(cause, ImportError) for cause in chain):
        return None
    for code, words, pattern in _IMPORT_FAULTS:
        for cause in chain:
            if pattern.search(str(cause)):
                return _failed(code, f"{phase} failed: {words}: {_line(cause)}")
    missing = next((cause for cause in chain if isinstance(cause, ModuleNotFoundError)), None)
    if missing is not None:
        return _failed("missing_module", f"{phase} failed: {_line(missing)}")
    return _failed(f"{phase}_failed", f"{phase} failed: {_line(chain[0])}")


def _failed(code: str, text: str) -> Verdict:
    return State.FAILED, Reason(code=code, text=text)


def _is_oom(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or {c.__name__ for c in type(error).__mro__} & _OOM_NAMES:
        return True
    return isinstance(error, (RuntimeError, OSError)) and bool(_OOM_MESSAGES.search(str(error)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from, each once."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _line(error: BaseException, longest: int = _LONGEST) -> str:
    text = _message(error)
    kind = type(error).__name__
    return f"{kind}: {text}"[:longest] if text else kind


def _message(error: BaseException) -> str:
    """The first line that says something (TensorFlow's import errors begin with a traceback)."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Traceback"):
        told = [line for line in lines if re.match(r"^[\w.]*(Error|Exception)\b", line)]
        lines = told or lines[1:]
    return (lines[0] if lines else "")[:_LONGEST]
