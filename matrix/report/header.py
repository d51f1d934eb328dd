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
    heading: str  # for a page: the name, or the sweep's
    created: str
    duration: str
    backend: str  # "virtualenvs, because no container engine answered"
    machine: tuple[tuple[str, str], ...]  # label, value
    more_machine: tuple[tuple[str, str], ...]  # what a page has room for
    load: tuple[tuple[str, str], ...]
    overhead: str
    warnings: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]  # sweep, seed, command, tool version...


def run_view(header: Mapping[str, Any]) -> RunView:
    """Read `header`, tolerantly."""
    machine, more = _machine(_mapping(header.get("machine")))
    identity, name = _word(header.get("id")), _word(header.get("name"))
    return RunView(
        id=identity,
        name=name,
        title=name or identity or "unnamed run",
        heading=name or _word(header.get("sweep")) or identity or "unnamed run",
        created=_when(header.get("created") or header.get("started")),
        duration=_duration(header),
        backend=_backend(header.get("backend"), header.get("backend_why") or header.get("why")),
        machine=tuple(machine),
        more_machine=tuple(more),
        load=tuple(_load(header)),
        overhead=_overhead(header),
        warnings=tuple(_warnings(header)),
        facts=tuple(_facts(header)),
    )


Pairs = list[tuple[str, str]]

# label -> names under which fingerprints, old and new, hold it; in the order in which it is told
_MACHINE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("CPU", ("cpu", "cpu_model", "cpu_name", "processor")),
    ("cores", ("usable_threads", "usable_cores", "cores", "affinity", "cpus", "cpu_count", "logical_cores")),
    ("memory", ("memory_bytes", "memory_total_bytes", "total_memory_bytes", "ram_bytes")),
    ("system", ("os", "system", "distribution", "platform")),
    ("GPU", ("gpu", "gpus", "accelerators")),
    ("kernel", ("kernel", "kernel_version", "release")),
    ("Python", ("python", "python_version")),
)


def _machine(machine: Mapping[str, Any]) -> tuple[Pairs, Pairs]:
    """The facts everybody asks for, in words, and whatever else is a plain value."""
    told: Pairs = []
    used = set()
    for label, names in _MACHINE:
        name = next((n for n in names if machine.get(n) not in (None, "", [], {})), None)
        if name is None:
            continue
        text = _machine_fact(label, machine[name])
        if text:
            used.add(name)
            told.append((label, text))
    more = [
        (name.replace("_", " "), text)
        for name, value in machine.items()
        if name not in used and not isinstance(value, Mapping) and (text := _plain(name, value))
    ]
    return told, more


def _machine_fact(label: str, value: Any) -> str:
    if isinstance(value, Mapping):
        value = _first(value, "model", "name", "brand", "pretty_name", "text", "total_bytes")
    if label == "memory" and isinstance(value, (int, float)):
        return human(float(value), "bytes")
    if label == "cores" and isinstance(value, (list, tuple)):
        return str(len(value))
    return _word(value)


def _plain(name: str, value: Any) -> str:
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return human(float(value), "bytes")
    return _word(value)


def _load(header: Mapping[str, Any]) -> Pairs:
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
    if values.get("absent"):
        return f"not measured: {_word(values['absent'])}"
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


_OUTCOMES = {
    "running": "this run has not ended: what is missing is still to come, or its process died",
    "interrupted": "this run was interrupted: `matrix run --resume` continues it",
    "budget_spent": "the time budget was spent before every cell had its turn",
    "broken_off": "this run could not be completed",
}


def _warnings(header: Mapping[str, Any]) -> list[str]:
    found = header.get("warnings") or ()
    if isinstance(found, (str, Mapping)):
        found = [found]
    outcome = _OUTCOMES.get(_word(header.get("outcome")))
    texts = [_word(item.get("text") if isinstance(item, Mapping) else item) for item in found]
    return [text for text in (outcome, *texts) if text]


def _facts(header: Mapping[str, Any]) -> Pairs:
    lines: Pairs = []
    for label, key in (("sweep", "sweep"), ("seed", "seed"), ("command", "command"), ("version", "version")):
        value = header.get(key)
        if isinstance(value, Mapping):
            value = value.get("name")
        if isinstance(value, (list, tuple)) and value:
            value = " ".join([_word(value[0]).rpartition("/")[2], *(_word(v) for v in value[1:])])
        if value not in (None, ""):
            lines.append((label, _word(value)))
    stages = _mapping(_mapping(header.get("totals")).get("stages_s"))
    if stages:
        spent = ", ".join(f"{k.replace('_', ' ')} {human(float(v), 's')}" for k, v in stages.items() if v)
        lines.append(("time spent", spent))
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
    reason = _word(why)
    if not name or reason.startswith(name):  # "virtualenvs, because ..." says both
        return reason or name
    return f"{name} ({reason})" if reason else name


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
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_word(v) for v in value)
    return str(value)
