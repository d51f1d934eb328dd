"""The table of operator tolerances: every row has its source, and says what it means in each dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from matrix import catalog
from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.judge.operators.formats import FORMATS
from matrix.operators.load import load_operators

ROWS = catalog.load().tolerances.operators
FILES = sorted((catalog.folder() / "operators").glob("*.yaml"))


@pytest.mark.parametrize("kind", list(ROWS))
def test_every_row_has_a_source_and_numbers_for_every_float_dtype(kind: str) -> None:
    row = ROWS[kind]
    assert len(row.source) > 40
    for dtype in FORMATS:
        assert row.limit(dtype) is not None, dtype
    assert row.limit("int32") is None or row.formula == "exact"


def test_every_kind_that_a_case_names_has_a_row_and_every_row_a_case() -> None:
    cases = list(load_operators(catalog.folder() / "operators"))
    assert {case.kind for case in cases} == set(ROWS)


@pytest.mark.parametrize("kind", [kind for kind, row in ROWS.items() if row.formula != "exact"])
def test_a_wider_type_is_never_held_to_less(kind: str) -> None:
    """Allowed error of an answer near 1, in the same unit: float64 < float32 < float16 < bfloat16."""
    allowed = []
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        limit, form = ROWS[kind].dtypes[dtype], FORMATS[dtype]
        ulps = limit.ulps * 2 * form.roundoff
        allowed.append(ulps + limit.absolute + limit.scaled * limit.growth_at(16) * form.roundoff)
    assert allowed == sorted(allowed) and len(set(allowed)) == 4


@pytest.mark.parametrize("kind", list(ROWS))
def test_no_row_forgives_a_wrong_digit_that_its_type_can_show(kind: str) -> None:
    """In float32 an answer of 1 with 64 terms is held to five digits by every row."""
    limit = ROWS[kind].limit("float32")
    assert limit is not None
    form = FORMATS["float32"]
    at_one = (
        limit.ulps * 2 * form.roundoff + limit.absolute + limit.scaled * limit.growth_at(64) * form.roundoff
    )
    assert at_one < 1e-5  # K = 64 terms, an answer of 1


def test_growth_is_what_it_is_called() -> None:
    assert [OperatorLimit(ulps=1, growth="one").growth_at(k) for k in (1, 100)] == [1, 1]
    assert [OperatorLimit(ulps=1, growth="sqrt").growth_at(k) for k in (1, 100)] == [1, 10]
    assert [OperatorLimit(ulps=1, growth="linear").growth_at(k) for k in (0, 1, 100)] == [1, 1, 100]
    assert [OperatorLimit(ulps=1, growth="log2").growth_at(k) for k in (1, 2, 1024)] == [1, 2, 11]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"formula": "ulps", "source": "x"}, "needs numbers under `dtypes`"),
        ({"formula": "exact", "source": "x", "dtypes": {"float32": {"ulps": 1}}}, "`exact` has none"),
        ({"formula": "ulps", "source": "x", "dtypes": {"float32": {"ulps": 1, "scaled": 2}}}, "no part of"),
        ({"formula": "floor", "source": "x", "dtypes": {"float32": {"absolute": 1e-6}}}, "ulps: needed"),
        ({"formula": "ulps", "source": "", "dtypes": {"float32": {"ulps": 1}}}, "source"),
        ({"formula": "ulps", "dtypes": {"float32": {"ulps": 1}}}, "source"),
        ({"formula": "ulps", "source": "x", "dtypes": {"float32": {"ulps": -1}}}, "ulps"),
        ({"formula": "ulps", "source": "x", "dtypes": {"float32": {"ulps": math.nan}}}, "ulps"),
        ({"formula": "guess", "source": "x", "dtypes": {"float32": {"ulps": 1}}}, "formula"),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OperatorRule.model_validate(wrong)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [16, 256, 4096])
def test_products_in_the_dtype_stay_well_within_the_row_and_a_thousandth_does_not(
    dtype: str, terms: int
) -> None:
    """The rule is no looser than it has to be: arithmetic of the dtype uses part of it, faults much more."""
    rng = np.random.default_rng(terms)
    a, b = rng.standard_normal((8, terms)).astype(dtype), rng.standard_normal((terms, 8)).astype(dtype)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    limit = ROWS["matmul"].dtypes[dtype]
    allowed = limit.scaled * limit.growth_at(terms) * FORMATS[dtype].roundoff * float(np.abs(exact).max())
    assert float(np.abs(a @ b - exact).max()) < allowed / 2
    assert float(np.abs(exact).max()) * 1e-3 > 10 * allowed


def test_the_catalog_of_operators_is_as_broad_as_it_is_meant_to_be() -> None:
    operators = load_operators(catalog.folder() / "operators")
    onnx = [name for name, entry in operators.entries.items() if not entry.nodes]
    cases = list(operators)
    assert len(onnx) >= 120
    assert len(cases) >= 600
    assert {case.edge for case in cases} >= {
        "special",
        "nan_at_each",
        "empty",
        "size_one",
        "strided",
        "broadcast",
    }
    assert all(case.open == "" or len(case.open) > 30 for case in cases)


def test_an_open_case_is_never_most_of_an_operator() -> None:
    """`open` is for what the standard leaves out, no way to make an operator pass."""
    operators = load_operators(catalog.folder() / "operators")
    for name, cases in operators.cases.items():
        assert sum(1 for case in cases if case.open) <= len(cases) / 2, name
