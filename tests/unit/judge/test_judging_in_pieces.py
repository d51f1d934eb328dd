"""Outputs larger than memory are judged in pieces, and mapped from their file: the verdict is the same."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrix import catalog
from matrix.judge.operators import OperatorVerdict, judge, pieces
from matrix.judge.operators.archive import open_arrays
from matrix.judge.operators.formats import encoded
from matrix.judge.operators.integers import wrapped_bits
from matrix_adapters import tensors

ROWS = catalog.load().tolerances.operators
EXACT = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
    elements=st.floats(width=64, allow_subnormal=True),
)
KINDS = ["exact", "elementwise", "transcendental", "activation", "reduction", "matmul"]


def verdict(got: Any, exact: Any, dtype: str, kind: str, size: int, **more: Any) -> OperatorVerdict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "ELEMENTS", size)
        return judge({"Y": got}, {"Y": dtype}, {"Y": exact}, {"Y": dtype}, ROWS[kind], **more)


@given(
    exact=EXACT,
    dtype=st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    kind=st.sampled_from(KINDS),
    shift=st.integers(0, 3),
    factor=st.sampled_from([1.0, 1.0 + 2.0**-9, 0.5, -1.0]),
    size=st.integers(1, 9),
)
def test_pieces_of_any_size_give_the_verdict_of_the_whole(
    exact: np.ndarray, dtype: str, kind: str, shift: int, factor: float, size: int
) -> None:
    with np.errstate(over="ignore"):
        got = encoded(np.roll(exact, shift) * factor, dtype)
    assert verdict(got, exact, dtype, kind, size) == verdict(got, exact, dtype, kind, 1 << 20)


@given(
    wanted=hnp.arrays(np.int64, st.integers(0, 40), elements=st.integers(-(2**40), 2**40)),
    narrow=st.sampled_from([np.int8, np.int32, np.int64]),
    size=st.integers(1, 9),
)
def test_the_same_of_integers_that_wrapped(wanted: np.ndarray, narrow: Any, size: int) -> None:
    got = wanted.astype(narrow).astype(np.int64)
    whole = verdict(got, wanted, "int64", "exact", 1 << 20)
    assert verdict(got, wanted, "int64", "exact", size) == whole
    assert whole.passed == np.array_equal(got, wanted)


def test_the_worst_the_first_and_the_largest_are_found_in_whatever_piece_they_lie() -> None:
    exact = np.ones(100)
    exact[95] = 1000.0  # what limits scale with
    got = exact.astype(np.float32)
    got[41], got[87] = 1.5, 1.25
    found = verdict(got, exact, "float32", "elementwise", 10)
    assert found.worst is not None
    assert (found.worst.worst, found.worst.wrong) == ("Y[41]: got 1.5, exact 1", 2)
    assert found.worst.max_scaled_error == 0.5 / 1000
    got[55] = np.nan
    assert "Y[55] is nan" in verdict(got, exact, "float32", "elementwise", 10).failure


def test_sums_of_terms_are_cut_into_pieces_with_their_output() -> None:
    exact = np.zeros((10, 10))
    scale = np.where(np.arange(10) < 5, 1.0, 1e9)[:, None]  # broadcasts
    got = np.full((10, 10), 1.0, np.float32)
    found = verdict(got, exact, "float32", "matmul", 7, scales={"Y": scale})
    assert found.worst is not None
    assert found.worst.wrong == 50


def test_judging_takes_the_memory_of_a_piece_and_not_of_the_output() -> None:
    exact = np.random.default_rng(0).standard_normal(2_000_000)
    got = exact.astype(np.float32)
    tracemalloc.start()
    try:
        assert verdict(got, exact, "float32", "elementwise", 10_000).passed
        wrong = np.zeros_like(got)
        tracemalloc.reset_peak()
        assert not verdict(wrong, exact, "float32", "elementwise", 10_000).passed
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < exact.nbytes + 4_000_000  # `wrong` itself, and pieces of 80 kB


def test_two_billion_wrong_integers_would_not_be_held_either() -> None:
    wanted = np.arange(2_000_000, dtype=np.int64)
    got = wanted + 2**32
    tracemalloc.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pieces, "ELEMENTS", 10_000)
            assert wrapped_bits(got, wanted) == 32
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


# --- archives -----------------------------------------------------------------------------

ARRAYS: dict[str, np.ndarray] = {
    "Y": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.int8),
    "a/b.c d": np.array([True, False]),
    "text": np.array(["a", "bc"]),
}


@pytest.mark.parametrize("mapped_from", [0, 1 << 40])
def test_an_archive_is_the_same_mapped_or_read(tmp_path: Path, mapped_from: int) -> None:
    tensors.save(tmp_path / "a.npz", ARRAYS)
    found = open_arrays(tmp_path / "a.npz", mapped_from=mapped_from)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert isinstance(found["Y"], np.memmap) == (mapped_from == 0)


def test_archives_of_numpy_are_read_as_well_compressed_or_not(tmp_path: Path) -> None:
    np.savez(tmp_path / "plain.npz", Y=ARRAYS["Y"])
    np.savez_compressed(tmp_path / "small.npz", Y=ARRAYS["Y"])
    for name in ("plain", "small"):
        np.testing.assert_array_equal(open_arrays(tmp_path / f"{name}.npz", mapped_from=0)["Y"], ARRAYS["Y"])


@pytest.mark.parametrize("mapped_from", [0, 1 << 40])
def test_pickled_objects_are_refused(tmp_path: Path, mapped_from: int) -> None:
    np.savez(tmp_path / "a.npz", Y=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        open_arrays(tmp_path / "a.npz", mapped_from=mapped_from)


@pytest.mark.parametrize("kept", [0, 10, 200])
def test_what_is_no_whole_archive_is_an_error(tmp_path: Path, kept: int) -> None:
    tensors.save(tmp_path / "a.npz", ARRAYS)
    text = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(text[:kept])
    with pytest.raises((ValueError, OSError, zipfile.BadZipFile)):
        open_arrays(tmp_path / "a.npz", mapped_from=0)
