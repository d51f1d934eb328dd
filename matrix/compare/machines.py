"""Whether two runs were measured on one machine, and if not, in what the machines differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: what people ask first, before the hash that holds all of it
_TOLD = (
    ("architecture", "architecture"),
    ("cpu_model", "CPU"),
    ("logical_cpus", "number of CPUs"),
    ("usable_threads", "usable threads"),
    ("memory_bytes", "memory"),
    ("limits", "limits"),
    ("cpu_flags", "instruction sets"),
)

_SEVERAL = ("usable_threads", "limits", "cpu_flags")


def difference(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """As in "CPU differs: A, B"; empty for one machine, or where nothing is known of either."""
    mine, other = base.get("identity"), candidate.get("identity")
    if mine == other:
        return ""
    for field, name in _TOLD:
        a, b = base.get(field), candidate.get(field)
        if a != b and a is not None and b is not None:
            told = _only(a, b) if field == "cpu_flags" else f"{_short(a)}, {_short(b)}"
            return f"{name} {'differ' if field in _SEVERAL else 'differs'}: {told}"
    return f"machine differs: {describe(base)}, {describe(candidate)}"


def describe(machine: Mapping[str, Any]) -> str:
    """A machine in a few words, its fingerprint last."""
    if not machine:
        return "unknown"
    parts = [str(machine.get("cpu_model") or machine.get("architecture") or "unknown CPU")]
    if machine.get("usable_threads"):
        parts.append(f"{machine['usable_threads']} threads")
    return f"{', '.join(parts)} ({str(machine.get('identity', 'no fingerprint'))[:12]})"


def _only(base: Any, candidate: Any) -> str:
    mine, other = set(base or ()), set(candidate or ())
    said = [
        f"only the {name} has {', '.join(sorted(own)[:4])}"
        for name, own in (("base", mine - other), ("candidate", other - mine))
        if own
    ]
    return "; ".join(said)


def _short(value: Any) -> str:
    text = (
        ", ".join(f"{k} {v}" for k, v in value.items() if v is not None)
        if isinstance(value, Mapping)
        else str(value)
    )
    return text if len(text) <= 60 else f"{text[:57]}..."
