"""How an exception becomes a state and a reason."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from matrix_adapters.adapter import Unavailable, Unsupported
from matrix_adapters.failures import ContractError, Measured, classify
from matrix_adapters.protocol import State


def named(name: str, base: type[Exception] = RuntimeError) -> type[Exception]:
    """A framework's own exception class, which the worker can only know by name."""
    return type(name, (base,), {})


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (AttributeError("_ARRAY_API not found"), "numpy_abi", "NumPy ABI: AttributeError: _ARRAY_API"),
        (ImportError("numpy.core.multiarray failed to import"), "numpy_abi", "multiarray"),
        (
            ValueError("numpy.dtype size changed, may indicate binary incompatibility"),
            "numpy_abi",
            "size changed",
        ),
        (
            TypeError("Descriptors cannot be created directly.\nIf this call"),
            "protobuf_version",
            "Descriptors",
        ),
        (
            ImportError("libcudnn.so.9: cannot open shared object file: No such file or directory"),
            "missing_library",
            "libcudnn.so.9",
        ),
        (ImportError("/x/libfoo.so: undefined symbol: _ZN5torch"), "library_mismatch", "undefined symbol"),
        (ImportError("/lib/libc.so.6: version `GLIBC_2.34' not found"), "library_mismatch", "GLIBC_2.34"),
        (ModuleNotFoundError("No module named 'torch'"), "missing_module", "No module named 'torch'"),
        (RuntimeError("something else\nsecond line"), "import_failed", "RuntimeError: something else"),
    ],
)
def test_a_failed_import_is_told_apart_by_what_broke_it(error: Exception, code: str, words: str) -> None:
    state, reason = classify(error, "import")
    assert (state, reason.code) == (State.FAILED, code)
    assert words in reason.text
    assert "\n" not in reason.text


def test_the_cause_inside_a_wrapped_import_error_is_found() -> None:
    try:
        try:
            raise ImportError("libcublas.so.12: cannot open shared object file")
        except ImportError as cause:
            raise ImportError(
                'Traceback (most recent call last):\n  File "x", line 1\nFailed to load'
            ) from cause
    except ImportError as error:
        _, reason = classify(error, "import")
    assert reason.code == "missing_library"
    assert "libcublas.so.12" in reason.text


def test_a_message_that_is_a_traceback_is_quoted_by_its_error_line() -> None:
    text = (
        'Traceback (most recent call last):\n  File "x.py", line 3, in f\nImportError: boom\n\nFailed to load'
    )
    _, reason = classify(ImportError(text), "import")
    assert reason.text.endswith("ImportError: ImportError: boom")


def test_a_library_that_is_missing_when_a_model_is_loaded_is_still_a_missing_library() -> None:
    _, reason = classify(ImportError("libX.so: cannot open shared object file"), "load")
    assert reason.code == "missing_library"
    assert reason.text.startswith("load failed")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        named("OutOfMemoryError")("CUDA out of memory. Tried to allocate 20.00 GiB"),
        named("ResourceExhaustedError", Exception)("OOM when allocating tensor"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
        named("RuntimeException")("Failed to allocate memory for requested buffer of size 4294967296"),
        RuntimeError("std::bad_alloc"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_running_out_of_memory_is_its_own_state(error: Exception) -> None:
    state, reason = classify(error, "first_call")
    assert (state, reason.code) == (State.OOM, "framework_oom")
    assert "first_call" in reason.text


def test_a_memory_error_inside_another_error_counts() -> None:
    error = RuntimeError("could not run")
    error.__cause__ = MemoryError()
    assert classify(error, "load")[0] is State.OOM


def test_a_word_about_memory_in_an_ordinary_value_error_does_not_count() -> None:
    assert classify(ValueError("layer 'out of memory' is unknown"), "load")[0] is State.FAILED


def test_a_full_disk_is_named_with_its_place() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/data/x.npz")
    assert classify(error, "load")[1].text == "disk full at /data/x.npz during load"


def test_the_real_error_of_a_full_device_is_recognised() -> None:
    with pytest.raises(OSError) as caught, Path("/dev/full").open("wb", buffering=0) as stream:
        stream.write(b"x")
    assert classify(caught.value, "steady")[1].code == "disk_full"


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (Unsupported("no fp16 kernel"), State.UNSUPPORTED, "unsupported"),
        (Unavailable("no device"), State.UNAVAILABLE, "unavailable"),
        (type("NoLicence", (Unavailable,), {})("no licence"), State.UNAVAILABLE, "unavailable"),
        (ContractError("no sync"), State.FAILED, "adapter_contract"),
        (Measured("zero_time", "0"), State.FAILED, "zero_time"),
        (KeyboardInterrupt(), State.INTERRUPTED, "interrupted"),
        (SystemExit(3), State.FAILED, "load_failed"),
        (ValueError("bad"), State.FAILED, "load_failed"),
        (RuntimeError(), State.FAILED, "load_failed"),
    ],
)
def test_every_exception_has_a_state_and_a_code(error: BaseException, state: State, code: str) -> None:
    found, reason = classify(error, "load")
    assert (found, reason.code) == (state, code)
    assert reason.text


def test_a_long_message_is_cut() -> None:
    assert len(classify(ValueError("x" * 10_000), "load")[1].text) < 500


def test_exceptions_that_cause_each_other_do_not_loop_for_ever() -> None:
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert classify(a, "load")[1].code == "load_failed"
