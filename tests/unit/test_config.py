"""Sweep files: every mistake is located, several at once, and a right file means what it says."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import jsonschema
import pytest
import yaml

from matrix import catalog
from matrix.catalog.types import Catalog
from matrix.config import schema
from matrix.config.sweep import SweepConfig, SweepFile, load_sweep, sweep_from_data
from matrix.errors import ConfigError, ExitCode, UsageError

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)

RIGHT = """\
name: mine
frameworks: [pytorch]
models: [distilbert_tiny]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def mistakes(folder: Path, text: str, known: Catalog = SHIPPED) -> list[str]:
    path = write(folder, text)
    with pytest.raises(ConfigError) as caught:
        load_sweep(path, known)
    assert caught.value.exit_code == ExitCode.USAGE
    return [p.replace(str(path), "sweep.yaml") for p in caught.value.problems]


def test_five_different_mistakes_give_five_located_messages_in_one_go(tmp_path: Path) -> None:
    text = """\
        name: mine
        frameworks:
          - pytroch
          - {name: onnxruntime, versions: [1.30]}
        models: [distilbert]
        precision: [fp32]
        batch: [1]
        batch: [2]
        hardware: [off]
        """
    assert mistakes(tmp_path, text) == [
        "sweep.yaml:3:5: frameworks[0]: there is no framework 'pytroch' (did you mean \"pytorch\"?)",
        'sweep.yaml:4:36: frameworks[1].versions[0]: text is needed: write "1.30" in quotes',
        'sweep.yaml:6:1: precision: unknown key (did you mean "precisions"?)',
        "sweep.yaml:8:1: batch: given twice (first at line 7)",
        'sweep.yaml:9:12: hardware[0]: `off` is unclear: write false for the boolean, or "off" in quotes '
        "for the text",
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("models: [resnet5O]", "there is no model 'resnet5O' (did you mean \"resnet50\"?)"),
        ("models: [zzz]", "there is no model 'zzz'; there are:"),
        ("models: resnet50", "a list is needed, got resnet50"),
        ("models: []", "at least one entry"),
        ("frameworks: [torch]", 'did you mean "pytorch"?'),
        ("frameworks: [PyTorch]", 'did you mean "pytorch"?'),
        ("frameworks: [tensorflow-cpu]", 'did you mean "tensorflow"?'),
        ("frameworks: [{name: pytorch, versions: [2.10]}]", 'write "2.10" in quotes'),
        ("frameworks: [{name: pytorch, versions: [latest]}]", "'latest' is not a version, such as"),
        ('frameworks: [{name: pytorch, versions: ["2.13; rm"]}]', "is not a version"),
        ('frameworks: [{name: pytorch, versions: ["2.13 --index-url=x"]}]', "is not a version"),
        ("frameworks: [{name: pytorch, variants: [egaer]}]", "no variant 'egaer' (did you mean \"eager\"?)"),
        ("frameworks: [{name: pytorch, hardware: [cdu]}]", "there is no hardware profile 'cdu'"),
        ("frameworks: [{name: pytorch, version: ['1']}]", 'unknown key (did you mean "versions"?)'),
        ("frameworks: [{variants: [eager]}]", "`name` is missing"),
        ("frameworks: [3]", "a mapping is needed, got 3"),
        ("hardware: [cuda]", 'did you mean "nvidia"?'),
        ("hardware: [gpu]", "(did you mean amd or intel-gpu or nvidia?)"),
        ("hardware: [tpuv4]", "there are: amd, ascend, auto, cpu, intel-gpu, nvidia"),
        ("precisions: [bfloat16]", 'bfloat16 is written "bf16" here'),
        ("precisions: [fp31]", 'did you mean "fp32"?'),
        ("batch: [0]", "at least 1 is needed, got 0"),
        ("batch: [1.5]", "a whole number is needed, got 1.5"),
        ("batch: ['1']", "a whole number is needed"),
        ("batch: [true]", "a whole number is needed, got true"),
        ("threads: [many]", "a whole number or `all` is needed, got 'many'"),
        ("threads: [010]", "write 10 for the number"),
        ("seed: -1", "at least 0 is needed"),
        ("timeout: soon", "a number is needed, got soon"),
        ("timeout:", "a number is needed, got nothing"),
        ("measure: {launches: 0}", "at least 1 is needed"),
        ("measure: {samples: 5, sampels: 6}", 'measure.sampels: unknown key (did you mean "samples"?)'),
        ("measure: [3]", "a mapping is needed"),
        (
            "rules: [{select: 'modle == 1', required: true}]",
            "rules[0].select: 'modle == 1': there is no field",
        ),
        ("rules: [{select: 'batch == 1'}]", "does nothing without"),
        ("rules: [{required: true}]", "`select` is missing"),
        ("rules: [{select: 'batch == 1', required: yes}]", "`yes` is unclear"),
        ("rules: [{select: 'batch == 1', xfail: true}]", 'write "true" in quotes'),
    ],
)
def test_a_mistake_is_located_and_says_what_to_write(tmp_path: Path, line: str, says: str) -> None:
    key = line.partition(":")[0]
    kept = [row for row in RIGHT.splitlines() if not row.startswith(f"{key}:")]
    (message,) = mistakes(tmp_path, "\n".join([*kept, line]) + "\n")
    assert re.match(rf"sweep\.yaml:{len(kept) + 1}:\d+: {key}", message)
    assert says in message


