"""The parity gate against real converters that are silently wrong (KerasHub 0.32).

Each of these loads without a word and gives other numbers than the checkpoint means. Same
weights, one word of config.json apart: with the words that the catalog pins, the gate lets the
model through; with the others it does not. At full and at tiny size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from model_lab import ModelLab, Run

from matrix import catalog
from matrix.catalog.types import InputEntry, ModelEntry
from matrix_adapters.protocol import State

pytestmark = pytest.mark.real

SIZES = ("tiny", "full")


@pytest.fixture(scope="module")
def lab(built: Any, run_task: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelLab:
    return ModelLab(built, run_task, tmp_path_factory.mktemp("lab"))


@dataclasses.dataclass(frozen=True)
class Fault:
    """A word of config.json that KerasHub does not read, and what it takes instead."""

    model: str
    config: Mapping[str, Any]


FAULTS = {
    "exact GELU": Fault("bert_base", {"hidden_act": "gelu"}),
    "epsilon of ViT's norms": Fault("vit_base", {"layer_norm_eps": 1e-12}),
    "epsilon of Llama's norms": Fault("llama_small", {"rms_norm_eps": 1e-5}),
}


def shipped(name: str, size: str) -> ModelEntry:
    return catalog.load().models[name if size == "full" else f"{name}_tiny"]


def roberta(size: str) -> ModelEntry:
    """The class is one whose checkpoint has both the `roberta.` prefix and a pooler."""
    config: dict[str, Any] = {"vocab_size": 50265, "max_position_embeddings": 514}
    if size == "tiny":
        config = {"vocab_size": 1000, "max_position_embeddings": 66, "hidden_size": 64}
        config |= {"intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
    bert = shipped("bert_base", size)
    ids = InputEntry(
        dtype="int64", shape=["batch", "sequence"], distribution="integers", low=4, high=config["vocab_size"]
    )
    return bert.model_copy(
        update={
            "name": f"planted_roberta_{size}",
            "build": {"class": "RobertaForMultipleChoice", "config_class": "RobertaConfig", "config": config},
            "inputs": {"input_ids": ids, "attention_mask": bert.inputs["attention_mask"]},
        }
    )


def densenet(size: str) -> ModelEntry:
    images = shipped("resnet50", size)
    config = {"architecture": "densenet121", "num_classes": 1000, "image_size": 224}
    if size == "tiny":
        config |= {"num_classes": 10, "image_size": 64}
    return images.model_copy(update={"name": f"planted_densenet_{size}", "build": {"config": config}})


def run_folder(lab: ModelLab, model: ModelEntry, folder: Path) -> Run:
    """The checkpoint in `folder` as a user's own: it gets a reference of its own."""
    return lab.run("tensorflow", model.model_copy(update={"path": folder}))


def assert_caught(run: Run) -> None:
    assert run.result.state is State.OK, run.result.reason
    parity = run.parity
    assert parity is not None
    assert not parity.passed, parity
    assert parity.failure_code == "tolerance"
    # No accident of rounding: several times the limit, and the reference is sure of itself.
    assert parity.max_scaled_error > 3 * parity.limit
    assert parity.floor < catalog.load().tolerances.ill_conditioned_floor


def assert_passes(run: Run) -> None:
    assert run.result.state is State.OK, run.result.reason
    assert run.parity is not None and run.parity.passed, run.parity


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_setting_that_the_converter_ignores_is_caught(lab: ModelLab, fault: str, size: str) -> None:
    planted = FAULTS[fault]
    model = shipped(planted.model, size)
    with lab.edited(model, config=planted.config) as folder:
        assert_caught(run_folder(lab, model, folder))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_weights_with_the_catalogs_pins_pass(lab: ModelLab, fault: str, size: str) -> None:
    assert_passes(lab.run("tensorflow", shipped(FAULTS[fault].model, size)))


@pytest.mark.parametrize("size", SIZES)
def test_dropped_token_types_are_caught(lab: ModelLab, size: str) -> None:
    assert_caught(lab.run("tensorflow", roberta(size)))


@pytest.mark.parametrize("size", SIZES)
def test_token_types_that_are_zero_may_be_dropped(lab: ModelLab, size: str) -> None:
    model = roberta(size)
    with lab.edited(model, zeroed=["roberta.embeddings.token_type_embeddings.weight"]) as folder:
        assert_passes(run_folder(lab, model, folder))


@pytest.mark.parametrize("size", SIZES)
def test_padding_on_the_wrong_side_is_caught(lab: ModelLab, size: str) -> None:
    """KerasHub's DenseNet has no setting that is right, so there is no pair that passes."""
    assert_caught(lab.run("tensorflow", densenet(size)))


@pytest.mark.parametrize(
    ("model", "bias"),
    [
        ("distilbert", "distilbert.transformer.layer.0.attention.out_lin.bias"),
        ("resnet50", "layer1.0.bn1.bias"),
        ("gpt2", "transformer.h.0.attn.c_proj.bias"),
        ("lstm", "lstm.bias_hh_l0"),
    ],
)
def test_a_dropped_bias_is_caught(lab: ModelLab, model: str, bias: str) -> None:
    entry = shipped(model, "tiny")
    with lab.edited(entry, zeroed=[bias]) as folder:
        assert_caught(lab.run("tensorflow", entry, checkpoint=folder))


def test_a_nan_among_the_weights_is_caught_as_such(lab: ModelLab) -> None:
    entry = shipped("lstm", "tiny")
    with lab.edited(entry, poisoned=["head.bias"]) as folder:
        run = lab.run("tensorflow", entry, checkpoint=folder)
    assert run.parity is not None
    assert (run.parity.passed, run.parity.failure_code) == (False, "non_finite")


def test_a_network_that_answers_the_same_to_everything_is_caught(lab: ModelLab) -> None:
    entry = shipped("lstm", "tiny")
    with lab.edited(entry, zeroed=["head.weight", "head.bias"]) as folder:
        run = lab.run("tensorflow", entry, checkpoint=folder)
    assert not run.outputs["logits"].any()
    assert_caught(run)


def test_a_head_of_another_size_is_caught_by_its_shape(lab: ModelLab) -> None:
    entry = shipped("lstm", "tiny")
    other = entry.model_copy(
        update={"name": "planted_lstm", "build": {"config": {**entry.build["config"], "num_classes": 9}}}
    )
    run = lab.run("tensorflow", entry, checkpoint=lab.artefacts(other).paths["checkpoint"])
    assert run.parity is not None
    assert (run.parity.passed, run.parity.failure_code) == (False, "shape")
