"""The order of checks over all outputs of a case, and the sentence about what failed first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix.catalog.operator_rules import OperatorRule
from matrix.judge.operators.floats import judge_floats
from matrix.judge.operators.formats import FORMATS
from matrix.judge.operators.integers import judge_integers, wrapped_bits
from matrix.judge.operators.limits import Limits
from matrix.judge.operators.outcome import Failure, Outcome
from matrix.judge.operators.verdict import OperatorVerdict

Arrays = Mapping[str, npt.NDArray[np.generic]]


def judge(
    outputs: Arrays,
    dtypes: Mapping[str, str],
    expected: Arrays,
    expected_dtypes: Mapping[str, str],
    rule: OperatorRule,
    *,
    depth: int = 1,
    scales: Mapping[str, npt.NDArray[Any]] | None = None,
) -> OperatorVerdict:
    """The verdict on the outputs of one case. Never raises for wrong outputs.

    `outputs` as a worker gave them back (bfloat16 as bits in uint16, or widened), `dtypes` what
    they really were; `expected` is float64, unrounded, for float outputs, and in its own type for
    the others; both sets of dtypes are words such as "bfloat16". `depth` is K of a reduction or
    product. `scales` may give the sums of absolute products of an output (its shape, or one that
    broadcasts to it), which bound the error better than the largest answer where terms cancel.
    """
    failure = _names(outputs, expected) or _shapes(outputs, expected)
    failure = failure or _dtypes(outputs, dtypes, expected, expected_dtypes)
    if failure:
        text = "names, shapes and dtypes come first"
        return OperatorVerdict(passed=False, rule=text, failure=failure.text, failure_code=failure.code)
    outcomes = []
    for name, wanted in expected.items():
        dtype, got = expected_dtypes[name], outputs[name]
        if dtype not in FORMATS:
            outcomes.append(judge_integers(name, got, wanted, dtype))
        elif (limit := rule.limit(dtype)) is None:
            text = f"{name}: the tolerance table has no numbers for {dtype} in this kind of operator"
            outcomes.append(Outcome(rule=f"none for {dtype}", failure=Failure("no_rule", text)))
        else:
            scale = (scales or {}).get(name)
            held_to = Limits(form=FORMATS[dtype], rule=rule, limit=limit, depth=depth, scale=scale)
            outcomes.append(judge_floats(name, got, wanted, held_to))
    rules = list(dict.fromkeys(outcome.rule for outcome in outcomes))
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    failures.sort(key=lambda one: one.code != "non_finite")  # where values are finite comes before errors
    first = failures[0] if failures else None
    text = first.text if first else ""
    if len(failures) > 1:
        text += f" (and {len(failures) - 1} more of {len(outcomes)} outputs)"
    return OperatorVerdict(
        passed=first is None,
        rule="; ".join(rules),
        failure=text,
        failure_code=first.code if first else "",
        outputs=tuple(outcome.error for outcome in outcomes if outcome.error),
        notes=tuple(note for outcome in outcomes for note in outcome.notes),
    )


def _names(outputs: Arrays, expected: Arrays) -> Failure | None:
    missing, extra = sorted(set(expected) - set(outputs)), sorted(set(outputs) - set(expected))
    if not missing and not extra:
        return None
    parts = [
        f"{word}: {', '.join(names)}"
        for word, names in (("missing", missing), ("not asked for", extra))
        if names
    ]
    return Failure("outputs", f"the outputs differ from the exact answer's: {'; '.join(parts)}")


def _shapes(outputs: Arrays, expected: Arrays) -> Failure | None:
    for name, wanted in expected.items():
        if outputs[name].shape != wanted.shape:
            text = f"{name} has shape {list(outputs[name].shape)}, the exact answer {list(wanted.shape)}"
            return Failure("shape", text)
    return None


def _dtypes(
    outputs: Arrays, dtypes: Mapping[str, str], expected: Arrays, expected_dtypes: Mapping[str, str]
) -> Failure | None:
    for name, wanted in expected.items():
        right = expected_dtypes[name]
        really = dtypes.get(name, str(outputs[name].dtype))
        if really == right:
            continue
        text = f"{name}: dtype differs {really}/{right} (got/exact)"
        got = outputs[name]
        if got.dtype.kind in "iu" and wanted.dtype.kind in "iu" and (bits := wrapped_bits(got, wanted)):
            return Failure("dtype", f"{text}; the values are wrapped too: equal modulo 2^{bits}")
        return Failure("dtype", text)
    return None
