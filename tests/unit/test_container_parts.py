"""The parts of a launch in a container that need no engine: supervisor, archives, leases, errors."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from toy_sweep import ToySweep

from matrix.execution import leases
from matrix.execution.archives import Entry, folder_entries, pack, unpack
from matrix.execution.box import Box
from matrix.execution.container_plan import Plan
from matrix.execution.ending import Ending, Stop, conclude
from matrix.execution.engine import Engine, Gone, Refused, Silent, translated
from matrix.execution.leases import Holder, holder, own_lease
from matrix.execution.local import run_worker
from matrix_adapters import supervisor
from matrix_adapters.protocol import Reason, Result, State, to_json

SUPERVISOR = Path(supervisor.__file__)


# --- supervisor ---------------------------------------------------------------------------


def supervised(
    out: Path, code: str, *, timeout_s: float = 20, stall_s: float = 20, log: int = 1 << 20
) -> dict[str, Any]:
    """Run `code` under the supervisor; its answer, with its own exit status."""
    command = [sys.executable, "-I", "-S", str(SUPERVISOR), str(out), str(timeout_s), str(stall_s), str(log)]
    done = subprocess.run([*command, sys.executable, "-c", code], check=False, timeout=60)
    return {**json.loads((out / "exit.json").read_text()), "own_status": done.returncode}


@pytest.mark.parametrize(
    ("code", "status", "own"),
    [
        ("pass", 0, 0),
        ("raise SystemExit(7)", 7, 7),
        ("import os; os.kill(os.getpid(), 11)", -signal.SIGSEGV, 139),
    ],
)
def test_the_supervisor_tells_how_the_worker_ended(tmp_path: Path, code: str, status: int, own: int) -> None:
    answer = supervised(tmp_path, code)
    assert (answer["status"], answer["own_status"], answer["stopped"]) == (status, own, None)
    assert answer["seconds"] > 0
    assert abs(answer["clock_jump_s"]) < 1


def test_output_from_the_first_byte_on_is_in_the_log(tmp_path: Path) -> None:
    supervised(tmp_path, "import sys; print('out'); print('err', file=sys.stderr)")
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["err", "out"]


def test_the_supervisor_keeps_the_deadline(tmp_path: Path) -> None:
    answer = supervised(tmp_path, "import time; time.sleep(60)", timeout_s=0.5)
    assert (answer["stopped"], answer["status"]) == (Stop.DEADLINE.value, -signal.SIGTERM)


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    assert supervised(tmp_path, code, timeout_s=1)["status"] == -signal.SIGKILL


def test_a_silent_idle_worker_hangs_and_a_busy_one_does_not(tmp_path: Path) -> None:
    assert supervised(tmp_path, "import time; time.sleep(60)", stall_s=0.5)["stopped"] == Stop.SILENCE.value
    code = "import time\nwhile time.process_time() < 2: pass"
    assert supervised(tmp_path, code, stall_s=0.5)["stopped"] is None


def test_a_flood_of_output_is_stopped(tmp_path: Path) -> None:
    answer = supervised(tmp_path, "while True: print('x' * 1000)", log=10_000)
    assert answer["stopped"] == Stop.LOG_FLOOD.value


def test_a_stop_request_from_outside_reaches_the_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(SUPERVISOR), str(tmp_path), "60", "60", "1000"]
    code = "import pathlib, time; pathlib.Path('up').touch(); time.sleep(60)"
    process = subprocess.Popen([*command, sys.executable, "-c", code])
    while not (tmp_path / "up").exists():
        time.sleep(0.05)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM
    assert json.loads((tmp_path / "exit.json").read_text())["stopped"] == Stop.CANCEL.value


@pytest.mark.parametrize(
    ("name", "text"),
    [("memory.events", "low 0\noom 3\noom_kill 2\n"), ("memory/memory.oom_control", "oom_kill 2\n")],
)
def test_kills_are_counted_with_both_kinds_of_control_groups(tmp_path: Path, name: str, text: str) -> None:
    assert supervisor.oom_kills(str(tmp_path)) is None
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert supervisor.oom_kills(str(tmp_path)) == 2


def test_no_limit_is_not_a_number(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("max\n")
    assert supervisor.memory("memory.max", cgroups=str(tmp_path)) is None
    (tmp_path / "memory.max").write_text("268435456\n")
    assert supervisor.memory("memory.max", cgroups=str(tmp_path)) == 256 << 20


def test_the_supervisor_needs_the_standard_library_only() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SUPERVISOR), "/tmp"], capture_output=True, text=True, check=False
    )
    assert "ModuleNotFoundError" not in done.stderr


# --- archives -----------------------------------------------------------------------------


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_what_is_packed_comes_out_again(content: bytes, piece: int) -> None:
    whole = b"".join(pack([Entry("out"), Entry("out/sub"), Entry("out/sub/" + "n" * 150, content)]))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        assert archive.getnames() == ["out", "out/sub", "out/sub/" + "n" * 150]
    pieces = [whole[at : at + piece] for at in range(0, len(whole), piece)]
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert unpack(pieces, Path(folder), apart=frozenset({"exit.json"})) == {}
        assert (Path(folder) / "sub" / ("n" * 150)).read_bytes() == content


def test_some_members_are_handed_over_and_not_written(tmp_path: Path) -> None:
    whole = pack([Entry("out"), Entry("out/exit.json", b"{}"), Entry("out/result.json", b"r")])
    assert unpack(whole, tmp_path, apart=frozenset({"exit.json"})) == {"exit.json": b"{}"}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_an_archive_cannot_write_outside_or_make_links(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in ("out/../../escaped", "/etc/escaped", "out//../../../escaped"):
            info = tarfile.TarInfo(name)
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
        link = tarfile.TarInfo("out/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    target = tmp_path / "a" / "b"
    target.mkdir(parents=True)
    unpack([stream.getvalue()], target)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["a", "a/b", "a/b/etc", "a/b/etc/escaped"]  # the root itself is taken for the folder


def test_a_folder_is_packed_with_its_links_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"w")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").symlink_to(tmp_path / "blob")
    (entry,) = folder_entries(tmp_path / "model")
    whole = b"".join(pack([entry]))
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        assert archive.getmembers()[0].isreg()


# --- leases -------------------------------------------------------------------------------


def test_our_own_lease_is_ours() -> None:
    assert holder(own_lease()) is Holder.US


def test_a_lease_of_a_live_process_is_alive_and_of_a_dead_one_dead() -> None:
    code = "import sys; from matrix.execution.leases import own_lease as own"
    code += "\nprint(own(), flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    lease = child.stdout.readline().strip()
    assert holder(lease) is Holder.ALIVE
    child.communicate("")
    assert holder(lease) is Holder.DEAD


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, "other-machine", Holder.UNKNOWN),
        (1, "other-boot", Holder.DEAD),
        (2, "other-namespace", Holder.UNKNOWN),
        (4, "1", Holder.DEAD),  # the number was given to another process meanwhile
    ],
)
def test_a_lease_is_dead_only_where_that_is_certain(at: int, value: str, expected: Holder) -> None:
    parts = own_lease().split(":")
    parts[at] = value
    assert holder(":".join(parts)) is expected


@pytest.mark.parametrize("lease", ["", "1:2:3", "a:b:c:d:e", "::::"])
def test_a_lease_that_cannot_be_read_is_left_alone(lease: str) -> None:
    assert holder(lease) is Holder.UNKNOWN
    assert leases.RUN_LABEL != leases.LEASE_LABEL


# --- what the engine says -----------------------------------------------------------------


def _api_error(said: str, status: int = 500) -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError(said, response=response, explanation=said)


class OneContainer:
    """A client of an engine with one container, in that state (None: gone), that nothing can be read from."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        self._state, self.api = state, self

    def get_archive(self, *_: object, **__: object) -> None:
        raise _api_error("can not get archive from a container which is dead")

    def inspect_container(self, name: str) -> dict[str, Any]:
        if self._state is None:
            raise docker.errors.NotFound("x", explanation=f"No such container: {name}")
        return {"State": self._state}


