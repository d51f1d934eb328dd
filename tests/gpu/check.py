"""The checks of `check.sh`: a row each in FOLDER/summary.md and summary.json, whatever happens.

Host backend, real worker processes, the catalog's own models; nothing is estimated. A row is
`ok`, `failed`, or `unavailable` with the reason why this machine cannot tell.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matrix import catalog
from matrix.artefacts.store import ArtefactFailed, Artefacts, ArtefactStore
from matrix.catalog.types import ModelEntry
from matrix.environments.base import BuiltEnvironment
from matrix.environments.host import HostBackend
from matrix.execution.local import run_worker
from matrix.judge.parity import judge, load_arrays, load_reference
from matrix.records import Environment, Workload
from matrix_adapters.protocol import OUTPUTS_FILE, Measure, Result, State, Task, TaskKind

HERE = Path(__file__).parent
BUDGET_S = 420.0
LAUNCH_S = 90.0
#: model -> the package beside torch that opens it
MODELS = {"lstm": "safetensors", "dlrm": "safetensors", "resnet50": "timm", "distilbert": "transformers"}
#: name -> precision, math mode, the tolerance rule: TF32 has float16's significand of 11 bits
MODES = {
    "fp32": ("fp32", "fp32", "fp32"),
    "tf32": ("fp32", "tf32", "fp16"),
    "fp16": ("fp16", "fp32", "fp16"),
    "bf16": ("bf16", "fp32", "bf16"),
}
MEASURE = Measure(samples=60, max_steady_s=2.0, warmup_calls=5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One check."""

    check: str
    state: str  # "ok", "failed", "unavailable"
    figures: str = ""
    reason: str = ""


class Unavailable(Exception):
    """It cannot be told here; the message says why."""


