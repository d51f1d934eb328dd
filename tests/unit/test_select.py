"""`--select`: what it chooses, and what it says about a mistake."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.errors import UsageError
from matrix.select import FIELDS, hints, selector

CELL = {
    "framework": "pytorch",
    "version": "2.13.0",
    "hardware": "cpu",
    "build": "cpu",
    "environment": "pytorch-2.13.0-cpu",
    "model": "distilbert",
    "subject": "distilbert",
    "operator": "",
    "level": "inference",
    "batch": 8,
    "sequence": None,
    "precision": "fp32",
    "threads": 1,
    "variant": "eager",
    "arm": "",
    "required": False,
    "state": "",
    "id": "abc",
}


def test_the_example_cell_has_every_field() -> None:
    assert set(CELL) == set(FIELDS)


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ('model == "distilbert"', True),
        ('model != "distilbert"', False),
        ('framework == "pytorch" and batch == 8', True),
        ('framework == "tensorflow" or batch in [1, 8]', True),
        ("batch in (1, 2)", False),
        ("batch not in [1]", True),
        ("not batch > 3", False),
        ("1 <= batch < 16", True),
        ('startswith(model, "distil")', True),
        ('endswith(model, "_tiny")', False),
        ('"bert" in model', True),
        ("sequence is None", True),
        ("sequence == null", True),
        ("required", False),
        ("not required", True),
        ("required == true", False),
        ('batch == "8"', False),
        ('batch < "x"', False),
        ("sequence > 64", False),
        ("not sequence > 64", True),
        ("model in batch", False),
        ('batch not in "x"', True),
        ("true", True),
    ],
)
def test_an_expression_chooses(expression: str, chosen: bool) -> None:
    assert selector(expression)(CELL) is chosen


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ('modle == "x"', 'no field `modle` (did you mean "model"?)'),
        ("model == distilbert", 'a text needs quotes: "distilbert"'),
        ('model = "x"', "written with `==`"),
        ('model == "x" and', "column"),
        ('model == "a" or "b"', "neither true nor false"),
        ("model", "neither true nor false"),
        ('model == "a", batch == 1', "neither true nor false"),
        ('model.upper() == "X"', "the only functions are startswith, endswith"),
        ("model.name == 1", "a dot is not available"),
        ("__import__('os').system('true')", "the only functions"),
        ("().__class__.__bases__", "a dot is not available"),
        ("batch + 1 == 2", "arithmetic is not available"),
        ("batch == -1", "arithmetic is not available"),
        ("9 ** 9 ** 9 == 1", "arithmetic is not available"),
        ("[x for x in model] == 1", "a comprehension is not available"),
        ("(lambda: 1)() == 1", "the only functions"),
        ("model[0] == 'd'", "a subscript is not available"),
        ('f"{model}" == "x"', "an f-string is not available"),
        ("b'x' == model", "not available"),
        ('startswith("x")', "takes two arguments"),
        ("startswith(model, x=1)", "takes two arguments"),
        ("import os", "column"),
        ("(" * 9000 + "1" + ")" * 900, ""),
        ("batch == 1 or " * 1000 + "batch == 2", "longer than"),
        ("model == 'x\0'", "--select"),
    ],
)
def test_a_mistake_is_a_usage_error_that_names_the_fields(expression: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        selector(expression)
    assert says in str(caught.value)
    assert "environment" in str(caught.value) or "longer" in str(caught.value)


def test_a_text_that_no_cell_has_is_explained() -> None:
    select = selector('model == "distilbrt" and framework in ["pytorch", "tf"]')
    text = hints(select, {"model": {"distilbert", "gpt2"}, "framework": {"pytorch"}})
    assert 'no cell has model "distilbrt" (did you mean "distilbert"?)' in text
    assert 'no cell has framework "tf"' in text


_atoms = st.sampled_from(
    [
        'model == "distilbert"',
        "batch > 3",
        "sequence > 3",
        'batch == "8"',
        "required",
        'startswith(model, "x")',
    ]
)
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        inner.map(lambda e: f"not ({e})"), st.tuples(inner, inner).map(lambda p: f"({p[0]}) and ({p[1]})")
    ),
    max_leaves=6,
)


@given(_expressions)
def test_an_expression_or_its_opposite_holds_and_never_both(expression: str) -> None:
    assert selector(expression)(CELL) is not selector(f"not ({expression})")(CELL)


def test_each_combination_of_values_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import simpleeval

    calls = []
    evaluate = simpleeval.SimpleEval.eval
    monkeypatch.setattr(
        simpleeval.SimpleEval, "eval", lambda self, *a, **k: calls.append(1) or evaluate(self, *a, **k)
    )
    select = selector('model == "counted" and batch == 8')
    for batch in [1, 8] * 500:
        select({**CELL, "batch": batch})
    assert len(calls) == 2
