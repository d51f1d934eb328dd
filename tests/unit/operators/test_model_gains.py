"""What a candidate would bring a model: only what the run itself timed, and else the reason."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.operators.gain import Share
from matrix.records import EnvironmentRecord, MetricValue, ReasonRecord, Record, WorkloadRecord
from matrix.report.operators import candidates
from matrix.report.style import Style
from matrix_adapters.protocol import State

CONFIG = {"models": ["bert"], "operators": ["from-model:bert"], "batch": [4, 1], "sequence": [128]}


def record(
    subject: str,
    latency: float,
    *,
    variant: str = "eager",
    level: str = "operator",
    count: int = 1,
    state: State = State.OK,
    batch: int = 1,
    sequence: int | None = None,
    threads: int = 1,
    flags: str = "",
) -> Record:
    work: dict[str, Any] = {"model": "bert", "count": count} if level == "operator" else {}
    return Record(
        id=f"{subject}{variant}{batch}{threads}",
        label=subject,
        environment=EnvironmentRecord(name="pytorch-1-cpu", framework="pytorch", version="1", hardware="cpu"),
        workload=WorkloadRecord(
            level=level,
            subject=subject,
            batch=batch,
            sequence=sequence,
            precision="fp32",
            threads=threads,
            variant=variant,
        ),
        state=state,
        metrics={"latency_ms": MetricValue(value=latency, unit="ms")},
        work=work,
        flags=(ReasonRecord(code=flags, text="the machine was busy"),) if flags else (),
    )


def model(latency: float = 40.0, **more: Any) -> Record:
    return record("bert", latency, level="inference", **{"batch": 4, "sequence": 128, **more})


def run(**changed: Any) -> list[Record]:
    """A model of 40 ms with 12 norms of 1 ms and 1 of 4 ms; the candidate takes a half, and a quarter."""
    cells = {
        "model": model(),
        "small": model(batch=1, latency=9.0),
        "gemm": record("MatMul/bert_01", 0.5, count=24),
        "first": record("Norm/bert_01", 1.0, count=12),
        "second": record("Norm/bert_02", 4.0),
        "mine_first": record("Norm/bert_01", 0.5, count=12, variant="candidate:mine"),
        "mine_second": record("Norm/bert_02", 1.0, variant="candidate:mine"),
    }
    return [one for one in (cells | changed).values() if one is not None]


def test_the_share_and_the_speedup_weigh_each_case_by_how_often_the_model_has_it() -> None:
    (found,) = candidates.find(run(), (), CONFIG)
    (gain,) = found.gains
    assert gain.share.derived
    assert gain.share.share == pytest.approx(16 / 40), "of the batch that its operators were timed at"
    assert gain.speedup == pytest.approx(16 / 7)
    assert gain.gain == pytest.approx(40 / (24 + 7)), "what is left is 24 ms and the candidate's 7 ms"
    text = candidates.table([found], Style())
    assert "derived: 13 of them alone take 16 ms, the model 40 ms" in text
    assert "x1.29 end to end" in text


def test_a_time_that_a_flag_speaks_against_is_told_with_what_follows_from_it() -> None:
    (clean,) = candidates.find(run(), (), CONFIG)
    assert "flags speak" not in candidates.table([clean], Style())
    noisy = record("Norm/bert_02", 1.0, variant="candidate:mine", flags="contended")
    (found,) = candidates.find(run(mine_second=noisy), (), CONFIG)
    assert found.gains[0].share.flags == ("contended",)
    assert [timed.flags for timed in found.timed] == [(), ("contended",)]
    assert candidates.table([found], Style()).count("flags speak against some: contended") == 2


def test_a_given_share_goes_before_a_derived_one() -> None:
    (found,) = candidates.find(run(), [Share(model="bert", share=0.1, source="given")], CONFIG)
    assert [(gain.share.source, gain.share.derived) for gain in found.gains] == [("given", False)]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": None, "small": None}, "the model itself was not timed: name bert under `models`"),
        ({"model": None}, "not timed at the sizes of its operators"),
        ({"model": model(state=State.OOM)}, "the model itself has no latency: oom"),
        ({"model": model(15.0)}, "no share follows"),
        ({"first": None, "second": None, "gemm": None}, "none of its operators was timed"),
        ({"first": None, "second": None}, "among the 1 operators of its file there is no Norm"),
        ({"second": record("Norm/bert_02", 4.0, state=State.FAILED)}, "Norm/bert_02 has no latency"),
        ({"mine_second": None}, "no time in Norm/bert_02, one of its cases: not planned"),
        (
            {"mine_second": record("Norm/bert_02", 0.1, variant="candidate:mine", state=State.INCORRECT)},
            "no time in Norm/bert_02, one of its cases: incorrect",
        ),
    ],
)
def test_where_a_share_does_not_follow_the_reason_is_told(changed: dict[str, Any], why: str) -> None:
    (found,) = candidates.find(run(**changed), (), CONFIG)
    assert found.gains == ()
    assert [none.model for none in found.without] == ["bert"]
    assert why in found.without[0].why
    assert f"bert: its share is unavailable: {found.without[0].why}" in candidates.table([found], Style())


def test_another_environment_or_number_of_threads_says_nothing() -> None:
    (found,) = candidates.find(run(model=model(threads=2), small=None), (), CONFIG)
    assert found.gains == ()
    assert "was not timed" in found.without[0].why


def test_a_model_of_one_size_needs_no_choice() -> None:
    (found,) = candidates.find(run(model=model(batch=7, sequence=None), small=None), (), CONFIG)
    assert len(found.gains) == 1
