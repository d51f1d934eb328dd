"""What the cache holds, how it is cleaned, and how worker sources get into it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from matrix import paths
from matrix.environments import clean, installed, locks
from matrix.environments.bundle import Bundle, adapters_source
from matrix.environments.ready import READY_FILE, Ready
from matrix.errors import UsageError
from matrix_adapters.protocol import to_json

DAY = 86_400.0


def cached_environment(home: Path, key: str, framework: str = "toy", days_old: float = 0) -> Path:
    folder = home / "environments" / key
    folder.mkdir(parents=True)
    (folder / "big").write_bytes(b"x" * 10_000)
    marker = Ready(
        framework=framework,
        version="1.0",
        build="cpu",
        python="3.11.7",
        lock=(),
        size_bytes=10_000,
        flags=(),
        notes=(),
        built="",
        seconds=1.0,
    )
    (folder / READY_FILE).write_text(to_json(marker))
    then = time.time() - days_old * DAY
    os.utime(folder / READY_FILE, (then, then))
    (home / "environments" / f"{key}.log").write_text("log")
    return folder


def test_the_contents_name_what_people_know(tmp_path: Path) -> None:
    cached_environment(tmp_path, "k1", "pytorch")
    (tmp_path / "environments" / "k2").mkdir()
    (tmp_path / "artefacts" / "checkpoint" / "resnet50-abc").mkdir(parents=True)
    names = {item.name: item.kind for item in clean.contents(tmp_path)}
    assert names == {
        "pytorch 1.0 (cpu)": "environment",
        "unfinished build": "environment",
        "checkpoint resnet50-abc": "artefact",
    }


def test_an_empty_cache_has_no_contents(tmp_path: Path) -> None:
    assert clean.contents(tmp_path) == []


def test_what_was_removed_is_gone_with_its_log(tmp_path: Path) -> None:
    folder = cached_environment(tmp_path, "k1")
    (removal,) = clean.remove(clean.contents(tmp_path))
    assert removal.kept == ""
    assert not folder.exists()
    assert not folder.with_name("k1.log").exists()
    assert clean.contents(tmp_path) == []


def test_an_environment_that_a_run_uses_is_kept_with_the_reason(tmp_path: Path) -> None:
    folder = cached_environment(tmp_path, "k1")
    held = locks.shared(folder.with_name("k1.lock"))
    (item,) = clean.contents(tmp_path)
    assert item.in_use
    assert clean.remove([item])[0].kept == "a run uses it"
    assert (folder / READY_FILE).exists()
    locks.release(held)
    assert clean.remove([item])[0].kept == ""


def test_artefacts_are_kept_while_any_run_holds_its_worker_sources(tmp_path: Path) -> None:
    artefact = tmp_path / "artefacts" / "onnx" / "gpt2-1"
    artefact.mkdir(parents=True)
    bundle = Bundle(tmp_path)
    bundle.stage()
    chosen = clean.choose(clean.contents(tmp_path), kinds=["artefact", "worker"])
    assert len(chosen) == 2
    assert [removal.kept for removal in clean.remove(chosen)] == ["a run uses it"] * 2
    bundle.close()
    assert all(not removal.kept for removal in clean.remove(clean.contents(tmp_path)))
    assert not artefact.exists()


def test_choosing_by_age_framework_and_kind(tmp_path: Path) -> None:
    cached_environment(tmp_path, "old", "pytorch", days_old=40)
    cached_environment(tmp_path, "new", "pytorch")
    cached_environment(tmp_path, "other", "tensorflow", days_old=40)
    items = clean.contents(tmp_path)

    def keys(**conditions: object) -> set[str]:
        return {item.path.name for item in clean.choose(items, **conditions)}  # type: ignore[arg-type]

    assert keys() == {"old", "new", "other"}
    assert keys(older_than_s=30 * DAY) == {"old", "other"}
    assert keys(framework="pytorch") == {"old", "new"}
    assert keys(older_than_s=30 * DAY, framework="pytorch") == {"old"}
    assert keys(kinds=["artefact"]) == set()


def test_links_out_of_the_cache_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("data")
    home = tmp_path / "home"
    folder = cached_environment(home, "k1")
    (folder / "link").symlink_to(outside)
    (home / "environments" / "k2").symlink_to(outside)
    clean.remove(clean.contents(home))
    assert (outside / "precious").read_text() == "data"


def test_a_bundle_holds_the_adapters_and_nothing_else(tmp_path: Path) -> None:
    bundle = Bundle(tmp_path)
    path = bundle.stage()
    assert [p.name for p in path.iterdir()] == ["matrix_adapters"]
    assert (path / "matrix_adapters" / "protocol.py").read_bytes() == (
        adapters_source() / "protocol.py"
    ).read_bytes()
    assert not list(path.rglob("__pycache__"))
    bundle.close()


def test_the_same_sources_share_one_bundle_and_a_change_makes_another(tmp_path: Path) -> None:
    third = tmp_path / "toy_adapter"
    third.mkdir()
    (third / "__init__.py").write_text("")
    (third / "adapter.py").write_text("class Adapter: ...\n")
    bundles = [Bundle(tmp_path / "home", [third]) for _ in range(2)]
    first, second = (bundle.stage() for bundle in bundles)
    assert first == second
    assert sorted(p.name for p in first.iterdir()) == ["matrix_adapters", "toy_adapter"]
    (third / "adapter.py").write_text("class Adapter: pass\n")
    changed = Bundle(tmp_path / "home", [third])
    assert changed.stage() != first
    (third / "__pycache__").mkdir()
    (third / "__pycache__" / "adapter.pyc").write_text("noise")
    same = Bundle(tmp_path / "home", [third])
    assert same.stage() == changed.stage()
    for bundle in (*bundles, changed, same):
        bundle.close()


def test_a_copy_that_fails_leaves_no_half_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    bundle = Bundle(tmp_path)
    with pytest.raises(OSError, match="No space"):
        bundle.stage()
    bundle.close()
    assert [p for p in (tmp_path / "worker").iterdir() if p.is_dir()] == []


def test_the_cache_folder_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "a" / "b"))
    assert paths.home() == (tmp_path / "a" / "b").resolve()
    assert paths.home().is_dir()


def test_a_cache_folder_inside_the_checkout_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = Path(__file__).resolve().parents[2]
    monkeypatch.setenv(paths.HOME_VARIABLE, str(checkout / "cache"))
    with pytest.raises(UsageError, match="inside the checkout"):
        paths.home()
    assert not (checkout / "cache").exists()


def test_a_cache_folder_that_cannot_be_made_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "file" / "below"))
    with pytest.raises(UsageError, match="cannot be made"):
        paths.home()


def test_results_lie_in_the_checkout_or_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(__file__).resolve().parents[2]
    monkeypatch.chdir(checkout / "tests")
    assert paths.results_dir() == checkout / "results"
    monkeypatch.chdir(tmp_path)
    assert paths.results_dir() == tmp_path / "results"
    assert paths.results_dir("runs") == tmp_path / "runs"
    assert not (tmp_path / "results").exists()


def test_the_size_that_is_compared_does_not_depend_on_what_was_run_in_it(tmp_path: Path) -> None:
    (tmp_path / "package" / "__pycache__").mkdir(parents=True)
    (tmp_path / "package" / "module.py").write_bytes(b"x" * 1000)
    (tmp_path / "package" / "link").symlink_to(tmp_path / "package" / "module.py")
    before, link = installed.content_size(tmp_path), len(str(tmp_path / "package" / "module.py"))
    assert before == 1000 + link
    (tmp_path / "package" / "__pycache__" / "module.cpython-311.pyc").write_bytes(b"x" * 50_000)
    assert installed.content_size(tmp_path) == before
    assert installed.folder_size(tmp_path) > 50_000
