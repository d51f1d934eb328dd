"""Virtualenvs built by the real pip from tiny local wheels, and every way they can go wrong."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from packaging.version import Version
from tiny_wheels import make_source, make_wheel, toy_environment, toy_framework

from matrix.catalog.types import Framework, InstallStep
from matrix.environments import installed, pip, pip_tool, ready
from matrix.environments.base import BuildFailed, BuiltEnvironment, build_all
from matrix.environments.recipe import recipe_for
from matrix.environments.venv import VenvBackend


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip is configured for, and no index."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def build(framework: Framework, home: Path) -> BuiltEnvironment:
    backend = VenvBackend({framework.name: framework}, home)
    try:
        return backend.build(toy_environment(framework))
    finally:
        backend.close()


def failure(framework: Framework, home: Path) -> BuildFailed:
    """The failure of a build, which must leave no environment behind."""
    with pytest.raises(BuildFailed) as caught:
        build(framework, home)
    folders = [p for p in (home / "environments").glob("*") if p.is_dir()]
    assert folders == [], "a failed build left something behind"
    return caught.value


def test_an_environment_holds_what_its_recipe_asks_for_and_nothing_else(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", requires=["helper"])
    make_wheel(wheels, "helper", "2.5")
    built = build(toy_framework(), home)
    assert built.lock == ("helper==2.5", "toy==1.0")
    assert built.flags == ()
    assert not built.reused
    assert built.size_bytes is not None
    assert built.size_bytes > 0
    assert built.python.is_relative_to(home)


def test_a_worker_sees_the_adapters_and_the_environment_but_not_the_host(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    built = build(toy_framework(), home)
    assert sorted(p.name for p in built.worker_path.iterdir()) == ["matrix_adapters"]
    assert built.environ()["PYTHONPATH"] == str(built.worker_path)
    assert built.command(Path("/a"), Path("/b"))[1:] == ["-P", "-m", "matrix_adapters.worker", "/a", "/b"]


def test_a_healthy_environment_is_reused_without_running_pip(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    first = build(toy_framework(), home)
    log = first.log
    assert log is not None
    log.write_text("untouched")
    second = build(toy_framework(), home)
    assert second.reused
    assert (second.key, second.lock, second.size_bytes) == (first.key, first.lock, first.size_bytes)
    assert log.read_text() == "untouched"


def _lose_a_file(folder: Path) -> None:
    (installed.site_packages(folder) / "toy" / "__init__.py").unlink()


def _truncate_a_file(folder: Path) -> None:
    (installed.site_packages(folder) / "toy" / "__init__.py").write_text("")


def _lose_a_distribution(folder: Path) -> None:
    info = installed.site_packages(folder) / "toy-1.0.dist-info"
    for path in info.iterdir():
        path.unlink()
    info.rmdir()


def _break_the_interpreter(folder: Path) -> None:
    python = installed.interpreter(folder)
    python.unlink()
    python.symlink_to("/nonexistent/python")


def _add_a_distribution(folder: Path) -> None:
    info = installed.site_packages(folder) / "stranger-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 9\n")


def _lose_the_marker(folder: Path) -> None:
    (folder / "ready.json").unlink()


def _tear_the_marker(folder: Path) -> None:
    (folder / "ready.json").write_text('{"schema": 1, "lock"')


DAMAGES = [
    _lose_a_file,
    _truncate_a_file,
    _lose_a_distribution,
    _break_the_interpreter,
    _add_a_distribution,
    _lose_the_marker,
    _tear_the_marker,
]


def test_every_kind_of_damage_is_seen(wheels: Path, home: Path, tmp_path: Path) -> None:
    make_wheel(wheels, "toy")
    healthy = home / "environments" / build(toy_framework(), home).key
    assert ready.trouble(healthy, ready.read(healthy)) == ""
    for damage in DAMAGES:
        broken = tmp_path / damage.__name__
        shutil.copytree(healthy, broken, symlinks=True)
        assert ready.trouble(broken, ready.read(broken)) == ""
        damage(broken)
        assert ready.trouble(broken, ready.read(broken)) != "", damage.__name__


def test_a_broken_environment_is_built_anew(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    framework = toy_framework()
    first = build(framework, home)
    _truncate_a_file(home / "environments" / first.key)
    told: list[str] = []
    backend = VenvBackend({"toy": framework}, home)
    second = backend.build(toy_environment(framework), progress=told.append)
    backend.close()
    assert not second.reused
    assert second.lock == ("toy==1.0",)
    assert second.flags == ()
    assert told[0].startswith("building it anew: toy/__init__.py of toy has 0 bytes instead of")


def test_the_key_follows_everything_that_decides_the_content(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("toy==1.0\n")
    keys = []
    for framework in (
        toy_framework(),
        toy_framework(["toy=={version}", "helper"]),
        toy_framework(InstallStep(install=["toy=={version}"], no_deps=True)),
        toy_framework(InstallStep(install=["toy=={version}"], index="https://index.invalid/simple")),
        toy_framework(version="2.0"),
        toy_framework(constraints=pins),
    ):
        keys.append(recipe_for(framework, toy_environment(framework)).key)
    assert len(set(keys)) == len(keys)
    before = toy_framework(constraints=pins)
    same = recipe_for(before, toy_environment(before)).key
    pins.write_text("# pinned on a Monday\n\ntoy==1.0   # and why\n")
    after = toy_framework(constraints=pins)
    assert recipe_for(after, toy_environment(after)).key == same == keys[-1]


def test_constraints_pin_what_nobody_asked_a_version_of(wheels: Path, home: Path, tmp_path: Path) -> None:
    make_wheel(wheels, "toy", requires=["helper"])
    make_wheel(wheels, "helper", "1.0")
    make_wheel(wheels, "helper", "2.0")
    pins = tmp_path / "pins.txt"
    pins.write_text("toy==1.0\nhelper==1.0\n")
    built = build(toy_framework(constraints=pins), home)
    assert built.lock == ("helper==1.0", "toy==1.0")
    assert built.flags == ()


def test_what_the_constraints_do_not_pin_is_flagged(wheels: Path, home: Path, tmp_path: Path) -> None:
    make_wheel(wheels, "toy", requires=["helper"])
    make_wheel(wheels, "helper", "2.0")
    pins = tmp_path / "pins.txt"
    pins.write_text("toy==1.0\n")
    framework = toy_framework(constraints=pins)
    for _ in range(2):  # built, then reused
        (flag,) = build(framework, home).flags
        assert flag.code == "differs_from_constraints"
        assert "helper==2.0 is not pinned" in flag.text


def test_a_rebuild_that_brings_other_versions_is_flagged(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", requires=["helper"])
    make_wheel(wheels, "helper", "1.0")
    first = build(toy_framework(), home)
    make_wheel(wheels, "helper", "2.0")
    _lose_the_marker(home / "environments" / first.key)
    second = build(toy_framework(), home)
    assert second.key == first.key
    assert [flag.code for flag in second.flags] == ["differs_from_last_build"]
    assert "helper 1.0 -> 2.0" in second.flags[0].text


def test_two_distributions_with_one_import_package_are_refused(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy_gpu", files={"toy/__init__.py": "gpu = True\n"}, requires=["helper"])
    make_wheel(wheels, "helper", requires=["toy"])
    make_wheel(wheels, "toy")
    framework = toy_framework(["toy_gpu"], provided_by=["toy", "toy-gpu"])
    reason = failure(framework, home).reason
    assert reason.code == "two_distributions"
    assert "'toy': toy and toy_gpu" in reason.text


def test_two_listed_distributions_are_refused_although_their_files_do_not_collide(
    wheels: Path, home: Path
) -> None:
    make_wheel(wheels, "toy")
    make_wheel(wheels, "toy_gpu", files={"toy/gpu.py": ""})
    framework = toy_framework(["toy", "toy_gpu"], provided_by=["toy", "toy-gpu"])
    assert failure(framework, home).reason.code == "two_distributions"


def test_a_plugin_that_adds_files_of_its_own_is_no_second_provider(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    make_wheel(wheels, "toy_extras", files={"toy/extras.py": ""})
    assert build(toy_framework(["toy", "toy_extras"]), home).lock == ("toy==1.0", "toy_extras==1.0")


def test_a_version_that_does_not_exist_is_named_with_those_that_do(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", "0.9")
    make_wheel(wheels, "toy", "1.1")
    failed = failure(toy_framework(version="9.9.9"), home)
    assert failed.reason.code == "no_such_version"
    assert "toy==9.9.9 does not exist" in failed.reason.text
    assert "0.9, 1.1" in failed.reason.text
    assert failed.log is not None
    assert str(failed.log) in failed.reason.text
    assert "No matching distribution" in failed.log.read_text()


def test_a_name_that_does_not_exist_is_told_apart_from_a_version(wheels: Path, home: Path) -> None:
    failed = failure(toy_framework(["toyy"]), home)
    assert failed.reason.code == "no_such_version"
    assert "no distribution called toyy" in failed.reason.text


def test_a_version_with_wheels_for_other_pythons_only_is_no_wheel(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", "1.0", tag="cp39-cp39-manylinux2014_x86_64")
    make_wheel(wheels, "toy", "1.0", tag="cp310-cp310-manylinux2014_x86_64")
    make_wheel(wheels, "toy", "0.9")
    reason = failure(toy_framework(), home).reason
    assert reason.code == "no_wheel"
    assert "cp39, cp310" in reason.text
    assert "another Python" in reason.text


def test_a_version_with_wheels_for_another_platform_names_the_platforms(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", "1.0", tag="py3-none-manylinux_2_99_x86_64")
    make_wheel(wheels, "toy", "1.0", tag="py3-none-win_arm64")
    reason = failure(toy_framework(), home).reason
    assert reason.code == "no_wheel"
    assert "manylinux_2_99_x86_64" in reason.text


def test_a_version_that_needs_another_python_says_which(wheels: Path, home: Path, tmp_path: Path) -> None:
    # Requires-Python is read from index pages, so this one needs an index: a folder will do.
    index = tmp_path / "index" / "toy"
    wheel = make_wheel(index, "toy", "1.0", requires_python=">=3.99")
    (index / "index.html").write_text(
        f'<a href="{wheel.name}" data-requires-python="&gt;=3.99">{wheel.name}</a>'
    )
    os.environ.pop("PIP_NO_INDEX")  # restored by the fixture's monkeypatch
    os.environ["PIP_INDEX_URL"] = index.parent.as_uri()
    try:
        reason = failure(toy_framework(), home).reason
    finally:
        del os.environ["PIP_INDEX_URL"]
    assert reason.code == "no_wheel"
    assert "toy 1.0 needs Python >=3.99" in reason.text


def test_an_index_that_does_not_answer_is_asked_twice_and_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "1")
    failed = failure(toy_framework(), home)
    assert failed.reason.code == "index_unreachable"
    assert "127.0.0.1" in failed.reason.text
    assert failed.log is not None
    assert failed.log.read_text().count("install --no-compile toy==1.0") == 2


def test_conflicting_requirements_are_named_as_a_pair(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", requires=["helper<2"])
    make_wheel(wheels, "other", requires=["helper>=2"])
    make_wheel(wheels, "helper", "1.0")
    make_wheel(wheels, "helper", "2.0")
    reason = failure(toy_framework(["toy", "other"]), home).reason
    assert reason.code == "resolver_conflict"
    assert "toy 1.0 depends on helper<2" in reason.text
    assert "other 1.0 depends on helper>=2" in reason.text


def test_a_pin_that_contradicts_a_requirement_is_a_conflict_too(
    wheels: Path, home: Path, tmp_path: Path
) -> None:
    make_wheel(wheels, "toy", requires=["helper>=2"])
    make_wheel(wheels, "helper", "1.0")
    make_wheel(wheels, "helper", "2.0")
    pins = tmp_path / "pins.txt"
    pins.write_text("helper==1.0\n")
    reason = failure(toy_framework(constraints=pins), home).reason
    assert reason.code == "resolver_conflict"
    assert "toy 1.0 depends on helper>=2" in reason.text
    assert "(constraint) helper==1.0" in reason.text


def test_a_source_distribution_that_cannot_be_built_is_a_build_error(wheels: Path, home: Path) -> None:
    make_source(wheels, "toy", hook="raise RuntimeError('no compiler')")
    reason = failure(toy_framework(), home).reason
    assert reason.code == "build_error"
    assert "toy-1.0.tar.gz had to be built from source" in reason.text or "toy had to be" in reason.text
    assert "RuntimeError: no compiler" in reason.text


def test_an_import_that_raises_fails_the_build_with_its_last_line(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy", files={"toy/__init__.py": "raise ImportError('numpy ABI 2, built for 1')\n"})
    reason = failure(toy_framework(), home).reason
    assert reason.code == "import_failed"
    assert "ImportError: numpy ABI 2, built for 1" in reason.text


def test_an_import_that_kills_the_process_names_the_signal(wheels: Path, home: Path) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n"
    make_wheel(wheels, "toy", files={"toy/__init__.py": text})
    reason = failure(toy_framework(), home).reason
    assert reason.code == "import_failed"
    assert "SIGILL" in reason.text
    assert "CPU features" in reason.text


def test_too_little_space_is_found_before_anything_is_downloaded(wheels: Path, home: Path) -> None:
    failed = failure(toy_framework(disk_mb=1e12), home)
    assert failed.reason.code == "disk_full"
    assert str(home / "environments") in failed.reason.text
    assert failed.log is not None
    assert "pip" not in failed.log.read_text()


def test_an_index_of_one_step_is_left_out_when_it_does_not_answer(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    dead = InstallStep(install=["toy=={version}"], no_deps=True, index="http://127.0.0.1:9/simple")
    built = build(toy_framework(dead, ["toy=={version}"]), home)
    assert built.lock == ("toy==1.0",)
    (note,) = built.notes
    assert "http://127.0.0.1:9/simple was left out: no answer" in note


def test_an_index_of_one_step_is_asked_once_for_all_environments() -> None:
    asked: list[str] = []

    def answers(index: str) -> str:
        asked.append(index)
        return ""

    probe = pip.IndexProbe(answers)
    assert [probe.problem("https://a.invalid") for _ in range(3)] == ["", "", ""]
    assert asked == ["https://a.invalid"]


def test_an_index_of_one_step_is_used_when_it_answers(
    wheels: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    wheel = make_wheel(index / "toy", "toy", "1.0")
    (index / "toy" / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the usual one is of no use
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(index))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        step = InstallStep(install=["toy=={version}"], no_deps=True, index=url)
        built = build(toy_framework(step), home)
        assert pip.index_problem(f"{url}/nothing") == "it answers 404 File not found"
        server.shutdown()
    assert built.lock == ("toy==1.0",)
    assert built.notes == ()


def test_everyday_pip_settings_do_not_send_packages_elsewhere(
    wheels: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "toy")
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_QUIET", "2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "toy.py").write_text("raise ImportError('the wrong one')")
    assert build(toy_framework(), home).lock == ("toy==1.0",)
    assert not (tmp_path / "elsewhere").exists()


def test_a_host_without_pip_gets_one_beside_the_environments_not_in_them(
    wheels: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheels, "toy")
    monkeypatch.setattr(pip_tool, "own_version", lambda: Version("0"))
    assert build(toy_framework(), home).lock == ("toy==1.0",)
    assert [p.name for p in (home / "tools").iterdir() if p.is_dir()] != []


def test_one_environment_that_fails_does_not_stop_the_others(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    make_wheel(wheels, "late")
    frameworks = {
        f.name: f for f in (toy_framework(name="lost"), toy_framework(), toy_framework(name="late"))
    }
    environments = [toy_environment(f) for f in frameworks.values()]
    told: dict[str, list[str]] = {}
    backend = VenvBackend(frameworks, home)
    results = build_all(
        backend,
        [*environments, environments[1]],
        progress=lambda e, text: told.setdefault(e.name, []).append(text),
    )
    backend.close()
    outcome = [results[e] for e in environments]
    assert isinstance(outcome[0], BuildFailed)
    assert outcome[0].reason.code == "no_such_version"
    assert isinstance(outcome[1], BuiltEnvironment)
    assert isinstance(outcome[2], BuiltEnvironment)
    assert told["lost-1.0-cpu"][-1].startswith("failed: no distribution called lost")
    assert any(line.startswith("step 1 of 1: ") and line.endswith(" s)") for line in told["toy-1.0-cpu"])


def test_the_same_environment_asked_for_by_two_threads_is_built_once(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    framework = toy_framework()
    results: list[BuiltEnvironment] = []

    def one() -> None:
        results.append(build(framework, home))

    threads = [threading.Thread(target=one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.reused for r in results].count(False) == 1
    assert len({r.key for r in results}) == 1


def test_built_environments_are_known_without_building(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    framework = toy_framework()
    backend = VenvBackend({"toy": framework}, home)
    environment = toy_environment(framework)
    assert backend.built([environment]) == set()
    backend.build(environment)
    assert backend.built([environment]) == {environment}
    backend.close()


def test_the_marker_says_what_was_built(wheels: Path, home: Path) -> None:
    make_wheel(wheels, "toy")
    built = build(toy_framework(), home)
    marker = json.loads((home / "environments" / built.key / "ready.json").read_text())
    assert marker["lock"] == ["toy==1.0"]
    assert (marker["framework"], marker["version"], marker["build"]) == ("toy", "1.0", "cpu")
    assert marker["seconds"] > 0
