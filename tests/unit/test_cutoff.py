"""One moment for both sides of a comparison: when it is needed, what it means, where it cannot be kept."""

from __future__ import annotations

import datetime
import functools
import hashlib
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packaging.version import Version
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix import catalog
from matrix.environments import pip_tool
from matrix.environments.base import BuildFailed, BuiltEnvironment
from matrix.environments.cutoff import CutOff, cut_off, parse
from matrix.environments.recipe import recipe_for
from matrix.environments.venv import VenvBackend
from matrix.errors import UsageError
from matrix.records import Environment
from matrix_adapters.protocol import Reason

NOW = datetime.datetime(2026, 11, 30, 15, 0, tzinfo=datetime.UTC)
ORT = catalog.load().frameworks["onnxruntime"]


def ort(version: str, *changes: str) -> Environment:
    return Environment(framework="onnxruntime", version=version, hardware="cpu", build="cpu", changes=changes)


# --- which moment -------------------------------------------------------------------------


def test_where_the_catalog_pins_everything_no_moment_is_needed() -> None:
    assert cut_off("", ORT, [ort("1.31.0"), ort("1.32.0"), ort("1.32.0", "numpy=2.2.0")], NOW) is None


def test_one_version_without_pins_puts_all_sides_under_the_end_of_the_day() -> None:
    moment = cut_off("", ORT, [ort("1.19.2"), ort("1.32.0")], NOW)
    assert moment == CutOff("onnxruntime", "2026-12-01T00:00:00Z")
    assert moment.of(ort("1.32.0")) == moment.at
    assert moment.of(Environment(framework="pytorch", version="1", hardware="cpu")) == ""


def test_a_moment_that_was_asked_for_stands_in_place_of_pins() -> None:
    moment = cut_off("2026-06-01", ORT, [ort("1.32.0")], NOW)
    assert moment == CutOff("onnxruntime", "2026-06-02T00:00:00Z")
    pinned, resolved = recipe_for(ORT, ort("1.32.0")), recipe_for(ORT, ort("1.32.0"), moment.at)
    assert pinned.constraints
    assert not resolved.constraints
    assert len({pinned.key, resolved.key, recipe_for(ORT, ort("1.32.0"), "2026-06-03T00:00:00Z").key}) == 3


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30", "2026-12-01T00:00:00Z"),  # today counts as a whole
        ("2026-01-31", "2026-02-01T00:00:00Z"),
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z"),
        ("2026-11-30T12:00:00+02:00", "2026-11-30T10:00:00Z"),
        ("2026-11-30T12:00", "2026-11-30T12:00:00Z"),
    ],
)
def test_a_day_counts_to_its_end_and_a_moment_is_utc_unless_it_says_otherwise(text: str, moment: str) -> None:
    assert parse(text, NOW) == moment


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "30.11.2026", "", "2026-11-30T99:00", "1-1-1"])
def test_what_is_no_date_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is no date: write 2026-11-30"):
        parse(text, NOW)


@pytest.mark.parametrize("text", ["2026-12-01", "2026-11-30T15:00:01Z", "9999-12-31"])
def test_the_future_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"that is still to come|is no date"):
        parse(text, NOW)