@pytest.mark.parametrize(
    ("state", "meant"),
    [
        (None, Gone),
        ({"Status": "removing"}, Gone),
        ({"Status": "dead", "Dead": True}, Gone),
        ({"Status": "exited", "Dead": False}, Refused),
    ],
)
def test_whether_a_container_is_still_there_is_asked_not_read_from_a_refusal(
    tmp_path: Path, state: dict[str, Any] | None, meant: type[Exception]
) -> None:
    plan = Plan(image="i", python="python3", worker=tmp_path)
    client: Any = OneContainer(state)
    box = Box(plan, Engine(client), timeout_s=1, cancel=None)
    with pytest.raises(meant, match="which is dead"):
        box.fetch(tmp_path)


@pytest.mark.parametrize(
    ("said", "code", "state"),
    [
        ("write /var/lib/x: no space left on device", "disk_full", State.FAILED),
        (
            'could not select device driver "" with capabilities: [[gpu]]',
            "device_refused",
            State.UNAVAILABLE,
        ),
        (
            'error gathering device information while adding custom device "/dev/kfd": no such file',
            "device_refused",
            State.UNAVAILABLE,
        ),
        ("Requested CPUs are not available - requested 99, available: 0-1", "engine_refused", State.FAILED),
    ],
)
def test_a_refusal_has_a_code_and_the_engines_own_words(said: str, code: str, state: State) -> None:
    meant = translated(_api_error(said))
    assert isinstance(meant, Refused)
    assert (meant.reason.code, meant.state) == (code, state)
    assert said in meant.reason.text


