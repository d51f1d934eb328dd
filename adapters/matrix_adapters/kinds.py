"""The kinds of launch of this framework's own adapter, each as a short list of steps.

Imported after the environment is set, since it imports NumPy.
"""

from __future__ import annotations

from matrix_adapters import checks, clock, memory, probes, process, rotation, slices, steps, tensors
from matrix_adapters.adapter import Adapter, Feed, Runner, Unsupported, make
from matrix_adapters.launch import Launch
from matrix_adapters.operators import batch, peaks
from matrix_adapters.protocol import SAMPLES_FILE, Task, TaskKind
from matrix_adapters.words import Words


def handle(task: Task, launch: Launch, words: Words | None = None) -> None:
    """Do what the task asks and write it down in `launch`. Raises what went wrong."""
    adapter = make(task)
    if clash := process.overridden(adapter.environment):
        raise Unsupported(clash)
    process.set_environment(adapter.environment)
    if task.kind is TaskKind.PROBE:
        probe(adapter, task, launch)
    elif task.kind is TaskKind.MEMORY:
        measure_memory(adapter, task, launch)
    elif task.kind is TaskKind.SLICES:
        slices.measure_in_turns(adapter, task, launch, words)
    elif task.kind is TaskKind.OPERATORS:
        batch.run(adapter, task, launch)
    elif task.kind is TaskKind.PEAKS:
        peaks.run(adapter, task, launch)
    else:
        measure(adapter, task, launch)


def measure(adapter: Adapter, task: Task, launch: Launch) -> None:
    """Phases apart, warm-up at the measured shapes, timed samples, outputs of the last timed call."""
    begun = steps.begin(adapter, task, launch)
    turning = rotation.begin(task.measure.cache, begun.runner, begun.inputs, launch)
    last = _time(begun.runner, begun.feed, turning.loop, task, launch)
    launch.sampling |= turning.told
    turning.check(begun.facts)
    steps.end(begun, last, task, launch)


def measure_memory(adapter: Adapter, task: Task, launch: Launch) -> None:
    """The same phases and calls, untimed; the peak of each phase."""
    peaks = memory.Peaks()
    inputs = steps.read_inputs(task, launch)
    with peaks.of("import"):
        steps.import_framework(adapter, launch)
    with peaks.of("load"):
        runner, feed = steps.load_model(adapter, task, inputs, launch)
    with peaks.of("compile"):
        steps.compile_model(runner, feed, launch)
    with peaks.of("first_call"):
        steps.first_call(runner, feed, launch)
    checks.device_was_met(task, launch.effective)
    launch.heart.enter("calls")
    with peaks.of("calls"):
        clock.warm_up(clock.loop_of(runner), feed, task.measure, launch.heart.beat)
    steps.read_back(runner, launch)
    launch.metrics.clear()  # this launch may have shared the machine: it yields no time
    memory.report(peaks, runner, launch)
    runner.close()


def probe(adapter: Adapter, task: Task, launch: Launch) -> None:
    """What the framework sees, and every distribution installed here, for the lock check."""
    launch.probes["distributions"] = probes.distributions()
    launch.probes["machine"] = probes.machine()
    launch.probes["before"] = probes.moment(task.device)
    steps.import_framework(adapter, launch)


def _time(runner: Runner, feed: Feed, loop: clock.Loop, task: Task, launch: Launch) -> steps.Arrays:
    """Warm-up and steady phase; nothing runs beside them but the calls themselves."""
    beat = launch.heart.beat
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
    steps.report_samples(samples, warmup, target, runner, launch)
    _energy(launch)
    tensors.save(launch.out_dir / SAMPLES_FILE, samples.arrays())
    launch.flags += checks.sample_flags(samples)
    return tensors.host_copy(outputs)


def _energy(launch: Launch) -> None:
    spent = probes.energy(launch.probes["before"], launch.probes["after"])
    if isinstance(spent, str):
        launch.absent["energy_j_per_item"] = spent
    else:
        launch.sampling["energy_j"], launch.sampling["energy_source"] = spent
