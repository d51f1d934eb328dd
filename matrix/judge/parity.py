"""Are these outputs right? The numerics of one launch against the float64 reference.

Order of checks: names, shape, dtype, where values are finite; then the error against
the reference; then agreement on the task (top-1). Error is `max|d| / max|ref|` per
output tensor: an elementwise relative error explodes where the reference is near zero,
and a correlation alone hides a wrong scale, so neither ever decides.

The limit is the model's own noise: `clamp(factor x floor, least, most)`, where the
floor is the distance of the reference framework's float32 run from its float64 run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from matrix.records import Parity

Arrays = Mapping[str, npt.NDArray[np.generic]]

#: a top-1 check where more than this share of rows cannot be told apart proves nothing
MAX_UNDECIDABLE = 0.5
FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


class Rule(Protocol):
    """A row of the tolerance table."""

    @property
    def floor_factor(self) -> float: ...
    @property
    def least(self) -> float: ...
    @property
    def most(self) -> float: ...
    @property
    def top1(self) -> float:
        """Least share of rows whose top-1 must agree; 0 reports it without judging."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Override:
    """A user's own tolerance for a model; the reason is required and shown."""

    limit: float
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reference:
    """What the outputs should be, and how far plain float32 arithmetic is from it."""

    source: str  # "pytorch 2.13.0 float64", "outputs given by the user"
    float64: Arrays
    float32: Arrays
    float32_again: Arrays
    #: what its maker says to distrust about it: (code, text)
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def floor(self) -> float:
        """The noise of the arithmetic: worst scaled error of the reference's own float32 run."""
        return max((scaled_error(self.float32[n], r) for n, r in self.float64.items()), default=0.0)

    @property
    def repeatable(self) -> bool:
        """Whether two float32 runs of the reference framework gave the same bits."""
        return all(_same(a, self.float32_again[name]) for name, a in self.float32.items())


def load_reference(folder: Path) -> Reference:
    """Read a reference folder (float64.npz, float32.npz, float32_again.npz, reference.json)."""
    facts = json.loads((folder / "reference.json").read_text(encoding="utf-8"))
    measured = f"{facts['framework']} {facts['version']} float64"
    return Reference(
        source=facts["framework"] if facts.get("given") else measured,
        float64=load_arrays(folder / "float64.npz"),
        float32=load_arrays(folder / "float32.npz"),
        float32_again=load_arrays(folder / "float32_again.npz"),
        notes=tuple((flag["code"], flag["text"]) for flag in facts.get("flags", ())),
    )


