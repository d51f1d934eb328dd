"""The candidate's numbers for github-action-benchmark, which keeps a chart of them.

A file of it holds metrics of one direction: `customSmallerIsBetter` (this module's default) or
`customBiggerIsBetter`. https://github.com/benchmark-action/github-action-benchmark
"""

from __future__ import annotations

import json
import math
from typing import Any

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.report.comparison import Options, words


def render(comparison: Comparison, catalog: Catalog, options: Options, *, better: str = "lower") -> str:
    """An array of entries, one for each finding with a value."""
    del catalog, options
    found = [
        _entry(finding)
        for finding in comparison.findings
        if finding.kind == "metric"
        and finding.better == better
        and isinstance(finding.candidate, (int, float))
    ]
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(finding: Finding) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{finding.workload} {finding.metric}",
        "unit": finding.unit,
        "value": finding.candidate,
        "extra": words.sentence(finding),
    }
    interval = bounds(finding)
    if interval is not None and isinstance(finding.candidate, (int, float)):
        entry["range"] = f"{(interval[1] - interval[0]) / 2:.4g}"
    return entry


def bounds(finding: Finding) -> tuple[float, float] | None:
    """The candidate's value where the change is at the bounds of its interval; None without an interval."""
    judged, base = finding.judged, finding.base
    if (
        judged is None
        or judged.delta_low is None
        or judged.delta_high is None
        or not isinstance(base, (int, float))
    ):
        return None
    sign = -1.0 if finding.better == "higher" else 1.0
    found = sorted(
        base * math.exp(min(sign * bound, 700.0)) for bound in (judged.delta_low, judged.delta_high)
    )
    return (found[0], found[1]) if all(map(math.isfinite, found)) else None
