"""How a cell was measured. Two cells are compared only where their contracts agree in what matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrix.records import LaunchRecord, Workload
from matrix.store.formats import ArtefactAttempt

#: facts of an export that change what is run
_EXPORT_FACTS = ("exporter", "opset", "opsets", "ir_version", "dynamic")
#: fields in which two cells must agree before one may be called faster than the other.
#: Layout, exporter and synchronisation are each framework's own way to the same boundary.
COMPARED = ("boundary", "transfer", "precision", "math_mode", "threads", "cache", "inputs", "weights")
#: the cache policy of launches that do not say one
CACHE_WARM = "warm: the same inputs in every call"
_ASKED = ("launches", "samples", "max_steady_s", "min_sample_s")


def of_check(workload: Workload, launch: LaunchRecord, artefact: ArtefactAttempt | None) -> dict[str, Any]:
    """The contract of a cell that was checked and not timed."""
    return {
        "device": launch.effective.get("device"),
        "precision": workload.precision,
        "math_mode": launch.effective.get("math_mode"),
        "threads": launch.effective.get("threads", workload.threads),
        "inputs": artefact.hashes.get("inputs") if artefact else None,
    }


def difference(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The first compared field that differs, and both values; None where the contracts agree.

    What a framework cannot say is no difference.
    """
    for field in COMPARED:
        mine, other = base.get(field), candidate.get(field)
        if mine is not None and other is not None and mine != other:
            return field, brief(mine), brief(other)
    return None


def brief(value: object) -> str:
    """A contract's value in a sentence; a hash by its beginning."""
    text = str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."


def contract_of(
    workload: Workload, launch: LaunchRecord, artefact: ArtefactAttempt | None, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """The contract of a measured cell. `asked` is the sweep's `measure` section.

    Effective values come from inside the framework; what it did not say is None.
    """
    hashes = artefact.hashes if artefact else {}
    export = artefact.facts.get("onnx", {}) if artefact else {}
    return {
        "boundary": launch.sampling.get("boundary", "host_to_host"),
        "transfer": "included",
        "device": launch.effective.get("device"),
        "precision": launch.effective.get("precision", workload.precision),
        "math_mode": launch.effective.get("math_mode"),
        "threads": launch.effective.get("threads", workload.threads),
        "layout": launch.effective.get("layout"),
        "warmup": {name: asked[name] for name in ("warmup_calls", "max_warmup_s") if name in asked},
        "cache": launch.sampling.get("cache", CACHE_WARM),
        "sampling": {name: asked[name] for name in _ASKED if name in asked},
        "inputs": hashes.get("inputs"),
        "weights": hashes.get("weights"),
        "export": {name: export[name] for name in _EXPORT_FACTS if name in export},
    }