@pytest.mark.parametrize("text", ["[1]", "just text", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (message,) = mistakes(tmp_path, text)
    assert message.startswith("sweep.yaml:1:1: a mapping is needed, got ")


def test_a_missing_key_points_at_the_file(tmp_path: Path) -> None:
    assert mistakes(tmp_path, "name: x\n") == [
        "sweep.yaml:1:1: `frameworks` is missing",
        "sweep.yaml:1:1: `models` is missing (or `operators`, or both)",
    ]


def test_every_shipped_sweep_is_right_and_fits_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(schema.path().read_text()))
    for name, path in SHIPPED.sweeps.items():
        assert load_sweep(name, SHIPPED).name == name
        validator.validate(yaml.safe_load(path.read_text()))


def test_the_shipped_schema_is_the_one_that_the_types_make() -> None:
    assert schema.path().read_text() == schema.text(SHIPPED), "run: python -m matrix.config.schema"


@pytest.mark.parametrize(
    "wrong",
    [
        {"precision": []},
        {"batch": [0]},
        {"threads": ["many"]},
        {"rules": [{"required": True}]},
        {"models": 1},
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(wrong: dict[str, object]) -> None:
    validator = jsonschema.Draft202012Validator(schema.sweep_schema(SHIPPED))
    right = yaml.safe_load(RIGHT)
    assert validator.is_valid(right)
    assert not validator.is_valid({**right, **wrong})


def test_defaults_and_duplicates(tmp_path: Path) -> None:
    config = load_sweep(write(tmp_path, RIGHT + "batch: [1, 8, 1]\nthreads: [1, all, 1]\n"), SHIPPED)
    assert (config.batch, config.threads, config.sequence) == ((1, 8), (1, "all"), ())
    assert (config.hardware, config.precisions, config.seed) == (("auto",), ("fp32",), 0)
    assert [f.name for f in config.frameworks] == ["pytorch"]
    worker = config.measure.worker()
    assert (config.measure.launches, worker.samples, worker.max_steady_s) == (3, 22, 3.0)


def test_an_unknown_sweep_gets_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r'no sweep \'quik\' \(did you mean "quick"\?\)'):
        load_sweep("quik", SHIPPED)


def test_a_missing_file_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_sweep(tmp_path / "none.yaml", SHIPPED)


def test_a_framework_that_is_installed_but_broken_is_explained(tmp_path: Path) -> None:
    import dataclasses

    known = dataclasses.replace(SHIPPED, broken={"toy": "framework.yaml:1:1: the file is empty"})
    (message,) = mistakes(tmp_path, RIGHT.replace("[pytorch]", "[toy]"), known)
    assert "the framework toy cannot be used: framework.yaml:1:1: the file is empty" in message


def test_a_sweep_survives_being_stored_and_loaded_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = RIGHT + "rules: [{select: 'batch == 1', xfail: known}]\nmeasure: {samples: 5}\nthreads: [all]\n"
    config = load_sweep(write(tmp_path, text), SHIPPED)
    monkeypatch.chdir(tmp_path.parent)
    again = sweep_from_data(json.loads(json.dumps(config.data)), SHIPPED, "run.json")
    assert _plain(again) == _plain(config)


def test_what_a_stored_sweep_lacks_is_an_error_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"run.json:1:1: models\[0\]: there is no model 'gone'"):
        sweep_from_data({"name": "x", "frameworks": ["pytorch"], "models": ["gone"]}, SHIPPED, "run.json")


def test_the_types_name_every_default_that_a_worker_has() -> None:
    from matrix_adapters.protocol import Measure

    assert (
        SweepFile.model_validate({"name": "x", "frameworks": ["a"], "models": ["b"]}).measure.worker()
        == Measure()
    )


def _plain(config: SweepConfig) -> object:
    rules = [(rule.select.expression, rule.required, rule.xfail) for rule in config.rules]
    return config.frameworks, config.models, config.threads, config.measure, config.data, rules