def test_a_missing_container_an_image_and_an_engine_are_told_apart() -> None:
    gone = docker.errors.NotFound("x", explanation="No such container: abc")
    image = docker.errors.NotFound("x", explanation="No such image: sha256:abc")
    assert isinstance(translated(gone), Gone)
    meant = translated(image)
    assert isinstance(meant, Refused)
    assert meant.reason.code == "image_gone"
    for error in (
        requests.exceptions.ConnectionError("x"),
        BrokenPipeError(),
        docker.errors.DockerException(),
    ):
        assert isinstance(translated(error), Silent)


# --- how it ended -------------------------------------------------------------------------


def test_a_container_in_which_something_was_killed_is_out_of_memory_whatever_the_worker_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "result.json").write_text(to_json(Result(state=State.OK, metrics={"latency_ms": 1.0})))
    ending = Ending(
        status=0,
        phase="steady",
        seconds=1,
        oom=True,
        own_group=True,
        memory_limit=256 << 20,
        memory_peak=255 << 20,
    )
    result = conclude(ending, tmp_path)
    assert result.state is State.OOM
    assert "(limit 256 MiB, peak 255 MiB)" in str(result.reason)
    assert not result.metrics
    shared = conclude(Ending(status=0, phase="steady", seconds=1, oom=True), tmp_path)
    assert shared.state is State.OK, "counters of the whole machine say nothing of this worker"


def test_a_full_disk_where_the_worker_wrote_is_told_by_who_saw_it(tmp_path: Path) -> None:
    ending = Ending(status=1, phase="load", seconds=1, disk_free=0)
    assert conclude(ending, tmp_path).reason == Reason(
        code="disk_full", text=f"disk full at {tmp_path}: the worker could not write its result"
    )


# --- one more attempt ---------------------------------------------------------------------


@pytest.mark.parametrize("code", ["engine_lost", "container_removed"])
@pytest.mark.parametrize("purpose", ["memory", "measure"])
def test_a_launch_whose_container_was_taken_away_is_made_again_once_and_both_are_recorded(
    tmp_path: Path, code: str, purpose: str
) -> None:
    sweep = ToySweep(tmp_path, models=["good"], launches=1)
    lost: list[str] = []

    def taken_away_once(built, task, folder, **options):  # type: ignore[no-untyped-def]
        if task.kind.value == purpose and task.framework == "toy" and not lost:
            lost.append(code)
            return Result(state=State.FAILED, reason=Reason(code=code, text="taken away"))
        return run_worker(built, task, folder, **options)

    assert sweep.run(run_task=taken_away_once).outcome == "complete"
    assert sweep.states() == {"good": State.OK}
    launches = [
        one for one in sweep.stored().attempts().launches(sweep.cells[0].id) if one.purpose == purpose
    ]
    assert [(one.attempt, one.state) for one in launches] == [(1, State.FAILED), (2, State.OK)]


def test_a_container_that_is_always_taken_away_is_not_tried_for_ever(tmp_path: Path) -> None:
    sweep = ToySweep(tmp_path, models=["good"], launches=1)

    def always(built, task, folder, **options):  # type: ignore[no-untyped-def]
        return Result(state=State.FAILED, reason=Reason(code="engine_lost", text="taken away"))

    sweep.run(run_task=always)
    assert sweep.states() == {"good": State.FAILED}
    assert len(sweep.stored().attempts().launches(sweep.cells[0].id)) == 2
