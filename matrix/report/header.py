"""The run header as views show it. Whatever is missing is left out, never invented.

The header is `run.json` as the store wrote it, possibly by an older or a broken run,
so every field is optional here and nothing raises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from matrix.report.units import human


@dataclasses.dataclass(frozen=True, slots=True)
class RunView:
    """What is worth saying about a run, as lines ready to print."""

    id: str
    name: str
    title: str
    created: str
    duration: str
    backend: str  # "virtualenvs, because no container engine answered"
    machine: tuple[tuple[str, str], ...]  # label, value
    load: tuple[tuple[str, str], ...]
    overhead: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]  # sweep, seed, command, tool version...


def run_view(header: Mapping[str, Any]) -> RunView:
    """Read `header`, tolerantly."""
    identity, name = _word(header.get("id")), _word(header.get("name"))
    return RunView(
        id=identity,
        name=name,
        title=name or identity or "unnamed run",
        created=_when(header.get("created") or header.get("started")),
        duration=_duration(header),
        backend=_backend(header.get("backend"), header.get("backend_why") or header.get("why")),
        machine=tuple(_machine(_mapping(header.get("machine")))),
        load=tuple(_load(header)),
        overhead=_overhead(header),
        warnings=tuple(_warnings(header)),
        facts=tuple(_facts(header)),
    )


def _machine(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Known facts first and in words; nested or unknown ones are left to the JSON export."""
    lines = []
    cpu = _first(machine, "cpu", "cpu_model", "cpu_name", "processor")
    if isinstance(cpu, Mapping):
        cpu = _first(cpu, "model", "name", "brand")
    if cpu:
        lines.append(("CPU", _word(cpu)))
    cores = _first(machine, "usable_cores", "cores", "cpus", "cpu_count", "affinity", "logical_cores")
    if isinstance(cores, (list, tuple)):
        cores = len(cores)
    if cores:
        lines.append(("cores", _word(cores)))
    memory = _first(machine, "memory_bytes", "memory_total_bytes", "total_memory_bytes", "ram_bytes")
    if isinstance(memory, (int, float)):
        lines.append(("memory", human(float(memory), "bytes")))
    for label, names in _PLAIN:
        value = _first(machine, *names)
        if value not in (None, "", [], {}) and not isinstance(value, Mapping):
            lines.append((label, _word(value)))
    return lines


_PLAIN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("system", ("os", "system", "platform", "distribution")),
    ("GPU", ("gpu", "gpus", "devices", "accelerators")),
    ("host", ("hostname", "host", "node")),
    ("kernel", ("kernel", "kernel_version", "release")),
    ("architecture", ("arch", "architecture")),
    ("Python", ("python", "python_version")),
    ("governor", ("governor", "cpu_governor")),
    ("turbo", ("turbo", "boost")),
    ("virtualised", ("virtualization", "virtualisation", "hypervisor")),
    ("CPU quota", ("cgroup_quota", "cpu_quota", "quota")),
)


def _load(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    load = _mapping(header.get("load"))
    found = []
    for when in ("before", "after"):
        value = load.get(when, header.get(f"load_{when}"))
        text = _load_text(value)
        if text:
            found.append((when, text))
    return found


def _load_text(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = _first(value, "load_average", "loadavg", "load", "load1", "average")
        rest = [
            f"{k.replace('_', ' ')} {_number(v)}" for k, v in value.items() if k in ("steal", "steal_percent")
        ]
        return ", ".join([t for t in (_load_text(inner), *rest) if t])
    if isinstance(value, (list, tuple)):
        return " ".join(_number(v) for v in value)
    return "" if value is None else _number(value)


def _overhead(header: Mapping[str, Any]) -> str:
    cost = header.get("null_adapter", header.get("null", header.get("overhead")))
    if isinstance(cost, (int, float)) and not isinstance(cost, bool):
        return f"{human(float(cost), 'ns')} a call"
    values = _mapping(cost)
    if "text" in values:
        return _word(values["text"])
    for suffix, unit in (("ns", "ns"), ("us", "us"), ("s", "s")):
        for stem in ("median", "per_call", "call", "cost", "latency"):
            value = values.get(f"{stem}_{suffix}")
            if isinstance(value, (int, float)):
                low, high = values.get(f"low_{suffix}"), values.get(f"high_{suffix}")
                spread = ""
                if isinstance(low, (int, float)) and isinstance(high, (int, float)):
                    spread = f" ({human(float(low), unit)} to {human(float(high), unit)})"
                return f"{human(float(value), unit)} a call{spread}"
    return ""


def _warnings(header: Mapping[str, Any]) -> list[str]:
    found = header.get("warnings") or ()
    if isinstance(found, str):
        found = [found]
    return [w for item in found if (w := _word(item.get("text") if isinstance(item, Mapping) else item))]


def _facts(header: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = []
    for label, key in (("sweep", "sweep"), ("seed", "seed"), ("command", "command"), ("tool", "version")):
        value = header.get(key)
        if isinstance(value, Mapping):
            value = value.get("name")
        if isinstance(value, (list, tuple)):
            value = " ".join(_word(v) for v in value)
        if value not in (None, ""):
            lines.append((label, _word(value)))
    return lines


def _backend(backend: Any, why: Any) -> str:
    if isinstance(backend, Mapping):
        why = _first(backend, "why", "reason") or why
        backend = _first(backend, "name", "kind", "backend")
    if isinstance(why, Mapping):
        why = why.get("text")
    name = {"venv": "virtualenvs", "docker": "containers", "host": "this interpreter"}.get(
        _word(backend), _word(backend)
    )
    return f"{name} ({_word(why)})" if name and why else name


def _duration(header: Mapping[str, Any]) -> str:
    totals = _mapping(header.get("totals"))
    seconds = _first(totals, "wall_s", "duration_s", "seconds") or header.get("duration_s")
    if not isinstance(seconds, (int, float)):
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _when(value: Any) -> str:
    """ISO time as people write it, to the minute: "2026-11-30 20:21 UTC"."""
    text = _word(value)
    if len(text) >= 16 and text[10:11] == "T":
        zone = " UTC" if text.endswith(("Z", "+00:00")) else ""
        return f"{text[:10]} {text[11:16]}{zone}"
    return text


def _first(values: Mapping[str, Any], *names: str) -> Any:
    return next((values[n] for n in names if values.get(n) not in (None, "")), None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else _word(value)


def _word(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(_word(v) for v in value)
    return str(value)
