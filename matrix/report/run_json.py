"""The run as strict JSON: `{"run": header, "cells": [record, ...]}`. No NaN, no Infinity."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import Record


def render(records: Sequence[Record], header: Mapping[str, Any]) -> str:
    """Everything the records hold, in stored units, for programs."""
    cells = ",\n".join(_dumped(record.model_dump(mode="json")) for record in records)
    # one record a line: runs of operators have many thousands, and indentation would be a third of the file
    return f'{{"run": {_dumped(header, indent=1)},\n"cells": [\n{cells}\n]}}\n'


def _dumped(value: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(value), allow_nan=False, ensure_ascii=False, indent=indent)


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
