"""Sentences about timed operators: the roof, what a call costs, where inputs were, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matrix.operators.suites import DISPATCH_CASE
from matrix.records import Record
from matrix.report.placing import Column
from matrix.report.units import human
from matrix_adapters.protocol import State

#: a number of the table, and how a sentence calls it
_DERIVED = {
    "roofline_share": "a share of the roof",
    "tflops": "a rate of arithmetic",
    "memory_gb_s": "a rate of memory traffic",
}


def percent(share: float) -> str:
    """A share as people read it: "41 %", "0.3 %", "<0.1 %"."""
    if share < 0.001:
        return "<0.1 %"
    return f"{share:.1%}".replace("%", " %") if share < 0.0995 else f"{share:.0%}".replace("%", " %")


def threads_words(count: int) -> str:
    """ "1 thread", "2 threads" """
    return f"{count} thread{'' if count == 1 else 's'}"


def rotation(record: Record) -> str:
    """Through how much the inputs of its calls rotated; "" where they were the same in every call."""
    sampling = next((x.sampling for x in reversed(record.launches) if x.purpose == "measure"), {})
    copies, whole = sampling.get("cache_copies"), sampling.get("cache_working_set_bytes")
    if copies is None or whole is None:
        return ""
    last = sampling.get("cache_last_level_bytes", 0)
    held = "" if whole > last else ", less than the last cache holds"
    return f"{copies} copies rotate ({human(float(whole), 'bytes')}{held})"


def roof(header: Mapping[str, Any]) -> list[str]:
    """What the machine can, by number of threads; what was not measured, and why."""
    said = []
    peaks = header.get("peaks")
    for threads, found in (peaks if isinstance(peaks, Mapping) else {}).items():
        products = [
            f"{human(p['flops_s'] / 1e12, 'TFLOP/s')} in {precision} ({p['case']}, {p['environment']})"
            for precision, p in found.get("gemm", {}).items()
        ]
        memory = [
            f"{human(level['bytes_s'] / 1e9, 'GB/s')} over {human(float(level['bytes']), 'bytes')}"
            for level in found.get("bandwidth", ())
        ]
        if parts := [*products, *([", ".join(memory)] if memory else [])]:
            said.append(f"Roof with {threads_words(int(threads))}: {'; '.join(parts)}.")
        said += [f"No peak of {name}: {why}." for name, why in found.get("absent", {}).items()]
    return said


def dispatch(columns: Sequence[Column], calls: Mapping[tuple[int, int], float]) -> list[str]:
    """`calls`: latency in milliseconds of a call of one element, by column and number of threads."""
    if not calls:
        return [f"What a call itself costs was not measured: `operators` would have to name {DISPATCH_CASE}."]
    several = len({threads for _, threads in calls}) > 1
    each = [
        f"{human(ms, 'ms')} in {columns[i].label}{f' with {threads_words(threads)}' if several else ''}"
        for (i, threads), ms in sorted(calls.items())
    ]
    return [f"A call of one element ({DISPATCH_CASE}) takes {', '.join(each)}."]


def policies(records: Iterable[Record]) -> list[str]:
    """Where the inputs of the timed calls were."""
    found = dict.fromkeys(str(r.contract["cache"]) for r in records if r.contract.get("cache"))
    return [f"Inputs are {'; '.join(found)}."] if found else []


def missing(records: Iterable[Record]) -> list[str]:
    """How many right and timed cells lack a derived number, by reason."""
    why: Counter[tuple[str, str]] = Counter()
    for record in records:
        if record.state is State.OK and "latency_ms" in record.metrics:
            why.update(
                (n, record.absent.get(n, "no reason is stored")) for n in _DERIVED if n not in record.metrics
            )
    return [
        f"{count} cell{'' if count == 1 else 's'} without {_DERIVED[name]}: {reason}."
        for (name, reason), count in why.items()
    ]


def left_out(header: Mapping[str, Any]) -> list[str]:
    """Nodes of models that are no cases of their own."""
    told = header.get("left_out")
    return [
        f"Nodes of {model} that are no cases: "
        + "; ".join(f"{count} x {reason}" for reason, count in reasons.items())
        + "."
        for model, reasons in (told if isinstance(told, Mapping) else {}).items()
        if reasons
    ]
