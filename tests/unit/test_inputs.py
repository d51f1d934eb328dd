"""Shared inputs: the same for the same seed, in range, and wrong ones found before any build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrix.artefacts import inputs
from matrix.catalog.types import ModelEntry


def model(build: dict[str, Any] | None = None, **entries: dict[str, Any]) -> ModelEntry:
    return ModelEntry.model_validate(
        {"name": "toy", "format": "declarative", "task": "lstm", "inputs": entries, "build": build or {}}
    )


def make(entry: dict[str, Any], batch: int = 1, sequence: int | None = None) -> np.ndarray:
    return inputs.make_inputs(model(x=entry), batch, sequence)["x"]


def test_the_same_seed_gives_the_same_values_and_another_input_beside_it_changes_nothing() -> None:
    entry = {"dtype": "float32", "shape": ["batch", 8]}
    alone = inputs.make_inputs(model(x=entry), 2, None)["x"]
    beside = inputs.make_inputs(model(a=entry, x=entry), 2, None)
    np.testing.assert_array_equal(alone, beside["x"])
    assert not np.array_equal(beside["a"], beside["x"])


@given(low=st.integers(-5, 5), width=st.integers(1, 50))
def test_integers_stay_between_low_and_high(low: int, width: int) -> None:
    values = make(
        {"dtype": "int64", "shape": [200], "distribution": "integers", "low": low, "high": low + width}
    )
    assert values.dtype == np.int64
    assert low <= values.min() <= values.max() < low + width


@given(sequence=st.integers(1, 300), batch=st.integers(1, 9), padded=st.integers(0, 300))
def test_a_mask_is_ones_then_zeros_and_never_more_than_a_quarter_zeros(
    sequence: int, batch: int, padded: int
) -> None:
    entry = {"dtype": "int64", "shape": ["batch", "sequence"], "distribution": "mask", "padded": padded}
    mask = make(entry, batch, sequence)
    assert set(np.unique(mask)) <= {0, 1}
    assert (np.diff(mask, axis=1) <= 0).all()
    assert ((mask == 0).sum(axis=1) <= sequence // 4).all()
    assert (mask == 0).sum(axis=1)[0] == min(padded, sequence // 4)


def test_the_catalog_s_128_positions_have_28_padded_ones() -> None:
    entry = {"dtype": "int64", "shape": ["batch", "sequence"], "distribution": "mask", "padded": 28}
    assert int((make(entry, 1, 128) == 0).sum()) == 28


@given(hnp.arrays(np.float32, 16, elements=st.floats(width=32, allow_nan=True, allow_infinity=True)))
def test_bfloat16_bits_are_the_nearest_ones(values: np.ndarray) -> None:
    back = inputs.bfloat16_to_float32(inputs.float32_to_bfloat16(values))
    np.testing.assert_array_equal(np.isnan(back), np.isnan(values))
    finite = np.isfinite(values) & np.isfinite(back)
    half_step = np.maximum(np.abs(values[finite].astype(np.float64)) * 2.0**-8, 2.0**-134)
    assert (np.abs(back[finite].astype(np.float64) - values[finite]) <= half_step).all()


@pytest.mark.parametrize(
    ("entry", "stored"),
    [
        ({"dtype": "bfloat16"}, "uint16"),
        ({"dtype": "int4", "distribution": "integers", "low": -8, "high": 8}, "uint8"),
        ({"dtype": "bool"}, "bool"),
        ({"dtype": "float16", "distribution": "uniform"}, "float16"),
    ],
)
def test_dtypes_that_numpy_lacks_are_stored_as_bits_and_named_beside_them(
    tmp_path: Path, entry: dict[str, Any], stored: str
) -> None:
    one = model(x={**entry, "shape": [64]})
    arrays = inputs.make_inputs(one, 1, None)
    inputs.write_inputs(one, arrays, tmp_path)
    facts = json.loads((tmp_path / inputs.FACTS_FILE).read_text())["inputs"]["x"]
    assert (facts["dtype"], facts["stored_as"]) == (entry["dtype"], stored)
    with np.load(tmp_path / inputs.INPUTS_FILE, allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["x"], arrays["x"])
    assert len(np.unique(arrays["x"])) > 1


def test_strings_survive_without_pickle(tmp_path: Path) -> None:
    one = model(words={"dtype": "string", "shape": ["batch", 3]})
    arrays = inputs.make_inputs(one, 2, None)
    inputs.write_inputs(one, arrays, tmp_path)
    with np.load(tmp_path / inputs.INPUTS_FILE, allow_pickle=False) as archive:
        assert archive["words"].tolist() == arrays["words"].tolist()


def test_an_input_may_be_called_file(tmp_path: Path) -> None:
    one = model(file={"dtype": "float32", "shape": [2]}, x={"dtype": "float32", "shape": [2]})
    inputs.write_inputs(one, inputs.make_inputs(one, 1, None), tmp_path)
    with np.load(tmp_path / inputs.INPUTS_FILE) as archive:
        assert sorted(archive.files) == ["file", "x"]


def test_nan_inf_and_subnormals_of_a_given_file_are_counted(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([1.0, np.nan, np.inf, -np.inf, 1e-42, 0.0], np.float32))
    one = model(x={"dtype": "float32", "shape": [6], "file": tmp_path / "x.npy"})
    facts = inputs.write_inputs(one, inputs.make_inputs(one, 1, None), tmp_path)["inputs"]["x"]
    assert (facts["nan"], facts["inf"], facts["subnormal"]) == (1, 2, 1)


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    one = model(x={"dtype": "float32", "shape": [6]})
    written = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        inputs.write_inputs(one, inputs.make_inputs(one, 1, None), folder)
        written.append((folder / inputs.INPUTS_FILE).read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("build", "entries", "sequence", "says"),
    [
        ({"vocab_size": 10}, {"input_ids": {"distribution": "integers", "high": 11}}, 4, "rows 0..9"),
        (
            {"vocab_size": 10},
            {"input_ids": {"distribution": "integers", "low": -1, "high": 5}},
            4,
            "rows 0..9",
        ),
        ({"type_vocab_size": 2}, {"token_type_ids": {"distribution": "integers", "high": 3}}, 4, "rows 0..1"),
        ({"embedding_rows": [9, 4]}, {"sparse": {"distribution": "integers", "high": 5}}, 4, "rows 0..3"),
        (
            {"max_position_embeddings": 8},
            {"input_ids": {"distribution": "integers", "high": 5}},
            9,
            "positions",
        ),
    ],
)
def test_an_index_beyond_the_model_s_tables_is_found_without_any_framework(
    build: dict[str, Any], entries: dict[str, dict[str, Any]], sequence: int, says: str
) -> None:
    shaped = {n: {"dtype": "int64", "shape": ["batch", "sequence"], **e} for n, e in entries.items()}
    found = inputs.problems(model({"config": build}, **shaped), 1, sequence)
    assert len(found) == 1
    assert says in found[0]


@pytest.mark.parametrize(
    ("array", "entry", "says"),
    [
        (np.array([[1, 12]]), {}, "holds 1..12"),
        (np.array([[1, -1]]), {"low": 0}, "`low` is 0"),
        (np.array([[1, 7]]), {"high": 7}, "must stay below 7"),
        (np.array([[1, 2, 3]]), {}, "has shape (1, 3), (1, 2) is needed"),
        (np.array([[1, 2]], np.int32), {}, "holds int32, int64 is needed"),
        (np.array([[object(), None]]), {}, "not a plain .npy file"),
        (None, {}, "there is no file"),
    ],
)
def test_a_given_file_must_fit(
    tmp_path: Path, array: np.ndarray | None, entry: dict[str, Any], says: str
) -> None:
    if array is not None:
        np.save(tmp_path / "ids.npy", array, allow_pickle=True)
    shaped = {"dtype": "int64", "shape": ["batch", 2], "file": tmp_path / "ids.npy", **entry}
    found = inputs.problems(model({"config": {"vocab_size": 10}}, input_ids=shaped), 1, None)
    assert len(found) == 1
    assert says in found[0]
