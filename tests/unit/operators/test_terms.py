"""A case whose answer is a difference of large terms says how large: its limit scales with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_catalog

from matrix import catalog
from matrix.artefacts.operator_store import EXPECTED_FILE, PreparedCase
from matrix.operators.expand import CatalogCase
from matrix.operators.load import load_operators
from matrix.sweep.checked import Answer, Judged, judged
from matrix_adapters.protocol import State

TEXT = """\
LayerNormalization:
  kind: normalisation
  inputs: [X, Scale]
  edges: [size_one]
  cases:
    constant_rows: {in: {X: {values: [[3, 3], [-2, -2]]}, Scale: [2]}, depth: 4, terms: 30}
    plain: {in: {X: [2, 2], Scale: [2]}, depth: 4}
"""
U = 2.0**-24  # of float32


@pytest.fixture
def cases(tmp_path: Path) -> dict[str, CatalogCase]:
    known = load_operators(small_catalog.write(tmp_path / "operators", TEXT))
    return {case.case.name.partition("/")[2]: case for case in known}


def check(case: CatalogCase, got: float, folder: Path) -> Judged:
    """The verdict on one number that should be 1."""
    np.savez(folder / EXPECTED_FILE, Y=np.array([1.0]))
    np.savez(folder / "got.npz", Y=np.array([got], np.float32))
    about = {"dtype": "float32", "shape": [1]}
    prepared = PreparedCase(folder=folder, hashes={}, oracle={"outputs": {"Y": about}})
    answer = Answer(state=State.OK, outputs={"Y": about})
    return judged(answer, folder / "got.npz", case, prepared, catalog.load())


def test_the_limit_scales_with_the_terms_and_says_so(cases: dict[str, CatalogCase], tmp_path: Path) -> None:
    """8 sqrt(4) u times 30, in place of times the answer, 1."""
    got = 1 + 100 * U
    assert check(cases["plain"], got, tmp_path).state is State.INCORRECT
    loose = check(cases["constant_rows"], got, tmp_path)
    assert loose.state is State.OK and loose.parity is not None
    assert "sum|terms|" in loose.parity.rule


def test_an_error_beyond_the_terms_rounding_is_still_one(
    cases: dict[str, CatalogCase], tmp_path: Path
) -> None:
    assert check(cases["constant_rows"], 1 + 600 * U, tmp_path).state is State.INCORRECT


def test_edge_cases_have_other_values_and_so_no_such_terms(cases: dict[str, CatalogCase]) -> None:
    assert cases["constant_rows"].terms == 30
    assert cases["edge-size_one"].terms is None


def test_terms_of_a_shipped_case_are_larger_than_its_limit_could_do_without() -> None:
    """They mean something in sums only, and 1 is what the limit scales with anyway, or less."""
    shipped = catalog.load()
    with_terms = [case for case in load_operators(shipped.operators) if case.terms is not None]
    assert with_terms
    for case in with_terms:
        assert shipped.tolerances.operators[case.kind].formula == "depth"
        assert case.terms is not None and case.terms > 1
