"""A neighbour for recorded sessions: computes in bursts on every processor, at ordinary priority.

    python -m bench.verdicts.neighbour [--busy 1.5] [--idle 3.0]

runs until it is interrupted. Bursts and pauses have random lengths (exponential, with those means in
seconds) and come independently on each processor, so that a timed call meets none, one or several.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import time


def come_and_go(seed: int, busy_s: float, idle_s: float) -> None:
    """Never returns."""
    chance = random.Random(seed)
    while True:
        time.sleep(chance.expovariate(1 / idle_s))
        end = time.monotonic() + chance.expovariate(1 / busy_s)
        while time.monotonic() < end:
            sum(range(10_000))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--busy", type=float, default=1.5, help="mean seconds of a burst")
    parser.add_argument("--idle", type=float, default=3.0, help="mean seconds between two")
    args = parser.parse_args()
    neighbours = [
        multiprocessing.Process(target=come_and_go, args=(seed, args.busy, args.idle), daemon=True)
        for seed in range(os.cpu_count() or 1)
    ]
    for one in neighbours:
        one.start()
    with contextlib.suppress(KeyboardInterrupt):
        for one in neighbours:
            one.join()


if __name__ == "__main__":
    main()
