"""One cell's drill-down as data: everything known of it, in words and numbers ready to show."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matrix.records import LaunchRecord, MetricValue, Record
from matrix.report.matrix_table import Mark, TableCell
from matrix.report.metrics import FROM_PARITY, Catalog, metric
from matrix.report.plots import ErrorAxis, Share, Strip, error_axis, stack, strip
from matrix.report.run_files import RunFiles
from matrix.report.units import human, pretty, scale_for
from matrix_adapters.protocol import State

Pairs = list[tuple[str, str]]

_LONGEST = 400
_MOST_PAIRS = 80
_PHASES = (
    ("import", "import_s"),
    ("load", "load_s"),
    ("compile", "compile_s"),
    ("first call", "first_call_ms"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class MetricLine:
    """One metric of the cell: its number, or why there is none."""

    title: str
    value: str
    spread: str
    n: str
    better: str
    derived: bool
    absent: str = ""
    struck: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchLine:
    """One fresh process: when it ran, how it ended, what it measured."""

    block: int
    purpose: str
    attempt: int
    position: int
    state: State
    latency: str
    load: str
    started: str
    reason: str
    flags: tuple[str, ...]
    log: str  # path in the run folder, when the file is there
    tail: str  # the end of the log, for a launch that did not end well


@dataclasses.dataclass(frozen=True, slots=True)
class CellView:
    """All that the drill-down of one cell shows."""

    record: Record
    anchor: str
    title: str
    workload: str
    value: str
    mark: Mark
    why: str
    metrics: tuple[MetricLine, ...]
    phases: tuple[Share, ...]
    first_output: str
    strip: Strip | None
    strip_low: str
    strip_high: str
    axis: ErrorAxis | None
    parity: Pairs
    contract: Pairs
    effective: Pairs
    artefacts: Pairs
    versions: Pairs
    probes: Pairs
    launches: tuple[LaunchLine, ...]
    environment: int  # index into the page's list of environments


def cell_view(
    cell: TableCell, *, title: str, workload: str, catalog: Catalog, files: RunFiles, environment: int
) -> CellView:
    """Gather one cell. Reads its samples and, where it ended badly, the ends of its logs."""
    record = cell.record
    parts = [(name, s) for name, key in _PHASES if (s := _seconds(record.metrics.get(key))) is not None]
    first = record.metrics.get("time_to_first_output_s")
    timed = [x for x in record.launches if x.purpose == "measure" and x.samples]
    drawn = strip([(f"launch {x.block + 1}", files.per_call_ms(x)) for x in timed])
    scale = scale_for([drawn.low, drawn.high], "ms") if drawn else None
    parity = record.parity
    return CellView(
        record=record,
        anchor=f"c-{record.id}",
        title=title,
        workload=workload,
        value=pretty(cell.text),
        mark=cell.mark,
        why=cell.why,
        metrics=tuple(_metric_lines(record, catalog)),
        phases=tuple(stack(parts)),
        first_output=pretty(human(first.value, first.unit)) if first else "",
        strip=drawn,
        strip_low=pretty(scale.text(drawn.low)) if drawn and scale else "",
        strip_high=pretty(scale.text(drawn.high)) if drawn and scale else "",
        axis=error_axis(parity.floor, parity.limit, parity.max_scaled_error) if parity else None,
        parity=_parity(record),
        contract=pairs(record.contract),
        effective=pairs(record.effective),
        artefacts=pairs(record.artefacts),
        versions=pairs(record.versions),
        probes=pairs(next((x.probes for x in record.launches if x.probes), {})),
        launches=tuple(_launch(x, files) for x in record.launches),
        environment=environment,
    )


def pairs(values: Mapping[str, Any]) -> Pairs:
    """Nested settings as dotted names and short texts; what nobody could read is left out."""
    found: Pairs = []
    for name, value in _flat(values, ""):
        if len(found) == _MOST_PAIRS:
            found.append(("more", "in the JSON export"))
            break
        text = _word(value)
        found.append((name, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."))
    return found


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif value not in (None, "", (), []):
            yield f"{prefix}{name}", value


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(_word(v) for v in value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _seconds(value: MetricValue | None) -> float | None:
    if value is None:
        return None
    return value.value / 1e3 if value.unit == "ms" else value.value


def _metric_lines(record: Record, catalog: Catalog) -> Iterator[MetricLine]:
    arrows = {"lower": "lower is better", "higher": "higher is better"}
    for name, value in record.metrics.items():
        entry = metric(catalog, name)
        known = [v for v in (value.value, value.low, value.high) if v is not None]
        scale = scale_for(known, value.unit)
        spread = ""
        if value.low is not None and value.high is not None and value.n > 1:
            spread = f"{scale.number(value.low)} – {scale.number(value.high)}"
        count = f"{value.n} samples" if "_p9" in name else f"{value.n} launches" if value.n > 1 else ""
        better = arrows.get(entry.better, "")
        yield MetricLine(
            title=entry.title,
            value=pretty(scale.text(value.value)),
            spread=spread,
            n=count,
            better=better,
            derived=value.derived,
            struck=record.state is State.INCORRECT and name not in FROM_PARITY,
        )
    for name, why in record.absent.items():
        entry = metric(catalog, name)
        yield MetricLine(entry.title, "", "", "", arrows.get(entry.better, ""), False, why)


def _parity(record: Record) -> Pairs:
    parity = record.parity
    if parity is None:
        return []
    numbers = [
        ("error (max|d| / max|ref|)", parity.max_scaled_error),
        ("limit", parity.limit),
        ("noise floor of the model", parity.floor),
        ("least tolerance that would have passed", parity.least_passing),
        ("cosine", parity.cosine),
        ("top-1 agreement", parity.top1_agreement),
    ]
    words = [
        ("reference", parity.reference),
        ("rule", parity.rule),
        ("failed", parity.failure),
        ("worst", parity.worst),
    ]
    shown = [(name, human(v, "1")) for name, v in numbers if v is not None]
    return [*((n, w) for n, w in words[:2] if w), *shown, *((n, w) for n, w in words[2:] if w)]


def _launch(launch: LaunchRecord, files: RunFiles) -> LaunchLine:
    latency = launch.metrics.get("latency_ms")
    bad = launch.state is not State.OK
    return LaunchLine(
        block=launch.block + 1,
        purpose=launch.purpose,
        attempt=launch.attempt,
        position=launch.position + 1,
        state=launch.state,
        latency="" if latency is None else pretty(human(latency, "ms")),
        load=_load(launch.probes),
        started=launch.started[11:19],
        reason=launch.reason.text if launch.reason else "",
        flags=tuple(flag.text for flag in launch.flags),
        log=launch.log if launch.log and files.path(launch.log) else "",
        tail=files.log_tail(launch) if bad else "",
    )


def _load(probes: Mapping[str, Any]) -> str:
    """One-minute load average before and after: "0.60, 1.10"."""
    found: list[str] = []
    for when in ("before", "after"):
        moment = probes.get(when)
        value = moment.get("load_average") if isinstance(moment, Mapping) else None
        if isinstance(value, Sequence) and value and isinstance(value[0], (int, float)):
            found.append(f"{value[0]:.2f}")
    return ", ".join(found)
