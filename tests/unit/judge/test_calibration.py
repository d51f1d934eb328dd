"""Nothing planted stays nothing, and a plant is found: thousands of cells through the whole judge.

The full tables are in `tests/bench/test_verdict_bench.py`; this is the part that fits a test run.
"""

from __future__ import annotations

import numpy as np
import pytest
from bench.verdicts import noise, procedures

from matrix.judge.rows import Word

CELLS = 300  # a matrix


def verdicts(ran: procedures.Ran) -> list[Word]:
    return [v.verdict for v in ran.judged.verdicts]


@pytest.mark.parametrize("kind", noise.KINDS)
def test_a_matrix_in_which_nothing_changed_has_few_suspects_and_no_confirmed_ones(kind: str) -> None:
    rng = np.random.default_rng([1, noise.KINDS.index(kind)])
    suspects = wrong = cells = 0
    for _ in range(3):
        ran = procedures.sequential(noise.draw(kind, CELLS, procedures.MOST, rng))
        words = verdicts(ran)
        suspects, cells = suspects + ran.slower + ran.faster, cells + len(words)
        wrong += sum(w in (Word.REGRESSED, Word.IMPROVED) for w in words)
        assert words.count(Word.NO_WORSE) > 0.8 * len(words)
    assert suspects <= 0.05 * cells
    assert wrong <= 1


@pytest.mark.parametrize("kind", noise.KINDS)
@pytest.mark.parametrize("blocks", [3, 4, 12])
def test_a_stored_sample_in_which_nothing_changed_is_not_regressed(kind: str, blocks: int) -> None:
    rng = np.random.default_rng([2, noise.KINDS.index(kind), blocks])
    suspects = wrong = cells = 0
    for _ in range(5):
        ran = procedures.fixed(noise.draw(kind, CELLS, blocks, rng), blocks)
        suspects, cells = suspects + ran.slower + ran.faster, cells + CELLS
        wrong += sum(w in (Word.REGRESSED, Word.IMPROVED) for w in verdicts(ran))
    assert suspects <= 0.05 * cells
    assert wrong <= 1


@pytest.mark.parametrize(("sign", "word"), [(1, Word.REGRESSED), (-1, Word.IMPROVED)])
def test_changes_of_five_percent_are_found_in_a_few_blocks(sign: int, word: Word) -> None:
    logs = noise.draw("normal", CELLS, procedures.MOST, np.random.default_rng(3), sd=0.015)
    logs.candidate[:15] += sign * np.log(1.05)
    ran = procedures.sequential(logs)
    words = verdicts(ran)
    assert words[:15].count(word) >= 14
    assert words[15:].count(Word.NO_WORSE) >= 0.93 * (CELLS - 15)
    assert ran.blocks / CELLS <= 8


def test_slowdowns_of_exactly_the_margin_are_hardly_ever_certified() -> None:
    logs = noise.draw("normal", CELLS, procedures.MOST, np.random.default_rng(4), sd=0.015)
    logs.candidate[:] += np.log(1.03)
    assert verdicts(procedures.sequential(logs)).count(Word.NO_WORSE) <= 0.05 * CELLS
