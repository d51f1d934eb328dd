"""Timed cases: planned as such, chosen by their suite or their name, never twice under one name."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_catalog

from matrix.catalog import load as load_catalog
from matrix.errors import ConfigError
from matrix.operators import load, suites

SPEED = """\
MatMul:
  kind: matmul
  inputs: [A, B]
  cases:
    gemm_512: {in: {A: [512, 512], B: [512, 512]}, dtypes: [float32, bfloat16]}
Relu:
  kind: exact
  inputs: [X]
  cases:
    size_1: {in: {X: [1]}}
"""


@pytest.fixture
def operators(tmp_path: Path) -> load.Operators:
    folder = small_catalog.write(tmp_path / "operators")
    small_catalog.write(folder / load.SPEED_FOLDER, SPEED)
    return load.load_operators(folder)


def names(word: str, operators: load.Operators) -> list[tuple[str, str]]:
    return [case.key for case in suites.chosen([word], operators)]


def test_the_suite_speed_is_timed_and_no_other_is(operators: load.Operators) -> None:
    speed = suites.chosen([suites.SPEED], operators)
    assert [case.key for case in speed] == [
        ("MatMul/gemm_512", "fp32"),
        ("MatMul/gemm_512", "bf16"),
        ("Relu/size_1", "fp32"),
    ]
    assert all(case.timed for case in speed)
    assert not any(case.timed for case in suites.chosen([suites.STANDARD], operators))


def test_an_operators_name_means_its_correctness_and_a_cases_name_that_case(
    operators: load.Operators,
) -> None:
    assert ("MatMul/gemm_512", "fp32") not in names("MatMul", operators)
    assert names("MatMul/gemm_512", operators) == [("MatMul/gemm_512", "fp32"), ("MatMul/gemm_512", "bf16")]
    assert names("Relu", operators) == [("Relu/size_1", "fp32")]  # it has no other cases here


def test_words_that_choose_nothing_are_told(operators: load.Operators) -> None:
    assert suites.problem("speed", operators) == ""
    assert suites.problem("MatMul/gemm_512", operators) == ""
    assert "did you mean" in suites.problem("MatMul/gemm_51", operators)
    assert suites.problem("from-model:bert", operators, ["bert", "gpt2"]) == ""
    assert "there is no model 'gpt3'" in suites.problem("from-model:gpt3", operators, ["bert", "gpt2"])


def test_models_are_named_once_each() -> None:
    assert suites.models_of(["speed", "from-model:a", "from-model:b", "from-model:a"]) == ("a", "b")


def test_the_call_of_one_element_is_found_and_is_none_in_a_catalog_without_it(
    operators: load.Operators, tmp_path: Path
) -> None:
    assert [case.key for case in suites.dispatch_cases(operators)] == [("Relu/size_1", "fp32")]
    assert suites.dispatch_cases(load.load_operators(small_catalog.write(tmp_path / "none"))) == ()


def test_one_name_for_two_cases_is_a_mistake(tmp_path: Path) -> None:
    folder = small_catalog.write(tmp_path / "operators")
    small_catalog.write(folder / load.SPEED_FOLDER, SPEED.replace("gemm_512", "square"))
    with pytest.raises(ConfigError, match=r"MatMul/square is the name of a case in small\.yaml already"):
        load.load_operators(folder)


def test_the_shipped_suite_has_what_peaks_and_the_dispatch_cost_are_read_from() -> None:
    known = load.load_operators(load_catalog().operators)
    keys = {case.key for cases in known.speed.values() for case in cases}
    assert {(name, "fp32") for name in (*suites.PEAK_CASES, suites.DISPATCH_CASE)} <= keys
    assert {case.case.name for case in suites.peak_cases(known)} == set(suites.PEAK_CASES)
    operators = {name.partition("/")[0] for name, _ in keys}
    assert {"MatMul", "Gemm", "Conv", "Attention", "LayerNormalization", "Softmax", "ReduceSum"} <= operators
