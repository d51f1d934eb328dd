"""Many operator cases in one process, each once: right or wrong is for others to say. Task kind OPERATORS.

`out/cases.jsonl` gets the versions, then a line when a case begins and one when it ends, so that
what kills the process is charged to the case in hand and the next launch goes on after it
(`options["first"]`).
Outputs lie in `out/<case>.npz` as the framework gave them; bfloat16 as bits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import checks, clock, steps, tensors
from matrix_adapters.adapter import Adapter, Runner
from matrix_adapters.failures import ContractError, classify
from matrix_adapters.launch import Launch, jsonable
from matrix_adapters.operators import case_folder, elements
from matrix_adapters.protocol import ModelSpec, OperatorCase, State, Task, to_json

CASES_FILE = "cases.jsonl"

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(kw_only=True)
class Ended:
    """What is known of one case when it ends, however it ends."""

    step: str = "load"
    outputs: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    effective: dict[str, Any] = dataclasses.field(default_factory=dict)


def run(adapter: Adapter, task: Task, launch: Launch) -> None:
    """Every case from `first` on. Raises only for what ends the launch: no framework, another device.

    The device is compared with the one asked for at the first case that ran: where the worker
    finds another one, no case of this launch has an answer.
    """
    folders, first = _options(task)
    steps.import_framework(adapter, launch)
    met = False
    with (launch.out_dir / CASES_FILE).open("a", encoding="utf-8") as stream:
        _line(stream, {"versions": launch.versions})
        for number in range(first, len(folders)):
            launch.heart.enter(f"case {number}")
            with launch.heart.beating():
                _line(stream, {"case": number, "begin": True})
                ended = Ended()
                begin = time.perf_counter()
                state, reason = State.OK, None
                try:
                    _one(adapter, Path(folders[number]), launch.out_dir / f"{number}.npz", ended)
                except Exception as error:
                    state, reason = classify(error, ended.step)
                if ended.effective and not met:
                    checks.device_was_met(task, ended.effective)
                    launch.effective, met = ended.effective, True
                _line(
                    stream,
                    {
                        "case": number,
                        "state": state,
                        "reason": reason,
                        "outputs": ended.outputs if state is State.OK else {},
                        "effective": ended.effective,
                        "seconds": time.perf_counter() - begin,
                    },
                )
    launch.artefacts["cases"] = len(folders) - first


def _options(task: Task) -> tuple[list[str], int]:
    folders, first = task.options.get("cases"), task.options.get("first", 0)
    if not isinstance(folders, list) or not isinstance(first, int) or not 0 <= first <= len(folders):
        raise ValueError("an operators task needs options `cases`, a list of folders, and `first` within it")
    return [str(folder) for folder in folders], first


def _one(adapter: Adapter, folder: Path, file: Path, ended: Ended) -> None:
    """Load, call once, keep what came out. Raises whatever goes wrong, `ended.step` names where."""
    case = case_folder.read_case(folder)
    given = case_folder.feed(folder)
    facts = tensors.fingerprints(given)
    runner = adapter.load(spec_of(case), {"operator": folder})
    try:
        ended.step = "prepare"
        feed = runner.prepare(given)
        ended.step = "compile"
        runner.compile(feed)
        ended.step = "call"
        outputs = _host(clock.loop_of(runner)(feed, 1))
        ended.step = "check"
        ended.effective = _effective(runner)
        checks.inputs_unchanged(facts, tensors.fingerprints(given))
        kept, ended.outputs = as_given(outputs, ended.effective.get("output_dtypes", {}))
        tensors.save(file, kept)
        gradient = getattr(runner, "gradient", None)  # a candidate may have one to be checked
        if gradient is not None and (found := gradient(feed)) is not None:
            ended.effective["gradient"] = found
    finally:
        with contextlib.suppress(Exception):  # the case's own error counts
            runner.close()


def spec_of(case: OperatorCase) -> ModelSpec:
    """A case as adapters' `load` is told about it."""
    return ModelSpec(
        name=case.name,
        format="operator",
        task="operator",
        seed=case.seed,
        inputs=tuple(spec.name for spec in case.inputs if not spec.constant),
        outputs=case.outputs,
    )


def as_given(outputs: Arrays, dtypes: Any) -> tuple[Arrays, dict[str, dict[str, Any]]]:
    """Arrays to keep, and each one's own dtype and shape: bfloat16, widened by `fetch`, is bits again.

    Raises ContractError where the adapter says bfloat16 of numbers that are none.
    """
    kept, facts = {}, {}
    for name, array in outputs.items():
        word = str(dtypes.get(name) or ("string" if array.dtype.kind == "U" else array.dtype.name))
        kept[name] = _bits(name, array) if word == elements.BFLOAT16 else array
        facts[name] = {"dtype": word, "shape": [int(size) for size in array.shape]}
    return kept, facts


def _bits(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32:
        raise ContractError(f"output {name!r} is bfloat16 and was fetched as {array.dtype}, not float32")
    bits = elements.to_bits(array)
    if not np.array_equal(elements.from_bits(bits), array, equal_nan=True):
        raise ContractError(f"output {name!r} is said to be bfloat16, and holds values that are not")
    return bits


def _host(outputs: Any) -> Arrays:
    try:
        return tensors.host_copy(outputs)
    except TypeError as error:
        raise ContractError(str(error)) from None


def _effective(runner: Runner) -> dict[str, Any]:
    effective = dict(runner.effective())
    if not effective.get("device"):
        raise ContractError("`effective` does not name the device that was used")
    return effective


def _line(stream: Any, record: dict[str, Any]) -> None:
    """One line, with the kernel when it returns: it outlives the process."""
    if "effective" in record:
        record = {**record, "effective": jsonable(record["effective"])}
    stream.write(to_json(record) + "\n")
    stream.flush()
