"""The judge on simulated cells: as a stored sample, and as the driver of an A/B run uses it."""

from __future__ import annotations

import dataclasses

import numpy as np
from bench.verdicts.noise import Floats, Logs

from matrix.judge import looks, spending
from matrix.judge.rows import Judged, Row, Sides, Stage, Word
from matrix.judge.verdicts import judge

MARGIN = 0.03
MOST = spending.LOOKS[-1] + spending.MOST_CONFIRM  # blocks that a cell can need


@dataclasses.dataclass(frozen=True)
class Ran:
    """Verdicts of one matrix, how many rows were suspects, and blocks measured, all together."""

    judged: Judged
    slower: int
    faster: int
    blocks: int


def rows_of(logs: Logs, *, blocks: int, families: int = 3) -> list[Row]:
    """Rows without stages."""
    return [
        _row(i, logs.base[i, :blocks], logs.candidate[i, :blocks], range(blocks), {}, families)
        for i in range(len(logs.base))
    ]


def fixed(logs: Logs, blocks: int) -> Ran:
    """All blocks at once."""
    rows = rows_of(logs, blocks=blocks)
    judged = judge(rows)
    said = [
        v
        for v in judged.verdicts
        if v.reason.startswith("suspect") or v.verdict in (Word.REGRESSED, Word.IMPROVED)
    ]
    slower, faster = sum(v.delta > 0 for v in said), sum(v.delta < 0 for v in said)
    return Ran(judged, slower, faster, blocks * len(rows))


def sequential(logs: Logs) -> Ran:
    """Blocks only where a row is open, then fresh ones for suspects; the driver's loop."""
    count = len(logs.base)
    screened, confirmed = np.full(count, spending.LOOKS[0]), np.zeros(count, dtype=int)
    while True:
        rows = staged_rows(logs, screened, confirmed)
        states = looks.state_of(rows)
        more = [s.blocks if s.status == "open" else 0 for s in states]
        if not any(more):
            break
        screened += np.array(more)
    suspects = [s for s in states if s.status == "suspect"]
    confirmed = np.array([s.blocks if s.status == "suspect" else 0 for s in states])
    judged = judge(staged_rows(logs, screened, confirmed))
    return Ran(
        judged,
        sum(s.direction == "worse" for s in suspects),
        sum(s.direction == "better" for s in suspects),
        int(screened.sum() + confirmed.sum()),
    )


def staged_rows(logs: Logs, screened: np.ndarray, confirmed: np.ndarray) -> list[Row]:
    """Screening blocks are the first ones; confirming ones lie behind all that screening can need."""
    behind = spending.LOOKS[-1]
    rows = []
    for i, (n, m) in enumerate(zip(screened.tolist(), confirmed.tolist(), strict=True)):
        labels = [*range(n), *range(behind, behind + m)]
        stages = {str(x): Stage.SCREEN if x < behind else Stage.CONFIRM for x in labels}
        rows.append(_row(i, logs.base[i, labels], logs.candidate[i, labels], labels, stages, 3))
    return rows


def _row(i: int, base: Floats, candidate: Floats, labels, stages, families: int) -> Row:
    names = [str(x) for x in labels]
    return Row(
        workload=f"w{i}",
        metric="latency_ms",
        unit="ms",
        better="lower",
        margin=MARGIN,
        family=f"class {i % families}",
        clocks={
            "wall": Sides(
                base=dict(zip(names, np.exp(base).tolist(), strict=True)),
                candidate=dict(zip(names, np.exp(candidate).tolist(), strict=True)),
            )
        },
        stages=stages,
    )
