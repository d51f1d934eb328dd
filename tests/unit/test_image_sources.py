"""Container images without an engine: the context, the key, the Dockerfiles, bases, reasons, pins."""

from __future__ import annotations

import io
import os
import random
import re
import tarfile
from pathlib import Path

import docker
import pytest
import urllib3
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix import catalog
from matrix.environments import clean, locks, pip
from matrix.environments.base import BuildFailed
from matrix.environments.images import base, context, failures, index, labels, pins, shelf, sources, wheels
from matrix.environments.images.base import BaseFacts
from matrix.environments.images.job import Job
from matrix.environments.recipe import Recipe, Step, recipe_for
from matrix.errors import UsageError

CATALOG = catalog.load_from(catalog.folder(), third_parties=False)
DOCKERFILES = sorted(sources.folder().glob("*/Dockerfile.*"))
LOG = Path("build.log")
DEBIAN = BaseFacts(
    python="3.11.2",
    implementation="cpython",
    machine="x86_64",
    libc=("glibc", "2.36"),
    platform="linux-x86_64",
)


# --- the context and its key ---------------------------------------------------------------


def tarred(entries: list[context.Entry]) -> bytes:
    return b"".join(context.tar(entries))


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8})?", fullmatch=True), st.binary(max_size=2000), max_size=6
    )
)
def test_a_context_arrives_as_it_was_sent_whatever_the_order(files: dict[str, bytes]) -> None:
    entries = [context.of_bytes(name, data) for name, data in files.items()]
    shuffled = random.Random(1).sample(entries, len(entries))
    assert tarred(entries) == tarred(shuffled)
    assert context.key(entries, "base", {}) == context.key(shuffled, "base", {})
    with tarfile.open(fileobj=io.BytesIO(tarred(entries))) as archive:
        members = archive.getmembers()
        assert {m.name: archive.extractfile(m).read() for m in members} == files  # type: ignore[union-attr]
        assert {(m.uid, m.gid, m.uname, m.mtime, m.mode) for m in members} <= {(0, 0, "", 0, 0o644)}


