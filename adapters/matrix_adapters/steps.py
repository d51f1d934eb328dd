"""What every launch that makes calls does before and after them, one step a function.

A step writes what it found into `launch` and raises what went wrong.
"""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import numpy as np

from matrix_adapters import checks, clock, tensors
from matrix_adapters.adapter import Adapter, Feed, Runner
from matrix_adapters.failures import ContractError
from matrix_adapters.launch import Launch
from matrix_adapters.null import NullRunner, SynchronousNullRunner
from matrix_adapters.protocol import OUTPUTS_FILE, Flag, ModelSpec, Task, TensorFacts

_NO_MODEL = ModelSpec(name="none", format="none", task="none")

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Begun:
    """A runner after its first call, and what has to be unchanged when all calls are done."""

    runner: Runner
    feed: Feed
    inputs: Arrays
    facts: dict[str, TensorFacts]  # of the feed
    first: Arrays  # outputs of the first call


def begin(adapter: Adapter, task: Task, launch: Launch) -> Begun:
    """Import, load, compile, first call: each a phase with a number of its own."""
    arrays = read_inputs(task, launch)
    import_framework(adapter, launch)
    runner, feed = load_model(adapter, task, arrays, launch)
    compile_model(runner, feed, launch)
    facts = tensors.fingerprints(feed)
    first = first_call(runner, feed, launch)
    checks.device_was_met(task, launch.effective)
    return Begun(runner=runner, feed=feed, inputs=arrays, facts=facts, first=first)


def end(begun: Begun, last: Arrays, task: Task, launch: Launch) -> None:
    """Whether the numbers can stand, what to distrust about them, and the outputs of the last timed call."""
    launch.heart.enter("check")
    read_back(begun.runner, launch)
    checks.device_was_met(task, launch.effective)
    checks.inputs_unchanged(begun.facts, tensors.fingerprints(begun.feed))
    checks.inputs_unchanged(launch.artefacts["inputs"], tensors.fingerprints(begun.inputs))
    keep_outputs(begun.first, last, task, launch)
    launch.flags += checks.flags(task, launch)
    begun.runner.close()


def read_inputs(task: Task, launch: Launch) -> Arrays:
    arrays = {} if task.inputs is None else tensors.load(Path(task.inputs))
    launch.artefacts["inputs"] = tensors.fingerprints(arrays)
    return arrays


def import_framework(adapter: Adapter, launch: Launch) -> None:
    with launch.phase("import"):
        adapter.start()
    launch.metrics["import_s"] = launch.phases["import_s"]
    launch.heart.enter("probe")
    with launch.heart.beating():
        seen = adapter.probe()
    launch.probes["framework"] = seen
    launch.versions.update(
        {
            "python": platform.python_version(),
            "numpy": np.__version__,
            adapter.name: str(seen.get("version", "")),
        }
    )


def load_model(adapter: Adapter, task: Task, inputs: Arrays, launch: Launch) -> tuple[Runner, Feed]:
    artefacts = {kind: Path(path) for kind, path in task.artefacts.items()}
    with launch.phase("load"):
        runner = adapter.load(task.model or _NO_MODEL, artefacts)
    launch.metrics["load_s"] = launch.phases["load_s"]
    if not callable(getattr(runner, "sync", None)):
        raise ContractError("the runner has no `sync`: its time would be launch time, not run time")
    launch.heart.enter("prepare")
    return runner, runner.prepare(inputs)


def compile_model(runner: Runner, feed: Feed, launch: Launch) -> None:
    with launch.phase("compile"):
        compiled = runner.compile(feed)
    if compiled:
        launch.metrics["compile_s"] = launch.phases["compile_s"]
    else:
        launch.absent["compile_s"] = "this variant has no compile step of its own"


def first_call(runner: Runner, feed: Feed, launch: Launch) -> Arrays:
    loop = clock.loop_of(runner)
    with launch.phase("first_call"):
        outputs = loop(feed, 1)
    launch.metrics["first_call_ms"] = launch.phases["first_call_s"] * 1e3
    read_back(runner, launch)
    try:
        return tensors.host_copy(outputs)
    except TypeError as error:
        raise ContractError(str(error)) from None


def report_samples(
    samples: clock.Samples, warmup: clock.Warmup, target_ns: int, runner: Runner, launch: Launch
) -> None:
    """How they were taken, and the medians per call. At least one sample, all of the same number of calls."""
    checks.clock_moved(samples)
    synchronous = getattr(runner, "synchronous", False) is True
    calls = int(samples.calls[0])
    launch.sampling = {
        "boundary": clock.BOUNDARY,
        "synchronous": synchronous,
        "samples": len(samples),
        "calls_per_sample": calls,
        "calls": calls * len(samples),
        "warmup_calls": warmup.calls,
        "sample_target_ns": target_ns,
        "collector": "off",
        **checks.sample_facts(SynchronousNullRunner() if synchronous else NullRunner(), samples, target_ns),
    }
    launch.metrics["latency_ms"] = float(np.median(samples.per_call(samples.wall_ns))) / 1e6
    launch.metrics["cpu_time_ms"] = float(np.median(samples.per_call(samples.process_ns))) / 1e6


def keep_outputs(first: Arrays, last: Arrays, task: Task, launch: Launch) -> None:
    changed = tensors.difference(first, last)
    if changed:
        launch.flag("non_deterministic", f"first and last call disagree: {changed}")
    launch.outputs = tensors.fingerprints(last)
    if task.keep_outputs:
        tensors.save(launch.out_dir / OUTPUTS_FILE, last)


def read_back(runner: Runner, launch: Launch) -> None:
    """What was really used, and the flags that the adapter itself raises (under `flags`)."""
    effective = dict(runner.effective())
    if not effective.get("device"):
        raise ContractError("`effective` does not name the device that was used")
    own = [Flag(code=flag["code"], text=flag["text"]) for flag in effective.pop("flags", ())]
    launch.effective = effective
    launch.flags += [flag for flag in own if flag not in launch.flags]
