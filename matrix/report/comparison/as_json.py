"""A comparison for scripts. Every number is finite or null; fractions are worse when positive."""

from __future__ import annotations

import json
import math
from typing import Any

from matrix.catalog.types import Catalog
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.compare.sides import Side
from matrix.judge.rows import Word
from matrix.report.comparison import Options
from matrix.report.comparison.words import sentence

_OF_JUDGED = ("effect", "low", "high")
_MORE = ("margin", "mde", "n", "clock", "layout", "p_worse", "p_no_worse", "p_sign_flip")
_LAST = ("screen_effect", "needed_blocks", "needed_s")


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """The text of `compare --json`."""
    del catalog, options
    found = data(comparison)
    lines = ",\n  ".join(json.dumps(one, ensure_ascii=False, allow_nan=False) for one in found["cells"])
    head = json.dumps(found["summary"], indent=1, ensure_ascii=False, allow_nan=False)
    body = f"[\n  {lines}\n ]" if lines else "[]"  # a cell a line: quick to write, and to read
    return f'{{\n "summary": {head},\n "cells": {body}\n}}\n'


def data(comparison: Comparison) -> dict[str, Any]:
    """`{"summary": ..., "cells": [...]}`, worst first."""
    return {"summary": summary(comparison), "cells": [cell(finding) for finding in comparison.findings]}


def summary(comparison: Comparison) -> dict[str, Any]:
    """The sum of it: counts, means, the instrument, in what the environments differ."""
    instrument = comparison.instrument
    base, candidate = comparison.sides
    return {
        "base": [_side(side) for side in base],
        "candidate": [_side(side) for side in candidate],
        "counts": {word.value: comparison.counts().get(word, 0) for word in Word},
        "geometric_mean": [
            {"metric": mean.metric, "ratio": _finite(mean.ratio), "rows": mean.rows}
            for mean in comparison.means
        ],
        "pass_rate": {
            name: {"ok": count.ok, "cells": count.cells}
            for name, count in (("base", comparison.base), ("candidate", comparison.candidate))
        },
        "worst": [
            {
                "workload": f.workload,
                "metric": f.metric,
                "verdict": f.verdict.value,
                "effect": _finite(f.effect),
            }
            for f in comparison.findings[:10]
        ],
        "instrument": {
            "aa_rows": instrument.aa_rows,
            "aa_alarms": instrument.aa_alarms,
            "aa_variance": _finite(instrument.aa_variance),
            "control_effect": _finite(instrument.control_effect),
            "control_low": _finite(instrument.control_low),
            "control_high": _finite(instrument.control_high),
            "problems": list(instrument.problems),
        },
        "common_shift": _finite(instrument.common_shift),
        "alpha": comparison.alpha,
        "lock_changes": {
            name: [{"name": c.name, "base": c.base, "candidate": c.candidate} for c in changes]
            for name, changes in comparison.locks.items()
        },
        "warnings": list(comparison.warnings),
        "metrics_without_margin": list(comparison.unjudged),
        "fail_on": list(comparison.fail_on),
        "failing": dict(comparison.failing),
    }


def cell(finding: Finding) -> dict[str, Any]:
    """One finding, flat."""
    judged = finding.judged
    found: dict[str, Any] = {
        "workload": finding.workload,
        "metric": finding.metric,
        "verdict": finding.verdict.value,
        **{name: _finite(getattr(judged, name, None)) for name in _OF_JUDGED},
        "unit": finding.unit,
        "better": finding.better,
        "base": _finite(finding.base),
        "candidate": _finite(finding.candidate),
        "reason": finding.reason,
        "log_effect": _finite(getattr(judged, "delta", None)),
        "log_low": _finite(getattr(judged, "delta_low", None)),
        "log_high": _finite(getattr(judged, "delta_high", None)),
        **{name: _finite(getattr(judged, name, None)) for name in (*_MORE, *_LAST)},
        "kind": finding.kind,
        "missing": finding.missing,
        "derived": finding.derived,
        "sentence": sentence(finding),
    }
    return found


def _side(side: Side) -> dict[str, Any]:
    header = side.run.header
    return {
        "run": header.id,
        "name": header.name,
        "environment": side.environment,
        "created": header.created,
        "machine": header.machine.get("identity"),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