def test_time_mode_and_place_of_a_file_leave_no_trace(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "deep" / "two"
    two.parent.mkdir()
    for path, mtime, mode in ((one, 1, 0o600), (two, 2_000_000_000, 0o755)):
        path.write_bytes(b"the same" * 1000)
        os.utime(path, (mtime, mtime))
        path.chmod(mode)
    first, second = context.of_file("x", one), context.of_file("x", two)
    assert tarred([first]) == tarred([second])
    assert context.key([first], "b", {}) == context.key([second], "b", {})


def test_whatever_decides_on_an_image_changes_its_key() -> None:
    entry = context.of_bytes("a", b"1")
    keys = [
        context.key([entry], "base", {"version": "1"}),
        context.key([context.of_bytes("a", b"2")], "base", {"version": "1"}),
        context.key([context.of_bytes("b", b"1")], "base", {"version": "1"}),
        context.key([entry], "other", {"version": "1"}),
        context.key([entry], "base", {"version": "2"}),
        context.key([entry, context.of_bytes("c", b"")], "base", {"version": "1"}),
    ]
    assert len(set(keys)) == len(keys)


def test_a_file_that_shrinks_while_it_is_sent_is_an_error_not_a_shifted_context(tmp_path: Path) -> None:
    path = tmp_path / "wheel"
    path.write_bytes(b"12345")
    entry = context.of_file("wheel", path)
    path.write_bytes(b"12")
    with pytest.raises(OSError, match="shorter"):
        tarred([entry])


def test_a_tag_is_one_that_engines_take_whatever_the_version() -> None:
    tag = labels.tag("PyTorch", "2.13.0+cpu", "cpu", "0123456789abcdef")
    assert tag == "framework-matrix/pytorch:2.13.0-cpu-cpu-0123456789abcdef"
    assert re.fullmatch(r"[a-z0-9/-]+:[\w][\w.-]{0,127}", tag)


# --- the Dockerfiles -------------------------------------------------------------------------


def stages(text: str) -> list[list[str]]:
    """The instructions of each stage, its FROM first."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("FROM "):
            found.append([])
        if found and line and not line.startswith("#"):
            found[-1].append(line)
    return found


def mistakes(path: Path) -> list[str]:
    """Against the rules: both builders take it, nothing runs as root, leftovers can be found."""
    text = path.read_text(encoding="utf-8")
    wrong = []
    if "--mount" in text or "<<" in text or re.search(r"^#\s*syntax=", text, re.MULTILINE):
        wrong.append("needs BuildKit")
    if not re.search(r"^ARG BASE(=[\w./-]+:[\w.-]+)?$", text, re.MULTILINE):
        wrong.append("names no base by ARG BASE and exact tag")
    if re.search(r"^ARG BASE=\S+:(latest|stable|\d+)$", text, re.MULTILINE):
        wrong.append("its base's tag moves")
    parts = stages(text)
    if len(parts) < 2:
        wrong.append("has one stage")
    name = f"{path.parent.name}-{path.suffix[1:]}"
    for part in parts:
        if not part[0].startswith("FROM ${BASE}"):
            wrong.append("a stage has another base")
        if f'LABEL {labels.IMAGE}="{name}" {labels.KEY}="${{KEY}}"' not in part:
            wrong.append("a stage bears no label")
    users = [line.split()[1] for line in parts[-1] if line.startswith("USER ")]
    if not users or users[-1].partition(":")[0] in ("root", "0"):
        wrong.append("ends as root")
    if any(line.startswith("RUN ") for line in parts[-1]):
        wrong.append("runs something in the image itself")
    if re.search(r"==\d", text):
        wrong.append("pins a version: pins live in the catalog's constraints")
    return wrong


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: f"{p.parent.name}-{p.suffix[1:]}")
def test_a_dockerfile_keeps_the_rules(path: Path) -> None:
    assert mistakes(path) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("RUN sh", "RUN --mount=type=cache,target=/x sh", "needs BuildKit"),
        ("ARG BASE=python:3.11.14-slim-bookworm", "ARG BASE=python", "names no base"),
        ("ARG BASE=python:3.11.14-slim-bookworm", "ARG BASE=python:3", "moves"),
        ("USER 10001:10001", "USER root", "root"),
        ("USER 10001:10001", "", "root"),
        (
            "FROM ${BASE} AS build\nARG KEY=none\nLABEL",
            "FROM ${BASE} AS build\nARG KEY=none\nENV",
            "no label",
        ),
        ("COPY --from=build /etc", "RUN pip install numpy==1.0\nCOPY --from=build /etc", "pins a version"),
    ],
)
def test_a_planted_mistake_in_a_dockerfile_is_found(tmp_path: Path, old: str, new: str, says: str) -> None:
    text = (sources.folder() / "pytorch" / "Dockerfile.cpu").read_text()
    assert old in text
    path = tmp_path / "pytorch" / "Dockerfile.cpu"
    path.parent.mkdir()
    path.write_text(text.replace(old, new, 1))
    assert any(says in mistake for mistake in mistakes(path))


def test_all_dockerfiles_are_one_shape_so_that_two_can_be_read_as_a_diff() -> None:
    bodies = set()
    for path in DOCKERFILES:
        name = f"{path.parent.name}-{path.suffix[1:]}"
        body = path.read_text().partition("\nFROM ")[2]
        bodies.add(body.replace(name, "NAME"))
    assert len(bodies) == 1


def test_every_framework_and_hardware_of_the_catalog_has_a_dockerfile_and_the_other_way_round() -> None:
    planned = {(f.name, h) for f in CATALOG.frameworks.values() for h in f.hardware}
    described = {(path.parent.name, path.suffix[1:]) for path in DOCKERFILES}
    assert planned == described


def test_what_was_not_run_on_hardware_says_so() -> None:
    for path in DOCKERFILES:
        tried = CATALOG.hardware[path.suffix[1:]].run_on_hardware
        assert ("Not run on hardware." in path.read_text()) == (not tried)


def test_hardware_without_a_dockerfile_is_told_with_what_there_is() -> None:
    with pytest.raises(BuildFailed) as caught:
        sources.source(CATALOG.frameworks["tensorrt"], "cpu")
    assert caught.value.reason.code == "no_image"
    assert "nvidia" in caught.value.reason.text


# --- which base ------------------------------------------------------------------------------


def test_the_sweeps_base_stands_before_the_variable_and_that_before_the_dockerfiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = sources.source(CATALOG.frameworks["pytorch"], "cpu")
    monkeypatch.delenv(base.VARIABLE, raising=False)
    assert base.reference(found, {}) == found.base != ""
    monkeypatch.setenv(base.VARIABLE, "mirror/python:1")
    assert base.reference(found, {}) == "mirror/python:1"
    assert base.reference(found, {"cpu": "site/python:2", "nvidia": "x"}) == "site/python:2"
    monkeypatch.setenv(base.VARIABLE, "nvidia=a:1, cpu=b:2")
    assert base.reference(found, {}) == "b:2"
    monkeypatch.setenv(base.VARIABLE, "nvidia=a:1")
    assert base.reference(found, {}) == found.base
    monkeypatch.setenv(base.VARIABLE, "cpu=b:2,amd")
    with pytest.raises(UsageError, match="hardware=image"):
        base.reference(found, {})


def test_a_dockerfile_without_a_base_of_its_own_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(base.VARIABLE, raising=False)
    with pytest.raises(BuildFailed) as caught:
        base.reference(sources.Source("pytorch", "ascend", Path("Dockerfile.ascend"), ""), {})
    assert caught.value.reason.code == "base_unnamed"
    assert "images.base.ascend" in caught.value.reason.text


def test_an_old_c_library_offers_old_platform_tags_only_and_another_one_none() -> None:
    assert wheels.pip_platforms(DEBIAN)[0] == "manylinux_2_36_x86_64"
    assert "manylinux2014_x86_64" in wheels.pip_platforms(DEBIAN)
    with pytest.raises(BuildFailed, match="glibc"):
        wheels.pip_platforms(BaseFacts(**{**_fields(DEBIAN), "libc": ("", "")}))


def _fields(facts: BaseFacts) -> dict[str, object]:
    return {name: getattr(facts, name) for name in facts.__dataclass_fields__}


# --- wheels ----------------------------------------------------------------------------------


@pytest.fixture
def job(tmp_path: Path) -> Job:
    home = tmp_path / "home"
    home.mkdir()
    return Job(
        home=home, log=tmp_path / "log", progress=lambda _: None, cancelled=None, probe=pip.IndexProbe()
    )


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is the only place pip knows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


def test_wheels_are_downloaded_once_and_chosen_for_the_images_python(shop: Path, job: Job) -> None:
    make_wheel(shop, "toy", tag="cp311-cp311-manylinux_2_28_x86_64", requires=["helper"])
    make_wheel(shop, "toy", tag="cp39-cp39-manylinux_2_28_x86_64")
    make_wheel(shop, "helper", "1.0")
    make_wheel(shop, "helper", "2.0", tag="py3-none-manylinux_2_99_x86_64")  # needs a newer C library
    framework = toy_framework()
    recipe = recipe_for(framework, toy_environment(framework))
    folder, found = wheels.ensure(recipe, DEBIAN, job)
    assert [w.name for w in found.wheels] == [
        "helper-1.0-py3-none-any.whl",
        "toy-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    ]
    stamp = (folder / wheels.SET_FILE).stat().st_mtime_ns
    for wheel in shop.iterdir():
        wheel.unlink()
    assert wheels.ensure(recipe, DEBIAN, job) == (folder, found)
    assert (folder / wheels.SET_FILE).stat().st_mtime_ns == stamp


def test_a_wheel_that_was_cut_short_is_downloaded_again(shop: Path, job: Job) -> None:
    make_wheel(shop, "toy")
    framework = toy_framework()
    recipe = recipe_for(framework, toy_environment(framework))
    folder, found = wheels.ensure(recipe, DEBIAN, job)
    (folder / found.wheels[0].name).write_bytes(b"half")
    assert wheels.ensure(recipe, DEBIAN, job) == (folder, found)
    assert (folder / found.wheels[0].name).stat().st_size == found.wheels[0].size


def test_what_an_earlier_step_brought_is_not_replaced_by_a_later_one(shop: Path, job: Job) -> None:
    make_wheel(shop, "toy", "1.0")
    make_wheel(shop, "toy", "2.0")
    make_wheel(shop, "other", requires=["toy"])
    recipe = Recipe(
        framework="toy",
        version="1.0",
        build="cpu",
        steps=(Step(requirements=("toy==1.0",), no_deps=True), Step(requirements=("other",))),
    )
    _, found = wheels.ensure(recipe, DEBIAN, job)
    assert [w.name.split("-")[:2] for w in found.wheels] == [["other", "1.0"], ["toy", "1.0"]]


def test_a_package_that_does_not_exist_leaves_no_folder(shop: Path, job: Job) -> None:
    framework = toy_framework()
    recipe = recipe_for(framework, toy_environment(framework))
    with pytest.raises(BuildFailed) as caught:
        wheels.ensure(recipe, DEBIAN, job)
    assert caught.value.reason.code == "no_such_version"
    assert [p.name for p in (job.home / "wheels").iterdir() if p.is_dir()] == []


def test_the_cache_lists_a_set_of_wheels_and_keeps_one_that_is_being_copied(shop: Path, job: Job) -> None:
    make_wheel(shop, "toy")
    framework = toy_framework()
    folder, _ = wheels.ensure(recipe_for(framework, toy_environment(framework)), DEBIAN, job)
    (item,) = clean.contents(job.home)
    assert (item.kind, item.path) == ("wheels", folder)
    stream = locks.shared(wheels.lock_of(folder))
    assert [removal.kept for removal in clean.remove([item])] == ["a run uses it"]
    locks.release(stream)
    assert [removal.kept for removal in clean.remove([item])] == [""]
    assert not folder.exists()


def test_another_python_or_another_pin_is_another_set() -> None:
    recipe = Recipe(framework="toy", version="1.0", build="cpu", steps=(Step(requirements=("toy",)),))
    keys = {
        wheels.set_key(recipe, DEBIAN),
        wheels.set_key(recipe, BaseFacts(**{**_fields(DEBIAN), "python": "3.12.1"})),
        wheels.set_key(recipe, BaseFacts(**{**_fields(DEBIAN), "machine": "aarch64"})),
        wheels.set_key(recipe, BaseFacts(**{**_fields(DEBIAN), "libc": ("glibc", "2.31")})),
    }
    assert len(keys) == 4
    patch = BaseFacts(**{**_fields(DEBIAN), "python": "3.11.14"})
    assert wheels.set_key(recipe, patch) == wheels.set_key(recipe, DEBIAN)


# --- the index path --------------------------------------------------------------------------


RECIPE = Recipe(
    framework="toy",
    version="1.0",
    build="cpu",
    steps=(Step(requirements=("toy==1.0", "helper"), no_deps=True),),
    constraints="toy==1.0\n",
)


def configured(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in [n for n in os.environ if n.startswith("PIP_") and n != "PIP_CONFIG_FILE"]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_the_index_path_sends_the_steps_the_pins_the_index_and_the_certificates(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = tmp_path / "site.pem"
    authority.write_text("CERTIFICATE")
    configured(monkeypatch, PIP_INDEX_URL="https://mirror.example/simple", PIP_CERT=str(authority))
    entries, notes = index.entries(RECIPE, pip.IndexProbe())
    files = {e.name: e.path.read_bytes() if e.path else e.data for e in entries}
    assert files["context/steps"] == b"--no-deps --constraint constraints.txt toy==1.0 helper\n"
    assert files["context/constraints.txt"] == b"toy==1.0\n"
    assert files["context/ca.pem"] == b"CERTIFICATE"
    assert b"https://mirror.example/simple" in files["context/pip.conf"]
    assert b"/build/ca.pem" in files["context/pip.conf"]
    assert str(tmp_path).encode() not in files["context/pip.conf"]
    assert notes == ()


@pytest.mark.parametrize("variable", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"])
def test_an_index_with_credentials_is_refused_and_never_named_with_them(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    configured(monkeypatch, **{variable: "https://user:hunter2@mirror.example/simple"})
    with pytest.raises(BuildFailed) as caught:
        index.entries(RECIPE, pip.IndexProbe())
    assert caught.value.reason.code == "secret_in_index"
    assert "mirror.example" in caught.value.reason.text
    assert "hunter2" not in caught.value.reason.text


# --- reasons ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "tail", "code", "says"),
    [
        (
            "The command '/bin/sh -c sh /build/install.sh' returned a non-zero code: 1",
            ["Step 7/14 : RUN sh /build/install.sh\n", "ERROR: no matching wheel\n"],
            "build_step_failed",
            "ended with exit status 1: ERROR: no matching wheel",
        ),
        (
            "The command 'x' returned a non-zero code: 137",
            ["Step 7/14 : RUN x\n"],
            "build_step_failed",
            "memory",
        ),
        (
            "The command 'x' returned a non-zero code: 1",
            ["OSError: [Errno 28] No space left on device\n"],
            "disk_full",
            "matrix images prune",
        ),
        ("write /x: no space left on device", [], "disk_full", "disk is full"),
        ("pull access denied for nowhere/x, repository does not exist", [], "base_missing", "base image"),
        ("Dockerfile parse error line 3: unknown instruction: RUM", [], "dockerfile_syntax", "RUM"),
        ("COPY failed: file not found in build context", [], "build_error", "COPY failed"),
    ],
)
def test_what_the_engine_says_of_a_failed_build_is_told_apart(
    message: str, tail: list[str], code: str, says: str
) -> None:
    reason = failures.of_event(message, tail, LOG)
    assert reason.code == code
    assert says in reason.text
    assert "build.log" in reason.text


def test_a_full_disk_here_is_not_taken_for_the_engines() -> None:
    ours = failures.of_exception(OSError(28, "No space left on device", "/cache/wheels"), silent_s=5, log=LOG)
    assert ours.code == "disk_full"
    assert "/cache/wheels" in ours.text
    assert "engine" not in ours.text
    lost = failures.of_exception(FileNotFoundError(2, "No such file", "/cache/a.whl"), silent_s=5, log=LOG)
    assert lost.code == "build_error"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            APIError("400", explanation="dockerfile parse error line 2: unknown instruction: X"),
            "dockerfile_syntax",
        ),
        (APIError("500", explanation="write: no space left on device"), "disk_full"),
        (APIError("403", explanation="authorization denied by plugin"), "engine_refused"),
        (urllib3.exceptions.ReadTimeoutError(None, "", "Read timed out."), "build_silent"),  # type: ignore[arg-type]
        (urllib3.exceptions.ProtocolError("Connection broken"), "engine_lost"),
        (docker.errors.DockerException("Error while fetching server API version"), "engine_lost"),
    ],
)
def test_what_breaks_a_build_from_outside_is_told_apart(error: Exception, code: str) -> None:
    assert failures.of_exception(error, silent_s=5, log=LOG).code == code


# --- pins ------------------------------------------------------------------------------------

DIGEST = "sha256:" + "a" * 64


def test_only_a_digest_that_a_registry_gave_is_written() -> None:
    said = {
        "a:1": pins.Answer(digest=DIGEST),
        "b:1": pins.Answer(problem="no such host"),
        "c:1": pins.Answer(digest="latest"),
    }
    answers = pins.resolve(said, said.__getitem__)
    assert pins.text(answers).splitlines()[-3:] == [f"a:1 {DIGEST}", "b:1 unresolved", "c:1 unresolved"]


def test_the_shipped_lock_names_every_base_and_is_readable() -> None:
    lock = pins.read(sources.folder() / sources.LOCK_FILE)
    assert sorted(lock) == pins.named()
    assert all(d == pins.UNRESOLVED or re.fullmatch(r"sha256:[0-9a-f]{64}", d) for d in lock.values())


def test_an_image_without_a_tag_is_a_leftover() -> None:
    item = shelf.Shelved(id="i", tags=(), image="a-cpu", key="k", size_bytes=1, created=0, in_use=False)
    assert item.leftover
