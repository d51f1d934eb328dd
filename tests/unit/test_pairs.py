"""The schedule of an A/B run, with real worker processes of a toy framework."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_sweep import ToySweep

from matrix.arms import Pair
from matrix.consolidate.stored import records_of
from matrix.execution.live import Live, open_live
from matrix.judge.rows import Stage
from matrix.records import CONTROL, VOID, LaunchRecord
from matrix.store.runs import StoredRun
from matrix.sweep import pair, pairs
from matrix.sweep.pairs import PairSchedule
from matrix_adapters.protocol import Flag, Reason, Result, State

BASE, NEW = "toy-1.0-cpu", "toy-2.0-cpu"


@pytest.fixture(autouse=True)
def _short_and_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of milliseconds, and no block that the test's own machine spoiled: only planted faults count."""

    def planted(ended: pair.Ended) -> bool:
        flags = [flag for result in ended.results for flag in result.flags]
        return any(flag.code in pairs.SPOILERS and flag.text == "planted" for flag in flags)

    monkeypatch.setattr(pair, "SLICE_S", 0.004)
    monkeypatch.setattr(pairs, "PILOT", {"calls": 10, "seconds": 0.2})
    monkeypatch.setattr(pairs, "_spoiled", planted)


def until(blocks: int) -> Callable[..., Mapping[Pair, Stage]]:
    """A judge that wants so many good blocks of every pair, the last of them to confirm."""

    def undecided(run: StoredRun, judged: Sequence[Pair], aa: Sequence[Pair]) -> Mapping[Pair, Stage]:
        assert all(sentinel.is_aa for sentinel in aa)
        assert not any(one.is_control for one in judged)
        found = {}
        for one_pair in judged:
            launches = run.attempts().launches(one_pair.candidate.id)
            good = [one for one in launches if one.purpose == "measure" and one.stage != VOID]
            if len(good) < blocks:
                found[one_pair] = Stage.CONFIRM if len(good) == blocks - 1 else Stage.SCREEN
        return found

    return undecided


def ab(folder: Path, models: Sequence[str] = ("good",), new: str = "2.0") -> ToySweep:
    sweep = ToySweep(folder, models=models)
    sweep.compare("1.0", new)
    return sweep


def halves(sweep: ToySweep, side: str, subject: str = "good", purpose: str = "measure") -> list[LaunchRecord]:
    """Launches of one side's cell in pairs with NEW."""
    run = sweep.stored()
    (cell,) = (c for c in run.cells() if c.side == side and c.workload.subject == subject)
    launches = run.attempts().launches(cell.id)
    return [one for one in launches if one.purpose == purpose and one.pair == NEW]


class Meddled:
    """A live worker whose result a test changes."""

    def __init__(self, live: Live, change: Callable[[Result], Result]) -> None:
        self._live, self._change = live, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._live, name)

    def finish(self) -> Result:
        return self._change(self._live.finish())


def meddling(change: Callable[[int, Result], Result]) -> Any:
    """`open_live`, whose n-th worker (from 0) leaves what `change` makes of its result."""
    count = iter(range(10_000))

    @contextlib.contextmanager
    def open_meddled(*args: Any, **options: Any) -> Iterator[Any]:
        number = next(count)
        with open_live(*args, **options) as live:
            yield Meddled(live, lambda result: change(number, result))

    return open_meddled


def test_both_halves_of_every_block_are_kept_under_frozen_conditions(tmp_path: Path) -> None:
    sweep = ab(tmp_path)
    outcome = sweep.run(schedule=PairSchedule(until(3)))
    assert outcome.outcome == "complete"
    base, candidate = halves(sweep, BASE), halves(sweep, NEW)
    assert [one.block for one in base] == [one.block for one in candidate] == [0, 1, 2]
    assert [one.stage for one in candidate] == ["screen", "screen", "confirm"]
    for mine, other in zip(base, candidate, strict=True):
        assert mine.sampling["order"] == other.sampling["order"]
        assert mine.sampling["clocks"]["wall"] > 0
        assert mine.metrics["import_s"] >= 0
    (pilot,) = halves(sweep, NEW, purpose="pilot")
    frozen = pilot.sampling["frozen"]
    for one in (*base, *candidate):
        assert one.sampling["calls_per_sample"] == frozen["calls"]
        assert one.sampling["warmup_calls"] == frozen["warmup_calls"]
        taken = one.sampling["samples"] + one.sampling["dropped"]
        assert taken == frozen["samples"] * frozen["rounds"] * 2


def test_the_two_halves_never_compute_at_the_same_time(tmp_path: Path) -> None:
    sweep = ab(tmp_path)
    sweep.run(schedule=PairSchedule(until(1)))
    run = sweep.stored()
    spans = []
    for side in (BASE, NEW):
        (launch,) = halves(sweep, side)
        arrays = run.samples(launch)
        spans += list(zip(arrays["start_ns"], arrays["start_ns"] + arrays["wall_ns"], strict=True))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_every_planned_cell_is_reported_and_the_control_and_a_base_pair_go_along(tmp_path: Path) -> None:
    sweep = ab(tmp_path, models=["good", "good_too"])
    sweep.run(schedule=PairSchedule(until(2)))
    records = {(r.environment.name, r.arm, r.workload.subject): r for r in records_of(sweep.stored())}
    assert len(records) == len(sweep.cells) == 2 + 2 + 1 + 2
    assert {record.state for record in records.values()} == {State.OK}
    assert records[BASE, "", CONTROL].metrics["latency_ms"].value > 0
    (aa,) = (record for (_, arm, _), record in records.items() if arm == "aa")
    assert sum(launch.purpose == "measure" for launch in aa.launches) == 2


