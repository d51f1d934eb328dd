"""Prepared cases in the cache: made once, in few tasks; a case that kills the oracle costs itself only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from matrix.artefacts import operator_store
from matrix.artefacts.content_cache import ContentCache
from matrix.artefacts.operator_store import NotPrepared, PreparedCase
from matrix.artefacts.store import ArtefactStore
from matrix.execution import archives, box, container
from matrix.execution.cancel import Cancel
from matrix.execution.container_plan import Plan
from matrix_adapters.protocol import Node, OperatorCase, Reason, Result, State, Task, TaskKind

OK = Result(state=State.OK)


def case(name: str, dtype: str = "float32", seed: int = 0) -> OperatorCase:
    nodes = (Node(op="Relu", inputs=("X",), outputs=("Y",)),)
    return OperatorCase(name=name, dtype=dtype, nodes=nodes, inputs=(), outputs=("Y",), opset=21, seed=seed)


class Maker:
    """Stands for the oracle's environment. `dies`: names of cases that end the task they are in."""

    def __init__(self, *, dies: Sequence[str] = (), failed: Sequence[str] = (), result: Result = OK) -> None:
        self.dies, self.failed, self.result = dies, failed, result
        self.tasks: list[list[str]] = []

    def __call__(self, task: Task, out: Path) -> Result:
        assert task.kind is TaskKind.ORACLE
        names = [data["name"] for data in task.options["cases"]]
        self.tasks.append(names)
        if self.result.state is not State.OK:
            return self.result
        for name, folder in zip(names, task.options["folders"], strict=True):
            made = out / folder
            made.mkdir()
            (made / "case.json").write_text("{}")
            if name in self.dies:
                return Result(state=State.FAILED, reason=Reason(code="crash", text=f"{name} did it"))
            outputs = {"Y": {"dtype": "float32", "shape": [1]}}
            oracle: dict[str, object] = {"onnx": "1.23.2", "outputs": outputs}
            if name in self.failed:
                oracle = {"failed": {"code": "evaluator_failed", "text": "no such operator"}}
            else:
                (made / "expected.npz").write_bytes(b"expected")
            (made / "inputs.npz").write_bytes(name.encode())
            (made / "oracle.json").write_text(json.dumps(oracle))
        return self.result


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[..., dict[tuple[str, str], PreparedCase | NotPrepared]]:
    def call(
        cases: Sequence[OperatorCase], maker: Maker, *, environment: str = "e", cancel: Cancel | None = None
    ) -> dict[tuple[str, str], PreparedCase | NotPrepared]:
        store = ArtefactStore(tmp_path, environment)
        return store.prepare_operators(cases, maker, ended=lambda _: None, cancel=cancel or Cancel())

    return call


def test_a_case_is_made_once_and_found_again(prepare: Callable[..., dict]) -> None:
    first, second = Maker(), Maker()
    made = prepare([case("Relu/a"), case("Relu/a", "float16")], first)
    assert set(made) == {("Relu/a", "fp32"), ("Relu/a", "fp16")}
    found = made["Relu/a", "fp32"]
    assert found.folder.joinpath("inputs.npz").read_bytes() == b"Relu/a"
    assert set(found.hashes) == {"inputs", "reference"}
    assert found.dtypes == {"Y": "float32"}
    assert prepare([case("Relu/a"), case("Relu/a", "float16")], second) == made
    assert second.tasks == []


@pytest.mark.parametrize("change", ["case", "environment"])
def test_another_case_or_another_environment_makes_it_anew(prepare: Callable[..., dict], change: str) -> None:
    prepare([case("Relu/a")], Maker())
    again = Maker()
    prepare(
        [case("Relu/a", seed=1 if change == "case" else 0)],
        again,
        environment="other" if change == "environment" else "e",
    )
    assert again.tasks == [["Relu/a"]]


def test_many_cases_are_made_in_few_tasks(prepare: Callable[..., dict]) -> None:
    maker = Maker()
    made = prepare([case(f"Relu/{i}") for i in range(250)], maker)
    assert len(made) == 250
    assert sorted(map(len, maker.tasks)) == [50, 100, 100]


