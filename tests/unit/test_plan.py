"""Planning: every combination is a cell, and those that cannot be say why."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix import catalog
from matrix.config.sweep import FrameworkChoice, Rule, SweepConfig, load_sweep
from matrix.errors import UsageError
from matrix.plan import CellView, Plan, make_plan
from matrix.records import Cell, Environment
from matrix.report.plan_view import duration, plan_json, plan_text
from matrix.select import FIELDS, selector
from matrix_adapters.protocol import State

SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)
ORT = SHIPPED.frameworks["onnxruntime"]


@dataclasses.dataclass(frozen=True)
class Found:
    """What a probe says."""

    found: bool
    reason: str = ""


NO_GPU = {
    "cpu": Found(True),
    "nvidia": Found(False, "no /dev/nvidia0"),
    "amd": Found(False, "no /dev/kfd"),
}
WITH_GPU = {**NO_GPU, "nvidia": Found(True)}


def sweep(**changes: object) -> SweepConfig:
    frameworks = changes.pop("frameworks", ["pytorch", "tensorflow", "onnxruntime"])
    models = changes.pop("models", ["distilbert_tiny", "resnet50_tiny"])
    assert isinstance(frameworks, list)
    assert isinstance(models, list)
    return SweepConfig(
        name="test",
        frameworks=tuple(FrameworkChoice(name=f) if isinstance(f, str) else f for f in frameworks),
        models=tuple(SHIPPED.models[m] if isinstance(m, str) else m for m in models),
        **changes,  # type: ignore[arg-type]
    )


def plan(config: SweepConfig, select: str | None = None, hardware: object = NO_GPU) -> Plan:
    return make_plan(config, SHIPPED, hardware, select, usable_threads=4)  # type: ignore[arg-type]


def reasons(result: Plan) -> set[tuple[str, str]]:
    return {(c.state.value, c.reason.text) for c in result.cells if c.state and c.reason}


_some = st.lists(st.integers(1, 16), min_size=1, max_size=3).map(tuple)
_subset = lambda names: st.lists(st.sampled_from(names), min_size=1, max_size=3)  # noqa: E731
_sweeps = st.builds(
    sweep,
    frameworks=_subset(["pytorch", "tensorflow", "onnxruntime", "tensorrt"]),
    models=_subset(["distilbert_tiny", "resnet50_tiny", "lstm_tiny", "dlrm", "gpt2"]).map(
        lambda names: list(dict.fromkeys(names))
    ),
    hardware=_subset(["cpu", "nvidia", "amd", "auto"]).map(tuple),
    precisions=_subset(["fp32", "bf16", "fp16"]).map(tuple),
    batch=_some,
    sequence=st.lists(st.integers(1, 2000), max_size=2).map(tuple),
    threads=st.lists(st.sampled_from([1, 2, "all"]), min_size=1, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None)
@given(_sweeps, st.booleans())
def test_cells_are_the_product_each_with_one_end_and_one_id(config: SweepConfig, gpu: bool) -> None:
    hardware = WITH_GPU if gpu else NO_GPU
    result = plan(config, hardware=hardware)
    profiles = set(config.hardware) - {"auto"}
    profiles |= {"cpu", *(["nvidia"] if gpu else [])} if "auto" in config.hardware else set()
    expected = 0
    for model in config.models:
        lengths = len(set(config.sequence) or {0}) if model.has_sequence else 1
        threads = len({4 if t == "all" else t for t in config.threads})
        points = len(set(config.batch)) * lengths * len(set(config.precisions)) * threads
        expected += points * len({f.name for f in config.frameworks}) * len(profiles)
    assert len(result.cells) == expected
    assert len({cell.id for cell in result.cells}) == expected
    assert len({cell.label for cell in result.cells}) == expected
    for cell in result.cells:
        assert (cell.state is None) == (cell.reason is None)
        assert cell.state in (None, State.UNSUPPORTED, State.UNAVAILABLE)
        if cell.reason is not None:
            assert cell.reason.code
            assert cell.reason.text
    assert set(result.environments) == {c.environment for c in result.cells if c.state is None}


@settings(max_examples=40, deadline=None)
@given(
    _sweeps,
    st.sampled_from(
        [
            "batch > 3",
            'model == "gpt2"',
            'framework in ["pytorch", "tensorrt"]',
            "sequence is None",
            'state == ""',
        ]
    ),
)
def test_a_selection_and_its_opposite_make_up_the_whole(config: SweepConfig, expression: str) -> None:
    whole = Counter(cell.id for cell in plan(config).cells)
    parts: Counter[str] = Counter()
    for part in (expression, f"not ({expression})"):
        try:
            chosen = plan(config, part)
        except UsageError as error:
            assert "chooses no cell" in str(error)
        else:
            parts.update(cell.id for cell in chosen.cells)
            assert len(chosen.cells) + chosen.deselected == len(whole)
    assert parts == whole


def test_ids_do_not_change_between_processes_and_versions() -> None:
    """A run's files name cells by id: a change of this hash orphans them."""
    choice = FrameworkChoice(name="pytorch", versions=["2.13.0"])
    (cell,) = plan(sweep(frameworks=[choice], models=["distilbert_tiny"])).cells
    assert cell.label == "pytorch-2.13.0-cpu [eager] distilbert_tiny b1 s16 fp32 1t"
    assert cell.id == "6e949393f988"


