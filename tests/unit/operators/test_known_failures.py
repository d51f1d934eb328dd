"""What is known of failures: read strictly, said beside each failure, and told when it is out of date."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import small_catalog
from synthetic_runs import environment, header

from matrix.catalog import load
from matrix.catalog.types import Catalog
from matrix.errors import ConfigError
from matrix.operators.known import KNOWN_FOLDER, load_known
from matrix.operators.load import load_operators
from matrix.records import CANDIDATE, Parity, ReasonRecord, Record, WorkloadRecord
from matrix.report import render
from matrix.report.operators import explained
from matrix_adapters.protocol import State, content_hash

FORMATS = ("table", "markdown", "html")
KNOWN = """\
- cases: [Gelu/tanh]
  dtypes: [bfloat16]
  fault: framework
  because: a step is rounded to bfloat16
  seen: ["2.13.0"]
- cases: [Add/*]
  fault: definition
  because: an overflow is not defined
  seen: ["2.12.0", "2.13.0"]
- cases: [MatMul/square]
  ends: failed
  fault: mapping
  because: it asks for a matrix of rank 2
  seen: ["2.13.0"]
"""


def catalog_with(folder: Path, known: str = KNOWN, framework: str = "pytorch") -> Catalog:
    small_catalog.write(folder)
    (folder / KNOWN_FOLDER).mkdir()
    (folder / KNOWN_FOLDER / f"{framework}.yaml").write_text(known, encoding="utf-8")
    return dataclasses.replace(load(), operators=folder)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return catalog_with(tmp_path)


def cell(
    subject: str,
    precision: str = "fp32",
    state: State = State.OK,
    framework: str = "pytorch",
    variant: str = "",
) -> Record:
    place = environment(framework)
    work = WorkloadRecord(
        level="operator", subject=subject, batch=1, precision=precision, threads=1, variant=variant
    )
    text = f"{subject} went wrong"
    return Record(
        id=content_hash([place.name, work.model_dump()], 12),
        label=subject,
        environment=place,
        workload=work,
        state=state,
        reason=None if state is State.OK else ReasonRecord(code="tolerance", text=text),
        parity=Parity(reference="onnx", passed=False, rule="r", failure=text)
        if state is State.INCORRECT
        else None,
    )


def shown(records: Sequence[Record], catalog: Catalog, report_format: str = "table") -> str:
    text = render(report_format, records, header(), catalog)
    return re.sub(r"\s+", " ", text).replace("\\", "").replace("&#39;", "'")


# --- the files ----------------------------------------------------------------------------


def test_the_first_entry_that_covers_a_case_explains_it(catalog: Catalog) -> None:
    known = load_known(catalog.operators, load_operators(catalog.operators))
    found = known.explain("pytorch", "Gelu/tanh", "bfloat16", "incorrect")
    assert found is not None and found.because == "a step is rounded to bfloat16"
    assert found.words == "the framework's: a step is rounded to bfloat16 (seen in 2.13.0)"
    assert known.explain("pytorch", "Gelu/tanh", "float32", "incorrect") is None  # another type
    assert known.explain("pytorch", "Gelu/tanh", "bfloat16", "failed") is None  # another end
    assert known.explain("tensorflow", "Gelu/tanh", "bfloat16", "incorrect") is None
    assert "pytorch" in known and "tensorflow" not in known


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("- {cases: [Gelu/tan], fault: framework, because: x, seen: ['1']}", "no case is called Gelu/tan"),
        (
            "- {cases: [Gelu/tanh], dtypes: [float16], fault: framework, because: x, seen: ['1']}",
            "Gelu/tanh has none of the types float16",
        ),
        (
            "- {cases: [Gelu/tanh], dtypes: [float32, int8], fault: framework, because: x, seen: ['1']}",
            "none of these cases has the type int8",
        ),
        ("- {cases: [Gelu/tanh], fault: weather, because: x, seen: ['1']}", "weather is not one of"),
        ("- {cases: [Gelu/tanh], fault: framework, because: x}", "`seen` is missing"),
        ("- {cases: [Gelu/tanh], fault: framework, because: '', seen: ['1']}", "text is needed"),
        ("- {cases: [], fault: framework, because: x, seen: ['1']}", "at least one entry is needed"),
        ("Gelu/tanh: {fault: framework}", "a list of known failures is needed"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_place(tmp_path: Path, text: str, mistake: str) -> None:
    folder = catalog_with(tmp_path, text + "\n").operators
    with pytest.raises(ConfigError) as caught:
        load_known(folder, load_operators(folder))
    assert mistake in str(caught.value) and "pytorch.yaml:1" in str(caught.value)


def test_without_files_nothing_is_known(tmp_path: Path) -> None:
    folder = small_catalog.write(tmp_path)
    assert not load_known(folder, load_operators(folder)).by_framework


def test_the_shipped_explanations_name_cases_of_the_shipped_catalog() -> None:
    shipped = load()
    known = load_known(shipped.operators, load_operators(shipped.operators))
    assert set(known.by_framework) <= set(shipped.frameworks)
    assert {"pytorch", "tensorflow", "onnxruntime"} <= set(known.by_framework)


# --- the reports --------------------------------------------------------------------------


@pytest.mark.parametrize("report_format", FORMATS)
def test_every_failure_has_its_reason_beside_it(catalog: Catalog, report_format: str) -> None:
    records = [
        cell("Gelu/tanh", "bf16", State.INCORRECT),
        cell("Add/basic", state=State.INCORRECT),
        cell("MatMul/square", state=State.FAILED),
    ]
    text = shown(records, catalog, report_format)
    assert "the framework's: a step is rounded to bfloat16 (seen in 2.13.0)" in text
    assert "the standard can be read in two ways: an overflow is not defined (seen in 2.12.0, 2.13.0)" in text
    assert "MatMul/square went wrong; whose fault: our mapping's: it asks for a matrix of rank 2" in text
    assert "of 3 failures 3 explained" in text
    assert explained.UNKNOWN not in text


@pytest.mark.parametrize("report_format", FORMATS)
def test_a_failure_that_nobody_explained_is_told_as_such(catalog: Catalog, report_format: str) -> None:
    records = [cell("Gelu/basic", state=State.INCORRECT), cell("Gelu/tanh", "bf16", State.INCORRECT)]
    text = shown(records, catalog, report_format)
    assert explained.UNKNOWN in text
    assert "of 2 failures 1 explained (1 the framework's), 1 not" in text


def test_a_framework_without_a_file_is_not_expected_to_have_reasons(catalog: Catalog) -> None:
    text = shown([cell("Gelu/basic", state=State.INCORRECT, framework="tensorflow")], catalog)
    assert "Gelu/basic went wrong" in text
    assert "explained" not in text and "whose fault" not in text


def test_what_is_known_of_a_framework_explains_no_kernel_of_ones_own(catalog: Catalog) -> None:
    own = cell("Add/basic", state=State.INCORRECT, variant=f"{CANDIDATE}mine")
    text = shown([own], catalog)
    assert "Add/basic went wrong" in text and "not defined" not in text and "explained" not in text


def test_what_was_known_to_fail_and_passes_is_told(catalog: Catalog) -> None:
    text = shown([cell("Gelu/tanh", "bf16"), cell("Gelu/tanh"), cell("Gelu/basic")], catalog)
    assert "known to fail, but right here: Gelu/tanh bfloat16." in text
    assert "failure" not in text


def test_a_run_in_which_all_is_as_it_should_be_says_nothing_of_failures(catalog: Catalog) -> None:
    text = shown([cell("Gelu/basic"), cell("Gelu/tanh")], catalog)
    assert "explained" not in text and "known to fail" not in text


def test_a_broken_file_is_said_and_costs_nothing_else(tmp_path: Path) -> None:
    broken = catalog_with(tmp_path, "- {cases: [Nope/x], fault: framework, because: x, seen: ['1']}\n")
    text = shown([cell("Add/basic", state=State.INCORRECT)], broken)
    assert "No failure is explained:" in text and "no case is called Nope/x" in text
    assert "A[3, 4]" in text  # the inputs are still known


def test_words_of_a_file_cannot_write_markup(tmp_path: Path) -> None:
    nasty = "- {cases: [Add/*], fault: framework, because: '<script>x</script> | **b**', seen: ['1']}\n"
    catalog = catalog_with(tmp_path, nasty)
    for report_format in ("markdown", "html"):
        assert "<script>x" not in render(
            report_format, [cell("Add/basic", state=State.INCORRECT)], header(), catalog
        )
