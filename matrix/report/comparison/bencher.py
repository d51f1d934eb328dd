"""The candidate's numbers as Bencher Metric Format: benchmark -> measure -> value and its bounds.

https://bencher.dev/docs/reference/bencher-metric-format/
"""

from __future__ import annotations

import json

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.report.comparison import Options
from matrix.report.comparison.github import bounds


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """One benchmark for each workload; the measures are the metrics' own ids, with hyphens."""
    del catalog, options
    found: dict[str, dict[str, dict[str, float]]] = {}
    for finding in comparison.findings:
        if finding.kind != "metric" or not isinstance(finding.candidate, (int, float)):
            continue
        values = {"value": float(finding.candidate)}
        interval = bounds(finding)
        if interval is not None:
            values |= {"lower_value": interval[0], "upper_value": interval[1]}
        found.setdefault(finding.workload, {})[finding.metric.replace("_", "-")] = values
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
