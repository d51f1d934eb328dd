"""A run's live pairs of the baseline against itself as sessions for the bench.

    PYTHONPATH=tests:adapters python -m bench.verdicts.record RUN_FOLDER STATE [--name NAME]

writes one file per workload into `tests/bench/traces`. STATE is what the machine was doing:
calm, bursty or overload. Only pairs named ENVIRONMENT@aa are taken, pilots excepted.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
from bench.verdicts.traces import COLUMNS, FOLDER, save

from matrix.records import LaunchRecord
from matrix.store.runs import StoredRun

Halves = dict[tuple[str, int], dict[int, LaunchRecord]]  # (pair, block) -> arm -> launch


def sessions(run: StoredRun) -> dict[str, Halves]:
    """Workload -> the whole pairs that measured the baseline against itself."""
    attempts = run.attempts()
    found: dict[str, Halves] = {}
    for cell in run.cells():
        for launch in attempts.launches(cell.id):
            if launch.pair.endswith("@aa") and launch.purpose == "measure" and launch.samples:
                halves = found.setdefault(cell.workload.label, {})
                halves.setdefault((launch.pair, launch.block), {})[int(cell.arm == "aa")] = launch
    return {
        label: whole
        for label, halves in found.items()
        if (whole := {key: pair for key, pair in halves.items() if len(pair) == 2})
    }


def columns(run: StoredRun, halves: Halves) -> dict[str, np.ndarray]:
    """The arrays of one session; blocks are numbered in the order of `halves`."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in COLUMNS}
    for block, key in enumerate(sorted(halves)):
        for arm, launch in halves[key].items():
            samples = run.samples(launch)
            count = len(samples["wall_ns"])
            given = {
                **samples,
                "cpu_ns": samples["process_ns"],
                "process": np.full(count, 2 * block + arm),
                "block": np.full(count, block),
                "arm": np.full(count, arm),
            }
            for name, part in parts.items():
                part.append(given[name])
    return {name: np.concatenate(part) for name, part in parts.items()}


def machine(run: StoredRun) -> str:
    """What it was measured on, in words."""
    known = run.header.machine
    cpus = f"{known.get('cpu_model', 'unknown')}, {known.get('logical_cpus', '?')} CPUs"
    return f"{cpus}, {run.header.created[:10]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("state", choices=["calm", "bursty", "overload"])
    parser.add_argument("--name", default="", help="of the files; default: the state")
    args = parser.parse_args()
    run = StoredRun(args.run)
    for label, halves in sessions(run).items():
        seconds = [max(sum(x.phases.values()) for x in pair.values()) for pair in halves.values()]
        about = {
            "state": args.state,
            "workload": label,
            "layout": "live-pair",
            "block_s": round(float(np.median(seconds)), 3),
            "machine": machine(run),
        }
        name = re.sub(r"[^a-z0-9]+", "-", f"{args.name or args.state} {label}".lower()).strip("-")
        save(FOLDER / f"{name}.npz", about, columns(run, halves))
        print(f"{FOLDER / name}.npz: {len(halves)} pairs")


if __name__ == "__main__":
    main()
