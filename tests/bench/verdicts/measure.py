"""Measure sessions for the bench: a toy framework against itself, for a fixed number of blocks.

    PYTHONPATH=tests:adapters python -m bench.verdicts.measure RESULTS --blocks 64 --model medium

makes one A/B run below RESULTS, whose `@aa` pairs `bench.verdicts.record` then turns into a session.
What else the machine does meanwhile (nothing, `bench.verdicts.neighbour` that comes and goes, too
much) is up to whoever starts it, and is the session's STATE.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from toys import toyframework

from matrix.arms import Pair
from matrix.judge.rows import Stage
from matrix.store.runs import StoredRun


def until(blocks: int) -> Callable[..., Mapping[Pair, Stage]]:
    """Every pair is open until it has so many blocks, whatever they say."""

    def undecided(run: StoredRun, judged: Sequence[Pair], _: Sequence[Pair]) -> Mapping[Pair, Stage]:
        attempts = run.attempts()
        done = {
            pair: sum(one.purpose == "measure" for one in attempts.launches(pair.candidate.id))
            for pair in judged
        }
        return {pair: Stage.SCREEN for pair, count in done.items() if count < blocks}

    return undecided


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--model", choices=sorted(toyframework.COUNTS), default="medium")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        toys = toyframework.build(Path(folder), {"1.0": {}})
        os.environ.update(toys.environ())
        sys.path.insert(0, str(toys.site))
        _measure(toys.sweep(Path(folder) / "sweep", models=[args.model]), args.results, args.blocks)


def _measure(sweep: Path, results: Path, blocks: int) -> None:
    ab, shared, arms, run, pairs = (
        importlib.import_module(f"matrix.{name}")  # after the toys are on the path
        for name in ("commands.ab", "commands.shared", "arms", "sweep.run", "sweep.pairs")
    )
    store_module = importlib.import_module("matrix.artefacts.store")
    paths = importlib.import_module("matrix.paths")
    catalog = shared.load_catalog()
    arm = arms.Arm(version="1.0")
    framework = ab.framework_of("toyframe", catalog)
    asked = ab.Asked(
        framework=framework,
        base=arm,
        candidates=(arm,),
        config=str(sweep),
        results=str(results),
        backend="venv",
    )
    config, store, backend = ab.begin(asked, catalog)
    with store:
        outcome = run.run_sweep(
            config,
            catalog,
            store=store,
            backend=backend,
            artefacts=lambda key: store_module.ArtefactStore(paths.home(), key),
            schedule=pairs.PairSchedule(until(blocks)),
        )
    print(f"{outcome.folder}: {outcome.outcome}")


if __name__ == "__main__":
    main()
