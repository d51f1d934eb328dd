"""Exit codes, commands, keys and the run folder: the guide's tables are compared with their sources."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest
from pages import ROOT, table

from matrix import catalog
from matrix.cli import COMMANDS
from matrix.config.sweep import FrameworkChoice, MeasureChoice, RuleChoice, SweepFile
from matrix.config.user_model import UserInput, UserModel
from matrix.errors import ExitCode
from matrix.records import LaunchRecord, MetricValue, Parity, Record
from matrix.report import FORMATS
from matrix.select import FIELDS
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt, RunHeader, Session
from matrix_adapters.clock import Samples
from matrix_adapters.protocol import TaskKind
from matrix_adapters.slices import ARRAYS

STARTED = ROOT / "docs" / "getting-started.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
OWN_MODELS = ROOT / "docs" / "own-models.md"
RESULTS = ROOT / "results" / "README.md"


def first_column(page: Path, heading: str) -> list[str]:
    return [row[0] for row in table(page, heading)]


def test_every_exit_code_is_documented_with_its_number() -> None:
    rows = [(int(row[0]), row[1]) for row in table(STARTED, "Exit codes")]
    assert rows == [(code.value, code.name) for code in ExitCode]


def test_every_command_is_documented() -> None:
    assert first_column(STARTED, "Commands") == [f"matrix {name}" for name in COMMANDS]


def test_every_report_format_is_named() -> None:
    text = STARTED.read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"`{name}`" not in text] == []


def test_every_key_of_a_sweep_file_is_documented() -> None:
    assert set(first_column(CONFIGURATION, "Keys")) == set(SweepFile.model_fields)


@pytest.mark.parametrize("choice", [FrameworkChoice, MeasureChoice, RuleChoice])
def test_every_key_below_a_key_is_named_in_the_page(choice: type[FrameworkChoice]) -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert [key for key in choice.model_fields if f"`{key}" not in text and f"  {key}:" not in text] == []


def test_every_field_of_select_is_documented() -> None:
    assert first_column(CONFIGURATION, "Choosing cells") == list(FIELDS)


def test_every_shipped_sweep_and_variant_is_documented() -> None:
    shipped = catalog.load()
    text = CONFIGURATION.read_text(encoding="utf-8")
    assert set(first_column(CONFIGURATION, "Shipped sweeps")) == set(shipped.sweeps)
    variants = {v for f in shipped.frameworks.values() if f.source_dir is None for v in f.variants}
    assert [variant for variant in variants if f"`{variant}`" not in text] == []


def test_every_key_of_a_model_of_ones_own_is_documented() -> None:
    assert set(first_column(OWN_MODELS, "Keys of a model")) == set(UserModel.model_fields)
    assert set(first_column(OWN_MODELS, "Keys of an input")) == set(UserInput.model_fields)


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("`run.json`", RunHeader.model_fields),
        ("Sessions", Session.model_fields),
        ("Launches", LaunchRecord.model_fields),
        ("Environments", EnvironmentAttempt.model_fields),
        ("Artefacts", ArtefactAttempt.model_fields),
        ("`cells.jsonl`", Record.model_fields),
        ("Metric values", MetricValue.model_fields),
        ("Parity", Parity.model_fields),
        ("Samples", [*Samples.__dataclass_fields__, *ARRAYS]),
    ],
)
def test_the_run_folder_is_documented_field_by_field(heading: str, fields: Iterable[str]) -> None:
    assert first_column(RESULTS, heading) == list(fields)


def test_every_report_file_is_documented() -> None:
    assert set(first_column(RESULTS, "`reports/`")) == {name for name in FORMATS.values() if name}


def test_every_kind_of_launch_is_explained() -> None:
    text = (ROOT / "docs" / "add-a-framework.md").read_text(encoding="utf-8")
    assert [
        kind.value
        for kind in (TaskKind.MEASURE, TaskKind.MEMORY, TaskKind.SLICES)
        if f"`{kind.value}`" not in text
    ] == []


def test_every_session_of_nox_is_documented() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    sessions = [f"nox -s {f.name}" for f in functions if f.decorator_list]
    assert first_column(ROOT / "CONTRIBUTING.md", "Sessions") == sessions
