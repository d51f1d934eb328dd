"""`operators:` in a sweep: what can be named, what cannot, and what a person is told then."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import jsonschema
import pytest
import small_catalog

from matrix import catalog
from matrix.catalog.types import Catalog
from matrix.config import schema
from matrix.config.sweep import SweepConfig, load_sweep, sweep_from_data
from matrix.errors import ConfigError

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


@pytest.fixture
def known(tmp_path: Path) -> Catalog:
    return dataclasses.replace(SHIPPED, operators=small_catalog.write(tmp_path / "operators"))


def sweep(folder: Path, known: Catalog, text: str) -> SweepConfig:
    path = folder / "sweep.yaml"
    path.write_text("name: x\nframeworks: [pytorch]\n" + textwrap.dedent(text), encoding="utf-8")
    return load_sweep(path, known)


def mistakes(folder: Path, known: Catalog, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        sweep(folder, known, text)
    return [problem.replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_sweep_may_name_operators_and_no_model(tmp_path: Path, known: Catalog) -> None:
    config = sweep(tmp_path, known, "operators: [Add]\n")
    assert config.models == ()
    assert {case.operator for case in config.operators} == {"Add"}
    assert config.data["operators"] == ["Add"], "a run stores the words, not the cases"


def test_a_sweep_may_name_both(tmp_path: Path, known: Catalog) -> None:
    config = sweep(tmp_path, known, "operators: [edges]\nmodels: [distilbert]\n")
    assert [model.name for model in config.models] == ["distilbert"]
    assert all(case.edge for case in config.operators)


def test_the_stored_words_lead_to_the_same_cases(tmp_path: Path, known: Catalog) -> None:
    config = sweep(tmp_path, known, "operators: [Gelu/tanh, Add, Gelu]\n")
    again = sweep_from_data(config.data, known, "run.json")
    assert again.operators == config.operators
    assert [case.case.name for case in config.operators[:2]] == ["Gelu/tanh", "Gelu/tanh"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "sweep.yaml:1:1: `models` is missing (or `operators`, or both)"),
        ("operators: []\n", "operators: at least one entry is needed"),
        ("operators: Add\n", "operators: a list is needed, got Add"),
        ("operators: [3]\n", 'operators[0]: text is needed: write "3" in quotes'),
        ('operators: [""]\n', "there is no operator or suite ''"),
        ("operators: [Gelo]\n", "there is no operator or suite 'Gelo' (did you mean \"Gelu\"?)"),
        ("operators: [gelu]\n", '(did you mean "Gelu"?)'),
        ("operators: [standart]\n", '(did you mean "standard"?)'),
        ("operators: [Gelu/tan]\n", "Gelu has no case 'tan' (did you mean \"tanh\"?)"),
        ("operators: [MatMul/zzzz]\n", "MatMul has no case 'zzzz'; there are: square, huge"),
        ("operators: [Gelu/]\n", "Gelu has no case ''"),
        ("operators: [Zebra]\n", "there is no operator or suite 'Zebra'; there are: standard, edges"),
        ("operators: [speed]\n", "the catalog has no case for the suite speed"),
        ("operators: ['from-model:resnet51']\n", "there is no model 'resnet51' (did you mean"),
        ("operator: [Gelu]\n", 'unknown key (did you mean "operators"?)'),
    ],
)
def test_what_is_wrong_is_told_at_its_place(tmp_path: Path, known: Catalog, text: str, message: str) -> None:
    found = mistakes(tmp_path, known, text)
    assert any(message in line for line in found), found
    assert all(line.startswith("sweep.yaml:") for line in found)


def test_every_wrong_word_is_told_with_the_mistakes_elsewhere(tmp_path: Path, known: Catalog) -> None:
    found = mistakes(tmp_path, known, "operators: [Gelo, Add, Ad]\nmodels: [resnet5O]\n")
    assert [line.split(": ")[1] for line in found] == ["operators[0]", "operators[2]", "models[0]"]


def test_a_broken_catalog_of_operators_names_its_own_file(tmp_path: Path, known: Catalog) -> None:
    small_catalog.write(known.operators, "Odd:\n  kind: odd\n  cases: {a: {in: {X: [1]}}}\n", "odd.yaml")
    with pytest.raises(ConfigError, match=r"odd.yaml:2:9: Odd.kind"):
        sweep(tmp_path, known, "operators: [Add]\n")
    assert sweep(tmp_path, known, "models: [distilbert]\n").operators == ()


def test_a_run_whose_operator_is_gone_from_the_catalog_says_so(known: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"run.json:1:1: operators\[0\]: there is no operator"):
        sweep_from_data({"name": "x", "frameworks": ["pytorch"], "operators": ["Gone"]}, known, "run.json")


def test_a_sweep_of_models_reads_no_operator() -> None:
    """In a process of its own: this one has read them."""
    program = (
        "import sys; from matrix import catalog; from matrix.config.sweep import load_sweep;"
        "load_sweep('quick', catalog.load());"
        "print([m for m in sys.modules if m.startswith('matrix.operators')])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_schema_wants_models_or_operators() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema.path().read_text()))
    sweep = {"name": "x", "frameworks": ["pytorch"]}
    assert not validator.is_valid(sweep)
    assert validator.is_valid({**sweep, "operators": ["standard", "Gelu", "Gelu/tanh"]})
    assert validator.is_valid({**sweep, "models": ["resnet50"]})
    assert not validator.is_valid({**sweep, "operators": []})
    assert not validator.is_valid({**sweep, "operators": [1]})
