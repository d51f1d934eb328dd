"""Which versions there are: of an index, of local wheels, of images; and from which to which."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_wheels import make_wheel, toy_framework

from matrix import catalog
from matrix.catalog.types import InstallStep
from matrix.environments import releases
from matrix.environments.lock_difference import LockChange, lock_difference
from matrix.environments.releases import Candidate, Source, between, of_images, of_versions, of_wheels
from matrix.errors import IndexUnreachable, UsageError

TOY = Source("toy")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is the only place pip knows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


# --- an index -----------------------------------------------------------------------------


def test_releases_are_sorted_as_versions_and_prereleases_are_left_out_unless_asked_for(
    shop: Path, tmp_path: Path
) -> None:
    for version in ("1.9", "1.10", "1.10rc1", "2.0.dev1", "1.2.post1"):
        make_wheel(shop, "toy", version)
    assert releases.released(TOY, home=tmp_path) == ["1.2.post1", "1.9", "1.10"]
    assert releases.released(TOY, home=tmp_path, keep=["2.0dev1", "words"]) == [
        "1.2.post1",
        "1.9",
        "1.10",
        "2.0.dev1",
    ]
    everything = releases.released(TOY, home=tmp_path, pre=True)
    assert everything == ["1.2.post1", "1.9", "1.10rc1", "1.10", "2.0.dev1"]


def test_releases_without_a_file_for_this_python_are_left_out(shop: Path, tmp_path: Path) -> None:
    make_wheel(shop, "toy", "1.0", tag="cp36-cp36m-manylinux1_x86_64")
    make_wheel(shop, "toy", "1.1", requires_python=">=3.99")
    make_wheel(shop, "toy", "1.2")
    assert releases.released(TOY, home=tmp_path)[-1:] == ["1.2"]
    assert "1.0" not in releases.released(TOY, home=tmp_path)


def test_yanked_releases_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "simple" / "toy"
    links = ""
    for version in ("1.0", "1.1", "1.2"):
        wheel = make_wheel(folder, "toy", version)
        yanked = ' data-yanked="broken"' if version == "1.1" else ""
        links += f'<a href="{wheel.name}"{yanked}>{wheel.name}</a>\n'
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    assert releases.released(TOY, home=tmp_path) == ["1.0", "1.2"]


def test_builds_of_one_release_are_one_release_and_a_vendors_suffix_chooses_its_own(
    shop: Path, tmp_path: Path
) -> None:
    for version in ("1.0", "1.0+cpu", "1.1+cpu", "1.1+rocm7", "1.2"):
        make_wheel(shop, "toy", version)
    assert releases.released(TOY, home=tmp_path) == ["1.0", "1.1", "1.2"]
    assert releases.released(Source("toy", local="rocm7"), home=tmp_path) == ["1.1"]


def test_a_name_that_nobody_offers_is_a_usage_error(shop: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no distribution called toy was found"):
        releases.released(TOY, home=tmp_path)


def test_an_index_that_does_not_answer_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(IndexUnreachable, match="the package index does not answer when it is asked for toy"):
        releases.released(TOY, home=tmp_path)


@pytest.mark.parametrize(
    ("framework", "build", "source"),
    [
        ("onnxruntime", "cpu", Source("onnxruntime")),
        ("onnxruntime", "cuda", Source("onnxruntime-gpu")),
        ("pytorch", "cpu", Source("torch")),
        ("pytorch", "rocm", Source("torch", "https://download.pytorch.org/whl/rocm7.2", "rocm7.2")),
        ("tensorflow", "cpu", Source("tensorflow-cpu")),
    ],
)
def test_the_distribution_that_carries_the_version_is_found_in_the_entry(
    framework: str, build: str, source: Source
) -> None:
    assert releases.source_of(catalog.load().frameworks[framework], build) == source


def test_an_entry_that_asks_for_no_version_has_none_to_search() -> None:
    with pytest.raises(UsageError, match="no versions to choose from"):
        releases.source_of(toy_framework(InstallStep(install=["toy"])), "cpu")


# --- wheels and images --------------------------------------------------------------------


def test_wheels_of_folders_and_files_are_sorted_and_others_ignored(tmp_path: Path) -> None:
    folder = tmp_path / "wheels"
    for version in ("1.10", "1.9"):
        make_wheel(folder, "toy", version)
    make_wheel(folder, "other", "5")
    make_wheel(folder, "toy", "7", tag="cp36-cp36m-win32")
    single = make_wheel(tmp_path, "toy", "2.0rc1")
    found = of_wheels([folder, single, folder / "toy-1.9-py3-none-any.whl"], toy_framework())
    assert [candidate.label for candidate in found] == ["1.9", "1.10", "2.0rc1"]
    assert found[2] == Candidate("2.0rc1", "2.0rc1", (f"toy={single}",))


def test_wheels_of_one_version_are_called_by_their_files(tmp_path: Path) -> None:
    first = make_wheel(tmp_path, "toy", "1.0")
    second = first.with_name("toy-1.0-2-py3-none-any.whl")
    second.write_bytes(first.read_bytes())
    make_wheel(tmp_path, "toy", "1.1")
    found = of_wheels([tmp_path], toy_framework())
    assert [candidate.label for candidate in found] == [first.name, second.name, "1.1"]
    assert [c.label for c in between(found, str(first), "1.1")] == [first.name, second.name, "1.1"]


def test_wheels_that_are_none_are_usage_errors(tmp_path: Path) -> None:
    make_wheel(tmp_path, "other")
    with pytest.raises(UsageError, match="no wheel of Toy in"):
        of_wheels([tmp_path], toy_framework())
    with pytest.raises(UsageError, match="neither a folder nor a wheel"):
        of_wheels([tmp_path / "gone"], toy_framework())


def test_images_keep_their_order_and_change_the_base_only() -> None:
    assert of_images(["b:2", "a:1", "b:2"], "1.0") == [
        Candidate("b:2", "1.0", ("base=b:2",)),
        Candidate("a:1", "1.0", ("base=a:1",)),
    ]


# --- from GOOD to BAD ---------------------------------------------------------------------


def labels(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.label for candidate in candidates]


def test_both_ends_are_included_and_may_be_written_in_another_form() -> None:
    versions = of_versions(["1.0.0", "1.1.0", "1.2.0", "1.3.0"])
    assert labels(between(versions, "1.1", "1.3.0")) == ["1.1.0", "1.2.0", "1.3.0"]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("1.1", "1.1", "nothing between them"),
        ("1.2", "1.0", "write 1.0 1.2 if that is what is meant"),
        ("0.9", "1.1", "there is no '0.9'"),
        ("1.0", "latest", "there is no 'latest': there are 1.0, 1.1, 1.2"),
    ],
)
def test_ends_that_make_no_sense_are_usage_errors(good: str, bad: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        between(of_versions(["1.0", "1.1", "1.2"]), good, bad)
    assert said in str(caught.value)


# --- locks --------------------------------------------------------------------------------


def test_two_locks_differ_in_what_was_changed_added_and_removed() -> None:
    base = ("numpy==2.2.0", "Old-Thing==1", "six==1.17")
    candidate = ("new==3", "NumPy==2.3.0", "six==1.17")
    found = lock_difference(base, candidate)
    assert found == (
        LockChange("new", "", "3"),
        LockChange("NumPy", "2.2.0", "2.3.0"),
        LockChange("Old-Thing", "1", ""),
    )
    assert [str(change) for change in found] == ["new 3 added", "NumPy 2.2.0 -> 2.3.0", "Old-Thing 1 removed"]
    assert lock_difference(base, base) == ()


def test_the_spelling_of_a_name_is_no_difference() -> None:
    assert lock_difference(("typing_extensions==4",), ("typing-extensions==4",)) == ()
