"""The run folder: nothing that was written is lost, and nothing half-written is believed."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.consolidate.stored import records_of
from matrix.errors import RunLocked, StorageError, UsageError
from matrix.query import query
from matrix.records import Cell, Environment, EnvironmentRecord, LaunchRecord, ReasonRecord, Workload
from matrix.store import durable
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt, RunHeader
from matrix.store.names import check_new_name, find_run, find_run_and_environment, new_id
from matrix.store.runs import Attempts, RunStore, StoredRun, is_running, read_header
from matrix_adapters.protocol import Reason, State


def header(run: str = "20260101-000000-toy-0000", **fields: Any) -> RunHeader:
    return RunHeader(id=run, created="2026-01-01T00:00:00.000Z", seed=0, blocks=1, **fields)


def cell(subject: str, **fields: Any) -> Cell:
    return Cell(
        environment=Environment(framework="toy", version="1.0", hardware="cpu", build="cpu"),
        workload=Workload(
            level="inference",
            subject=subject,
            batch=1,
            sequence=None,
            precision="fp32",
            threads=1,
            variant="",
        ),
        **fields,
    )


CELLS = (cell("a"), cell("b", state=State.UNSUPPORTED, reason=Reason(code="no", text="cannot be")))


def launch(block: int = 0, **fields: Any) -> LaunchRecord:
    return LaunchRecord(cell=CELLS[0].id, purpose="measure", block=block, state=State.OK, **fields)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.create(tmp_path, header(), CELLS) as opened:
        yield opened


def test_plan_header_and_attempts_come_back_as_they_were_written(store: RunStore) -> None:
    environment = EnvironmentAttempt(
        environment=EnvironmentRecord(name="toy-1.0-cpu", framework="toy", version="1.0", hardware="cpu"),
        state=State.OK,
        consumes="checkpoint",
    )
    artefact = ArtefactAttempt(subject="a", batch=1, consumes="checkpoint", state=State.OK)
    first = launch(metrics={"latency_ms": 0.1 + 0.2}, flags=(ReasonRecord(code="x", text="\u2028 line?"),))
    for attempt in (environment, artefact, first, launch(1)):
        store.append(attempt)
    run = StoredRun(store.folder)
    assert run.cells() == CELLS
    assert run.header == store.header
    attempts = run.attempts()
    assert attempts.environments == {"toy-1.0-cpu": environment}
    assert attempts.artefacts == {artefact.key: artefact}
    assert attempts.launches(CELLS[0].id) == [first, launch(1)]
    assert attempts.launches("unknown") == []


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_prefix_of_attempts_reads_as_the_whole_lines_in_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    texts = data.draw(st.lists(st.text(max_size=20), min_size=1, max_size=6))
    folder = tmp_path_factory.mktemp("run")
    path = folder / "attempts.jsonl"
    lines = durable.LineFile(path)
    for block, text in enumerate(texts):
        record = launch(block, reason=ReasonRecord(code="t", text=text))
        lines.append({"kind": "launch", **record.model_dump(mode="json", exclude_defaults=True)})
    lines.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    expected = whole[:cut].count(b"\n")
    assert Attempts(path).count() == expected, "reading"
    reopened = durable.LineFile(path)
    reopened.append({"kind": "launch", **launch(99).model_dump(mode="json", exclude_defaults=True)})
    reopened.close()
    blocks = [found.block for found in Attempts(path).launches(CELLS[0].id)]
    assert blocks == [*range(expected), 99], "writing goes on after the last whole line"


@pytest.mark.parametrize("torn", [b'{"kind":"lau', b"\0" * 4096, b'{"kind":"launch"\n', b"\n\0\0"])
def test_a_torn_last_line_is_passed_over_and_cut_off(tmp_path: Path, torn: bytes) -> None:
    with RunStore.create(tmp_path, header(), CELLS) as store:
        store.append(launch())
        path = store.folder / "attempts.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    with RunStore.open(store.folder) as again:
        assert path.read_bytes() == whole
        assert again.attempts.count() == 1


def test_damage_in_the_middle_is_an_error_that_names_the_line(store: RunStore) -> None:
    store.append(launch())
    path = store.folder / "attempts.jsonl"
    path.write_bytes(b"garbage\n" + path.read_bytes())
    with pytest.raises(StorageError, match=r"attempts.jsonl:1 is damaged"):
        StoredRun(store.folder).attempts()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_has_not_is_refused_not_stored_as_null(store: RunStore, value: float) -> None:
    with pytest.raises(ValueError):
        store.append(launch().model_copy(update={"probes": {"x": value}}))
    assert StoredRun(store.folder).attempts().count() == 0


def test_every_file_is_strict_json(store: RunStore) -> None:
    store.append(launch(metrics={"latency_ms": 1.0}))
    store.write_records(records_of(StoredRun(store.folder)))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    for path in sorted(store.folder.glob("*.json*")):
        texts = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        for text in texts:
            json.loads(text, parse_constant=refuse)


def test_a_second_writer_is_refused_with_the_first_ones_process_id(store: RunStore) -> None:
    code = (
        "import sys; from pathlib import Path; from matrix.store.runs import RunStore\n"
        "RunStore.open(Path(sys.argv[1]))"
    )
    second = subprocess.run(
        [sys.executable, "-c", code, str(store.folder)], capture_output=True, text=True, check=False
    )
    assert "RunLocked" in second.stderr
    assert f"process {os.getpid()}" in second.stderr
    with pytest.raises(RunLocked, match=str(os.getpid())):
        RunStore.open(store.folder)
    assert is_running(store.folder) == os.getpid()
    store.close()
    assert is_running(store.folder) is None


def test_the_lock_of_a_killed_writer_is_free_at_once(tmp_path: Path) -> None:
    folder = RunStore.create(tmp_path, header(), CELLS).folder
    code = (
        "import sys, time; from pathlib import Path; from matrix.store.runs import RunStore\n"
        "store = RunStore.open(Path(sys.argv[1])); print('open', flush=True); time.sleep(600)"
    )
    import gc

    gc.collect()  # the store above was only dropped, not closed: its lock goes with it
    holder = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    RunStore.open(folder).close()


def test_readers_need_no_lock(store: RunStore) -> None:
    assert StoredRun(store.folder).cells() == CELLS


def test_a_full_disk_while_appending_keeps_the_lines_before_it(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(launch())
    real = os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 40:
            return real(descriptor, data[:40])  # what a full disk does: it takes a part first
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable.os, "write", half)
    with pytest.raises(StorageError, match="disk full"):
        store.append(launch(1, sampling={"note": "x" * 60}))
    monkeypatch.undo()
    store.append(launch(2))
    assert [found.block for found in StoredRun(store.folder).attempts().launches(CELLS[0].id)] == [0, 2]


def test_replacing_a_file_fails_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    durable.replace(path, "old")

    def broken() -> Any:
        yield b"new"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageError, match="disk full"):
        durable.replace(path, broken())
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"


def test_a_run_of_a_newer_version_says_so(store: RunStore) -> None:
    path = store.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema_version": 2, "new_field": 1}))
    with pytest.raises(StorageError, match=r"newer version.*pip install --upgrade"):
        read_header(store.folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 3}', "\0\0\0"])
def test_a_damaged_header_is_an_error_that_names_the_file(store: RunStore, text: str) -> None:
    (store.folder / "run.json").write_text(text)
    with pytest.raises(StorageError, match=r"run\.json"):
        read_header(store.folder)


def test_a_run_that_is_going_on_is_not_called_stopped(store: RunStore) -> None:
    reason = records_of(StoredRun(store.folder))[0].reason
    assert reason is not None
    assert reason.code == "running"
    store.close()
    reason = records_of(StoredRun(store.folder))[0].reason
    assert reason is not None
    assert reason.code == "stopped"


def test_records_are_made_afresh_when_something_was_added_since(store: RunStore) -> None:
    store.write_records(records_of(StoredRun(store.folder)))
    run = StoredRun(store.folder)
    assert run.is_consolidated()
    before = records_of(run)
    store.append(launch())
    again = StoredRun(store.folder)
    assert not again.is_consolidated()
    assert [record.id for record in records_of(again)] == [record.id for record in before]
    assert records_of(again)[0].attempts == 1


def test_stored_records_equal_those_made_from_the_attempts(store: RunStore) -> None:
    store.append(launch(metrics={"latency_ms": 1.5}, phases={"import_s": 1.0}, effective={"threads": 1}))
    store.write_records(records_of(StoredRun(store.folder)))
    assert list(StoredRun(store.folder).stored_records()) == records_of(StoredRun(store.folder))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for run, name in (
        ("20260101-000000-a-0001", "base"),
        ("20260102-000000-a-0002", ""),
        ("20260102-1-b", ""),
    ):
        RunStore.create(tmp_path, header(run, name=name), CELLS).close()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("20260101-000000-a-0001", "20260101-000000-a-0001"),
        ("20260101", "20260101-000000-a-0001"),
        ("base", "20260101-000000-a-0001"),
        ("latest", "20260102-1-b"),
        ("20260102-0", "20260102-000000-a-0002"),
    ],
)
def test_a_run_is_found_by_id_prefix_name_and_latest(runs: Path, text: str, found: str) -> None:
    assert find_run(runs, text).name == found
    assert find_run_and_environment(runs, f"{text}:toy-1.0-cpu") == (runs / found, "toy-1.0-cpu")


@pytest.mark.parametrize(
    ("text", "message"), [("20260102", "names 2 runs"), ("bsae", "did you mean 'base'"), ("", "no run")]
)
def test_a_name_that_fits_none_or_many_says_what_to_write(runs: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_run(runs, text)


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="matrix run"):
        find_run(tmp_path / "results", "latest")


@pytest.mark.parametrize("name", ["latest", "a b", "a:b", "base", "../x"])
def test_a_new_name_must_be_free_and_typeable(runs: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--name"):
        check_new_name(runs, name)
    check_new_name(runs, "nightly-2")


def test_ids_sort_by_time_and_can_be_read() -> None:
    assert new_id("My sweep!").split("-")[2] == "my_sweep"
    assert new_id("a") != new_id("a")


def test_sql_reads_many_runs_also_one_that_was_killed_and_no_other_file(tmp_path: Path) -> None:
    folders = []
    for number in (1, 2):
        with RunStore.create(tmp_path, header(f"2026010{number}-0-a-0000"), CELLS) as store:
            store.append(
                EnvironmentAttempt(
                    environment=EnvironmentRecord(
                        name="toy-1.0-cpu", framework="toy", version="1.0", hardware="cpu"
                    ),
                    state=State.OK,
                )
            )
            store.append(launch(metrics={"latency_ms": float(number)}))
            store.append(
                launch().model_copy(update={"purpose": "memory", "metrics": {"peak_memory_bytes": 5.0}})
            )
            if number == 1:
                store.write_records(records_of(store.reader()))
            folders.append(store.folder)
    answer = query(folders, "SELECT value FROM metrics WHERE metric = 'latency_ms' ORDER BY run")
    assert answer.rows == ((1.0,), (2.0,))
    assert query(folders, "SELECT count(*) FROM cells WHERE state = 'unsupported'").rows == ((2,),)
    assert query([], "SELECT count(*) AS n FROM runs").columns == ("n",)
    for wrong in ("SELEC 1", f"SELECT * FROM read_text('{__file__}')"):
        with pytest.raises(UsageError, match="query"):
            query(folders, wrong)
