"""What an operator should give: the standard's definition, computed in float64. Task kind ORACLE.

Inputs are rounded to the types of the case first, then widened, and ONNX's own reference
evaluator runs the widened model, with operators of ours (`oracle_ops_*`) where it is wrong or
narrow. A case with oracle "as-is" is run in its own types: casts, quantisation, integers.

Needs `onnx`. Each case stands alone: one that cannot be computed is recorded as failed in its
own oracle.json, with the reason, and the others go on.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from matrix_adapters.launch import Launch
from matrix_adapters.operators import case_folder, elements, generators, model_file, oracle_ops
from matrix_adapters.protocol import (
    OperatorCase,
    ProtocolError,
    Result,
    State,
    Task,
    from_plain,
)

AS_IS, FLOAT64 = "as-is", "float64"

#: their outputs are drawn, so nothing is expected of them but a distribution
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)

Array = npt.NDArray[Any]


class NoOracle(Exception):
    """This case has no expected output: a code for scripts and a sentence."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def handle(task: Task, launch: Launch) -> Result:
    """Prepare `options["cases"][i]` in `out/<options["folders"][i]>`. Raises ValueError for other options.

    OK whenever every case has a folder with an oracle.json, failed or not; `artefacts["failed"]`
    says of which folders there are no expected outputs, and why.
    """
    import onnx

    begin = time.perf_counter()
    cases, folders = task.options.get("cases"), task.options.get("folders")
    if not isinstance(cases, list) or not isinstance(folders, list) or len(cases) != len(folders):
        raise ValueError("an oracle task needs options `cases` and `folders`, two lists of one length")
    failed = {}
    with contextlib.redirect_stdout(sys.stderr):
        for name, data in zip(folders, cases, strict=True):
            launch.heart.enter(f"oracle {name}")
            with launch.heart.beating():
                reason = prepare(data, launch.out_dir / str(name))
            if reason:
                failed[str(name)] = reason
    launch.phases["oracle_s"] = time.perf_counter() - begin
    launch.versions.update({"onnx": onnx.__version__, "numpy": np.__version__})
    launch.artefacts.update({"cases": len(cases), "failed": failed})
    return launch.result(State.OK)


def prepare(data: Mapping[str, Any], folder: Path) -> str | None:
    """Leave one case in `folder`; why it has no expected outputs, or None. The case's fault never raises."""
    import onnx

    oracle: dict[str, Any] = {"onnx": onnx.__version__, "notes": [], "outputs": {}}
    expected = None
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = _prepare(data, folder, oracle)
    except NoOracle as error:
        oracle["failed"] = {"code": error.code, "text": str(error)}
    except model_file.IllegalCase as error:
        oracle["failed"] = {"code": "illegal_case", "text": str(error)}
    except MemoryError as error:
        oracle["failed"] = {"code": "oom", "text": f"out of memory: {_line(error)}"}
    except (ProtocolError, ValueError) as error:
        oracle["failed"] = {"code": "bad_case", "text": _line(error)}
    folder.mkdir(parents=True, exist_ok=True)
    case_folder.write_oracle(folder, oracle, expected)
    return oracle["failed"]["text"] if "failed" in oracle else None


def _prepare(data: Mapping[str, Any], folder: Path, oracle: dict[str, Any]) -> dict[str, Array]:
    """The steps of one case, in the order in which their files are useful without the next."""
    case = from_plain(OperatorCase, data)
    made = generators.case_inputs(case)
    case_folder.write_case(folder, case, made)
    model = model_file.build(case, made)
    (folder / case_folder.MODEL_FILE).write_bytes(model.SerializeToString(deterministic=True))
    if drawn := sorted({node.op for node in case.nodes} & _RANDOM):
        raise NoOracle("random", f"{', '.join(drawn)} draws its output at random")
    dtypes = {spec.name: spec.dtype for spec in case.inputs}
    feed = {s.name: model_file.as_computed(made[s.name], s.dtype) for s in case.inputs if not s.constant}
    if case.oracle == AS_IS:
        values = evaluate(model, feed)
    elif case.oracle == FLOAT64:
        values, narrow = _evaluate_wide(model, feed)
        if narrow:
            oracle["notes"].append(f"steps in float32: {', '.join(narrow)}")
    else:
        raise NoOracle("bad_case", f"no oracle {case.oracle!r}: use {FLOAT64} or {AS_IS}")
    if ours := sorted({node.op for node in case.nodes} & oracle_ops.NAMES):
        oracle["notes"].append(f"our own definition of {', '.join(ours)}")
    declared = {value.name: value.type for value in model.graph.output}
    expected = {}
    for name in case.outputs:
        array = _tensor(name, values)
        expected[name] = _kept(name, array)
        oracle["outputs"][name] = {
            "dtype": _declared(declared[name]) or _own_word(array, dtypes),
            "shape": [int(size) for size in array.shape],
        }
    return expected


def evaluate(model: Any, feed: Mapping[str, Array]) -> dict[str, Any]:
    """Every value of the graph by name. Raises NoOracle for what neither the evaluator nor we can do."""
    from onnx.reference import ReferenceEvaluator

    try:
        evaluator = ReferenceEvaluator(model, new_ops=list(oracle_ops.OPERATORS))
        values: dict[str, Any] = evaluator.run(None, dict(feed), intermediate=True)
    except MemoryError:
        raise
    except Exception as error:  # its own classes are not public, and NumPy's errors come through too
        cause = error.__cause__ if str(error).startswith("Issues with types") else None
        raise NoOracle("evaluator_failed", _line(cause or error)) from error
    return values


def _evaluate_wide(model: Any, feed: Mapping[str, Array]) -> tuple[dict[str, Any], list[str]]:
    """In float64, and the operators that did not keep to it."""
    from matrix_adapters.onnx_promote import promote
    from matrix_adapters.onnx_reference import is_float, narrow_operators

    wide_feed = {name: a.astype(np.float64) if is_float(a) else a for name, a in feed.items()}
    values = evaluate(promote(model), wide_feed)
    return values, narrow_operators(model, values)


def _tensor(name: str, values: Mapping[str, Any]) -> Array:
    value = values.get(name)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise NoOracle("no_tensor", f"output {name!r} is no tensor: only tensors can be compared")
    return np.asarray(value)


def _kept(name: str, array: Array) -> Array:
    """Floats of any width as float64, integers of under 8 bits as int8 or uint8, others as they are."""
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind in "OU":
        return array.astype(np.str_)
    word = array.dtype.name
    if array.dtype.kind == "f" or "float" in word:
        return array.astype(np.float64)
    if "int" in word:
        return array.astype(np.uint8 if word.startswith("u") else np.int8)
    raise NoOracle("no_tensor", f"output {name!r} is of {word}: nothing compares it")


def _declared(kind: Any) -> str:
    which = kind.WhichOneof("value")
    return model_file.word(kind.tensor_type.elem_type) if which == "tensor_type" else ""


def _own_word(array: Array, dtypes: Mapping[str, str]) -> str:
    """For an output whose type the standard does not tell: that of the float inputs, or its own."""
    floats = [dtype for dtype in dtypes.values() if elements.is_float(dtype)]
    return floats[0] if array.dtype.kind == "f" and floats else array.dtype.name


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]