def test_an_a_a_run_ends_though_nothing_but_its_own_pair_is_judged(tmp_path: Path) -> None:
    sweep = ab(tmp_path, new="1.0")
    assert sweep.comparison["candidates"] == [[f"{BASE}@aa"]]
    sweep.run(schedule=PairSchedule(until(2)))
    run = sweep.stored()
    (cell,) = (c for c in run.cells() if c.side == f"{BASE}@aa" and c.workload.subject == "good")
    assert [one.block for one in run.attempts().launches(cell.id) if one.purpose == "measure"] == [0, 1]


@pytest.mark.parametrize("code", ["throttled", "stolen"])
def test_a_block_that_the_machine_spoiled_is_replaced(tmp_path: Path, code: str) -> None:
    """Workers 0 and 1 are a pilot's; the spoiled one is half of a pair's first block."""
    sweep = ab(tmp_path)

    def spoil(number: int, result: Result) -> Result:
        flag = Flag(code=code, text="planted")
        return dataclasses.replace(result, flags=(*result.flags, flag)) if number == 7 else result

    sweep.run(schedule=PairSchedule(until(3), open_live=meddling(spoil)))
    launches = [one for c in sweep.cells for one in sweep.stored().attempts().launches(c.id)]
    void = [(one.pair, one.block) for one in launches if one.stage == VOID]
    assert len(void) == 2, "both halves of the one block, whichever was spoiled"
    assert void[0] == void[1]


def test_a_machine_that_always_spoils_is_measured_as_it_is(tmp_path: Path) -> None:
    sweep = ab(tmp_path)
    spoiled = Flag(code="throttled", text="planted")
    always = meddling(lambda _, result: dataclasses.replace(result, flags=(*result.flags, spoiled)))
    sweep.run(schedule=PairSchedule(until(4), open_live=always))
    stages = [one.stage for one in halves(sweep, NEW)]
    assert sum(stage != VOID for stage in stages) == 4
    assert sum(stage == VOID for stage in stages) <= 2


def test_a_side_that_fails_closes_its_pair_and_not_the_others(tmp_path: Path) -> None:
    sweep = ab(tmp_path, models=["good", "crash"])
    outcome = sweep.run(schedule=PairSchedule(until(2)))
    assert outcome.outcome == "complete"
    states = {(r.environment.name, r.workload.subject): r.state for r in records_of(sweep.stored())}
    assert states[NEW, "crash"] is State.FAILED
    assert states[NEW, "good"] is State.OK
    assert not halves(sweep, NEW, "crash")
    assert len(halves(sweep, NEW, "good")) == 2


@pytest.mark.parametrize("worker", [0, 7], ids=["of a pilot", "of a block"])
def test_a_container_that_was_taken_away_is_tried_once_more(tmp_path: Path, worker: int) -> None:
    sweep = ab(tmp_path)
    taken = Result(state=State.FAILED, reason=Reason(code="container_removed", text="planted"))
    lost = meddling(lambda number, result: taken if number == worker else result)
    sweep.run(schedule=PairSchedule(until(2), open_live=lost))
    assert {record.state for record in records_of(sweep.stored())} == {State.OK}
    attempts = [one.attempt for c in sweep.cells for one in sweep.stored().attempts().launches(c.id)]
    assert sorted(attempts)[-2:] == [2, 2], "both halves of one block"


def test_a_spent_budget_begins_nothing_more_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    sweep = ab(tmp_path)
    outcome = sweep.run(schedule=PairSchedule(until(3), budget_s=0.001))
    assert outcome.outcome == "budget_spent"
    assert not halves(sweep, NEW)
    assert sweep.resume(schedule=PairSchedule(until(2))).outcome == "complete"
    pilots = halves(sweep, NEW, purpose="pilot")
    assert sweep.resume(schedule=PairSchedule(until(4))).outcome == "complete"
    assert [one.block for one in halves(sweep, NEW)] == [0, 1, 2, 3]
    assert halves(sweep, NEW, purpose="pilot") == pilots, "what was frozen stays so"


def test_the_share_of_blocks_that_may_be_void_is_a_third() -> None:
    assert pytest.approx(1 / 3) == pairs.MOST_VOID


def test_wrong_outputs_of_a_pilot_are_the_state_and_nothing_more_is_measured(tmp_path: Path) -> None:
    sweep = ab(tmp_path, models=["wrong"])
    sweep.run(schedule=PairSchedule(until(2)))
    states = {(r.environment.name, r.workload.subject): r.state for r in records_of(sweep.stored())}
    assert states[BASE, "wrong"] is states[NEW, "wrong"] is State.INCORRECT
    assert not halves(sweep, NEW, "wrong")


def test_the_side_that_works_is_ok_though_its_partner_failed_before_it_was_timed(
    tmp_path: Path,
) -> None:
    sweep = ab(tmp_path)
    broken = Result(state=State.FAILED, reason=Reason(code="raised", text="planted"))
    candidate = {1}  # of the first pair that is started, whichever it is

    def change(number: int, result: Result) -> Result:
        return broken if number in candidate else result

    sweep.run(schedule=PairSchedule(until(1), open_live=meddling(change)))
    states = [record.state for record in records_of(sweep.stored())]
    assert states.count(State.FAILED) == 1
    assert states.count(State.OK) == len(states) - 1
