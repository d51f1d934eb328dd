"""Candidates: named in a sweep, planned as one more column, loaded by name, judged with their gradient."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_catalog

from matrix import catalog
from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig, load_sweep, sweep_from_data
from matrix.errors import ConfigError
from matrix.operators.gain import Share, derived_share, gain_of
from matrix.operators.load import SPEED_FOLDER
from matrix.plan import make_plan
from matrix.records import (
    EnvironmentRecord,
    MetricValue,
    ReasonRecord,
    Record,
    WorkloadRecord,
)
from matrix.report.operators import candidates
from matrix.report.style import Style
from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import candidate
from matrix_adapters.operators.candidate import Candidate, CandidateError
from matrix_adapters.protocol import State, Task, TaskKind

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


@pytest.fixture
def known(tmp_path: Path) -> Catalog:
    return dataclasses.replace(SHIPPED, operators=small_catalog.write(tmp_path / "operators"))


def sweep(folder: Path, known: Catalog, text: str) -> SweepConfig:
    (folder / "mine.py").write_text("def add(a, b): return a + b\n")
    path = folder / "sweep.yaml"
    path.write_text(
        "name: x\nframeworks: [pytorch]\nhardware: [cpu]\n" + textwrap.dedent(text), encoding="utf-8"
    )
    return load_sweep(path, known)


MINE = """
candidates:
  - {name: mine, operator: Add, framework: pytorch, callable: "mine.py:add"}
