"""The reference outputs of a user's ONNX file, by ONNX's own reference evaluator.

A catalog model's reference is PyTorch in float64; a bare ONNX file has only
itself, so its definition is run: `onnx.reference`, plain NumPy, once with every
float widened to float64 and twice as the file says. Where the evaluator's own
operator is wrong or narrow, ours (`operators.oracle_ops`) takes its place. Outputs
that the user gives take the first place. Files as in `matrix_adapters.reference`.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from matrix_adapters import tensors
from matrix_adapters.adapter import Unsupported
from matrix_adapters.protocol import Flag, Reason, Result, State, Task

FLOAT64, FLOAT32, FLOAT32_AGAIN = "float64.npz", "float32.npz", "float32_again.npz"
ABOUT_FILE = "reference.json"

Arrays = dict[str, np.ndarray]


def handle(task: Task, out_dir: Path) -> Result:
    """Write the three sets of outputs; UNSUPPORTED, with the operator, where there can be none.

    Reads `task.artefacts["onnx"]`, `task.inputs`, and `task.artefacts["expected"]` (an .npz of
    outputs) where the user gave it: then the evaluator only contributes the noise floor, if it can.
    """
    started, begin = _now(), time.perf_counter()
    if task.inputs is None or "onnx" not in task.artefacts:
        raise ValueError("a reference task for an ONNX file needs artefacts['onnx'] and inputs")
    feed = tensors.load(Path(task.inputs))
    wanted = task.model.outputs if task.model else ()
    expected = tensors.load(Path(task.artefacts["expected"])) if "expected" in task.artefacts else None
    flags: tuple[Flag, ...] = ()
    try:
        made, narrow = _evaluate(Path(task.artefacts["onnx"]), feed, wanted)
        if narrow:
            text = f"the float64 reference has float32 steps: {', '.join(narrow)}"
            flags = (Flag(code="reference_not_float64", text=text),)
    except Unsupported as error:
        if expected is None:
            return Result(
                state=State.UNSUPPORTED,
                reason=Reason(code="no_reference", text=f"{error}: give its outputs with `expected`"),
                started=started,
                ended=_now(),
            )
        made = {FLOAT32: expected, FLOAT32_AGAIN: expected}
        flags = (Flag(code="no_noise_floor", text=f"outputs given by the user, and {error}"),)
    if expected is not None:
        made[FLOAT64] = expected
        flags = tuple(flag for flag in flags if flag.code != "reference_not_float64")
    for name, arrays in made.items():
        tensors.save(out_dir / name, arrays)
    about = _about(made, given=expected is not None)
    if flags:
        about["flags"] = [{"code": flag.code, "text": flag.text} for flag in flags]
    text = json.dumps(about, indent=2, sort_keys=True) + "\n"
    (out_dir / ABOUT_FILE).write_text(text, encoding="utf-8")
    return Result(
        state=State.OK,
        phases={"reference_s": time.perf_counter() - begin},
        versions={"onnx": _onnx_version(), "numpy": np.__version__},
        artefacts=about,
        flags=flags,
        started=started,
        ended=_now(),
    )


def _evaluate(
    path: Path, feed: Mapping[str, np.ndarray], wanted: tuple[str, ...]
) -> tuple[dict[str, Arrays], list[str]]:
    """The three sets of outputs, and the operators that left float64 in the wide run."""
    import onnx

    from matrix_adapters.onnx_promote import promote

    model = onnx.load(path)
    names = [value.name for value in model.graph.output]
    if missing := [name for name in wanted if name not in names]:
        raise ValueError(f"the ONNX file has no output {missing[0]!r}: it has {', '.join(names)}")
    given = {v.name: _as_input(feed[v.name], v) for v in model.graph.input if v.name in feed}
    wide_feed = {n: a.astype(np.float64) if is_float(a) else a for n, a in given.items()}
    wide = _wide_run(promote(model), wide_feed)
    first, operators = _narrow_run(model, given, wide, wanted or names)
    again = _run(model, given, operators)
    sets = {FLOAT64: wide, FLOAT32: first, FLOAT32_AGAIN: again}
    chosen = {file: {n: _array(n, run[n]) for n in wanted or names} for file, run in sets.items()}
    return chosen, narrow_operators(model, wide)


def _definitions() -> tuple[Any, ...]:
    from matrix_adapters.operators import oracle_ops

    return tuple(oracle_ops.OPERATORS)


def _wide_run(model: Any, feed: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """By our definitions; a file of an opset older than they know is left to the evaluator's own."""
    from matrix_adapters.onnx_promote import OPERATORS

    try:
        return _run(model, feed, _definitions())
    except Unsupported:
        return _run(model, feed, OPERATORS)


#: of the largest value: further apart than rounding alone puts two runs of one file
_NOT_ROUNDING = 1e-2


