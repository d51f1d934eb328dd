"""Which pairs of an A/B run more blocks could still decide: the comparison, asked while it is being measured.

The rows are the very ones that the comparison makes of the stored run afterwards, and the
answers come from the judge's own looks, so that a run is judged as it was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matrix.arms import Pair
from matrix.catalog.types import Catalog
from matrix.compare import native
from matrix.compare.native import Bout, Rules
from matrix.judge import looks
from matrix.judge.rows import Row, Stage
from matrix.records import VOID, LaunchRecord
from matrix.store.runs import Attempts, StoredRun

OpenPairs = Callable[[StoredRun, Sequence[Pair], Sequence[Pair]], Mapping[Pair, Stage]]


def undecided(catalog: Catalog, margins: Mapping[str, float], metrics: Sequence[str] = ()) -> OpenPairs:
    """A function of a run, the pairs that are to be decided and those of the base against itself.

    What it returns says of each pair that is still open what its next block is for. Suspects are
    confirmed first: a budget that ends then has settled what matters most, although confirming
    blocks are of no use to what is still open of the same workload.
    """
    rules = Rules(registry=catalog.metrics, margins=margins, metrics=tuple(metrics))

    def open_pairs(
        run: StoredRun, pairs: Sequence[Pair], against_itself: Sequence[Pair]
    ) -> dict[Pair, Stage]:
        attempts = run.attempts()
        aa = [row for i, pair in enumerate(against_itself) for row in _rows(f"aa {i}", pair, attempts, rules)]
        rows: list[Row] = []
        found: dict[Pair, Stage] = {}
        owners: dict[str, Pair] = {}
        for i, pair in enumerate(pairs):
            mine = _rows(str(i), pair, attempts, rules)
            if not any(_counts(launch, pair) for launch in attempts.launches(pair.candidate.id)):
                found[pair] = Stage.SCREEN
            owners[str(i)] = pair
            rows += mine
        for state in looks.state_of(rows, aa=aa):
            if state.stage is not None:
                pair = owners[state.workload]
                found[pair] = (
                    Stage.CONFIRM if Stage.CONFIRM in (state.stage, found.get(pair)) else state.stage
                )
        return found

    return open_pairs


def _counts(launch: LaunchRecord, pair: Pair) -> bool:
    return launch.purpose == "measure" and launch.pair == pair.name and launch.stage != VOID


def _rows(label: str, pair: Pair, attempts: Attempts, rules: Rules) -> list[Row]:
    work = pair.base.workload
    bout = Bout(
        label=label,
        family=f"{pair.base.environment.hardware}|{work.level}",
        base=attempts.launches(pair.base.id),
        candidate=attempts.launches(pair.candidate.id),
        batch=work.batch,
        threads=(work.threads, pair.candidate.workload.threads),
        pair=pair.name,
        layout="live-pair",
    )
    return list(native.rows(bout, rules))
