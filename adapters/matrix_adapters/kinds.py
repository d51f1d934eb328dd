"""The kinds of launch of this framework's own adapter, each as a short list of steps.

Imported after the environment is set, since it imports NumPy.
"""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np

from matrix_adapters import checks, clock, memory, probes, process, tensors
from matrix_adapters.adapter import Adapter, Feed, Runner, Unsupported, make
from matrix_adapters.failures import ContractError
from matrix_adapters.launch import Launch
from matrix_adapters.null import NullRunner, SynchronousNullRunner
from matrix_adapters.protocol import OUTPUTS_FILE, SAMPLES_FILE, Flag, ModelSpec, Task, TaskKind

_NO_MODEL = ModelSpec(name="none", format="none", task="none")


def handle(task: Task, launch: Launch) -> None:
    """Do what the task asks and write it down in `launch`. Raises what went wrong."""
    adapter = make(task)
    if clash := process.overridden(adapter.environment):
        raise Unsupported(clash)
    process.set_environment(adapter.environment)
    if task.kind is TaskKind.PROBE:
        probe(adapter, task, launch)
    elif task.kind is TaskKind.MEMORY:
        measure_memory(adapter, task, launch)
    else:
        measure(adapter, task, launch)


def measure(adapter: Adapter, task: Task, launch: Launch) -> None:
    """Phases apart, warm-up at the measured shapes, timed samples, outputs of the last timed call."""
    inputs = _inputs(task, launch)
    _import(adapter, launch)
    runner, feed = _load(adapter, task, inputs, launch)
    _compile(runner, feed, launch)
    before = tensors.fingerprints(feed)
    first = _first_call(runner, feed, launch)
    checks.device_was_met(task, launch.effective)
    last = _time(runner, feed, task, launch)
    launch.heart.enter("check")
    _read_back(runner, launch)
    checks.device_was_met(task, launch.effective)
    checks.inputs_unchanged(before, tensors.fingerprints(feed))
    checks.inputs_unchanged(launch.artefacts["inputs"], tensors.fingerprints(inputs))
    _keep_outputs(first, last, task, launch)
    launch.flags += checks.flags(task, launch)
    runner.close()


def measure_memory(adapter: Adapter, task: Task, launch: Launch) -> None:
    """The same phases and calls, untimed; the peak of each phase."""
    peaks = memory.Peaks()
    inputs = _inputs(task, launch)
    with peaks.of("import"):
        _import(adapter, launch)
    with peaks.of("load"):
        runner, feed = _load(adapter, task, inputs, launch)
    with peaks.of("compile"):
        _compile(runner, feed, launch)
    with peaks.of("first_call"):
        _first_call(runner, feed, launch)
    checks.device_was_met(task, launch.effective)
    launch.heart.enter("calls")
    with peaks.of("calls"):
        clock.warm_up(clock.loop_of(runner), feed, task.measure, launch.heart.beat)
    _read_back(runner, launch)
    launch.metrics.clear()  # this launch may have shared the machine: it yields no time
    memory.report(peaks, runner, launch)
    runner.close()


def probe(adapter: Adapter, task: Task, launch: Launch) -> None:
    """What the framework sees, and every distribution installed here, for the lock check."""
    launch.probes["distributions"] = probes.distributions()
    launch.probes["machine"] = probes.machine()
    launch.probes["before"] = probes.moment(task.device)
    _import(adapter, launch)


def _inputs(task: Task, launch: Launch) -> dict[str, np.ndarray]:
    inputs = {} if task.inputs is None else tensors.load(Path(task.inputs))
    launch.artefacts["inputs"] = tensors.fingerprints(inputs)
    return inputs


def _import(adapter: Adapter, launch: Launch) -> None:
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


def _load(adapter: Adapter, task: Task, inputs: dict[str, np.ndarray], launch: Launch) -> tuple[Runner, Feed]:
    artefacts = {kind: Path(path) for kind, path in task.artefacts.items()}
    with launch.phase("load"):
        runner = adapter.load(task.model or _NO_MODEL, artefacts)
    launch.metrics["load_s"] = launch.phases["load_s"]
    if not callable(getattr(runner, "sync", None)):
        raise ContractError("the runner has no `sync`: its time would be launch time, not run time")
    launch.heart.enter("prepare")
    return runner, runner.prepare(inputs)


