"""What a candidate would bring the models of its own run: shares that follow from what was timed there.

A sweep with `models: [NAME]` and `operators: [from-model:NAME]` times the model, and each of its
operators alone, with the candidate and without. How often the model has a case, times what the case
takes alone, over what the model takes is the operator's share; it is derived, and no profile: alone an
operator finds its data in the cache, and nothing is fused with it. Where the run does not say it, the
reason is told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matrix.operators.gain import Gain, NoShare, derived_share, gain_of
from matrix.records import CANDIDATE, OPERATOR, Record, operator_of
from matrix_adapters.protocol import State

_MODEL = "inference"
_FROM_MODEL = "from-model:"


def of_models(
    records: Sequence[Record], config: Mapping[str, Any], own: Sequence[Record]
) -> tuple[tuple[Gain, ...], tuple[NoShare, ...]]:
    """For each model that the sweep names, its gain or the reason why there is none.

    `config`: what the run stored of its sweep. `own`: all cells of one candidate in one environment.
    """
    gains: list[Gain] = []
    without: list[NoShare] = []
    first = own[0]
    own = [record for record in own if record.workload.threads == first.workload.threads]
    here = [
        record
        for record in records
        if record.environment.name == first.environment.name
        and record.workload.threads == first.workload.threads
        and not record.workload.variant.startswith(CANDIDATE)
    ]
    for model in _models(here, config):
        try:
            gains.append(_gain(model, here, config, own))
        except ValueError as why:
            without.append(NoShare(model=model, why=str(why).removeprefix(f"{model}: ")))
    return tuple(gains), tuple(without)


def _models(here: Sequence[Record], config: Mapping[str, Any]) -> list[str]:
    """In the order of the sweep: those that are timed, and those whose operators are."""
    timed = [r.workload.subject for r in here if r.workload.level == _MODEL]
    words = [str(word) for word in config.get("operators", ())]
    asked = [word.removeprefix(_FROM_MODEL) for word in words if word.startswith(_FROM_MODEL)]
    return list(dict.fromkeys([*timed, *asked]))


def _gain(model: str, here: Sequence[Record], config: Mapping[str, Any], own: Sequence[Record]) -> Gain:
    """Raises ValueError with what is missing."""
    operator = operator_of(own[0].workload)
    parts = [r for r in here if r.workload.level == OPERATOR and r.work.get("model") == model]
    if not parts:
        raise ValueError(f"none of its operators was timed: name {_FROM_MODEL}{model} under `operators`")
    stock = _by_case(r for r in parts if operator_of(r.workload) == operator)
    if not stock:
        count = len({operator_of(r.workload) for r in parts})
        raise ValueError(f"among the {count} operators of its file there is no {operator}")
    uses = {case: int(record.work.get("count", 1)) for case, record in stock.items()}
    before = {case: ms for case, record in stock.items() if (ms := _latency(record)) is not None}
    whole = _timed_model(model, here, config)
    share = derived_share(model, uses, before, _model_ms(whole))
    mine = _by_case(r for r in own if r.workload.subject in uses)
    after: dict[str, float] = {}
    for case in uses:
        record = mine.get(case)
        ms = _latency(record) if record is not None else None
        if record is None or ms is None:
            state = record.state.value.replace("_", " ") if record is not None else "not planned"
            raise ValueError(f"the candidate has no time in {case}, one of its cases: {state}")
        after[case] = ms
    speedup = sum(n * before[case] for case, n in uses.items()) / sum(
        n * after[case] for case, n in uses.items()
    )
    flags = flag_codes([whole, *stock.values(), *(mine[case] for case in uses)])
    return gain_of(dataclasses.replace(share, flags=flags), speedup)


def flag_codes(records: Iterable[Record]) -> tuple[str, ...]:
    """What speaks against any of their times, each code once."""
    return tuple(sorted({flag.code for record in records for flag in record.flags}))


def _by_case(records: Any) -> dict[str, Record]:
    """The first one of each case: a framework's first variant is the stock one."""
    found: dict[str, Record] = {}
    for record in records:
        found.setdefault(record.workload.subject, record)
    return found


def _timed_model(model: str, here: Sequence[Record], config: Mapping[str, Any]) -> Record:
    """The cell of the model at the batch and sequence whose operators were timed: the sweep's first ones."""
    timed = [
        r
        for r in here
        if r.workload.level == _MODEL and r.workload.subject == model and r.workload.precision == "fp32"
    ]
    if not timed:
        raise ValueError(f"the model itself was not timed: name {model} under `models`")
    for field, asked in (("batch", config.get("batch")), ("sequence", config.get("sequence"))):
        if not asked:
            continue
        sizes = {getattr(r.workload, field) for r in timed}
        if sizes & set(asked):  # else the model has a size of its own
            timed = [r for r in timed if getattr(r.workload, field) == asked[0]]
    if not timed:
        raise ValueError(
            f"the model itself was not timed at the sizes of its operators, {_FROM_MODEL}{model}"
        )
    return timed[0]


def _model_ms(whole: Record) -> float:
    ms = _latency(whole)
    if ms is None:
        raise ValueError(f"the model itself has no latency: {whole.state.value.replace('_', ' ')}")
    return ms


def _latency(record: Record) -> float | None:
    """Milliseconds of a call, of a cell that is right."""
    found = record.metrics.get("latency_ms")
    return found.value if record.state is State.OK and found is not None and found.value > 0 else None