class Check:
    """One device, one environment, one folder."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder = device, folder
        self.deadline = time.monotonic() + BUDGET_S
        self.catalog = catalog.load()
        self.backend = HostBackend(self.catalog.frameworks, folder / "home")
        self.torch = importlib.metadata.version("torch")
        self.launches: dict[tuple[str, str], Result] = {}

    @functools.cached_property
    def built(self) -> BuiltEnvironment:
        environment = Environment(framework="pytorch", version=self.torch, hardware="cpu", build="cpu")
        return self.backend.build(environment)

    def run(self, task: Task, out_dir: Path) -> Result:
        """One launch, in whatever of the budget is left."""
        left = self.deadline - time.monotonic()
        if left < 10:
            raise Unavailable(f"the budget of {BUDGET_S:.0f} s is spent")
        limit = min(LAUNCH_S, left)
        return run_worker(
            self.built,
            task,
            out_dir.parent / f"{out_dir.name}.in",
            timeout_s=limit,
            stall_s=limit,
            out_dir=out_dir,
        )

    def artefacts(self, model: ModelEntry) -> Artefacts:
        """Checkpoint, inputs and CPU float64 reference, made once."""
        needs = MODELS[model.name.removesuffix("_tiny")]
        if importlib.util.find_spec(needs) is None:
            raise Unavailable(f"{sys.executable} has no {needs}, which opens this model")
        workload = Workload(
            level="inference",
            subject=model.name,
            batch=1,
            sequence=(model.sequence or 128) if model.has_sequence else None,
            precision="fp32",
            threads=1,
            variant="",
        )
        store = ArtefactStore(self.folder / "home", self.built.key)
        return store.prepare(model, workload, {"checkpoint"}, self.run)

    def task(self, model: ModelEntry, mode: str, **more: Any) -> Task:
        """A launch of `model` on the device."""
        shared = self.artefacts(model)
        precision, math_mode, _ = MODES[mode]
        fields = {
            "kind": TaskKind.MEASURE,
            "adapter": "matrix_adapters.pytorch",
            "device": self.device,
            "precision": precision,
            "math_mode": math_mode,
            "measure": MEASURE,
            **more,
        }
        return Task(
            framework="pytorch",
            model=shared.spec,
            artefacts={"checkpoint": str(shared.paths["checkpoint"])},
            inputs=str(shared.paths["inputs"]),
            **fields,
        )


def parity(check: Check, name: str, mode: str) -> Row:
    """One model in one precision: what it used, how far from CPU float64, how fast, at which cost."""
    label = f"{name} {mode}"
    model = check.catalog.models[name]
    out = check.folder / "launches" / f"{name}-{mode}"
    result = check.run(check.task(model, mode), out)
    check.launches[name, mode] = result
    if result.state in (State.UNAVAILABLE, State.UNSUPPORTED):
        raise Unavailable(said(result))
    if result.state is not State.OK:
        return Row(check=label, state="failed", reason=said(result))
    rule = check.catalog.tolerances.inference[MODES[mode][2]]
    reference = load_reference(check.artefacts(model).paths["reference"])
    verdict = judge(load_arrays(out / OUTPUTS_FILE), reference, rule, top1=False)
    used = {key: result.effective[key] for key in ("device", "precision", "math_mode")}
    asked = {"device": check.device, "precision": MODES[mode][0], "math_mode": MODES[mode][1]}
    met = str(used["device"]).startswith(check.device) and all(used[k] == asked[k] for k in list(asked)[1:])
    figures = (
        f"{result.metrics['latency_ms']:.3f} ms; error {verdict.max_scaled_error:.1e} of {verdict.limit:.0e}"
    )
    problem = "" if met else f"asked {asked}, used {used}"
    if not verdict.passed:
        problem = verdict.failure
    # fp32 arithmetic that agrees to more than its own digits was not what was asked for
    if mode in ("fp16", "bf16", "tf32") and (verdict.max_scaled_error or 0.0) < 1e-7 and not problem:
        problem = f"an error of {verdict.max_scaled_error:.1e} is that of fp32: {mode} was not used"
    return Row(check=label, state="failed" if problem else "ok", figures=figures, reason=problem)


def energy(check: Check, name: str, mode: str) -> Row:
    """Joules per item from a counter, of the launch that `parity` made."""
    result = check.launches.get((name, mode))
    if result is None or result.state is not State.OK:
        raise Unavailable(f"no launch of {name} in {mode} ended well")
    joules = result.sampling.get("energy_j")
    if joules is None:
        raise Unavailable(result.absent.get("energy_j_per_item", "no counter was read"))
    items = result.sampling["calls"]
    figures = (
        f"{joules / items * 1e3:.3f} mJ/item over {items} items, from {result.sampling['energy_source']}"
    )
    gpu = "NVML" in str(result.sampling["energy_source"])
    wrong = check.device == "cuda" and not gpu
    return Row(
        check=f"energy per item, {name} {mode}",
        state="failed" if wrong else "ok",
        figures=figures,
        reason="a GPU's energy has to come from NVML" if wrong else "",
    )


def nvml(check: Check, name: str, mode: str) -> Row:
    """What NVML said right before and after that launch."""
    result = check.launches.get((name, mode))
    if result is None or result.state is not State.OK:
        raise Unavailable(f"no launch of {name} in {mode} ended well")
    gpu = (result.probes.get("after") or {}).get("gpu")
    if gpu is None:
        raise Unavailable(
            (result.probes.get("after") or {}).get("absent", {}).get("gpu", "NVML was not read")
        )
    absent = gpu.get("absent", {})
    figures = ", ".join(
        f"{key} {value}" for key, value in gpu.items() if key != "absent" and value is not None
    )
    needed = [
        key for key in ("name", "sm_clock_mhz", "temperature_c", "memory_used_bytes") if gpu[key] is None
    ]
    reason = "; ".join(f"{key}: {why}" for key, why in absent.items())
    return Row(check="NVML probes", state="failed" if needed else "ok", figures=figures, reason=reason)


def device_memory(check: Check, name: str) -> Row:
    """The peak of device memory is no smaller than the weights."""
    model = check.catalog.models[name]
    result = check.run(
        check.task(model, "fp32", kind=TaskKind.MEMORY), check.folder / "launches" / f"{name}-memory"
    )
    if result.state in (State.UNAVAILABLE, State.UNSUPPORTED):
        raise Unavailable(said(result))
    if result.state is not State.OK:
        return Row(check=f"device memory, {name}", state="failed", reason=said(result))
    peak = result.metrics.get("peak_device_memory_bytes")
    if peak is None:
        raise Unavailable(result.absent["peak_device_memory_bytes"])
    weights = sum(p.stat().st_size for p in check.artefacts(model).paths["checkpoint"].glob("*.safetensors"))
    figures = f"peak {peak / 2**20:.1f} MiB; weights {weights / 2**20:.1f} MiB"
    return Row(check=f"device memory, {name}", state="ok" if peak >= weights else "failed", figures=figures)


def waits(check: Check) -> Row:
    """Timing waits for the device: see waits.py."""
    if check.device != "cuda":
        raise Unavailable(f"the device is {check.device}: its kernels are done when the call returns")
    command = [str(check.built.python), str(HERE / "waits.py")]
    done = subprocess.run(
        command, env=check.built.environ(), capture_output=True, text=True, check=False, timeout=LAUNCH_S
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        if "Unavailable" in last:
            raise Unavailable(last.partition(": ")[2])
        return Row(check="timing waits for the device", state="failed", reason=last)
    told = json.loads(done.stdout)
    figures = ", ".join(f"{key} {value:.2f}" for key, value in told.items())
    problem = ""
    if told["timed_ms"] < 0.98 * told["device_ms"]:
        problem = "less than the kernels took: the clock does not wait"
    elif told["planted_ms"] > 0.5 * told["timed_ms"]:
        problem = "a clock that does not wait looks the same here: nothing is proved"
    return Row(
        check="timing waits for the device",
        state="failed" if problem else "ok",
        figures=figures,
        reason=problem,
    )


def cuda_hidden(check: Check) -> Row:
    """CUDA is asked for and no device can be seen: no number may come of it."""
    task = check.task(check.catalog.models["lstm"], "fp32", device="cuda")
    with variables(CUDA_VISIBLE_DEVICES="-1"):
        result = check.run(task, check.folder / "launches" / "hidden")
    return never_a_number("CUDA asked, no device to be seen", result)


def cuda_asked_cpu_got(check: Check) -> Row:
    """CUDA is asked for and the framework computes on the CPU: no number may come of it."""
    task = check.task(check.catalog.models["lstm"], "fp32", device="cuda", adapter="silent_cpu")
    built = dataclasses.replace(check.built, import_path=(str(HERE / "planted"),))
    result = run_worker(
        built, task, check.folder / "launches" / "silent", timeout_s=LAUNCH_S, stall_s=LAUNCH_S
    )
    return never_a_number("CUDA asked, CPU got (planted)", result)


def never_a_number(label: str, result: Result) -> Row:
    good = result.state is State.UNAVAILABLE and not result.metrics.get("latency_ms")
    return Row(check=label, state="ok" if good else "failed", figures=f"{result.state}: {said(result)}")


def whole_run(check: Check) -> Row:
    """`matrix run --backend host`, as a person would type it."""
    hardware = {"cuda": "nvidia"}.get(check.device, check.device)
    precisions = "[fp32, fp16, bf16]" if hardware == "nvidia" else "[fp32, bf16]"
    sweep = check.folder / "sweep.yaml"
    sweep.write_text(
        f"name: gpu-check\nhardware: [{hardware}]\n"
        f'frameworks: [{{name: pytorch, versions: ["{check.torch}"]}}]\n'
        f"models: [lstm]\nprecisions: {precisions}\nmeasure: {{launches: 2}}\n",
        encoding="utf-8",
    )
    results = check.folder / "results"
    command = [sys.executable, "-m", "matrix", "run", "--backend", "host", "-c", str(sweep)]
    command += ["--results", str(results), "--budget", "120s"]
    environ = {**os.environ, "FRAMEWORK_MATRIX_HOME": str(check.folder / "home")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=200)
    command = [
        sys.executable,
        "-m",
        "matrix",
        "report",
        "latest",
        "--format",
        "json",
        "--results",
        str(results),
    ]
    told = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
    if told.returncode != 0:
        return Row(
            check="matrix run --backend host", state="failed", reason=(done.stderr or told.stderr)[-300:]
        )
    cells = json.loads(told.stdout)["cells"]
    states = {f"{c['workload']['precision']}": c["state"] for c in cells}
    figures = f"exit code {done.returncode}; " + ", ".join(f"{p} {s}" for p, s in states.items())
    if set(states.values()) == {"unavailable"}:
        raise Unavailable(f"{figures}: {cells[0]['reason']['text']}")
    good = done.returncode == 0 and set(states.values()) == {"ok"}
    reason = "" if good else "; ".join(c["reason"]["text"] for c in cells if c.get("reason"))
    return Row(
        check="matrix run --backend host", state="ok" if good else "failed", figures=figures, reason=reason
    )


def said(result: Result) -> str:
    return result.reason.text if result.reason else "no reason was given"


@contextlib.contextmanager
def variables(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def guarded(label: str, what: Callable[[], Row]) -> Row:
    """A row, whatever happens."""
    try:
        return what()
    except (Unavailable, ArtefactFailed) as reason:
        return Row(check=label, state="unavailable", reason=str(reason))
    except Exception as error:  # one check that breaks must not take the others with it
        return Row(check=label, state="failed", reason=f"{type(error).__name__}: {error}"[:300])


def rows(check: Check, models: Sequence[str]) -> Iterator[Row]:
    """All of them: what matters most first, since the budget may end."""
    yield guarded("timing waits for the device", lambda: waits(check))
    yield guarded("CUDA asked, no device to be seen", lambda: cuda_hidden(check))
    yield guarded("CUDA asked, CPU got (planted)", lambda: cuda_asked_cpu_got(check))
    for name in models:
        for mode in MODES:
            yield guarded(f"{name} {mode}", functools.partial(parity, check, name, mode))
    yield guarded("NVML probes", lambda: nvml(check, models[0], "fp32"))
    for name in models:
        yield guarded(f"energy per item, {name} fp32", functools.partial(energy, check, name, "fp32"))
        yield guarded(f"device memory, {name}", functools.partial(device_memory, check, name))
    yield guarded("matrix run --backend host", lambda: whole_run(check))


def machine(check: Check) -> str:
    """Date, card, driver and PyTorch in one line."""
    facts = [time.strftime("%Y-%m-%d", time.gmtime()), f"PyTorch {check.torch}", f"device {check.device}"]
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        facts.append(subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip())
    return ", ".join(facts)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", default=",".join(MODELS), help="a part of them, for a quick look")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    began = time.monotonic()
    check = Check(args.device, args.folder.resolve())
    title = machine(check)
    print(title, flush=True)
    found = []
    for row in rows(check, args.models.split(",")):
        found.append(row)
        print(f"{row.state:<12} {row.check:<36} {row.figures} {row.reason}".rstrip(), flush=True)
        write(check.folder, title, found, time.monotonic() - began)
    check.backend.close()
    states = {row.state for row in found}
    return 1 if "failed" in states else 3 if "unavailable" in states else 0


def write(folder: Path, title: str, found: list[Row], seconds: float) -> None:
    """After every row, so that a check that is killed leaves what it had."""
    cells = [[row.check, row.state, row.figures, row.reason] for row in found]
    lines = ["| " + " | ".join(c.replace("|", "\\|").replace("\n", " ") for c in row) + " |" for row in cells]
    head = f"{title}; {seconds:.0f} s\n\n| check | state | figures | reason |\n|---|---|---|---|\n"
    (folder / "summary.md").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    data = {
        "machine": title,
        "seconds": round(seconds, 1),
        "rows": [dataclasses.asdict(row) for row in found],
    }
    (folder / "summary.json").write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
