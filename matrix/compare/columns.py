"""Rows of imported samples: whole columns at once, since there may be hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from matrix.catalog.types import Metric
from matrix.compare.native import Rules
from matrix.imported.samples import Samples, groups, per_block
from matrix.judge.rows import Layout, Row, Sides
from matrix.records import CONTROL, IMPORTED

#: metric -> workload -> block -> value, of one environment
Columns = Mapping[str, Mapping[str, Mapping[str, float]]]

#: metrics of which every measurement gives the same number
_FIXED = ("image_bytes",)


def of_environment(samples: Samples, environment: str) -> Columns:
    """The values of one environment in order of appearance. Empty for one that has none."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    if environment not in samples.names["environment"]:
        return found
    reduced = per_block(samples)
    wanted = samples.names["environment"].index(environment)
    starts, ends = groups(reduced, ("environment", "metric", "workload"))
    mine = reduced.codes["environment"][starts] == wanted
    metrics, workloads, blocks = (samples.names[key] for key in ("metric", "workload", "block"))
    labels = [blocks[code] for code in reduced.codes["block"].tolist()]
    values = reduced.value.tolist()
    for metric, workload, start, end in zip(
        reduced.codes["metric"][starts[mine]].tolist(),
        reduced.codes["workload"][starts[mine]].tolist(),
        starts[mine].tolist(),
        ends[mine].tolist(),
        strict=True,
    ):
        column = dict(zip(labels[start:end], values[start:end], strict=True))
        found.setdefault(metrics[metric], {})[workloads[workload]] = column
    return found


def rows(
    base: Columns,
    candidate: Columns,
    rules: Rules,
    *,
    layout: Layout,
    prefix: str = "",
    not_comparable: str = "",
) -> Iterator[Row]:
    """One row for each workload and metric that either side has and that has a margin."""
    for name, metric in rules.registry.items():
        if rules.margin(name) is None or not (name in base or name in candidate):
            continue
        mine, other = base.get(name, {}), candidate.get(name, {})
        for workload in dict.fromkeys([*mine, *other]):
            sides = Sides(base=mine.get(workload, {}), candidate=other.get(workload, {}))
            yield _row(
                f"{prefix}{workload}",
                metric,
                rules.margin_at(name, {"": sides}),
                sides,
                layout=layout,
                not_comparable=not_comparable,
            )


def _row(
    label: str, metric: Metric, margin: float, sides: Sides, *, layout: Layout, not_comparable: str
) -> Row:
    return Row(
        workload=label,
        metric=metric.id,
        unit=metric.unit,
        better=metric.better,
        margin=margin,
        clocks={"": sides},
        family=f"{CONTROL if label == CONTROL else IMPORTED}|{metric.id}",
        layout=layout,
        timing=metric.unit != "bytes",
        fixed=metric.id in _FIXED,
        not_comparable=not_comparable,
    )
