"""The run as strict JSON: `{"run": header, "cells": [record, ...]}`. No NaN, no Infinity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record


def render(records: Sequence[Record], header: Mapping[str, Any]) -> str:
    """Everything the records hold, in stored units, for programs."""
    document = {"run": _finite(header), "cells": [_finite(r.model_dump(mode="json")) for r in records]}
    return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _finite(value: Any) -> Any:
    """What JSON knows; a number that is none becomes null (a header of an older run may hold one)."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
