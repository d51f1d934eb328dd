"""Every fault of a run in containers: how it is provoked, and the row of the table that comes of it.

`python tests/engine/faults.py` provokes all of them on engines of its own and writes the table of
docs/faults.md anew; `test_fault_table.py` provokes each and holds the page to what it gave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
from container_sweep import container_sweep, started
from pages import ROOT
from private_engine import PrivateEngine
from small_engine import ROOM_MB, filled
from toy_sweep import ToySweep
from watching import once_it_works_on, until, works_on

from matrix.consolidate.stored import records_of
from matrix.execution import leases
from matrix.execution.archives import Entry, pack
from matrix.execution.dispatch import run_task
from matrix.execution.engine import Engine

#: names, folders, ids, seconds, and how far a worker had come when something happened to it
_VARYING = (
    r"(?<=removed by somebody else: )[^;]+",  # the engine's words for what it misses
    r"framework-matrix-[\w-]+",
    r"/tmp/\S+",
    r"\b[0-9a-f]{12,64}\b",
    r"\d{8}-\d{6}-\S+(?=`)",
    r"\d+(\.\d+)?(?= s\b)",
    r"(?<=during )(start|import)\b",
)
PAGE = ROOT / "docs" / "faults.md"
HEADING = "Every fault, provoked"
HEAD = ("fault", "how it was provoked", "state", "reason", "exit code", "left behind")
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stage:
    """Where a fault is provoked."""

    engine: PrivateEngine
    client: docker.DockerClient
    image: str
    folder: Path


Around = Callable[[Stage], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One row. `does`: what the toy framework's worker does; `around`: what happens around the run."""

    name: str
    how: str
    does: str
    around: Around = contextlib.nullcontext
    described: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    changes: Callable[[Stage], Mapping[str, Any]] = lambda _: {}
    image: Callable[[Stage], str] = lambda stage: stage.image
    stall_s: float = 60
    signals: tuple[signal.Signals, ...] = ()  # sent to the command
    small: bool = False  # on an engine with a small disk
    restarts: bool = False  # ends the engine
    back_s: float = 60  # so long is an engine that went away waited for
    needs: Path | None = None  # a file of this machine without which it cannot be provoked

    @property
    def apart(self) -> bool:
        """In a process of its own: what it leaves is a dead process's then, as in life."""
        return bool(self.signals) or self.back_s < 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """What a fault gave."""

    state: str
    reason: str
    exit_code: str
    left: str


def provoked(fault: Fault, stage: Stage) -> Row:
    """Provoke it in a whole run of one cell."""
    sweep = container_sweep(
        stage.folder,
        stage.engine.url,
        fault.image(stage),
        changes=fault.changes(stage),
        models=[fault.does],
        launches=1,
        **fault.described,
    )
    with fault.around(stage):
        code = _of_a_command(fault, stage) if fault.apart else _of_a_run(fault, sweep)
    if not stage.engine.runs:
        stage.engine.start()
    state, reason = _told(sweep)
    return Row(state=state, reason=reason, exit_code=str(code), left=_left(stage.client))


def page_row(fault: Fault, row: Row) -> list[str]:
    """The cells of its line in the page; what differs from time to time is `...`."""
    reason = row.reason
    for pattern in _VARYING:
        reason = re.sub(pattern, "...", reason)
    return [fault.name, fault.how, row.state, reason, row.exit_code, row.left]


def _patient_for(stall_s: float) -> Callable[..., Any]:
    """A launch as a sweep makes it, which gives up on silence after so many seconds."""
    return lambda *arguments, **named: run_task(*arguments, **{**named, "stall_s": stall_s})


def _of_a_run(fault: Fault, sweep: ToySweep) -> int:
    return int(sweep.run(run_task=_patient_for(fault.stall_s)).exit_code)


def _of_a_command(fault: Fault, stage: Stage) -> int:
    process = started(stage.folder, stage.engine.url, stage.image, back_s=fault.back_s)
    until(lambda: bool(works_on(stage.client, fault.does)))
    time.sleep(0.5)  # its worker is up then
    for number in fault.signals:
        process.send_signal(number)
        if len(fault.signals) > 1:
            time.sleep(0.6)  # sooner, a second one counts as the same request
    code = process.wait(60)
    return code if code >= 0 else 128 - code  # as a shell says it


