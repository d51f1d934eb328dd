"""The shipped frameworks' CPU environments: built by real installs, exactly as pinned, reused at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from matrix import catalog, paths
from matrix.environments import installed
from matrix.environments.base import BuildFailed, BuiltEnvironment, build_all
from matrix.environments.recipe import recipe_for
from matrix.environments.venv import VenvBackend
from matrix.records import Environment

pytestmark = pytest.mark.real

FRAMEWORKS = ("pytorch", "tensorflow", "onnxruntime")


def environment(framework: str, version: str | None = None) -> Environment:
    entry = catalog.load().frameworks[framework]
    return Environment(
        framework=framework, version=version or entry.version_for("cpu"), hardware="cpu", build="cpu"
    )


@pytest.fixture(scope="module")
def shipped() -> dict[str, BuiltEnvironment]:
    """All three in the ordinary cache, where the rest of the suite finds them."""
    backend = VenvBackend(catalog.load().frameworks, paths.home())
    results = build_all(backend, [environment(name) for name in FRAMEWORKS])
    failed = {e.name: r.reason.text for e, r in results.items() if isinstance(r, BuildFailed)}
    assert failed == {}
    return {e.framework: r for e, r in results.items() if isinstance(r, BuiltEnvironment)}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_shipped_environment_is_exactly_as_pinned(shipped: dict[str, BuiltEnvironment], name: str) -> None:
    built = shipped[name]
    assert built.flags == (), [flag.text for flag in built.flags]
    recipe = recipe_for(catalog.load().frameworks[name], built.environment)
    pinned = tuple(recipe.constraints.split())
    missing = [change for change in installed.changes(pinned, built.lock) if change.endswith("removed")]
    assert missing == [], "pinned, but never installed"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_catalogs_figure_for_its_disk_space_is_about_right(
    shipped: dict[str, BuiltEnvironment], name: str
) -> None:
    built = shipped[name]
    assert built.size_bytes is not None
    cost = catalog.load().frameworks[name].builds["cpu"].cost
    assert built.size_bytes / 1e6 == pytest.approx(cost.disk_mb, rel=0.35)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_source_file_is_left_to_be_compiled_by_the_first_launch(
    shipped: dict[str, BuiltEnvironment], name: str
) -> None:
    site = installed.site_packages(shipped[name].python.parent.parent)
    package = site / catalog.load().frameworks[name].import_package
    sources = [p for p in package.rglob("*.py") if not {"test", "tests", "testdata"} & set(p.parts)]
    bare = [p for p in sources if not list((p.parent / "__pycache__").glob(f"{p.stem}.cpython-*.pyc"))]
    assert len(bare) <= 0.01 * len(sources), bare[:5]  # templates that are not Python remain


def test_all_three_are_reused_within_two_seconds(shipped: dict[str, BuiltEnvironment]) -> None:
    backend = VenvBackend(catalog.load().frameworks, paths.home())
    times = []
    for _ in range(3):  # the machine may be busy: the best of three is what we are capable of
        started = time.monotonic()
        results = build_all(backend, [built.environment for built in shipped.values()])
        times.append(time.monotonic() - started)
        assert all(isinstance(r, BuiltEnvironment) and r.reused for r in results.values())
    backend.close()
    assert min(times) < 2


def test_a_damaged_real_environment_is_rebuilt_and_works(tmp_path: Path) -> None:
    frameworks = catalog.load().frameworks
    backend = VenvBackend(frameworks, tmp_path)
    asked = environment("onnxruntime")
    first = backend.build(asked)
    site = installed.site_packages(first.python.parent.parent)
    next(site.glob("onnxruntime/capi/*.so")).write_bytes(b"")
    second = backend.build(asked)
    backend.close()
    assert not second.reused
    assert second.key == first.key
    assert second.lock == first.lock
    assert second.flags == ()


def test_a_release_that_does_not_exist_is_named(tmp_path: Path) -> None:
    backend = VenvBackend(catalog.load().frameworks, tmp_path)
    with pytest.raises(BuildFailed) as caught:
        backend.build(environment("onnxruntime", "9.9.9"))
    assert caught.value.reason.code == "no_such_version"
    assert "onnxruntime==9.9.9 does not exist" in caught.value.reason.text


def test_a_release_that_is_too_old_for_this_python_is_told_apart(tmp_path: Path) -> None:
    backend = VenvBackend(catalog.load().frameworks, tmp_path)
    with pytest.raises(BuildFailed) as caught:
        backend.build(environment("onnxruntime", "1.9.0"))
    assert caught.value.reason.code == "no_wheel"
    assert "cp39" in caught.value.reason.text