def _compile(runner: Runner, feed: Feed, launch: Launch) -> None:
    with launch.phase("compile"):
        compiled = runner.compile(feed)
    if compiled:
        launch.metrics["compile_s"] = launch.phases["compile_s"]
    else:
        launch.absent["compile_s"] = "this variant has no compile step of its own"


def _first_call(runner: Runner, feed: Feed, launch: Launch) -> dict[str, np.ndarray]:
    loop = clock.loop_of(runner)
    with launch.phase("first_call"):
        outputs = loop(feed, 1)
    launch.metrics["first_call_ms"] = launch.phases["first_call_s"] * 1e3
    _read_back(runner, launch)
    try:
        return tensors.host_copy(outputs)
    except TypeError as error:
        raise ContractError(str(error)) from None


def _time(runner: Runner, feed: Feed, task: Task, launch: Launch) -> dict[str, np.ndarray]:
    """Warm-up and steady phase; nothing runs beside them but the calls themselves."""
    loop, beat = clock.loop_of(runner), launch.heart.beat
    target = clock.sample_target_ns(task.measure)
    with launch.phase("warmup", beating=False):
        warmup = clock.warm_up(loop, feed, task.measure, beat)
        calls = clock.calibrate(loop, feed, warmup.fastest_ns, target, beat)
    launch.probes["machine"] = probes.machine()
    launch.probes["before"] = probes.moment(task.device)
    with clock.collector_off(), launch.phase("steady", beating=False):
        samples, outputs = clock.steady(loop, feed, calls, task.measure, beat)
    launch.probes["after"] = probes.moment(task.device)
    launch.probes["libraries"] = probes.libraries()
    launch.heart.enter("store")
    synchronous = getattr(runner, "synchronous", False) is True
    launch.sampling = {
        "boundary": clock.BOUNDARY,
        "synchronous": synchronous,
        "samples": len(samples),
        "calls_per_sample": calls,
        "calls": calls * len(samples),
        "warmup_calls": warmup.calls,
        "sample_target_ns": target,
        "collector": "off",
        **checks.sample_facts(SynchronousNullRunner() if synchronous else NullRunner(), samples, target),
    }
    _energy(launch)
    checks.clock_moved(samples)
    tensors.save(launch.out_dir / SAMPLES_FILE, samples.arrays())
    launch.metrics["latency_ms"] = float(np.median(samples.per_call(samples.wall_ns))) / 1e6
    launch.metrics["cpu_time_ms"] = float(np.median(samples.per_call(samples.process_ns))) / 1e6
    launch.flags += checks.sample_flags(samples)
    return tensors.host_copy(outputs)


def _energy(launch: Launch) -> None:
    spent = probes.energy(launch.probes["before"], launch.probes["after"])
    if isinstance(spent, str):
        launch.absent["energy_j_per_item"] = spent
    else:
        launch.sampling["energy_j"], launch.sampling["energy_source"] = spent


def _keep_outputs(
    first: dict[str, np.ndarray], last: dict[str, np.ndarray], task: Task, launch: Launch
) -> None:
    changed = tensors.difference(first, last)
    if changed:
        launch.flag("non_deterministic", f"first and last call disagree: {changed}")
    launch.outputs = tensors.fingerprints(last)
    if task.keep_outputs:
        tensors.save(launch.out_dir / OUTPUTS_FILE, last)


def _read_back(runner: Runner, launch: Launch) -> None:
    """What was really used, and the flags that the adapter itself raises (under `flags`)."""
    effective = dict(runner.effective())
    if not effective.get("device"):
        raise ContractError("`effective` does not name the device that was used")
    own = [Flag(code=flag["code"], text=flag["text"]) for flag in effective.pop("flags", ())]
    launch.effective = effective
    launch.flags += [flag for flag in own if flag not in launch.flags]
