"""What must not matter does not: sides, order, labels, units."""

from __future__ import annotations

import dataclasses
import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st
from judging import row

from matrix.judge.rows import Row, Sides, Stage, Verdict, Word
from matrix.judge.verdicts import judge

SWAPPED = {Word.REGRESSED: Word.IMPROVED, Word.IMPROVED: Word.REGRESSED}


@st.composite
def comparisons(draw: st.DrawFn) -> list[Row]:
    """Rows of every kind, changed by nothing, little or much, on quiet and noisy machines."""
    rng = random.Random(draw(st.integers(0, 10**6)))
    rows = []
    for i in range(draw(st.integers(1, 14))):
        staged = draw(st.booleans())
        n = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 11, 16, 20]))
        m = draw(st.sampled_from([0, 3, 8])) if staged else 0
        effect, sd = draw(st.sampled_from([0.0, 0.01, 0.04, 0.3])), draw(st.sampled_from([0.0, 0.003, 0.02]))
        sign = draw(st.sampled_from([-1, 1]))
        labels = [str(k) for k in range(n + m)]
        base = {x: 10 * math.exp(rng.gauss(0, 0.1)) for x in labels}
        candidate = {x: base[x] * math.exp(sign * effect + rng.gauss(0, sd)) for x in labels}
        rows.append(
            row(
                workload=f"w{i}",
                better=draw(st.sampled_from(["lower", "higher"])),
                clocks={"wall": Sides(base=base, candidate=candidate)},
                stages={x: Stage.SCREEN if int(x) < n else Stage.CONFIRM for x in labels} if staged else {},
                layout=draw(st.sampled_from(["live-pair"] * 4 + ["separate-runs"])),
                fixed=draw(st.integers(0, 9)) == 0,
            )
        )
    return rows


def with_sides(one: Row, change: object) -> Row:
    clocks = {name: change(sides) for name, sides in one.clocks.items()}  # type: ignore[operator]
    return dataclasses.replace(one, clocks=clocks)


def sums(values: tuple[Verdict, ...]) -> list[Verdict]:
    return sorted(values, key=lambda v: v.workload)


@settings(max_examples=150, deadline=None)
@given(comparisons())
def test_swapping_the_sides_negates_every_effect_and_interval_exactly(rows: list[Row]) -> None:
    swapped = [with_sides(x, lambda s: Sides(base=s.candidate, candidate=s.base)) for x in rows]
    for one, other in zip(judge(rows).verdicts, judge(swapped).verdicts, strict=True):
        assert (one.base, one.candidate, one.n) == (other.candidate, other.base, other.n)
        if one.delta is None:
            assert other.delta is None
            continue
        assert one.delta == -other.delta  # type: ignore[operator]
        if one.delta_low is not None:
            assert (one.delta_low, one.delta_high) == (-other.delta_high, -other.delta_low)  # type: ignore[operator]
            assert one.mde == other.mde
        if SWAPPED.keys() & {one.verdict, other.verdict}:
            assert other.verdict is SWAPPED[one.verdict]


@settings(max_examples=100, deadline=None)
@given(comparisons(), st.randoms())
def test_the_order_of_rows_and_blocks_never_matters(rows: list[Row], chance: random.Random) -> None:
    def mixed(values: object) -> dict[str, float]:
        items = list(values.items())  # type: ignore[attr-defined]
        chance.shuffle(items)
        return dict(items)

    others = [
        dataclasses.replace(
            with_sides(x, lambda s: Sides(base=mixed(s.base), candidate=mixed(s.candidate))),
            stages=mixed(x.stages),  # type: ignore[arg-type]
        )
        for x in rows
    ]
    chance.shuffle(others)
    assert sums(judge(rows).verdicts) == sums(judge(others).verdicts)


@settings(max_examples=100, deadline=None)
@given(comparisons())
def test_the_names_of_blocks_never_matter(rows: list[Row]) -> None:
    def renamed(values: object) -> dict[str, float]:
        return {f"run 7 / {int(k) * 3 + 5}": v for k, v in values.items()}  # type: ignore[attr-defined]

    others = [
        dataclasses.replace(
            with_sides(x, lambda s: Sides(base=renamed(s.base), candidate=renamed(s.candidate))),
            stages=renamed(x.stages),  # type: ignore[arg-type]
        )
        for x in rows
    ]
    assert judge(rows).verdicts == judge(others).verdicts


@settings(max_examples=100, deadline=None)
@given(comparisons(), st.sampled_from([1e-6, 1e-3, 60.0, 1e9]))
def test_units_never_matter(rows: list[Row], factor: float) -> None:
    def scaled(values: object) -> dict[str, float]:
        return {k: v * factor for k, v in values.items()}  # type: ignore[attr-defined]

    others = [
        with_sides(x, lambda s: Sides(base=scaled(s.base), candidate=scaled(s.candidate))) for x in rows
    ]
    for one, other in zip(judge(rows).verdicts, judge(others).verdicts, strict=True):
        assert one.verdict is other.verdict
        if one.delta is not None:
            assert math.isclose(one.delta, other.delta, abs_tol=1e-9)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(comparisons())
def test_no_verdict_holds_a_number_that_is_none(rows: list[Row]) -> None:
    for verdict in judge(rows).verdicts:
        for field in dataclasses.fields(verdict):
            value = getattr(verdict, field.name)
            assert not isinstance(value, float) or math.isfinite(value), field.name
