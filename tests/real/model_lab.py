"""Models through a real framework and the parity gate, and checkpoints with a planted fault."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from matrix import catalog, paths
from matrix.artefacts.store import Artefacts, ArtefactStore
from matrix.catalog.types import ModelEntry
from matrix.environments.base import BuiltEnvironment
from matrix.judge.parity import judge, load_arrays, load_reference
from matrix.records import Parity, Workload
from matrix_adapters.protocol import OUTPUTS_FILE, Measure, Result, Task, TaskKind

QUICK = Measure(samples=3, max_steady_s=0.1, warmup_calls=1, max_warmup_s=0.1)
CLASS_SCORES = ("image-classification", "causal-lm")


@dataclasses.dataclass(frozen=True)
class Run:
    """One launch, and the verdict on its outputs (None where it left none)."""

    result: Result
    parity: Parity | None
    outputs: Mapping[str, np.ndarray]


class ModelLab:
    """Artefacts from the shared cache, launches in the shared environments."""

    def __init__(self, built: Callable[[str], BuiltEnvironment], run_task: Any, folder: Path) -> None:
        self._run_task = run_task
        self._built = built
        self._folder = folder
        self._numbers = itertools.count()

    @functools.cached_property
    def _store(self) -> ArtefactStore:
        return ArtefactStore(paths.home(), self._built("pytorch").key)

    def artefacts(self, model: ModelEntry, needs: Collection[str] = ("checkpoint",)) -> Artefacts:
        """Checkpoint (or whatever is needed), inputs and float64 reference for batch 1."""
        workload = Workload(
            level="inference",
            subject=model.name,
            batch=1,
            sequence=(model.sequence or 128) if model.has_sequence else None,
            precision="fp32",
            threads=1,
            variant="",
        )
        run = functools.partial(self._run_task, "pytorch")
        return self._store.prepare(model, workload, set(needs), run)

    def run(
        self,
        framework: str,
        model: ModelEntry,
        *,
        checkpoint: Path | None = None,
        **fields: Any,
    ) -> Run:
        """Run `model` (or another checkpoint in its place) and judge it by the model's reference."""
        shared = self.artefacts(model)
        task = Task(
            kind=fields.pop("kind", TaskKind.MEASURE),
            framework=framework,
            adapter=f"matrix_adapters.{framework}",
            model=model.spec(),
            artefacts=fields.pop("artefacts", {"checkpoint": str(checkpoint or shared.paths["checkpoint"])}),
            inputs=str(shared.paths["inputs"]),
            measure=QUICK,
            **fields,
        )
        out = self._folder / f"out{next(self._numbers)}"
        result = self._run_task(framework, task, out)
        if not (out / OUTPUTS_FILE).exists():
            return Run(result, None, {})
        outputs = load_arrays(out / OUTPUTS_FILE)
        rule = catalog.load().tolerances.inference[task.precision]
        reference = load_reference(shared.paths["reference"])
        return Run(result, judge(outputs, reference, rule, top1=model.task in CLASS_SCORES), outputs)

    @contextlib.contextmanager
    def edited(
        self,
        model: ModelEntry,
        *,
        config: Mapping[str, Any] | None = None,
        zeroed: Iterable[str] = (),
        poisoned: Iterable[str] = (),
    ) -> Iterator[Path]:
        """A copy of the model's checkpoint with other words in config.json, or tensors of zeros or NaN."""
        source = self.artefacts(model).paths["checkpoint"]
        folder = self._folder / f"checkpoint{next(self._numbers)}"
        # Links: a full-size copy would cost a gigabyte. Edited files are replaced, never written into.
        shutil.copytree(source, folder, copy_function=_link)
        if config:
            path = folder / "config.json"
            _replace(path, json.dumps(json.loads(path.read_text()) | dict(config)).encode())
        if zeroed or poisoned:
            path = folder / "model.safetensors"
            data = _filled(path.read_bytes(), dict.fromkeys(zeroed, 0.0) | dict.fromkeys(poisoned, np.nan))
            _replace(path, data)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _filled(file: bytes, values: Mapping[str, float]) -> bytes:
    """A safetensors file (8 bytes of header length, JSON header, data) with float32 tensors filled."""
    data = bytearray(file)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    for name, value in values.items():
        first, last = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F32"
        data[start + first : start + last] = np.full((last - first) // 4, value, "<f4").tobytes()
    return bytes(data)
