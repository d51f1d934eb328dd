"""The catalog: the shipped data is right, and wrong data is refused with its place."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from matrix import catalog
from matrix.catalog.types import Catalog, ModelEntry
from matrix.errors import ConfigError
from matrix_adapters.protocol import ModelSpec, from_json, to_json

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


def copy_of_the_catalog(folder: Path) -> Path:
    return shutil.copytree(
        catalog.folder(), folder / "catalog", ignore=shutil.ignore_patterns("*.py", "__pycache__")
    )


def test_the_shipped_catalog_loads_and_is_read_once_per_process() -> None:
    assert catalog.load() is catalog.load()
    assert {"pytorch", "tensorflow", "onnxruntime", "tensorrt"} <= SHIPPED.frameworks.keys()
    assert {"cpu", "nvidia"} <= SHIPPED.hardware.keys()
    assert {"quick", "full"} <= SHIPPED.sweeps.keys()
    assert SHIPPED.metrics["latency_ms"].better == "lower"


@pytest.mark.parametrize("name", [n for n in SHIPPED.models if not n.endswith("_tiny")])
def test_every_model_has_a_tiny_twin_that_differs_only_where_it_says(name: str) -> None:
    model, twin = SHIPPED.models[name], SHIPPED.models[f"{name}_tiny"]
    assert (twin.format, twin.task, twin.outputs) == (model.format, model.task, model.outputs)
    assert list(twin.inputs) == list(model.inputs)
    assert twin.build != model.build
    assert twin.tiny is None
    for key, entry in model.inputs.items():
        assert (twin.inputs[key].dtype, twin.inputs[key].distribution) == (entry.dtype, entry.distribution)
    if twin.has_sequence and twin.longest_sequence:
        assert (twin.sequence or 128) <= twin.longest_sequence


def test_a_tiny_twin_keeps_what_it_does_not_override() -> None:
    twin = SHIPPED.models["distilbert_tiny"]
    assert twin.build["class"] == "DistilBertForMaskedLM"
    assert twin.build["config"]["dim"] == 64
    assert twin.inputs["input_ids"].high == 1000
    assert twin.inputs["input_ids"].shape == ["batch", "sequence"]
    assert twin.sequence == 16
    assert SHIPPED.models["distilbert"].inputs["input_ids"].high == 30522


@pytest.mark.parametrize("name", list(SHIPPED.models))
def test_a_model_goes_to_a_worker_and_back_unchanged(name: str) -> None:
    spec = SHIPPED.models[name].spec()
    assert spec.inputs
    assert spec.outputs
    back = from_json(ModelSpec, to_json(spec))
    assert back == spec


@pytest.mark.parametrize("name", list(SHIPPED.frameworks))
def test_every_listed_version_with_a_constraint_set_has_its_file(name: str) -> None:
    framework = SHIPPED.frameworks[name]
    for build_name, build in framework.builds.items():
        for version in build.versions:
            path = framework.constraints(build_name, version)
            assert path is None or path.is_file()
            assert (path is None) == (build.constraints is None)
        assert framework.constraints(build_name, "0.0.1") is None
        assert all("{version}" not in r for step in build.steps for r in step.requirements("1.2.3"))


def test_the_default_version_of_hardware_is_one_that_its_build_lists() -> None:
    for framework in SHIPPED.frameworks.values():
        for hardware in framework.hardware:
            assert framework.version_for(hardware) in framework.build_for(hardware).versions


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "frameworks/pytorch.yaml",
            'default_version: "2.13.0"',
            "default_version: 2.13",
            'write "2.13" in quotes',
        ),
        (
            "frameworks/pytorch.yaml",
            'default_version: "2.13.0"',
            'default_version: "9.9"',
            "in no build's versions",
        ),
        (
            "frameworks/pytorch.yaml",
            "default_variant: eager",
            "default_variant: egaer",
            "not one of variants",
        ),
        (
            "frameworks/pytorch.yaml",
            "build: cuda, device: cuda",
            "build: cdua, device: cuda",
            "no build 'cdua'",
        ),
        ("frameworks/pytorch.yaml", "  nvidia: {", "  nvdia: {", "no profile 'nvdia'"),
        ("frameworks/pytorch.yaml", "constraints: pytorch", "constraints: torch", "no constraints file"),
        ("frameworks/pytorch.yaml", "name: pytorch", "name: torch", "must be the file's name"),
        ("frameworks/pytorch.yaml", "consumes:", "consume:", 'unknown key (did you mean "consumes"?)'),
        ("models/gpt2.yaml", "format: transformers", "format: transformer", 'did you mean "transformers"?'),
        ("models/gpt2.yaml", "high: 50257", "high: 0", "low (0) must be below high (0)"),
        ("models/gpt2.yaml", "{input_ids: {high: 1000}}", "{input_ids: {high: -1}}", "gpt2.yaml: tiny"),
        (
            "metrics.yaml",
            "unit: s, better: lower",
            "unit: s, better: less",
            "import_s",
        ),
        ("tolerances.yaml", "least: 1.0e-5", "least: 0", "more than 0 is needed"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_file_and_key(
    tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    root = copy_of_the_catalog(tmp_path)
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        catalog.load_from(root, third_parties=False)
    assert says in str(caught.value)


TOY = """\
name: toy
title: Toy
adapter: toy_matrix.adapter
import_package: toy
provided_by: [toy]
consumes: onnx
default_version: "1.0"
hardware: {cpu: {build: cpu, device: cpu, precisions: [fp32]}}
builds: {cpu: {versions: ["1.0"], steps: [{install: ["toy=={version}"]}]}}
"""


def install_toy(
    site: Path, monkeypatch: pytest.MonkeyPatch, *, text: str = TOY, value: str = "toy_matrix"
) -> Path:
    """What pip leaves: a package, and a dist-info that names it in the entry-point group."""
    package = site.joinpath(*value.split("."))
    package.mkdir(parents=True)
    for folder in [package, *package.parents]:
        if folder == site:
            break
        (folder / "__init__.py").write_text("raise ImportError('the host must not import this')\n")
    (package / "framework.yaml").write_text(text)
    info = site / "toy_matrix-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-matrix\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{catalog.ENTRY_POINTS}]\ntoy = {value}\n")
    monkeypatch.syspath_prepend(str(site))
    return package


def load() -> Catalog:
    return catalog.load_from(catalog.folder())


@pytest.mark.parametrize("value", ["toy_matrix", "toy_names.inner.toy_matrix"])
def test_a_third_partys_framework_is_found_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    package = install_toy(tmp_path, monkeypatch, value=value)
    found = load()
    assert found.frameworks["toy"].source_dir == package
    assert found.frameworks["toy"].title == "Toy"
    assert not found.broken
    assert not any(name.split(".")[0] in ("toy_matrix", "toy") for name in sys.modules)


def test_a_third_partys_constraints_lie_in_its_own_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TOY.replace('versions: ["1.0"],', 'versions: ["1.0"], constraints: "toy-{version}.txt",')
    package = install_toy(tmp_path, monkeypatch, text=text)
    assert "no constraints file toy-1.0.txt" in load().broken["toy"]
    (package / "constraints").mkdir()
    (package / "constraints" / "toy-1.0.txt").write_text("toy==1.0\n")
    assert load().frameworks["toy"].constraints("cpu", "1.0") == package / "constraints" / "toy-1.0.txt"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TOY.replace("consumes: onnx", "consumes: files"), "framework.yaml:6:11: consumes"),
        (TOY.replace("name: toy", "name: yot"), "must be the entry point's name"),
        (TOY.replace("{cpu: {build", "{tpu: {build"), "no profile 'tpu'"),
        ("", "the file is empty"),
    ],
)
def test_a_broken_third_partys_framework_does_not_spoil_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    install_toy(tmp_path, monkeypatch, text=text)
    found = load()
    assert "toy" not in found.frameworks
    assert says in found.broken["toy"]
    assert "pytorch" in found.frameworks


def test_an_entry_point_to_nowhere_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(install_toy(tmp_path, monkeypatch))
    assert "there is no such package" in load().broken["toy"]


def test_a_third_party_cannot_replace_a_shipped_framework(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_toy(tmp_path, monkeypatch, text=TOY.replace("name: toy", "name: pytorch"))
    (tmp_path / "toy_matrix-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{catalog.ENTRY_POINTS}]\npytorch = toy_matrix\n"
    )
    found = load()
    assert found.frameworks["pytorch"].source_dir is None
    assert "already in the catalog" in found.broken["pytorch"]


def test_the_longest_sequence_comes_from_the_entry_or_from_its_own_config() -> None:
    assert SHIPPED.models["gpt2"].longest_sequence == 1024
    assert SHIPPED.models["bert_base"].longest_sequence == 512
    assert SHIPPED.models["resnet50"].longest_sequence is None
    entry = ModelEntry(name="m", format="onnx", task="onnx", max_sequence=7)
    assert entry.longest_sequence == 7
