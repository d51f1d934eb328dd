"""The quality of verdicts as tables: `PYTHONPATH=tests:adapters nice -n 19 python -m bench.verdicts.report`.

Nothing planted (false alarms), slowdowns planted (power), and every other tool's rule on the
same trials (layouts), those that lose included. Seeds are fixed.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from bench.verdicts import machine, noise, procedures, tables, traces
from bench.verdicts.peers import NOT_RUN

from matrix.judge.rows import Word

CELLS = 300  # of a matrix
SAMPLES = (4, 12, 30)  # blocks of a stored sample


@dataclasses.dataclass
class Null:
    """What was said of cells in which nothing had changed."""

    kind: str
    procedure: str
    matrices: int = 0
    cells: int = 0
    slower: int = 0  # suspects
    faster: int = 0
    regressed: int = 0
    improved: int = 0
    no_worse: int = 0
    blocks: int = 0
    any_regressed: int = 0  # matrices
    any_alarm: int = 0

    def add(self, ran: procedures.Ran) -> None:
        words = Counter(v.verdict for v in ran.judged.verdicts)
        self.matrices += 1
        self.cells += len(ran.judged.verdicts)
        self.slower += ran.slower
        self.faster += ran.faster
        self.regressed += words[Word.REGRESSED]
        self.improved += words[Word.IMPROVED]
        self.no_worse += words[Word.NO_WORSE]
        self.blocks += ran.blocks
        self.any_regressed += words[Word.REGRESSED] > 0
        self.any_alarm += words[Word.REGRESSED] + words[Word.IMPROVED] > 0

    def text(self) -> str:
        def share(count: int, of: int) -> str:
            return f"{100 * count / of:.2f} % (<{100 * tables.upper_bound(count, of):.2f})"

        return (
            f"  {self.kind:15} {self.procedure:11} {self.cells:8,} "
            f"{100 * (self.slower + self.faster) / self.cells:7.2f} % "
            f"{share(self.regressed, self.cells):>17} "
            f"{share(self.any_regressed, self.matrices):>17} {share(self.any_alarm, self.matrices):>17} "
            f"{100 * self.no_worse / self.cells:6.1f} % {self.blocks / self.cells:6.1f}"
        )


NULL_HEADER = (
    f"  {'noise':15} {'procedure':11} {'cells':>8} {'suspects':>9} {'regressed':>17} "
    f"{'matrices with one':>17} {'or one improved':>17} {'no worse':>8} {'blocks':>6}"
)


def null(kind: str, matrices: int, blocks: int | None = None) -> Null:
    """`blocks` of a stored sample, else the sequential procedure."""
    rng = np.random.default_rng([2026, noise.KINDS.index(kind), blocks or 0])
    found = Null(kind, f"{blocks} blocks" if blocks else "sequential")
    for _ in range(matrices):
        logs = noise.draw(kind, CELLS, blocks or procedures.MOST, rng)
        found.add(procedures.fixed(logs, blocks) if blocks else procedures.sequential(logs))
    return found


@dataclasses.dataclass(frozen=True)
class Power:
    """What was said of cells that were slowed down."""

    kind: str
    spread: bool
    slowdown: float
    shares: dict[Word, float]
    blocks: float  # a cell, over the matrix

    def text(self) -> str:
        words = (Word.REGRESSED, Word.NO_WORSE, Word.INCONCLUSIVE)
        shares = "  ".join(f"{100 * self.shares.get(w, 0.0):5.1f} %" for w in words)
        sd = "1.5 % (spread)" if self.spread else "1.5 %"
        return f"  {self.kind:15} {sd:15} {100 * self.slowdown:+4.0f} %   {shares}   {self.blocks:5.1f}"


POWER_HEADER = f"  {'noise':15} {'block sd':15} {'planted':>6}   regressed no worse open      blocks a cell"


def power(kind: str, slowdown: float, matrices: int, *, spread: bool) -> Power:
    """15 of 300 cells are slowed down."""
    rng = np.random.default_rng([7, noise.KINDS.index(kind), int(1000 * slowdown), spread])
    words: Counter[Word] = Counter()
    blocks = 0
    for _ in range(matrices):
        logs = noise.draw(kind, CELLS, procedures.MOST, rng, sd=None if spread else noise.TYPICAL_SD)
        logs.candidate[:15] += np.log1p(slowdown)
        ran = procedures.sequential(logs)
        words.update(v.verdict for v in ran.judged.verdicts[:15])
        blocks += ran.blocks
    total = 15 * matrices
    return Power(kind, spread, slowdown, {w: n / total for w, n in words.items()}, blocks / CELLS / matrices)


def simulated(state: str, trials: int) -> list[tables.Line]:
    rng = np.random.default_rng([9, machine.STATES.index(state)])
    return tables.compare([machine.trial(state, rng) for _ in range(trials)])


def recorded(sessions: Sequence[traces.Session], trials: int) -> Iterator[tuple[str, int, list[tables.Line]]]:
    """Tables of recorded sessions by state: name, number of trials, lines."""
    for session in sessions:
        blocks = int(session.about.get("trial_blocks", 8))
        cut = session.trials(blocks, trials, np.random.default_rng(1))
        yield f"{session.about['state']}: {session.about['workload']}", len(cut), tables.compare(cut)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, default=300, help="of 300 cells, per kind of noise")
    parser.add_argument("--trials", type=int, default=100, help="per state of the machine")
    args = parser.parse_args()
    print("Nothing planted (in brackets: upper 95 % bound)\n" + NULL_HEADER)
    for kind in noise.KINDS:
        for blocks in (None, *SAMPLES):
            print(null(kind, args.matrices, blocks).text(), flush=True)
    print("\nSlowdowns planted in 15 of 300 cells, margin 3 %\n" + POWER_HEADER)
    for kind in noise.KINDS:
        for slowdown in (0.02, 0.03, 0.05, 0.10):
            for spread in (False, True):
                print(power(kind, slowdown, max(args.matrices // 15, 1), spread=spread).text(), flush=True)
    for state in machine.STATES:
        print(f"\nSimulated machine, {state}, {args.trials} trials of 10 s\n{tables.HEADER}")
        print("\n".join(line.text() for line in simulated(state, args.trials)), flush=True)
    print("\nNot among the rules:\n" + "\n".join(f"  {tool}: {why}" for tool, why in NOT_RUN.items()))
    for name, count, lines in recorded(traces.recorded(), args.trials):
        print(f"\nRecorded, {name}, {count} trials\n{tables.HEADER}")
        print("\n".join(line.text() for line in lines), flush=True)


if __name__ == "__main__":
    main()