def test_rows_of_the_matrix_stand_together() -> None:
    cells = plan(sweep(batch=(1, 2))).cells
    rows = [(c.workload.subject, c.workload.batch) for c in cells]
    assert [key for key, _ in itertools.groupby(rows)] == list(dict.fromkeys(rows))


def test_what_cannot_exist_is_unsupported_and_what_is_not_here_is_unavailable() -> None:
    result = plan(
        sweep(
            frameworks=["pytorch", "onnxruntime", FrameworkChoice(name="tensorrt", hardware=["cpu"])],
            models=["distilbert_tiny"],
            hardware=("cpu", "nvidia"),
            precisions=("fp32", "bf16"),
        )
    )
    assert reasons(result) == {
        ("unsupported", "TensorRT does not run on CPU (it has: nvidia)"),
        ("unsupported", "no bf16 for ONNX Runtime on CPU in this tool's catalog (it has fp32)"),
        ("unsupported", "no bf16 for ONNX Runtime on NVIDIA GPU in this tool's catalog (it has fp32)"),
        ("unavailable", "no /dev/nvidia0"),
    }
    assert Counter(c.state for c in result.cells) == {
        None: 3,
        State.UNSUPPORTED: 4,
        State.UNAVAILABLE: 3,
    }


def test_a_device_that_is_found_makes_its_cells_runnable() -> None:
    config = sweep(frameworks=["pytorch"], hardware=("auto",))
    assert {c.environment.hardware for c in plan(config).cells} == {"cpu"}
    with_gpu = plan(config, hardware=WITH_GPU)
    assert {c.environment.hardware for c in with_gpu.runnable} == {"cpu", "nvidia"}
    assert with_gpu.cells[0].environment.hardware == "cpu"


def test_hardware_that_was_not_probed_is_unavailable_not_a_crash() -> None:
    result = plan(sweep(frameworks=["pytorch"], hardware=("nvidia",)), hardware={})
    assert reasons(result) == {("unavailable", "this machine was not probed for nvidia")}


def test_quick_plans_three_frameworks_on_the_cpu_and_one_honest_tensorrt_row_per_model() -> None:
    result = plan(load_sweep("quick", SHIPPED))
    assert len(result.runnable) == 12
    others = [c for c in result.cells if c.state is not None]
    assert [(c.environment.framework, c.workload.subject) for c in others] == [
        ("tensorrt", m) for m in ("resnet50", "efficientnet_b0", "distilbert", "llama_small")
    ]
    assert reasons(result) == {("unavailable", "no /dev/nvidia0")}


def test_an_onnx_file_needs_no_checkpoint_framework() -> None:
    model = SHIPPED.models["distilbert_tiny"].model_copy(
        update={"name": "mine", "format": "onnx", "task": "onnx", "path": Path("mine.onnx")}
    )
    result = plan(sweep(models=[model]))
    assert {c.environment.framework for c in result.runnable} == {"onnxruntime"}
    (text,) = {text for _, text in reasons(result) if "TensorFlow" in text}
    assert text == "needs a checkpoint: mine is an ONNX file, TensorFlow loads checkpoint folders"


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"max_sequence": 8}, "has room for 8 positions, 16 were asked"),
        ({"max_batch": 1}, "takes batches up to 1"),
        ({"batch": 1}, "has a fixed batch of 1"),
    ],
)
def test_beyond_a_models_limits_is_unsupported(limits: dict[str, int], text: str) -> None:
    model = SHIPPED.models["distilbert_tiny"].model_copy(update=limits)
    result = plan(sweep(models=[model], batch=(2,)))
    assert not result.runnable
    assert all(text in reason for _, reason in reasons(result))