def _told(sweep: ToySweep) -> tuple[str, str]:
    """State and reason; of a launch that was tried more than once, every attempt's."""
    (record,) = records_of(sweep.stored())
    purposes = {launch.purpose for launch in record.launches if launch.reason}
    # The launch for memory comes first. What hits it spares the timed one, or happens there again.
    hit = [launch for launch in record.launches if launch.purpose in sorted(purposes)[:1]]
    parts = [f"{one.reason.code}: {one.reason.text}" if one.reason else "ok" for one in hit]
    if not hit and record.reason:
        parts = [f"{record.reason.code}: {record.reason.text}"]
    if len(parts) > 1 and len(set(parts)) == 1:
        parts = [f"{len(parts)} attempts, each: {parts[0]}"]
    elif len(parts) > 1:
        parts = [f"attempt {number}: {part}" for number, part in enumerate(parts, 1)]
    parts += [f"flag {flag.code}: {flag.text}" for flag in record.flags if flag.code == "clock_jump"]
    return record.state.value, "; ".join(parts) or "-"


def _left(client: docker.DockerClient) -> str:
    """Containers, anonymous volumes, networks: now, and after what the next start does first."""
    found = _there(client)
    if not found:
        return "nothing"
    leases.sweep(Engine(client))
    return f"{found} until the next start, then {_there(client) or 'nothing'}"


def _there(client: docker.DockerClient) -> str:
    containers = len(client.containers.list(all=True))
    volumes = len([v for v in client.volumes.list() if not v.name.startswith("framework-matrix-")])
    networks = len([n for n in client.networks.list() if n.name not in ("none", "host", "bridge")])
    counts = {"container": containers, "anonymous volume": volumes, "network": networks}
    return ", ".join(f"{count} {name}{'s' * (count > 1)}" for name, count in counts.items() if count)


# --- what happens around a run ----------------------------------------------------------------------


def _acts(does: str, act: Callable[[Stage, str], object], *, times: int = 1) -> Around:
    """Something is done to the container whose worker does `does`, once it is up."""

    @contextlib.contextmanager
    def around(stage: Stage) -> Iterator[None]:
        once_it_works_on(stage.client, does, lambda name: act(stage, name), times=times)
        yield

    return around


def _kill(stage: Stage, name: str) -> None:
    stage.client.api.kill(name)


def _remove(stage: Stage, name: str) -> None:
    stage.client.api.remove_container(name, force=True, v=True)


def _restart(stage: Stage, _: str) -> None:
    stage.engine.kill()
    stage.engine.start()


def _end(stage: Stage, _: str) -> None:
    stage.engine.kill()


def _disk_leaves(room_mb: int) -> Around:
    return lambda stage: filled(stage.engine, leaving_mb=room_mb)


def _removed_image(stage: Stage) -> str:
    """The id of an image that was there a moment ago."""
    gone = _built(stage, "LABEL short=lived\n", [])
    stage.client.images.remove(gone, force=True)
    return gone


def _image_with_a_clock(stage: Stage) -> str:
    """The image with a library that gives a process the time of day that a file names."""
    return _built(stage, "COPY libfaketime.so /libfaketime.so\n", [Entry("libfaketime.so", FAKETIME)])


def _built(stage: Stage, more: str, entries: list[Entry]) -> str:
    context = [Entry("Dockerfile", f"FROM {stage.image}\n{more}".encode()), *entries]
    stream = stage.client.api.build(
        fileobj=io.BytesIO(b"".join(pack(context))), custom_context=True, rm=True, decode=True
    )
    ids = [event["aux"]["ID"] for event in stream if "aux" in event]
    return str(ids[-1])


_OWN_CLOCK = {
    "LD_PRELOAD": "/libfaketime.so",
    "FAKETIME_TIMESTAMP_FILE": "/job/out/clock",
    "FAKETIME_NO_CACHE": "1",
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "DONT_FAKE_MONOTONIC": "1",
}

