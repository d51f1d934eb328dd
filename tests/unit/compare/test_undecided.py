"""What the next block of a pair is for, asked of launches as an A/B run leaves them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from matrix import catalog
from matrix.arms import Pair
from matrix.compare.undecided import undecided
from matrix.judge.rows import Stage
from matrix.records import AA, Cell, Environment, LaunchRecord, Workload
from matrix_adapters.protocol import State

WORK = Workload(
    level="inference", subject="m", batch=1, sequence=None, precision="fp32", threads=1, variant=""
)
OLD, NEW = (Environment(framework="toy", version=v, hardware="cpu") for v in ("1.0", "2.0"))
PAIR = Pair(base=Cell(environment=OLD, workload=WORK), candidate=Cell(environment=NEW, workload=WORK))
METRICS = ("latency_ms", "load_s")


@dataclasses.dataclass
class FakeRun:
    """A stored run that has nothing but launches."""

    found: Mapping[str, Sequence[LaunchRecord]]

    def attempts(self) -> FakeRun:
        return self

    def launches(self, cell: str) -> Sequence[LaunchRecord]:
        return self.found.get(cell, ())


def launches(
    cell: Cell, pair: Pair, latency: Sequence[float], load: Sequence[float], confirm: int = 0
) -> list[LaunchRecord]:
    """A block a value; the last `confirm` of them confirm."""
    first = len(latency) - confirm
    return [
        LaunchRecord(
            cell=cell.id,
            purpose="measure",
            block=i,
            pair=pair.name,
            stage="screen" if i < first else "confirm",
            state=State.OK,
            metrics={"latency_ms": ms, "load_s": s},
        )
        for i, (ms, s) in enumerate(zip(latency, load, strict=True))
    ]


def asked(base: list[LaunchRecord], candidate: list[LaunchRecord]) -> Stage | None:
    run = FakeRun({PAIR.base.id: base, PAIR.candidate.id: candidate})
    found = undecided(catalog.load(), {}, METRICS)(run, [PAIR], [])  # type: ignore[arg-type]
    return found.get(PAIR)


STEADY = [10.0, 10.02, 9.99, 10.01, 10.0, 10.01, 9.98, 10.0, 10.02, 9.99, 10.01, 10.0]
NOISY = [1.0, 2.0, 0.7, 1.6, 0.8, 1.9, 1.2, 0.6, 1.1, 1.7, 0.9, 1.3]


def test_a_pair_without_a_block_is_screened() -> None:
    assert asked([], []) is Stage.SCREEN


def test_a_pair_that_is_no_worse_in_everything_is_decided() -> None:
    both = [launches(cell, PAIR, STEADY[:4], STEADY[:4]) for cell in (PAIR.base, PAIR.candidate)]
    assert asked(*both) is None


def test_a_metric_that_is_too_noisy_keeps_the_pair_open() -> None:
    base = launches(PAIR.base, PAIR, STEADY[:4], NOISY[:4])
    candidate = launches(PAIR.candidate, PAIR, STEADY[:4], NOISY[4:8])
    assert asked(base, candidate) is Stage.SCREEN


def test_a_suspect_is_confirmed_before_anything_else_is_screened() -> None:
    base = launches(PAIR.base, PAIR, STEADY[:4], NOISY[:4])
    slower = [1.2 * value for value in STEADY[1:5]]
    assert asked(base, launches(PAIR.candidate, PAIR, slower, NOISY[4:8])) is Stage.CONFIRM
    base = launches(PAIR.base, PAIR, STEADY, NOISY, confirm=8)
    slower = [1.2 * value for value in reversed(STEADY)]
    confirmed = launches(PAIR.candidate, PAIR, slower, list(reversed(NOISY)), confirm=8)
    assert asked(base, confirmed) is Stage.SCREEN, "its blocks are there: now the noisy one goes on"


def test_void_blocks_do_not_count() -> None:
    both = [
        [launch.model_copy(update={"stage": "void"}) for launch in launches(cell, PAIR, STEADY, STEADY)]
        for cell in (PAIR.base, PAIR.candidate)
    ]
    assert asked(*both) is Stage.SCREEN


@pytest.mark.parametrize("metric", ["energy_j_per_item", "compile_s"])
def test_what_nobody_measures_keeps_nothing_open(metric: str) -> None:
    both = {cell.id: launches(cell, PAIR, STEADY[:4], STEADY[:4]) for cell in (PAIR.base, PAIR.candidate)}
    found = undecided(catalog.load(), {}, (metric,))(FakeRun(both), [PAIR], [])  # type: ignore[arg-type]
    assert not found


def test_the_base_against_itself_is_only_asked_for_its_noise() -> None:
    itself = Pair(base=PAIR.base, candidate=Cell(environment=OLD, workload=WORK, arm=AA))
    run = FakeRun({})
    found = undecided(catalog.load(), {}, METRICS)(run, [PAIR], [itself])  # type: ignore[arg-type]
    assert set(found) == {PAIR}