def test_a_sequence_is_planned_only_for_models_that_have_one() -> None:
    result = plan(sweep(frameworks=["pytorch"], sequence=(8, 16)))
    assert [(c.workload.subject, c.workload.sequence) for c in result.cells] == [
        ("distilbert_tiny", 8),
        ("distilbert_tiny", 16),
        ("resnet50_tiny", None),
    ]


def test_without_a_sequence_each_model_has_its_own() -> None:
    result = plan(sweep(frameworks=["pytorch"], models=["distilbert_tiny", "distilbert"]))
    assert [c.workload.sequence for c in result.cells] == [16, 128]


def test_a_version_that_the_catalog_does_not_know_is_planned_with_the_same_steps() -> None:
    choice = FrameworkChoice(name="onnxruntime", versions=["1.30.0", ORT.default_version])
    result = plan(sweep(frameworks=[choice]))
    assert [e.version for e in result.environments] == ["1.30.0", ORT.default_version]
    assert result.estimate.minutes > 0
    assert ORT.constraints("cpu", "1.30.0") is None


def test_the_version_of_each_hardware_is_one_its_build_has() -> None:
    result = plan(sweep(frameworks=["onnxruntime"], hardware=("cpu", "nvidia")), hardware=WITH_GPU)
    assert {(e.hardware, e.version) for e in result.environments} == {
        ("cpu", ORT.builds["cpu"].versions[0]),
        ("nvidia", ORT.builds["cuda"].versions[0]),
    }


def test_the_default_variant_is_written_into_the_cell() -> None:
    variants = {c.environment.framework: c.workload.variant for c in plan(sweep()).cells}
    assert variants == {"pytorch": "eager", "tensorflow": "graph", "onnxruntime": "all"}


def test_the_same_cell_asked_twice_is_planned_once() -> None:
    twice = [FrameworkChoice(name="pytorch"), FrameworkChoice(name="pytorch", variants=["compile", "eager"])]
    result = plan(sweep(frameworks=twice, models=["dlrm_tiny"], threads=(4, "all")))
    assert [c.workload.variant for c in result.cells] == ["eager", "compile"]


def test_threads_all_means_what_the_machine_lets_us_use() -> None:
    result = plan(sweep(frameworks=["pytorch"], models=["dlrm_tiny"], threads=(1, "all")))
    assert [c.workload.threads for c in result.cells] == [1, 4]
    assert make_plan(sweep(threads=("all",)), SHIPPED, NO_GPU).cells[0].workload.threads >= 1


def test_rules_mark_cells_and_can_be_selected_by() -> None:
    rules = (
        Rule(select=selector('framework == "pytorch"'), required=True, xfail=""),
        Rule(select=selector('model == "resnet50_tiny"'), required=False, xfail="known"),
        Rule(select=selector('id == "no such id"'), required=True, xfail="never"),
    )
    config = sweep(rules=rules, frameworks=["pytorch", "onnxruntime"])
    marks = {c.label.split("-")[0] + c.workload.subject: (c.required, c.xfail) for c in plan(config).cells}
    assert marks == {
        "pytorchdistilbert_tiny": (True, ""),
        "pytorchresnet50_tiny": (True, "known"),
        "onnxruntimedistilbert_tiny": (False, ""),
        "onnxruntimeresnet50_tiny": (False, "known"),
    }
    assert {c.environment.framework for c in plan(config, "required").cells} == {"pytorch"}


def test_a_selection_that_chooses_nothing_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(
        UsageError, match=r'no cell has model "distilbert_tny" \(did you mean "distilbert_tiny"'
    ):
        plan(sweep(), 'model == "distilbert_tny"')


def test_a_view_has_the_same_fields_as_the_cell_itself() -> None:
    for cell in plan(sweep(hardware=("nvidia", "cpu"))).cells:
        fields = cell.fields()
        assert {name: CellView(cell)[name] for name in FIELDS} == {name: fields[name] for name in FIELDS}


def test_what_is_already_there_costs_nothing() -> None:
    config = sweep()
    cold = plan(config).estimate
    warm = make_plan(
        config, SHIPPED, NO_GPU, usable_threads=4, built=set(cold.to_build), cached=set(cold.to_make)
    ).estimate
    assert (warm.build_s, warm.artefacts_s, warm.disk_mb) == (0, 0, 0)
    assert warm.launches_s == cold.launches_s > 0
    assert cold.minutes > warm.minutes > 0
    assert cold.disk_mb > 1000