FAULTS = (
    Fault(
        name="worker killed",
        how="the worker gets SIGKILL, with memory to spare",
        does="killed",
    ),
    Fault(
        name="container killed",
        how="`docker kill` while the worker runs",
        does="hang",
        around=_acts("hang", _kill),
    ),
    Fault(
        name="worker out of memory",
        how="the worker takes 16 MiB after 16 MiB; its limit is 256 MiB",
        does="eat",
    ),
    Fault(
        name="child out of memory",
        how="a process that the worker starts takes 1 GiB; the worker itself ends well",
        does="childeats",
    ),
    Fault(name="crash, SIGSEGV", how="native code reads address 0", does="segv"),
    Fault(name="crash, SIGABRT", how="native code calls abort()", does="abort"),
    Fault(
        name="time allowed is over",
        how="the worker sleeps, 4 s are allowed",
        does="hang",
        described={"timeout_s": 4},
    ),
    Fault(
        name="worker hangs",
        how="the worker is stopped (SIGSTOP), 3 s without a sign of life are allowed",
        does="wedge",
        stall_s=3,
    ),
    Fault(
        name="engine lost and back",
        how="SIGKILL to dockerd in the middle of a launch, then it is started again",
        does="slow_20",
        around=_acts("slow_20", _restart),
        restarts=True,
    ),
    Fault(
        name="engine lost for good",
        how="SIGKILL to dockerd in the middle of a launch; it is not started again",
        does="slow",
        around=_acts("slow", _end),
        restarts=True,
        back_s=2,
    ),
    Fault(
        name="disk full in the container",
        how=f"the worker writes until nothing is left of the engine's last {ROOM_MB} MiB",
        does="fill",
        around=_disk_leaves(ROOM_MB),
        small=True,
    ),
    Fault(
        name="disk full on the engine",
        how="nothing is left on the engine's disk when the run begins",
        does="good",
        around=_disk_leaves(0),
        small=True,
    ),
    Fault(
        name="device refused, node",
        how="a device node is asked for that the engine's host does not have",
        does="good",
        changes=lambda _: {"devices": ("/dev/kfd-that-is-not-there",)},
    ),
    Fault(
        name="device refused, GPU",
        how="a GPU is asked for on an engine without a GPU runtime",
        does="good",
        changes=lambda _: {"device_requests": ({"capabilities": [["gpu"]], "count": -1},)},
    ),
    Fault(
        name="image gone",
        how="`docker rmi` between build and launch",
        does="good",
        image=_removed_image,
    ),
    Fault(
        name="container removed, once",
        how="`docker rm --force` while the worker runs",
        does="slow",
        around=_acts("slow", _remove),
    ),
    Fault(
        name="container removed, each time",
        how="`docker rm --force` while the worker runs, and again at the second attempt",
        does="slow",
        around=_acts("slow", _remove, times=2),
    ),
    Fault(
        name="setting refused",
        how="a core is asked for that the engine's host does not have",
        does="good",
        changes=lambda _: {"cpuset": "4096"},
    ),
    Fault(
        name="clock jump",
        how="the container's time of day is put forward by an hour while the worker runs",
        does="clock",
        image=_image_with_a_clock,
        changes=lambda _: {"environ": _OWN_CLOCK},
        needs=FAKETIME,
    ),
    Fault(name="Ctrl-C", how="SIGINT to the command", does="slow", signals=(signal.SIGINT,)),
    Fault(
        name="Ctrl-C, twice",
        how="SIGINT to the command, and again while its worker will not end",
        does="deaf",
        signals=(signal.SIGINT, signal.SIGINT),
    ),
    Fault(name="SIGTERM", how="SIGTERM to the command", does="slow", signals=(signal.SIGTERM,)),
    Fault(name="kill -9", how="SIGKILL to the command", does="slow", signals=(signal.SIGKILL,)),
)


def _write() -> None:
    """Provoke all of them, and write the page's table anew."""
    from conftest import make_tiny
    from private_engine import an_engine
    from small_engine import a_small_engine

    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    with contextlib.ExitStack() as engines:
        large = engines.enter_context(an_engine(Path(tempfile.mkdtemp(prefix="fmx-faults-"))))
        small = engines.enter_context(a_small_engine())
        images = {engine.url: make_tiny(engine) for engine in (large, small)}
        for fault in FAULTS:
            engine = small if fault.small else large
            with engine.client() as client, tempfile.TemporaryDirectory() as folder:
                stage = Stage(engine=engine, client=client, image=images[engine.url], folder=Path(folder))
                row = page_row(fault, provoked(fault, stage))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            print(lines[-1], file=sys.stderr)
    text = PAGE.read_text(encoding="utf-8")
    before, heading, after = text.partition(f"## {HEADING}\n")
    rest = re.sub(r"^\|.*\n(?:\|.*\n)*", "\n".join(lines) + "\n", after, count=1, flags=re.MULTILINE)
    PAGE.write_text(before + heading + rest, encoding="utf-8")


if __name__ == "__main__":
    _write()