# --- an index that says when files were published -----------------------------------------


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """`publish(name, version, when)` on an index of this test's own; without `when` it does not say."""
    root = tmp_path / "index"
    (root / "files").mkdir(parents=True)
    listed: dict[str, list[dict[str, object]]] = {}

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").rpartition("/")[2]
            if not self.path.startswith("/simple/"):
                return super().do_GET()
            if name not in listed:
                return self.send_error(404)
            body = {"meta": {"api-version": "1.1"}, "name": name, "files": listed[name]}
            body["versions"] = []  # type: ignore[assignment]
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return None

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(root))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"

    def publish(name: str, version: str, when: str = "") -> Path:
        wheel = make_wheel(root / "files", name, version, requires=["helper"] if name == "toy" else [])
        entry: dict[str, object] = {
            "filename": wheel.name,
            "url": f"{url}/files/{wheel.name}",
            "hashes": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()},
            "size": wheel.stat().st_size,
        }
        if when:
            entry["upload-time"] = f"{when}T12:00:00Z"
        listed.setdefault(name, []).append(entry)
        return wheel

    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    yield publish
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def new_pip(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A pip that can cut off, once for all these tests; skipped where none can be had."""
    home = tmp_path_factory.mktemp("pip")
    try:
        return pip_tool.cutting_pip(home, home / "log", None)
    except BuildFailed as failure:
        pytest.skip(f"no pip {pip_tool.FIRST_WITH_CUTOFF} can be had here: {failure.reason.text}")


def build(home: Path, at: str = "", *changes: str) -> BuiltEnvironment:
    framework = toy_framework()
    backend = VenvBackend({"toy": framework}, home, cutoff=CutOff("toy", at) if at else None)
    environment = Environment(framework="toy", version="1.0", hardware="cpu", build="cpu", changes=changes)
    try:
        return backend.build(environment)
    finally:
        backend.close()


def test_what_was_published_later_is_not_installed(
    index: Callable[..., Path], new_pip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pip_tool, "cutting_pip", lambda *_: new_pip)
    index("toy", "1.0", "2026-01-01")
    index("helper", "1.0", "2026-01-01")
    index("helper", "2.0", "2026-03-01")
    early, late = build(tmp_path, "2026-02-01T00:00:00Z"), build(tmp_path, "2026-04-01T00:00:00Z")
    assert early.lock == ("helper==1.0", "toy==1.0")
    assert late.lock == ("helper==2.0", "toy==1.0")
    assert early.notes == late.notes == ()
    assert len({early.key, late.key, recipe_for(toy_framework(), early.environment).key}) == 3


def test_an_index_without_dates_is_used_as_it_is_and_the_environment_says_so(
    index: Callable[..., Path], new_pip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pip_tool, "cutting_pip", lambda *_: new_pip)
    index("toy", "1.0")
    index("helper", "1.0")
    built = build(tmp_path, "2026-02-01T00:00:00Z")
    assert built.lock == ("helper==1.0", "toy==1.0")
    (note,) = built.notes
    assert note.startswith("not cut off at 2026-02-01T00:00:00Z: ")
    assert "does not say when its files were published; it holds what there was at 20" in note


def test_files_on_disk_carry_no_date_and_the_environment_says_so(
    new_pip: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pip_tool, "cutting_pip", lambda *_: new_pip)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shop"))
    make_wheel(tmp_path / "shop", "toy")
    built = build(tmp_path / "home", "2026-02-01T00:00:00Z")
    assert built.lock == ("toy==1.0",)
    assert built.notes == (
        f"cut off at 2026-02-01T00:00:00Z, but for files of {tmp_path / 'shop'}, which carry no date",
    )


def test_without_a_pip_that_can_cut_off_the_environment_says_so(
    index: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> list[str]:
        raise BuildFailed(Reason(code="index_unreachable", text="no answer"))

    monkeypatch.setattr(pip_tool, "cutting_pip", none)
    index("toy", "1.0", "2026-01-01")
    index("helper", "2.0", "2026-03-01")
    built = build(tmp_path, "2026-02-01T00:00:00Z")
    assert built.lock == ("helper==2.0", "toy==1.0")
    assert "a pip that can do it could not be had: no answer" in built.notes[0]


def test_other_frameworks_keep_their_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "shop"))
    make_wheel(tmp_path / "shop", "toy")
    backend = VenvBackend({"toy": toy_framework()}, tmp_path, cutoff=CutOff("other", "2026-02-01T00:00:00Z"))
    built = backend.build(toy_environment(toy_framework()))
    backend.close()
    assert built.key == recipe_for(toy_framework(), built.environment).key


def test_the_pinned_pip_is_downloaded_once_where_the_own_one_is_too_old(
    index: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pip_tool, "own_version", lambda: Version("25.3"))
    monkeypatch.setattr(pip_tool, "installer_pin", lambda: "pip==99.0")
    wheel = index("pip", "99.0")
    first = pip_tool.cutting_pip(tmp_path, tmp_path / "log", None)
    wheel.unlink()
    assert pip_tool.cutting_pip(tmp_path, tmp_path / "log", None) == first
    assert first[1] == str(tmp_path / "tools" / "pip-99.0" / wheel.name / "pip")
    monkeypatch.setattr(pip_tool, "own_version", lambda: Version("26.2"))
    assert pip_tool.cutting_pip(tmp_path, tmp_path / "log", None)[1:] == ["-m", "pip"]


# --- forced changes -----------------------------------------------------------------------


def test_a_forced_change_holds_against_what_others_declare_to_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    make_wheel(shop, "toy", requires=["helper>=2"])
    for version in ("1.0", "2.0"):
        make_wheel(shop, "helper", version)
    with pytest.raises(BuildFailed, match="no set of versions satisfies"):
        build(tmp_path / "home", "", "helper=1.0")
    built = build(tmp_path / "home", "", "helper=1.0!")
    assert built.lock == ("helper==1.0", "toy==1.0")
    assert built.flags == ()
