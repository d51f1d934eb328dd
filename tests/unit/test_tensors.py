"""Arrays in and out of a worker: kept exactly, compared bit by bit."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrix_adapters import tensors


@pytest.mark.parametrize("name", ["logits", "file", "layer/0:out", "ünïcode", "a b"])
def test_outputs_of_any_name_are_kept(tmp_path: Path, name: str) -> None:
    path = tmp_path / "outputs.npz"
    tensors.save(path, {name: np.arange(3)})
    assert tensors.load(path)[name].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path], "nothing half-written is left beside it"


@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0)))
def test_what_is_saved_is_what_is_loaded_bit_by_bit(array: np.ndarray) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.npz"
        tensors.save(path, {"a": array})
        assert tensors.difference({"a": array}, tensors.load(path)) == ""


def test_the_bytes_of_a_file_do_not_depend_on_the_python_that_writes_it(tmp_path: Path) -> None:
    """Files are hashed, and an image's Python is not the host's: 3.11.2 and 3.11.7 differed here."""
    path = tmp_path / "a.npz"
    tensors.save(path, {"a": np.arange(3, dtype=np.int32)})
    (entry,) = zipfile.ZipFile(path).infolist()
    assert (entry.create_version, entry.extract_version, entry.extra) == (20, 20, b"")
    assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] == "7ea9ba6ea375718c"


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, a=np.array([{"code": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        tensors.load(path)


def test_a_fingerprint_counts_what_poisons_numbers() -> None:
    array = np.array([[np.nan, np.inf, -np.inf], [1e-40, -1e-42, 0.0]], np.float32)
    facts = tensors.fingerprint(array)
    assert (facts.shape, facts.dtype) == ((2, 3), "float32")
    assert (facts.nan, facts.inf, facts.subnormal) == (1, 2, 2)
    assert facts.sha256 == hashlib.sha256(array.tobytes()).hexdigest()


def test_a_fingerprint_does_not_depend_on_memory_layout() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert tensors.fingerprint(array) == tensors.fingerprint(np.asfortranarray(array))


def test_strings_have_fingerprints_too() -> None:
    text = np.array(["a", "bc"], dtype=object)
    assert tensors.fingerprint(text).sha256 == tensors.fingerprint(text.astype(str)).sha256


def test_values_that_are_no_arrays_have_no_fingerprint() -> None:
    assert tensors.fingerprints({"x": object()}) == {}


@pytest.mark.parametrize("outputs", [None, [], {}, {"x": [1.0]}, {"x": 1.0}])
def test_outputs_that_are_no_mapping_of_arrays_break_the_contract(outputs: Any) -> None:
    with pytest.raises(TypeError, match="fetch must return"):
        tensors.host_copy(outputs)


def test_a_copy_does_not_change_when_the_framework_reuses_its_buffer() -> None:
    buffer = np.zeros(3)
    kept = tensors.host_copy({"x": buffer})
    buffer += 1
    assert kept["x"].tolist() == [0, 0, 0]


def test_a_difference_says_how_many_values_and_how_far() -> None:
    first, last = np.zeros(4, np.float32), np.array([0, 0, 0.5, -0.25], np.float32)
    assert tensors.difference({"x": first}, {"x": last}) == "x: 2 of 4 values differ, max difference 0.5"


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ({"x": np.zeros(4, np.float64)}, "float32[4] became float64[4]"),
        ({"x": np.zeros((2, 2), np.float32)}, "float32[4] became float32[2, 2]"),
        ({"y": np.zeros(4, np.float32)}, "outputs ['x'] became ['y']"),
        ({"x": np.full(4, np.nan, np.float32)}, "4 of 4 values differ, none of them finite"),
    ],
)
def test_a_difference_names_other_changes(last: dict[str, np.ndarray], words: str) -> None:
    assert words in tensors.difference({"x": np.zeros(4, np.float32)}, last)


def test_equal_nans_are_no_difference_and_signed_zeros_are() -> None:
    nan = {"x": np.array([np.nan])}
    assert tensors.difference(nan, {"x": np.array([np.nan])}) == ""
    assert tensors.difference({"x": np.array([0.0])}, {"x": np.array([-0.0])}) != ""


def test_text_that_changes_is_a_difference() -> None:
    assert "1 of 2" in tensors.difference({"t": np.array(["a", "b"])}, {"t": np.array(["a", "c"])})


@given(st.binary(max_size=64))
def test_a_broken_file_raises_and_never_crashes(content: bytes) -> None:
    import tempfile
    import zipfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        path.write_bytes(content)
        with pytest.raises((ValueError, OSError, EOFError, zipfile.BadZipFile)):
            tensors.load(path)