def test_the_environment_that_makes_the_model_files_is_part_of_the_cost() -> None:
    estimate = plan(sweep(frameworks=["onnxruntime"])).estimate
    assert [e.framework for e in estimate.to_build] == ["onnxruntime", "pytorch"]


def test_nothing_that_can_run_costs_nothing() -> None:
    result = plan(sweep(frameworks=["tensorrt"], hardware=("nvidia",)))
    assert (result.estimate.minutes, result.estimate.disk_mb, result.environments) == (0, 0, ())


def test_more_of_anything_costs_more() -> None:
    base = plan(sweep(models=["distilbert"], sequence=(128,))).estimate.launches_s
    for more in (
        {"batch": (8,)},
        {"sequence": (512,)},
        {"threads": (1, 2)},
        {"precisions": ("fp32", "bf16")},
    ):
        changed: dict[str, object] = {"models": ["distilbert"], "sequence": (128,), **more}
        assert plan(sweep(**changed)).estimate.launches_s > base


# --- the view -----------------------------------------------------------------------------


def test_the_view_counts_and_explains() -> None:
    rules = (Rule(select=selector('framework == "tensorrt"'), required=True, xfail=""),)
    config = sweep(frameworks=["onnxruntime", "tensorrt"], hardware=("cpu", "nvidia"), rules=rules)
    text = plan_text(plan(config))
    assert text.startswith("test: 8 cells (2 to run, 4 unavailable, 2 unsupported)")
    assert "2 unsupported TensorRT does not run on CPU (it has: nvidia) [2 required]" in text
    assert "4 unavailable no /dev/nvidia0 [2 required]: onnxruntime-" in text
    assert f"2 cells onnxruntime-{ORT.default_version}-cpu" in text
    assert f"pytorch-{SHIPPED.frameworks['pytorch'].default_version}-cpu (makes the models' files)" in text
    assert "estimate: " in text


def test_long_lists_are_shortened_and_verbose_shows_every_cell() -> None:
    names = [n for n in SHIPPED.models if n.endswith("_tiny")]
    result = plan(sweep(models=names))
    assert len(names) > 8
    assert "and 2 more (--verbose)" in plan_text(result)
    verbose = plan_text(result, verbose=True)
    assert "--verbose" not in verbose
    assert all(cell.id in verbose and cell.label in verbose for cell in result.cells)


def test_the_view_says_what_is_left_out_and_when_nothing_runs() -> None:
    text = plan_text(plan(sweep(), 'framework == "pytorch"'))
    assert "left out by --select 'framework == \"pytorch\"': 4" in text
    nothing = plan_text(plan(sweep(frameworks=["tensorrt"], hardware=("nvidia",))))
    assert nothing.endswith("estimate: nothing to run")
    assert "environments:" not in nothing


def test_the_json_form_holds_every_cell_and_is_json() -> None:
    result = plan(sweep(hardware=("cpu", "nvidia")))
    data = json.loads(json.dumps(plan_json(result), allow_nan=False))
    assert [c["id"] for c in data["cells"]] == [c.id for c in result.cells]
    assert sum(data["counts"].values()) == len(result.cells)
    assert {c["reason"]["code"] for c in data["cells"] if c["state"] == "unavailable"} == {"no_device"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1.0 min"),
        (324, "5.4 min"),
        (3569, "59.5 min"),
        (3600, "1 h 0 min"),
    ],
)
def test_a_duration_is_as_exact_as_an_estimate_is(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_ten_thousand_cells_are_planned_with_few_objects() -> None:
    """The bench times it; this counts, so that it cannot depend on the machine's load."""
    config = sweep(
        frameworks=["pytorch", "tensorflow", "onnxruntime", "tensorrt"],
        models=list(SHIPPED.models),
        hardware=("cpu", "nvidia"),
        precisions=("fp32", "bf16"),
        batch=tuple(range(1, 17)),
        sequence=(8, 16),
        threads=(1, 2, 3, 4),
    )
    result = plan(config)
    assert len(result.cells) > 10_000
    assert len({id(c.environment) for c in result.cells}) == 8
    assert len({id(c.reason) for c in result.cells if c.reason}) < len(result.cells) / 4
    assert not any("id" in vars(c) for c in result.cells), "hashes are made when they are asked for"


def test_cells_are_plain_data() -> None:
    cell = plan(sweep()).cells[0]
    assert isinstance(cell, Cell)
    assert isinstance(cell.environment, Environment)
    assert dataclasses.replace(cell, arm="aa").id != cell.id
