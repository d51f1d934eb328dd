"""Sweep files with absurd numbers, paths and sizes: located messages, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix import catalog
from matrix.config.sweep import load_sweep
from matrix.errors import ConfigError, UsageError
from matrix.plan import MOST_CELLS, make_plan
from matrix_adapters.protocol import State

SHIPPED = catalog.load()
BASE = "name: x\nframeworks: [onnxruntime]\nhardware: [cpu]\n"
MODELS = "models: [dlrm_tiny]\n"


def problems(tmp_path: Path, text: str) -> str:
    path = tmp_path / "sweep.yaml"
    path.write_text(BASE + text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_sweep(path, SHIPPED)
    return str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("measure: {launches: 1000000}", "measure.launches: at most 1000 is possible, got 1000000"),
        ("measure: {samples: 1000000000}", "measure.samples: at most 1000000"),
        ("measure: {samples: 0}", "measure.samples: at least 1 is needed, got 0"),
        ("measure: {max_steady_s: 1e300}", "measure.max_steady_s: at most"),
        ("timeout: 1e308", "timeout: at most"),
        ("batch: []", "batch: at least one entry is needed"),
        ("rules: [{select: '%s', required: true}]" % ("not " * 1500 + "(batch == 1)"), "too deeply"),
    ],
    ids=lambda value: value[:30],
)
def test_an_absurd_number_is_refused_with_its_limit(tmp_path: Path, text: str, said: str) -> None:
    found = problems(tmp_path, f"{MODELS}{text}\n")
    assert said in found and ":5:" in found


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("{name: ../x, path: .}", "letters, digits, '.', '_' and '-' are possible"),
        (f"{{name: {'n' * 300}, path: .}}", "at most 100 characters"),
        (f"{{name: x, path: {'p' * 5000}}}", "is no path: File name too long"),
        ("{name: x, path: ~nobody-of-this-name/model}", "is no path"),
        ('{name: x, path: "a\\0b"}', "is no path"),
        ("{name: x, path: nowhere}", "there is no"),
    ],
    ids=lambda value: value[:30],
)
def test_a_model_whose_name_or_path_can_be_none_is_refused_in_its_line(
    tmp_path: Path, model: str, said: str
) -> None:
    found = problems(tmp_path, f"models: [{model}]\n")
    assert said in found and "sweep.yaml:4:" in found and len(found) < 1000


def test_a_version_that_no_index_can_have_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    versions = f"frameworks: [{{name: onnxruntime, versions: ['{'1.' * 2000}1']}}]"
    path.write_text(f"name: x\n{versions}\n{MODELS}", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a version") as refused:
        load_sweep(path, SHIPPED)
    assert len(str(refused.value)) < 400


def test_a_sweep_of_millions_of_cells_is_refused_before_they_are_made(tmp_path: Path) -> None:
    many = list(range(1, 3001))
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{BASE}{MODELS}batch: {many}\nthreads: {many}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=f"more than {MOST_CELLS:,} cells"):
        make_plan(load_sweep(path, SHIPPED), SHIPPED, {}, usable_threads=2)


def test_threads_that_would_stop_the_machine_are_unavailable_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"{BASE}{MODELS}threads: [1, 16, 17, 10000]\n", encoding="utf-8")
    plan = make_plan(load_sweep(path, SHIPPED), SHIPPED, {}, usable_threads=2)
    assert [cell.state for cell in plan.cells] == [None, None, State.UNAVAILABLE, State.UNAVAILABLE]
    reason = plan.cells[-1].reason
    assert reason is not None and "10000 threads were asked, 2 are usable here" in reason.text