def test_a_case_that_kills_the_task_costs_itself_only(prepare: Callable[..., dict]) -> None:
    maker = Maker(dies=["Relu/1", "Relu/2"])
    made = prepare([case(f"Relu/{i}") for i in range(5)], maker)
    ends = [type(made[f"Relu/{i}", "fp32"]) for i in range(5)]
    assert ends == [PreparedCase, NotPrepared, NotPrepared, PreparedCase, PreparedCase]
    assert "Relu/1 did it" in made["Relu/1", "fp32"].reason.text
    assert [len(names) for names in maker.tasks] == [5, 3, 2]


def test_what_killed_the_oracle_is_asked_again_another_time(prepare: Callable[..., dict]) -> None:
    prepare([case("Relu/a")], Maker(dies=["Relu/a"]))
    assert isinstance(prepare([case("Relu/a")], Maker())["Relu/a", "fp32"], PreparedCase)


def test_a_case_that_the_oracle_cannot_compute_is_kept_as_such(prepare: Callable[..., dict]) -> None:
    again = Maker()
    for maker in (Maker(failed=["Relu/a"]), again):
        found = prepare([case("Relu/a")], maker)["Relu/a", "fp32"]
        assert isinstance(found, NotPrepared)
        assert found.reason == Reason(code="no_oracle", text="the oracle has no answer: no such operator")
    assert again.tasks == []


def test_a_task_that_cannot_begin_is_not_repeated_for_each_case(prepare: Callable[..., dict]) -> None:
    broken = Result(state=State.BUILD_FAILED, reason=Reason(code="no_maker", text="no environment"))
    maker = Maker(result=broken)
    made = prepare([case(f"Relu/{i}") for i in range(5)], maker)
    assert len(maker.tasks) == 1
    assert {(m.state, m.reason.code) for m in made.values()} == {(State.BUILD_FAILED, "no_maker")}


def test_a_damaged_folder_is_made_anew(prepare: Callable[..., dict]) -> None:
    found = prepare([case("Relu/a")], Maker())["Relu/a", "fp32"]
    (found.folder / "inputs.npz").write_bytes(b"Relu/b")
    again = Maker()
    prepare([case("Relu/a")], again)
    assert again.tasks == [["Relu/a"]]


def test_after_a_stop_request_nothing_is_begun(prepare: Callable[..., dict]) -> None:
    prepare([case("Relu/a")], Maker())
    cancel, maker = Cancel(), Maker()
    cancel.set()
    made = prepare([case("Relu/a"), case("Relu/b")], maker, cancel=cancel)
    assert set(made) == {("Relu/a", "fp32")}
    assert maker.tasks == []


def test_nothing_is_left_beside_the_cases(prepare: Callable[..., dict], tmp_path: Path) -> None:
    prepare([case(f"Relu/{i}") for i in range(3)], Maker(dies=["Relu/1"]))
    left = [p.name for p in (tmp_path / "artefacts" / "operators").iterdir() if p.is_dir()]
    assert sorted(name.rpartition("-")[0] for name in left) == ["Relu-0-float32", "Relu-2-float32"]


def test_the_oracles_own_sources_are_part_of_every_key() -> None:
    folder = Path(operator_store.matrix_adapters.__path__[0])
    for pattern in operator_store._MAKERS:
        assert list(folder.glob(pattern)), f"{pattern} is no source of the worker any more"


def test_a_container_gets_the_folders_of_its_cases_and_no_path_of_this_machine(tmp_path: Path) -> None:
    folders = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.onnx").write_bytes(name.encode())
        folders.append(str(folder))
    task = Task(
        kind=TaskKind.OPERATORS, framework="toy", adapter="toy", options={"cases": folders, "first": 0}
    )
    plan = Plan(image="i", python="python", worker=tmp_path)
    _, inner = container._placed(task, plan, SimpleNamespace(of_worker=lambda *_: "volume"))  # type: ignore[arg-type]
    assert inner.options == {"cases": ["/job/in/cases/0", "/job/in/cases/1"], "first": 0}
    unpacked = tmp_path / "job"
    archives.unpack(archives.pack([archives.Entry("job"), *_below(box._case_entries(task))]), unpacked)
    assert (unpacked / "in/cases/1/model.onnx").read_bytes() == b"two"


def _below(entries: Iterable[archives.Entry]) -> Iterator[archives.Entry]:
    for entry in entries:
        yield dataclasses.replace(entry, name=f"job/{entry.name}")


def test_a_workspace_of_another_one_may_go_while_this_one_is_made(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators" / ".work-gone").symlink_to(tmp_path / "nowhere")  # listed, and not there
    with cache.workspace("operators") as folder:
        assert folder.is_dir()
