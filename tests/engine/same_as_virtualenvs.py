"""Do two stored runs of one sweep say the same: hashes, states and parity equal, latencies within noise?

    python tests/engine/same_as_virtualenvs.py RUN OTHER

RUN and OTHER are run folders, of containers and of virtualenvs say. Prints one line per cell, and ends
with 1 where something differs that must not. Latencies of two runs at two times are compared with what the
launches of either run differ among themselves; a machine that others use may fail that: it is told apart.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from matrix.consolidate.stored import records_of
from matrix.records import Record
from matrix.store.runs import StoredRun

#: what a cell's numbers depend on, and what two backends have to share
_HASHES = ("weights", "onnx", "inputs", "reference")
#: launches of one run, minutes apart, differ by more than a run's own range says
_SLACK = 0.10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One cell of both runs. `wrong` must not be; `ratio` is that of the latencies."""

    label: str
    wrong: tuple[str, ...]
    ratio: float | None
    noisy: bool


def compare(run: Path, other: Path) -> list[Difference]:
    """One for each cell of either run."""
    first, second = _records(run), _records(other)
    found = []
    for key in dict.fromkeys([*first, *second]):
        one, two = first.get(key), second.get(key)
        label = (one or two).label  # type: ignore[union-attr]
        if one is None or two is None:
            found.append(Difference(label=label, wrong=("only in one run",), ratio=None, noisy=False))
            continue
        ratio, noisy = _latency(one, two)
        found.append(Difference(label=label, wrong=tuple(_wrong(one, two)), ratio=ratio, noisy=noisy))
    return found


def _records(folder: Path) -> dict[str, Record]:
    return {record.id: record for record in records_of(StoredRun(folder))}


def _wrong(one: Record, two: Record) -> list[str]:
    problems = []
    if one.state is not two.state:
        problems.append(f"state {one.state} and {two.state}")
    for name in _HASHES:
        a, b = one.artefacts.get(name), two.artefacts.get(name)
        if a != b:
            problems.append(f"{name} {str(a)[:12]} and {str(b)[:12]}")
    if one.environment.lock != two.environment.lock:
        problems.append("the installed packages differ")
    if one.contract_hash != two.contract_hash:
        problems.append("the contract differs")
    for name in ("passed", "limit", "max_scaled_error", "top1_agreement"):
        a, b = getattr(one.parity, name, None), getattr(two.parity, name, None)
        if a != b:
            problems.append(f"parity {name} {a} and {b}")
    return problems


def _latency(one: Record, two: Record) -> tuple[float | None, bool]:
    """Ratio of the latencies, and whether it is further from 1 than both runs' own ranges allow."""
    a, b = one.metrics.get("latency_ms"), two.metrics.get("latency_ms")
    if a is None or b is None:
        return None, False
    low = (a.low or a.value) / (b.high or b.value)
    high = (a.high or a.value) / (b.low or b.value)
    return a.value / b.value, not low * (1 - _SLACK) <= 1 <= high * (1 + _SLACK)


def main(arguments: list[str]) -> int:
    found = compare(*map(Path, arguments))
    for one in found:
        latency = "" if one.ratio is None else f"latency x {one.ratio:.3f}{' (out of range)' * one.noisy}"
        print(f"{'DIFFERS' if one.wrong else 'same':<8} {one.label:<56} {latency} {'; '.join(one.wrong)}")
    wrong, noisy = sum(bool(one.wrong) for one in found), sum(one.noisy for one in found)
    print(f"{len(found)} cells: {wrong} differ in what must be equal, {noisy} in latency beyond their ranges")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
