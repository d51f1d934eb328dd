"""`--base-with` and `--candidate-with`: what is understood, what is refused, and what comes of it."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix import catalog
from matrix.catalog.types import Framework, HardwareSupport, InstallStep
from matrix.environments import changes, interpreters, substitute
from matrix.environments.base import BuildFailed
from matrix.environments.host import HostBackend
from matrix.environments.images import wheels as image_wheels
from matrix.environments.images.base import BaseFacts
from matrix.environments.interpreters import Interpreter, NoInterpreter
from matrix.environments.recipe import Recipe, recipe_for
from matrix.environments.venv import VenvBackend
from matrix.errors import UsageError
from matrix.records import Cell, Environment, Workload
from matrix_adapters import process
from matrix_adapters.protocol import ASKED_VARIABLE, WORKER_VARIABLES, content_hash

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
FRAMEWORKS = catalog.load().frameworks
ORT = FRAMEWORKS["onnxruntime"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is the only place pip knows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture(autouse=True)
def _forget() -> None:
    interpreters.find.cache_clear()


def parsed(*texts: str, framework: Framework = ORT) -> tuple[str, ...]:
    return changes.parse(texts, framework, "--candidate-with").changes


# --- what is understood -------------------------------------------------------------------


def test_changes_are_kept_exactly_and_sorted_whatever_their_order() -> None:
    texts = ["python=3.12", "NumPy=2.2.0", "env:ORT_X=a b=c", "base=reg.example/x:1", "protobuf=v5.29"]
    wanted = ("base=reg.example/x:1", "env:ORT_X=a b=c", "numpy=2.2.0", "protobuf=5.29", "python=3.12")
    assert parsed(*texts) == parsed(*reversed(texts)) == wanted
    found = changes.of(wanted)
    assert found.requirements == {"numpy": "2.2.0", "protobuf": "5.29"}
    assert (found.python, found.base, found.environ) == ("3.12", "reg.example/x:1", {"ORT_X": "a b=c"})


def test_a_variant_changes_the_workload_and_not_the_environment() -> None:
    side = changes.parse(["variant=basic"], ORT, "--base-with")
    assert side == changes.Side(changes=(), variant="basic")


def test_a_local_wheel_is_kept_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make_wheel(tmp_path, "onnxruntime", "9.0")
    monkeypatch.chdir(tmp_path)
    assert parsed(f"onnxruntime={wheel.name}") == (f"onnxruntime={wheel}",)


def test_an_interpreter_given_by_path_is_made_absolute_and_not_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert parsed("python=./python") == (f"python={tmp_path / 'python'}",)


MISTAKES = [
    ("numpy", "write KEY=VALUE: numpy=2.2.0, "),
    ("=2.2.0", "write KEY=VALUE"),
    ("numpy=", "nothing after the ="),
    ("numpy==2.2.0", "write one exact version, numpy=2.2.0"),
    ("numpy>=2,<2.3", "write one exact version, numpy=2.2.0"),
    ("numpy=2.2.*", "'2.2.*' is neither a version nor a wheel"),
    ("numpy=latest", "'latest' is neither a version nor a wheel"),
    ("numpi=2.2.0", "did you mean 'numpy'?"),
    ("pyton=3.12", "did you mean 'python'?"),
    ("varient=basic", "did you mean 'variant'?"),
    ("env=X=1", "did you mean 'env:NAME'?"),
    ("ENV:X=1", "'ENV:X' is no name of a distribution"),
    ("env:1X=1", "'1X' is no name of a variable"),
    ("env:=1", "'' is no name of a variable"),
    ("env:OMP_NUM_THREADS=4", "the worker sets OMP_NUM_THREADS itself, the same for every framework"),
    ("env:FRAMEWORK_MATRIX_HOME=/x", "the worker sets FRAMEWORK_MATRIX_HOME itself"),
    ("env:PYTHONPATH=/x", "PYTHONPATH is kept from every worker"),
    ("onnxruntime=1.31.0", "that is ONNX Runtime itself, whose version the command names"),
    ("onnxruntime=/nowhere/onnxruntime-1-py3-none-any.whl", "there is no file /nowhere/onnxruntime"),
    ("variant=fast", "has no variant 'fast': it has all, extended, basic, disabled"),
    ("variant=basics", 'did you mean "basic"'),
    ("base=a b", "an image's name has no spaces"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_is_told_with_what_to_write_instead(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--candidate-with")


def test_a_wheel_of_another_distribution_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "other")
    with pytest.raises(UsageError, match="is a wheel of other: write other="):
        parsed(f"onnxruntime={wheel}")
    odd = wheel.rename(tmp_path / "odd.whl")
    with pytest.raises(UsageError, match="is no wheel's file name"):
        parsed(f"onnxruntime={odd}")


def test_one_key_has_one_value() -> None:
    assert parsed("numpy=2.2.0", "numpy=2.2.0") == ("numpy=2.2.0",)
    with pytest.raises(UsageError, match=r"numpy=2\.3\.0: it was given as 2\.2\.0 already"):
        parsed("numpy=2.2.0", "numpy=2.3.0")
    with pytest.raises(UsageError, match="variant=all: it was given as basic already"):
        parsed("variant=basic", "variant=all")


@pytest.mark.parametrize("name", ["cython", "ipython", "basemap", "torchao", "ray", "envyaml"])
def test_a_distribution_that_merely_resembles_a_key_is_taken_as_it_is(name: str) -> None:
    assert parsed(f"{name}=1.0", framework=FRAMEWORKS["pytorch"]) == (f"{name}=1.0",)


# --- names and identities -----------------------------------------------------------------


def environment(*texts: str) -> Environment:
    return Environment(framework="toy", version="1.0", hardware="cpu", build="cpu", changes=texts)


def test_an_environment_without_changes_is_named_and_identified_as_ever() -> None:
    workload = Workload(
        level="inference", subject="m", batch=1, sequence=None, precision="fp32", threads=1, variant=""
    )
    cell = Cell(environment=environment(), workload=workload)
    assert cell.environment.name == "toy-1.0-cpu"
    fields = ["m", 1, None, "fp32", 1, ""]
    assert cell.id == content_hash([["toy", "1.0", "cpu", "cpu"], ["inference", *fields], ""], 12)
    assert Cell(environment=environment("numpy=2.2.0"), workload=workload).id != cell.id


def test_a_name_is_readable_where_that_is_possible() -> None:
    assert environment("numpy=2.2.0").name == "toy-1.0-cpu-numpy=2.2.0"
    assert environment("env:X=1", "python=3.12").name == "toy-1.0-cpu-env.X=1-python=3.12"
    assert re.fullmatch(
        r"toy-1\.0-cpu-python=python3\.12~[0-9a-f]{6}", environment("python=/a b/python3.12").name
    )
    assert environment("python=/a/python3.12").name != environment("python=/b/python3.12").name


@given(
    strategies.lists(
        strategies.text(strategies.characters(exclude_categories=["Cs"]), max_size=60), max_size=3
    )
)
def test_a_name_is_fit_for_a_file_and_tells_every_change_apart(values: list[str]) -> None:
    texts = [f"env:X{number}={value}" for number, value in enumerate(values)]
    name = environment(*texts).name
    assert re.fullmatch(r"[A-Za-z0-9._+=~-]+", name)
    assert len(name) < 250
    for number, value in enumerate(values):
        other = [*texts[:number], f"env:X{number}={value}x", *texts[number + 1 :]]
        assert environment(*other).name != name


# --- recipes ------------------------------------------------------------------------------


def recipe(framework: Framework, *texts: str, version: str | None = None) -> Recipe:
    base = toy_environment(framework, version)
    return recipe_for(
        framework,
        Environment(
            framework=base.framework, version=base.version, hardware="cpu", build="cpu", changes=texts
        ),
    )


@pytest.fixture
def pinned(tmp_path: Path) -> Framework:
    pins = tmp_path / "pins.txt"
    pins.write_text("toy==1.0\nnumpy==2.0.0\nhelper==1.0\n")
    return toy_framework(["toy[fast]=={version}", "numpy"], constraints=pins)


def test_without_changes_a_key_is_what_it_always_was(pinned: Framework) -> None:
    found = recipe(pinned)
    here = interpreters.running()
    facts = {
        "framework": "toy",
        "version": "1.0",
        "build": "cpu",
        "steps": [[["toy[fast]==1.0", "numpy"], False, None]],
        "constraints": "toy==1.0\nnumpy==2.0.0\nhelper==1.0\n",
        "python": [here.implementation, here.version, here.abi],
        "platform": [sys.platform, os.uname().machine],
    }
    assert found.key == content_hash(facts)


def test_a_changed_version_stands_in_the_step_and_in_the_constraints(pinned: Framework) -> None:
    found = recipe(pinned, "numpy=2.2.0")
    assert found.steps[0].requirements == ("toy[fast]==1.0", "numpy==2.2.0")
    assert found.all_constraints == "toy==1.0\nhelper==1.0\nnumpy==2.2.0\n"
    assert found.key != recipe(pinned).key


def test_what_no_step_names_is_asked_for_all_the_same(pinned: Framework) -> None:
    found = recipe(pinned, "helper=1.1")
    assert found.steps[0].requirements == ("toy[fast]==1.0", "numpy", "helper==1.1")


def test_it_is_never_asked_for_where_dependencies_or_the_usual_index_are_left_out() -> None:
    framework = toy_framework(
        InstallStep(install=["toy=={version}"]),
        InstallStep(install=["extra"], no_deps=True),
        InstallStep(install=["toy=={version}"], index="https://elsewhere.invalid/simple"),
    )
    steps = recipe(framework, "helper=1.1").steps
    assert [step.requirements for step in steps] == [("toy==1.0", "helper==1.1"), ("extra",), ("toy==1.0",)]
    bare = toy_framework(InstallStep(install=["toy"], no_deps=True))
    assert [step.requirements for step in recipe(bare, "helper=1.1").steps] == [("toy",), ("helper==1.1",)]


def test_a_local_wheel_keeps_extras_and_is_known_by_its_content(tmp_path: Path, pinned: Framework) -> None:
    wheel = make_wheel(tmp_path / "a folder", "toy", "1.0")
    first = recipe(pinned, f"toy={wheel}")
    assert re.fullmatch(
        rf"toy\[fast\] @ {re.escape(wheel.as_uri())}#sha256=[0-9a-f]{{64}}", first.steps[0].requirements[0]
    )
    make_wheel(tmp_path / "a folder", "toy", "1.0", files={"toy/__init__.py": "# another build\n"})
    assert recipe(pinned, f"toy={wheel}").key != first.key
    wheel.unlink()
    with pytest.raises(BuildFailed, match="cannot be read: No such file") as caught:
        recipe(pinned, f"toy={wheel}")
    assert caught.value.reason.code == "no_wheel"


def test_limits_hold_for_versions_that_have_no_pinned_set_and_give_way_to_a_change() -> None:
    assert substitute.limits({"<1.19": ["numpy<2"], ">=3": ["six"]}, "1.18.1") == "numpy<2\n"
    assert substitute.limits({"<1.19": ["numpy<2"]}, "1.19.0") == ""
    assert substitute.limits({"<1.19": ["numpy<2"]}, "no version") == ""
    old = Environment(framework="onnxruntime", version="1.18.1", hardware="cpu", build="cpu")
    assert recipe_for(ORT, old).all_constraints == "numpy<2\n"
    changed = Environment(
        framework="onnxruntime", version="1.18.1", hardware="cpu", build="cpu", changes=("numpy=2.2.0",)
    )
    assert recipe_for(ORT, changed).all_constraints == "numpy==2.2.0\n"


def test_a_limit_that_is_no_specifier_is_a_mistake_of_the_entry() -> None:
    data = toy_framework().builds["cpu"].model_dump()
    with pytest.raises(ValueError, match="Invalid specifier"):
        type(toy_framework().builds["cpu"]).model_validate({**data, "limits": {"older": ["numpy<2"]}})


# --- backends -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "backend", "said"),
    [
        ("base=x:1", "venv", "only a container has a base image"),
        ("base=x:1", "host", "only a container has a base image"),
        ("python=3.12", "docker", "the Python of its base image"),
        ("numpy=2.2.0", "host", "measures the interpreter as it is"),
        ("python=3.12", "host", "measures the interpreter as it is"),
        ("python=9.99", "venv", "there is no Python 9.99 on PATH"),
        ("python=/nowhere/python", "venv", "/nowhere/python does not start: No such file"),
    ],
)
def test_what_a_backend_cannot_change_is_refused_before_anything_is_built(
    text: str, backend: Any, said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        changes.check([text], backend, "--base-with")


@pytest.mark.parametrize(
    ("text", "backend"),
    [("base=x:1", "docker"), ("numpy=2.2.0", "docker"), ("numpy=2.2.0", "venv"), ("env:X=1", "host")],
)
def test_what_a_backend_can_change_is_let_through(text: str, backend: Any) -> None:
    changes.check([text], backend, "--base-with")


def build(framework: Framework, home: Path, *texts: str) -> Any:
    backend = VenvBackend({framework.name: framework}, home)
    try:
        return backend.build(
            Environment(framework=framework.name, version="1.0", hardware="cpu", build="cpu", changes=texts)
        )
    finally:
        backend.close()


def test_a_changed_dependency_wins_over_pins_and_the_resolvers_choice(shop: Path, tmp_path: Path) -> None:
    make_wheel(shop, "toy", requires=["helper"])
    for version in ("1.0", "1.1", "2.0"):
        make_wheel(shop, "helper", version)
    pins = tmp_path / "pins.txt"
    pins.write_text("toy==1.0\nhelper==1.0\n")
    for framework in (toy_framework(), toy_framework(constraints=pins)):
        built = build(framework, tmp_path / "home", "helper=1.1")
        assert built.lock == ("helper==1.1", "toy==1.0")
        assert built.flags == ()


def test_the_framework_itself_can_come_from_a_local_wheel(shop: Path, tmp_path: Path) -> None:
    make_wheel(shop, "toy")
    make_wheel(shop, "helper")
    own = make_wheel(tmp_path / "own", "toy", requires=["helper"], files={"toy/__init__.py": "mine = True\n"})
    built = build(toy_framework(), tmp_path / "home", f"toy={own}")
    assert built.lock == ("helper==1.0", "toy==1.0")
    found = built.python.parent.parent.glob("lib/*/site-packages/toy/__init__.py")
    assert next(found).read_text() == "mine = True\n"


def test_a_change_that_the_framework_forbids_is_a_failed_build_that_says_so(
    shop: Path, tmp_path: Path
) -> None:
    make_wheel(shop, "toy", requires=["helper<2"])
    make_wheel(shop, "helper", "2.0")
    with pytest.raises(BuildFailed) as caught:
        build(toy_framework(), tmp_path / "home", "helper=2.0")
    assert caught.value.reason.code == "resolver_conflict"
    assert "toy 1.0 depends on helper<2" in caught.value.reason.text


def test_variables_reach_the_worker_and_share_the_files_of_the_environment(
    shop: Path, tmp_path: Path
) -> None:
    make_wheel(shop, "toy")
    plain = build(toy_framework(), tmp_path / "home")
    changed = build(toy_framework(), tmp_path / "home", "env:TOY_MODE=fast one")
    assert changed.reused
    assert changed.python == plain.python
    assert changed.key != plain.key
    assert changed.environ()["TOY_MODE"] == "fast one"
    assert changed.environ()[ASKED_VARIABLE] == "TOY_MODE"
    assert ASKED_VARIABLE not in plain.environ()


def test_another_interpreter_makes_another_environment(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(shop, "toy")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / f"python{HERE}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    built = build(toy_framework(), tmp_path / "home", f"python={HERE}")
    assert built.python_version.startswith(f"{HERE}.")
    assert built.key != build(toy_framework(), tmp_path / "home").key


def test_the_host_backend_changes_variables_only(tmp_path: Path) -> None:
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    framework = toy_framework()
    backend = HostBackend({"toy": framework}, tmp_path / "home", search_path=[str(tmp_path)])
    plain, changed = backend.build(environment()), backend.build(environment("env:X=1"))
    assert changed.environ()["X"] == "1"
    assert changed.key != plain.key
    with pytest.raises(BuildFailed) as caught:
        backend.build(environment("numpy=2.2.0"))
    assert caught.value.reason.code == "cannot_change"
    backend.close()


def test_wheels_for_an_image_are_chosen_by_the_same_changes(pinned: Framework) -> None:
    facts = BaseFacts(
        python="3.11.2", implementation="cpython", machine="x86_64", libc=("glibc", "2.36"), platform="linux"
    )
    keys = {image_wheels.set_key(recipe(pinned, *texts), facts) for texts in ((), ("numpy=2.2.0",))}
    assert len(keys) == 2


def test_a_build_that_the_entry_lacks_is_told_before_any_change() -> None:
    framework = toy_framework()
    other = framework.model_copy(
        update={"hardware": {"cpu": HardwareSupport(build="gone", device="cpu", precisions=["fp32"])}}
    )
    with pytest.raises(BuildFailed, match="has no build 'gone'"):
        recipe_for(
            other, Environment(framework="toy", version="1.0", hardware="cpu", changes=("numpy=2.2.0",))
        )


# --- interpreters -------------------------------------------------------------------------


def fake(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def says(version: str, *, abi: str = "cpython-312-x86_64-linux-gnu", venv: bool = True) -> str:
    facts = {"version": version, "implementation": "cpython", "abi": abi, "venv": venv}
    return f"echo '{json.dumps(facts)}'"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_version_is_looked_for_by_name_and_then_among_all_pythons(path: Path) -> None:
    python = fake(path, "python3", says("3.12.4"))
    wanted = Interpreter(
        path=str(python), version="3.12.4", implementation="cpython", abi="cpython-312-x86_64-linux-gnu"
    )
    assert interpreters.find("3.12") == interpreters.find("3.12.4") == wanted
    assert (wanted.title, wanted.tag) == ("CPython 3.12", "cp312")
    named = fake(path, "python3.13", says("3.13.1"))
    assert interpreters.find("3.13").path == str(named)


def test_a_file_of_the_right_name_that_holds_another_python_does_not_count(path: Path) -> None:
    fake(path, "python3.12", says("3.13.0"))
    with pytest.raises(NoInterpreter, match=r"there is no Python 3\.12 on PATH"):
        interpreters.find("3.12")


def test_a_placeholder_that_does_not_start_is_named(path: Path) -> None:
    fake(path, "python3.12", "echo 'no such version is active' >&2; exit 127")
    with pytest.raises(NoInterpreter, match=r"python3\.12 does not start: no such version is active"):
        interpreters.find("3.12")


def test_a_free_threaded_python_is_asked_for_as_such(path: Path) -> None:
    fake(path, "python3.13", says("3.13.1", abi="cpython-313t-x86_64-linux-gnu"))
    with pytest.raises(NoInterpreter):
        interpreters.find("3.13")
    fake(path, "python3.13t", says("3.13.1", abi="cpython-313t-x86_64-linux-gnu"))
    assert interpreters.find("3.13t").abi.startswith("cpython-313t")


def test_a_python_too_old_for_a_worker_or_without_venv_is_refused(path: Path) -> None:
    old = fake(path, "python3.10", says("3.10.2"))
    with pytest.raises(NoInterpreter, match=r"is Python 3\.10\.2; a worker needs 3\.11 or newer"):
        interpreters.find(str(old))
    bare = fake(path, "python3.12", says("3.12.1", venv=False))
    with pytest.raises(NoInterpreter, match="has no `venv` module"):
        interpreters.find(str(bare))


# --- the worker ---------------------------------------------------------------------------


def test_what_the_worker_sets_for_all_is_what_nobody_may_ask_for() -> None:
    assert tuple(process.base_environment(1)) == WORKER_VARIABLES


def test_an_adapter_that_would_override_what_was_asked_for_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ASKED_VARIABLE, "KERAS_BACKEND OTHER")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert process.overridden({"KERAS_BACKEND": "jax", "UNASKED": "1"}) == ""
    assert process.overridden({"KERAS_BACKEND": "tensorflow"}) == (
        "KERAS_BACKEND=jax was asked for, but the adapter itself sets KERAS_BACKEND=tensorflow"
    )