"""


def test_a_candidate_alone_is_a_sweep_and_brings_the_stock_column_with_it(
    tmp_path: Path, known: Catalog
) -> None:
    config = sweep(tmp_path, known, MINE)
    cells = make_plan(config, known, {}, usable_threads=1).cells
    columns: dict[str, set[tuple[str, str]]] = {}
    for cell in cells:
        work = cell.workload
        columns.setdefault(work.variant, set()).add((work.subject, work.precision))
    assert set(columns) == {"eager", "candidate:mine"}
    assert columns["eager"] == columns["candidate:mine"], "every case of the operator, for both"
    assert all(subject.startswith("Add/") for subject, _ in columns["candidate:mine"])


def test_a_candidate_is_given_the_cases_of_its_own_operator_only(tmp_path: Path, known: Catalog) -> None:
    config = sweep(tmp_path, known, "operators: [Gelu, Add]\n" + MINE)
    cells = make_plan(config, known, {}, usable_threads=1).cells
    own = {c.workload.subject.partition("/")[0] for c in cells if c.workload.variant == "candidate:mine"}
    assert own == {"Add"}


def test_a_run_stores_where_a_candidate_lies_and_finds_it_again(tmp_path: Path, known: Catalog) -> None:
    config = sweep(tmp_path, known, MINE)
    assert config.candidates[0].told()["callable"] == f"{tmp_path / 'mine.py'}:add"
    again = sweep_from_data(config.data, known, "run.json")
    assert again.candidates == config.candidates


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("operator: Ad", "no cases of an operator 'Ad'"),
        ("framework: tensorflow", "is one for pytorch, not tensorflow"),
        ("framework: torch", "is one for pytorch, not torch"),
        ("callable: 'other.py:add'", "there is no file"),
        ("callable: mine.py", "write it module:function"),
        ("callable: 'mine.py:__import__(1)'", "write it module:function"),
        ("callable: 'a b:add'", "'a b' cannot hold it"),
        ("callable: 'mine.so:add'", "'mine.so' cannot hold it"),
        ("kind: cuda", "kind"),
        ("name: 'a b'", "name"),
        ("path: nowhere", "there is no folder"),
    ],
)
def test_what_is_wrong_with_a_candidate_is_told_before_anything_runs(
    tmp_path: Path, known: Catalog, changed: str, message: str
) -> None:
    entry = {
        "name": "name: mine",
        "operator": "operator: Add",
        "framework": "framework: pytorch",
        "callable": "callable: 'mine.py:add'",
    }
    entry[changed.partition(":")[0]] = changed
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        sweep(tmp_path, known, "candidates:\n  - {" + ", ".join(entry.values()) + "}\n")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("callable: 'mine.so:my::Add', framework: pytorch", "is one for onnxruntime, not pytorch"),
        ("callable: 'mine.so:Add', framework: onnxruntime", "write it library.so:domain::Operator"),
        ("callable: 'mine.py:my::Add', framework: onnxruntime", "'mine.py' cannot hold it"),
        ("callable: 'gone.so:my::Add', framework: onnxruntime", "there is no file"),
        ("callable: 'mine.so:my::Add', framework: onnxruntime, gradient: true", "has no gradient"),
    ],
)
def test_what_is_wrong_with_a_library_of_custom_operators_is_told(
    tmp_path: Path, known: Catalog, entry: str, message: str
) -> None:
    (tmp_path / "mine.so").touch()
    with pytest.raises(ConfigError, match=message):
        sweep(
            tmp_path,
            known,
            f"candidates:\n  - {{name: mine, operator: Add, kind: ort_custom_ops, {entry}}}\n",
        )


@pytest.mark.parametrize("folder", ["plain", "with:colon", "with::two"])
def test_a_folder_may_have_colons_in_its_name(tmp_path: Path, known: Catalog, folder: str) -> None:
    home = tmp_path / folder
    home.mkdir()
    (home / "k.so").touch()
    config = sweep(
        home,
        known,
        MINE
        + "  - {name: li, operator: Add, framework: pytorch, kind: torch_library, callable: 'k.so:k::add'}\n",
    )
    told = [candidate.split(one.told()["callable"]) for one in config.candidates]
    assert told == [(str(home / "mine.py"), "add"), (str(home / "k.so"), "k::add")]


def test_a_candidate_is_timed_where_its_operator_has_timed_cases(tmp_path: Path, known: Catalog) -> None:
    speed = "Add:\n  kind: elementwise\n  inputs: [A, B]\n  cases:\n    long: {in: {A: [4096], B: [4096]}}\n"
    small_catalog.write(known.operators / SPEED_FOLDER, speed)
    cells = make_plan(sweep(tmp_path, known, MINE), known, {}, usable_threads=1).cells
    timed = {(c.workload.subject, c.workload.variant) for c in cells if c.timed}
    assert timed == {("Add/long", "eager"), ("Add/long", "candidate:mine")}


def test_two_candidates_need_two_names(tmp_path: Path, known: Catalog) -> None:
    twice = MINE + "  - {name: mine, operator: Add, framework: pytorch, callable: 'mine.py:add'}\n"
    with pytest.raises(ConfigError, match="a second candidate is called 'mine'"):
        sweep(tmp_path, known, twice)


# --- loading --------------------------------------------------------------------------------


@pytest.fixture
def import_path() -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def named(text: str, folder: Path, kind: str = "python") -> Candidate:
    return Candidate(name="mine", operator="Add", callable=text, kind=kind, folder=str(folder))


@pytest.mark.usefixtures("import_path")
def test_a_function_is_loaded_from_a_file_or_from_a_module_beside_it(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("class Ops:\n  @staticmethod\n  def twice(x): return 2 * x\n")
    (tmp_path / "file_of_mine.py").write_text("import helper_of_mine\ntwice = helper_of_mine.Ops.twice\n")
    assert candidate.load(named(f"{tmp_path}/file_of_mine.py:twice", tmp_path))(2) == 4
    assert candidate.load(named("helper_of_mine:Ops.twice", tmp_path))(3) == 6


@pytest.mark.usefixtures("import_path")
def test_the_folder_of_a_candidate_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('the wrong one')\n")
    (tmp_path / "file_of_mine.py").write_text("import importlib, json\nname = json.dumps\n")
    loaded = candidate.load(named(f"{tmp_path}/file_of_mine.py:name", tmp_path))
    assert loaded([1]) == "[1]"
    assert sys.path[-1] == str(tmp_path)


@pytest.mark.usefixtures("import_path")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file_of_mine.py:missing", "has no 'missing'"),
        ("file_of_mine.py:number", "is a int, and cannot be called"),
        ("nowhere.py:f", "there is no file"),
        ("file_of_mine.py", "is not written module:function"),
        ("namespace::operator", "is not written module:function"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file_of_mine.py").write_text("number = 3\n")
    with pytest.raises(CandidateError, match=message):
        candidate.load(named(text, tmp_path))


def test_a_kind_of_another_framework_is_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="not for PyTorch"):
        candidate.load(named("x.so:y", tmp_path, "ort_custom_ops"))


def test_a_tool_that_is_missing_is_told_from_a_kernel_that_does_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "Error building extension 'mine': expected ';' before '}'"
    monkeypatch.setenv("CXX", "a-compiler-that-nobody-has")
    assert "no C++ compiler a-compiler-that-nobody-has" in candidate.missing_tool(broken)
    assert "need ninja" in candidate.missing_tool("Ninja is required to load C++ extensions")
    compiler = tmp_path / "compiler"
    compiler.touch(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert candidate.missing_tool(broken) == ""
    assert candidate.missing_tool("division by zero") == ""


def test_a_task_without_a_candidate_has_none_and_a_strange_one_is_refused() -> None:
    task = Task(kind=TaskKind.OPERATORS, framework="pytorch", adapter="x")
    assert candidate.of(task) is None
    with pytest.raises(CandidateError, match="colour"):
        candidate.of(dataclasses.replace(task, options={"candidate": {"colour": "red"}}))
    with pytest.raises(CandidateError, match="a mapping"):
        candidate.of(dataclasses.replace(task, options={"candidate": "mine"}))


# --- what it would bring --------------------------------------------------------------------


def test_amdahls_law() -> None:
    first = gain_of(Share(model="m", share=0.5, source="given"), 2.0)
    second = gain_of(Share(model="n", share=1.0, source="given"), 2.0)
    assert first.gain == pytest.approx(1 / 0.75)
    assert first.most == pytest.approx(2)
    assert second.gain == pytest.approx(2)
    assert second.most is None


def test_a_slower_candidate_makes_the_model_slower() -> None:
    one = gain_of(Share(model="m", share=0.5, source="given"), 0.5)
    assert one.gain == pytest.approx(1 / 1.5)


@pytest.mark.parametrize("speedup", [0.0, -1.0, float("nan"), float("inf")])
def test_no_gain_follows_from_no_speedup(speedup: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        gain_of(Share(model="m", share=0.5, source="given"), speedup)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_part(share: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Share(model="m", share=share, source="given")


def test_a_share_without_a_profile_is_marked_derived() -> None:
    found = derived_share("m", {"a": 2, "b": 1}, {"a": 1.0, "b": 3.0}, 20.0)
    assert found.share == pytest.approx(0.25)
    assert found.derived


def test_no_share_is_made_up() -> None:
    with pytest.raises(ValueError, match="has no latency"):
        derived_share("m", {"a": 2}, {}, 20.0)
    with pytest.raises(ValueError, match="no share follows"):
        derived_share("m", {"a": 30}, {"a": 1.0}, 20.0)
    with pytest.raises(ValueError, match="not known"):
        derived_share("m", {"a": 1}, {"a": 1.0}, 0.0)


# --- the view -------------------------------------------------------------------------------


def record(case: str, variant: str, state: State, latency: float | None = None, reason: str = "") -> Record:
    metrics = {"latency_ms": MetricValue(value=latency, unit="ms")} if latency is not None else {}
    return Record(
        id=f"{case}{variant}",
        label=case,
        environment=EnvironmentRecord(name="pytorch-1-cpu", framework="pytorch", version="1", hardware="cpu"),
        workload=WorkloadRecord(
            level="operator", subject=case, batch=1, precision="fp32", threads=1, variant=variant
        ),
        state=state,
        reason=ReasonRecord(code="x", text=reason) if reason else None,
        metrics=metrics,
    )


def test_a_candidate_is_held_against_the_stock_operator_case_by_case() -> None:
    (found,) = candidates.find(
        [
            record("Add/a", "eager", State.OK, 4.0),
            record("Add/b", "eager", State.OK, 1.0),
            record("Add/c", "eager", State.OK, 100.0),
            record("Add/a", "candidate:mine", State.OK, 1.0),
            record("Add/b", "candidate:mine", State.OK, 1.0),
            record("Add/c", "candidate:mine", State.INCORRECT, 0.001, "an error of 3"),
        ],
        [Share(model="m", share=0.5, source="given")],
    )
    assert (found.name, found.operator, found.cases, found.passed) == ("mine", "Add", 3, 2)
    assert found.speedup == pytest.approx(2.0), "geometric, and without the wrong answer that was so fast"
    assert found.gains[0].gain == pytest.approx(1 / 0.75)
    assert found.wrong == (("Add/c", "fp32", "incorrect", "an error of 3"),)
    text = candidates.table([found], Style())
    assert "2 of 3 pass" in text
    assert "x1.333 end to end" in text


def test_gradients_are_counted_by_how_they_compared() -> None:
    records = [
        record(f"Add/{i}", "candidate:mine", State.OK).model_copy(update={"effective": effective})
        for i, effective in enumerate(
            [{"gradient": {"passed": True}}, {"gradient": {"passed": False, "text": "no"}}, {}]
        )
    ]
    (both,) = candidates.find(records)
    assert "right in 1 case, wrong in 1 case" in candidates.table([both], Style())
    (none,) = candidates.find(records[2:])
    assert "gradient   not compared" in candidates.table([none], Style())


def test_without_times_nothing_is_said_of_speed() -> None:
    (found,) = candidates.find(
        [record("Add/a", "candidate:mine", State.OK)], [Share(model="m", share=1, source="")]
    )
    assert found.speedup is None
    assert found.gains == ()
    assert "no case was timed" in candidates.table([found], Style())


def test_a_run_without_candidates_has_none() -> None:
    assert candidates.find([record("Add/a", "eager", State.OK)]) == ()
