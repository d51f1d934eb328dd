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
        itself = [_bout(f"aa {i}", pair, attempts) for i, pair in enumerate(against_itself)]
        aa = [row for bout in itself for row in native.rows(bout, rules)]
        rows: list[Row] = []
        found: dict[Pair, Stage] = {}
        owners: dict[str, Pair] = {}
        for i, pair in enumerate(pairs):
            bout = _bout(str(i), pair, attempts)
            if not any(_counts(launch, pair) for launch in bout.candidate):
                found[pair] = Stage.SCREEN
            owners[str(i)] = pair
            rows += native.rows(bout, rules)
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


def _bout(label: str, pair: Pair, attempts: Attempts) -> Bout:
    work = pair.base.workload
    return Bout(
        label=label,
        family=f"{pair.base.environment.hardware}|{work.level}",
        base=attempts.launches(pair.base.id),
        candidate=attempts.launches(pair.candidate.id),
        batch=work.batch,
        threads=(work.threads, pair.candidate.workload.threads),
        pair=pair.name,
        layout="live-pair",
    )