def _narrow_run(
    model: Any, given: Mapping[str, np.ndarray], wide: Mapping[str, Any], names: Sequence[str]
) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Every value in the file's own types, and the operators that made them.

    The evaluator's own operators round at every step, which is the noise that is looked for; ours
    round once, and serve where the evaluator's do not run, or are not what the wide run computed.
    """
    from matrix_adapters.onnx_promote import OPERATORS

    try:
        values = _run(model, given, OPERATORS)
        pairs = [(_array(n, values[n]), _array(n, wide[n])) for n in names]
        if all(_distance(*pair) <= _NOT_ROUNDING for pair in pairs if pair[1].dtype.kind == "f"):
            return values, OPERATORS
    except Unsupported:
        pass
    return _run(model, given, _definitions()), _definitions()


def _as_input(array: np.ndarray, value: Any) -> np.ndarray:
    """Raw bits as what they mean (NumPy files cannot say bfloat16), text as Python objects."""
    import onnx

    if array.dtype.kind == "U":
        return array.astype(object)
    if value.type.tensor_type.elem_type != onnx.TensorProto.BFLOAT16 or array.dtype != np.uint16:
        return array
    return array.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))


def is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _run(model: Any, feed: Mapping[str, np.ndarray], operators: Sequence[Any]) -> dict[str, Any]:
    """Every value of the main graph by name. Raises Unsupported for what the evaluator lacks."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model, new_ops=list(operators))
        values: dict[str, Any] = evaluator.run(None, dict(feed), intermediate=True)
    except Exception as error:  # its own classes are not public, and NumPy's errors come through too
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Unsupported(
            f"onnx {_onnx_version()}'s reference evaluator cannot run this file: {line[:300].rstrip('.')}"
        ) from error
    return values


def narrow_operators(model: Any, values: Mapping[str, Any]) -> list[str]:
    """Operators of the main graph that left float64: by their dtype, or by rounding inside.

    Rounding shows as results that are all float32 numbers although an input is not.
    """
    found = set()
    for node in model.graph.node:
        given = [values.get(name) for name in node.input]
        for value in (values.get(name) for name in node.output):
            if not isinstance(value, (np.ndarray, np.generic)):
                continue
            dropped = value.dtype.name in ("float32", "float16", "bfloat16")
            rounded = _is_rounded(np.asarray(value)) and any(map(_is_fine, given))
            if dropped or (rounded and node.op_type not in _STEPPED):
                found.add(node.op_type)
    return sorted(found)


#: their results are few and round by definition
_STEPPED = frozenset({"Ceil", "Floor", "OneHot", "Round", "Sign", "Where"})
_LOOKED_AT = 4096  # values; a rounding step rounds all of them
_DISTINCT = 8  # fewer may be constants or limits


def _is_rounded(value: np.ndarray) -> bool:
    sample = value.reshape(-1)[:_LOOKED_AT]
    if sample.dtype != np.float64 or not _all_single(sample):
        return False
    return len(np.unique(sample)) >= _DISTINCT


def _is_fine(value: Any) -> bool:
    """Whether some number here is finer than float32."""
    if not isinstance(value, (np.ndarray, np.generic)) or value.dtype != np.float64:
        return False
    return not _all_single(value.reshape(-1)[:_LOOKED_AT])


def _all_single(numbers: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.array_equal(numbers, numbers.astype(np.float32), equal_nan=True))


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, (list, tuple, dict)) or value is None:
        raise Unsupported(f"output {name!r} is no tensor: only tensors can be compared")
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return array.astype(np.str_)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # exact, and storable


def _about(made: Mapping[str, Arrays], *, given: bool) -> dict[str, Any]:
    """What reference.json says. A floor that is not finite is left out: JSON has no NaN."""
    first, again, wide = made[FLOAT32], made[FLOAT32_AGAIN], made[FLOAT64]
    repeats = all(_same(first[name], again[name]) for name in first)
    about: dict[str, Any] = {
        "framework": "outputs given by the user" if given else "onnx reference evaluator",
        "given": given,
        "version": "" if given else _onnx_version(),
        "repeats": repeats,
    }
    floors = [_distance(first[n], wide[n]) for n in wide if n in first and wide[n].dtype.kind == "f"]
    floor = max(floors, default=0.0)
    if np.isfinite(floor):
        about["floor"] = floor
    return about


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _distance(got: np.ndarray, reference: np.ndarray) -> float:
    if got.shape != reference.shape:
        return float("inf")
    scale = float(np.abs(reference).max(initial=0.0))
    return float(np.abs(got - reference).max(initial=0.0)) / scale if scale else 0.0


def _onnx_version() -> str:
    import onnx

    version: str = onnx.__version__
    return version


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
