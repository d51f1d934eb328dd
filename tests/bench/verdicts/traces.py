"""Recorded sessions of live pairs in which both sides are the baseline, and trials cut from them.

A session is one file `tests/bench/traces/NAME.npz`, made by `save`: one workload on one machine
in one state (calm, bursty, overload). `about` is a JSON text with at least `state`, `workload`,
`layout` ("live-pair"), `block_s` (seconds a block costs, start-up included) and `machine`. All
other arrays have one entry a sample, in any order:

    process   int32  a number of its own for every process
    block     int32
    arm       int8   0 or 1: which side of its pair, both the baseline
    slice     int32  number of the slice within its process
    start_ns  int64  system-wide monotonic clock
    wall_ns, cpu_ns  int64  totals of the sample (cpu: all threads of the process)
    nivcsw, calls    int64

A trial is what one comparison may cost: so many blocks, with every layout's view of it. A live
pair's processes took turns; a tool that measures A and then B is given the same processes and
the same seconds, in its own order: those of the first half of the time against the second.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix.judge import clocks

FOLDER = Path(__file__).resolve().parents[1] / "traces"
COLUMNS = {
    "process": np.int32,
    "block": np.int32,
    "arm": np.int8,
    "slice": np.int32,
    "start_ns": np.int64,
    "wall_ns": np.int64,
    "cpu_ns": np.int64,
    "nivcsw": np.int64,
    "calls": np.int64,
}


@dataclasses.dataclass(frozen=True)
class Process:
    """One process's samples in time: milliseconds per call, and its number by each clock."""

    wall: np.ndarray
    clocks: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Trial:
    """One comparison of A with B of equal cost in every layout; nothing differs between them."""

    pairs: Sequence[tuple[Process, Process]]  # live pairs
    halves: tuple[Sequence[Process], Sequence[Process]]  # fresh processes: all of A, then all of B
    rounds: tuple[Sequence[Process], Sequence[Process]]  # fresh processes in the order ABBA
    long: tuple[np.ndarray, np.ndarray]  # one process of each, A and then B: milliseconds per call


@dataclasses.dataclass(frozen=True)
class Session:
    about: Mapping[str, Any]
    blocks: Sequence[tuple[Process, Process]]

    def trials(self, blocks: int, count: int, rng: np.random.Generator) -> list[Trial]:
        """Trials of consecutive blocks, overlapping where there are not enough."""
        last = len(self.blocks) - blocks
        if last < 0:
            raise ValueError(f"{self.about['state']}: {len(self.blocks)} blocks, a trial needs {blocks}")
        starts = (
            np.linspace(0, last, count).astype(int) if last < count else rng.choice(last + 1, count, False)
        )
        return [trial_of(self.blocks[s : s + blocks]) for s in sorted(starts.tolist())]


def trial_of(blocks: Sequence[tuple[Process, Process]]) -> Trial:
    """All layouts' views of the same processes. A long process is several after each other here,
    which flatters the tools that use one: they average over what they would not see."""
    half, quarter = len(blocks) // 2, max(len(blocks) // 4, 1)
    early, late = _flat(blocks[:half]), _flat(blocks[half : 2 * half])
    a = _flat([*blocks[:quarter], *blocks[-quarter:]])
    b = _flat(blocks[quarter:-quarter])
    return Trial(
        pairs=blocks,
        halves=(early, late),
        rounds=(a, b),
        long=(np.concatenate([p.wall for p in early]), np.concatenate([p.wall for p in late])),
    )


def save(path: Path, about: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> None:
    """Write a session; missing or surplus columns are an error."""
    if set(columns) != set(COLUMNS):
        raise ValueError(f"columns are {sorted(columns)}, wanted {sorted(COLUMNS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(columns[name], dtype=kind) for name, kind in COLUMNS.items()}
    np.savez_compressed(path, about=np.array(json.dumps(dict(about), sort_keys=True)), **arrays)


def load(path: Path) -> Session:
    with np.load(path, allow_pickle=False) as archive:
        about = json.loads(str(archive["about"]))
        columns = {name: archive[name] for name in COLUMNS}
    pairs: dict[int, dict[int, Process]] = {}
    for number in np.unique(columns["process"]):
        mine = np.flatnonzero(columns["process"] == number)
        mine = mine[np.argsort(columns["start_ns"][mine], kind="stable")]
        block, arm = int(columns["block"][mine[0]]), int(columns["arm"][mine[0]])
        pairs.setdefault(block, {})[arm] = process_of({name: c[mine] for name, c in columns.items()})
    whole = [pairs[block] for block in sorted(pairs) if len(pairs[block]) == 2]
    return Session(about, [(pair[0], pair[1]) for pair in whole])


def process_of(columns: Mapping[str, np.ndarray]) -> Process:
    """One process from its columns, int64[samples] each, by the product's own reading of clocks."""
    kept = clocks.warm(columns["slice"], len(columns["wall_ns"]))
    samples = {
        "wall_ns": columns["wall_ns"],
        "process_ns": columns["cpu_ns"],
        "nivcsw": columns["nivcsw"],
        "calls": columns["calls"],
        "slice": columns["slice"],
    }
    return Process((columns["wall_ns"] / columns["calls"] / 1e6)[kept], clocks.clocks(samples))


def recorded() -> list[Session]:
    """Every session that is shipped; none is no error."""
    return [load(path) for path in sorted(FOLDER.glob("*.npz"))]


def _flat(blocks: Sequence[tuple[Process, Process]]) -> list[Process]:
    return [process for pair in blocks for process in pair]
