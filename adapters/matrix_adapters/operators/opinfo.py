"""PyTorch's own samples of its operators (OpInfo), where one of them is one ONNX operator.

OpInfo is what PyTorch tests every operator with, over all its overloads, shapes and odd
arguments. Here a sample becomes a case of the ONNX operator, and what PyTorch's own call gives is
what our mapping from ONNX back to PyTorch has to give: a sample that comes back changed is the
mapping's fault. A sample that ONNX cannot express is listed with the reason.

OpInfo is private to PyTorch (`torch.testing._internal`) and changes with every release.
"""

from __future__ import annotations

import itertools
import sys
import types
import unittest
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from matrix_adapters.operators import torch_table
from matrix_adapters.operators.foreign import Array, Collection, ForeignTest
from matrix_adapters.operators.opinfo_table import ENTRIES, OPSET, Entry, scalar_of
from matrix_adapters.operators.opinfo_told import Told, Untold
from matrix_adapters.protocol import Node, OperatorCase, Reason, TensorSpec

#: type -> (rtol, atol), the defaults of `torch.testing.assert_close`; integers are exact
TYPES = {torch.float32: (1.3e-6, 1e-5), torch.float64: (1e-7, 1e-7), torch.int64: (0.0, 0.0)}
#: of one OpInfo and type: some have hundreds, which differ in little
MOST_SAMPLES = 64


def collect() -> Collection:
    """The samples of every OpInfo in the table. Raises ImportError where torch has no OpInfo of ours."""
    _stand_in_for_expecttest()
    from torch.testing._internal.common_methods_invocations import op_db

    torch.set_num_threads(1)
    version = torch.__version__
    chosen = [op for op in op_db if op.name in ENTRIES and op.variant_test_name == ENTRIES[op.name].variant]
    return Collection(
        source=f"torch {version} OpInfo sample", versions={"torch": version}, tests=_tests(chosen)
    )


def _stand_in_for_expecttest() -> None:
    """Torch's test utilities derive test classes, none of which is used here, from this small package."""
    try:
        import expecttest  # type: ignore[import-not-found]  # noqa: F401
    except ModuleNotFoundError:
        module: Any = types.ModuleType("expecttest")
        module.TestCase, module.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = module


def _tests(infos: Sequence[Any]) -> Iterator[ForeignTest]:
    for info in infos:
        entry = ENTRIES[info.name]
        for dtype in TYPES:
            if not info.supports_dtype(dtype, "cpu"):
                continue
            torch.manual_seed(0)
            samples = info.sample_inputs("cpu", dtype, requires_grad=False)
            for number, sample in enumerate(itertools.islice(samples, MOST_SAMPLES)):
                yield _test(info, entry, dtype, number, sample)


def _test(info: Any, entry: Entry, dtype: Any, number: int, sample: Any) -> ForeignTest:
    word = _word(dtype)
    name = f"{entry.operator}/{info.name.rpartition('.')[2]}-{number}"
    rtol, atol = TYPES[dtype]
    base: dict[str, Any] = {"test": f"{info.name} {word} {number}", "rtol": rtol, "atol": atol}
    try:
        told = _translated(entry, sample)
        tensors = [_tensor(value) for value in told.inputs]
        outputs = _call(info, sample)
        _typed(entry, tensors, outputs, dtype)
    except Untold as error:
        reason = Reason(code="not_expressible", text=f"no {entry.operator} of ONNX: {error}")
        return ForeignTest(
            case=_case(name, word, entry=entry, told=Told(inputs=()), tensors=[], count=1),
            refused=reason,
            **base,
        )
    case = _case(name, word, entry=entry, told=told, tensors=tensors, count=len(outputs))
    given = {spec.name: _array(t) for spec, t in zip(case.inputs, _present(tensors), strict=True)}
    return ForeignTest(
        case=case,
        inputs=given,
        expected={n: _array(t) for n, t in zip(case.outputs, outputs, strict=True)},
        dtypes={n: _word(t.dtype) for n, t in zip(case.outputs, outputs, strict=True)},
        **base,
    )


def _translated(entry: Entry, sample: Any) -> Told:
    try:
        return entry.translate(sample.input, sample.args, sample.kwargs)
    except (AttributeError, IndexError, KeyError, TypeError) as error:  # OpInfo changes with every release
        text = f"its arguments are none that are known here ({type(error).__name__}: {error})"
        raise Untold(text) from None


def _case(
    name: str, dtype: str, *, entry: Entry, told: Told, tensors: Sequence[Any], count: int
) -> OperatorCase:
    names = [f"X{i}" if tensor is not None else "" for i, tensor in enumerate(tensors)]
    outputs = tuple(f"Y{i}" for i in range(count))
    return OperatorCase(
        name=name,
        dtype=dtype,
        nodes=(
            Node(op=entry.operator, inputs=tuple(names), outputs=outputs, attributes=dict(told.attributes)),
        ),
        inputs=tuple(
            TensorSpec(name=n, dtype=_word(t.dtype), shape=tuple(t.shape), generator="values")
            for n, t in zip(names, tensors, strict=True)
            if t is not None
        ),
        outputs=outputs,
        opset=OPSET,
        oracle="as-is",
    )


def _call(info: Any, sample: Any) -> list[Any]:
    try:
        with torch.inference_mode():
            made = info(sample.input, *sample.args, **sample.kwargs)
    except (RuntimeError, IndexError, TypeError) as error:
        raise Untold(f"torch itself refuses it: {' '.join(str(error).split())[:120]}") from None
    return [made] if isinstance(made, torch.Tensor) else list(made)


def _typed(entry: Entry, tensors: Sequence[Any], outputs: Sequence[Any], dtype: Any) -> None:
    """ONNX does not promote types. Raises Untold where torch did, and for what our files do not hold."""
    known = {"float32", "float64", "int64", "int32", "bool", "uint8", "int8", "int16"}
    for tensor in (*_present(tensors), *outputs):
        if tensor.is_complex() or _word(tensor.dtype) not in known:
            raise Untold(f"a tensor of {_word(tensor.dtype)}")
    floats = {t.dtype for t in _present(tensors) if t.is_floating_point()}
    if len(floats) > 1 or (dtype == torch.int64 and floats):
        raise Untold("operands of different types")
    if dtype == torch.int64 and any(t.is_floating_point() for t in outputs):
        raise Untold("whole numbers in, fractions out")
    torch_table.find(entry.operator)  # the table names mapped operators only


def _tensor(value: Any) -> Any:
    if value is None or isinstance(value, torch.Tensor):
        return value
    number = scalar_of(value)
    return torch.tensor(value if number is None else number, dtype=torch.int64)


def _present(tensors: Sequence[Any]) -> list[Any]:
    return [tensor for tensor in tensors if tensor is not None]


def _array(tensor: Any) -> Array:
    array: Array = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().numpy()
    return array


def _word(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