def load_arrays(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """All arrays of an .npz; pickled objects are refused (ValueError)."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def judge(
    outputs: Arrays, reference: Reference, rule: Rule, *, top1: bool = False, override: Override | None = None
) -> Parity:
    """The verdict on `outputs`, with the rule that decided. Never raises for wrong outputs.

    `top1` says that the last axis holds class scores whose argmax must agree.
    """
    failure = _reference_problem(reference) or _form_problem(outputs, reference)
    if failure:
        code, text = failure
        return Parity(
            reference=reference.source,
            passed=False,
            rule="names, shapes, dtypes and finiteness come first",
            failure=text,
            failure_code=code,
        )
    return _judge_values(outputs, reference, rule, top1, override)


def _judge_values(
    outputs: Arrays, reference: Reference, rule: Rule, top1: bool, override: Override | None
) -> Parity:
    floor = reference.floor
    if override is not None:
        limit, text = override.limit, f"{override.limit:.3g}, set by the user: {override.reason}"
    else:
        limit = min(max(rule.floor_factor * floor, rule.least), rule.most)
        text = f"clamp({rule.floor_factor:g} x {floor:.2g}, {rule.least:.3g}, {rule.most:.3g}) = {limit:.3g}"
    errors = {name: scaled_error(outputs[name], wanted) for name, wanted in reference.float64.items()}
    worst_name = max(errors, key=errors.__getitem__)
    error = errors[worst_name]
    agreement, undecidable = _top1(outputs, reference, max(floor, FLOAT32_EPSILON)) if top1 else (None, 0.0)
    worst = describe_worst(worst_name, outputs[worst_name], reference.float64[worst_name])
    code = failure = ""
    if error > limit:
        code, failure = "tolerance", f"scaled error {error:.3g} is above {limit:.3g} at {worst}"
    elif undecidable > MAX_UNDECIDABLE:
        code = "top1_undecidable"
        failure = (
            f"{undecidable:.0%} of the rows have a top-1 margin below the noise: the check proves nothing"
        )
    elif agreement is not None and agreement < rule.top1:
        code, failure = "top1", f"top-1 agrees in {agreement:.1%} of the rows, {rule.top1:.1%} is needed"
    return Parity(
        reference=reference.source,
        passed=not failure,
        rule=f"max|d|/max|ref| <= {text}",
        limit=limit,
        floor=floor,
        max_scaled_error=error,
        cosine=min(cosine(outputs[name], wanted) for name, wanted in reference.float64.items()),
        top1_agreement=agreement,
        least_passing=error,
        worst=worst,
        failure=failure,
        failure_code=code,
    )


def scaled_error(got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> float:
    """`max|got - wanted| / max|wanted|`, in float64; exact types give 0 or 1."""
    if not _is_float(wanted):
        return 0.0 if _same(got, wanted) else 1.0
    if wanted.size == 0:
        return 0.0
    scale = float(np.max(np.abs(wanted)))
    gap = float(np.max(np.abs(got.astype(np.float64) - wanted.astype(np.float64))))
    return gap / scale if scale else gap


def cosine(got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> float:
    """Cosine similarity of the flattened tensors; 1 for two that are exactly equal."""
    if not _is_float(wanted) or wanted.size == 0:
        return 1.0 if _same(got, wanted) else 0.0
    a, b = got.astype(np.float64).ravel(), wanted.astype(np.float64).ravel()
    norm = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(np.clip(np.dot(a, b) / norm, -1.0, 1.0)) if norm else float(np.array_equal(a, b))


def describe_worst(name: str, got: npt.NDArray[np.generic], wanted: npt.NDArray[np.generic]) -> str:
    """Where the largest difference is, and both values there."""
    if wanted.size == 0:
        return name
    if _is_float(wanted):
        flat = int(np.argmax(np.abs(got.astype(np.float64) - wanted.astype(np.float64))))
    else:
        flat = int(np.argmax(np.asarray(got != wanted)))
    index = np.unravel_index(flat, wanted.shape)
    place = ", ".join(str(int(i)) for i in index)
    return (
        f"{name}[{place}]: got {got[index]:.9g}, reference {wanted[index]:.9g}"
        if _is_float(wanted)
        else (f"{name}[{place}]: got {got[index]}, reference {wanted[index]}")
    )


def _reference_problem(reference: Reference) -> tuple[str, str] | None:
    """A check that cannot fail is no check: the reference itself must be able to tell."""
    if not reference.repeatable:
        return (
            "non_deterministic_reference",
            "two float32 runs of the reference differ (left in training mode?): no verdict on numerics",
        )
    for name, wanted in reference.float64.items():
        if _is_float(wanted) and not np.isfinite(wanted).all():
            return "non_finite_reference", f"the reference output {name} holds NaN or infinity"
    floats = [a for a in reference.float64.values() if a.size > 1]
    if floats and all(bool((a == a.flat[0]).all()) for a in floats):
        return "constant_reference", "every reference output is constant: any constant would pass"
    return None


def _form_problem(outputs: Arrays, reference: Reference) -> tuple[str, str] | None:
    """What is wrong before any value is compared."""
    missing = sorted(set(reference.float64) - set(outputs))
    extra = sorted(set(outputs) - set(reference.float64))
    if missing or extra:
        return (
            "outputs",
            f"outputs differ from the reference: missing {missing or 'none'}, extra {extra or 'none'}",
        )
    for name, wanted in reference.float64.items():
        got = outputs[name]
        if got.shape != wanted.shape:
            return "shape", f"{name} has shape {list(got.shape)}, the reference {list(wanted.shape)}"
        expected = reference.float32[name].dtype
        if got.dtype.kind in "US" and expected.kind in "US":
            continue  # strings differ in width only
        if got.dtype != expected:
            return "dtype", f"{name} has dtype {got.dtype}, the reference {expected}"
    for name, wanted in reference.float64.items():
        got = outputs[name]
        if not _is_float(wanted):
            continue
        bad = ~np.isfinite(got)
        if bad.any():
            place = ", ".join(str(int(i)) for i in np.argwhere(bad)[0])
            return (
                "non_finite",
                f"{name} holds {int(np.isnan(got).sum())} NaN and {int(np.isinf(got).sum())} infinite "
                f"values, first at [{place}]; the reference is finite there",
            )
    return None


def _top1(outputs: Arrays, reference: Reference, noise: float) -> tuple[float | None, float]:
    """Share of rows whose argmax agrees, among rows whose margin is above the noise; share that is not."""
    agree = decidable = rows = 0
    for name, wanted in reference.float64.items():
        if not _is_float(wanted) or wanted.ndim == 0 or wanted.shape[-1] < 2:
            continue
        table = wanted.astype(np.float64).reshape(-1, wanted.shape[-1])
        top2 = np.partition(table, -2, axis=-1)[:, -2:]
        clear = (top2[:, 1] - top2[:, 0]) > noise * float(np.max(np.abs(table)))
        same = np.argmax(outputs[name].reshape(table.shape), axis=-1) == np.argmax(table, axis=-1)
        rows += len(table)
        decidable += int(clear.sum())
        agree += int((same & clear).sum())
    if rows == 0:
        return None, 0.0
    return (agree / decidable if decidable else None), 1 - decidable / rows


def _is_float(array: npt.NDArray[np.generic]) -> bool:
    return array.dtype.kind == "f"


def _same(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> bool:
    if a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f"))
