"""From a path to facts, or to the one reason why not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matrix.artefacts.onnx_file.facts import OnnxFacts, OnnxRefused, TensorInfo
from matrix.artefacts.onnx_file.operators import check_names, check_operators, check_opsets
from matrix.artefacts.onnx_file.side_files import check_side_files, is_pointer
from matrix.artefacts.onnx_file.walk import all_names, all_tensors
from matrix_adapters.protocol import file_hash

#: protobuf cannot hold a longer message
_LARGEST = 2**31 - 1
#: operators that lead from an input to a table -> how many inputs they take
_INPUTS = {"Cast": 1, "Gather": 2}


def inspect(path: Path) -> OnnxFacts:
    """Facts of the ONNX file at `path`. Raises OnnxRefused with a code and a sentence.

    Reads the whole file into memory (at most 2 GB, weights in side files not counted).
    """
    _check_readable(path)
    model = _parse(path)
    opsets = check_opsets(model)
    side_files = check_side_files(path, all_tensors(model))
    operators, unchecked = check_operators(model, opsets)
    check_names(model.graph)
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = _values((v for v in model.graph.input if v.name not in stored), _index_limits(model))
    outputs = _values(model.graph.output, {})
    if not outputs:
        raise OnnxRefused("no_output", f"{path.name} has no output: there is nothing to compare")
    _check_valid(path)
    _check_shapes(path, model)
    files = (path, *(path.parent / name for name in side_files))
    return OnnxFacts(
        path=path,
        sha256=_hash(path, side_files),
        size_bytes=sum(file.stat().st_size for file in files),
        side_files=side_files,
        ir_version=model.ir_version,
        opsets=opsets,
        operators=operators,
        unchecked=unchecked,
        inputs=inputs,
        outputs=outputs,
    )


def _check_readable(path: Path) -> None:
    try:
        if not path.exists():
            raise OnnxRefused("missing", f"no file {path}")
        if not path.is_file():
            raise OnnxRefused("not_a_file", f"{path} is no file: name the .onnx file itself")
        size = path.stat().st_size
        if size == 0:
            raise OnnxRefused("empty", f"{path} is empty")
        if is_pointer(path):
            raise OnnxRefused("lfs_pointer", f"{path} is a Git LFS pointer, not the model: run git lfs pull")
    except OSError as error:
        raise OnnxRefused("unreadable", f"{path} cannot be read: {error.strerror}") from None
    if size > _LARGEST:
        raise OnnxRefused(
            "too_large",
            f"{path} is over 2 GB, more than an ONNX file can be: keep its weights in a side file",
        )


def _parse(path: Path) -> Any:
    import onnx

    broken = OnnxRefused("not_onnx", f"{path} is truncated or not ONNX")
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:  # protobuf's own class, or whatever onnx meets in bytes that are no message
        raise broken from None
    # Protobuf reads many other bytes, and some cut-off files, as a message that lacks its parts.
    if not (model.ir_version > 0 and model.HasField("graph") and model.opset_import):
        raise broken
    if not model.graph.output and not model.graph.node:
        raise broken
    if not all(isinstance(text, str) for text in all_names(model)):  # bytes: it is not UTF-8
        raise broken
    return model


def _values(values: Iterable[Any], limits: dict[str, int]) -> dict[str, TensorInfo]:
    import onnx

    found = {}
    for value in values:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise OnnxRefused(
                "not_a_tensor",
                f"{value.name!r} is {(kind or 'of no type').removesuffix('_type')}: only tensors can be "
                "given and compared",
            )
        if value.name in found:
            raise OnnxRefused(
                "duplicate_name", f"the file has {value.name!r} twice among its inputs or outputs"
            )
        tensor = value.type.tensor_type
        if tensor.elem_type not in onnx.TensorProto.DataType.values() or not tensor.elem_type:
            raise OnnxRefused("not_a_tensor", f"{value.name!r} has no element type")
        shape = tuple(map(_dimension, tensor.shape.dim)) if tensor.HasField("shape") else None
        found[value.name] = TensorInfo(
            name=value.name,
            dtype=_dtype(tensor.elem_type),
            shape=shape,
            index_limit=limits.get(value.name),
        )
    return found


def _dimension(dim: Any) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return str(dim.dim_param) or None


def _dtype(elem_type: int) -> str:
    """NumPy's name where it has the type, else ONNX's in lower case."""
    import onnx

    name: str = onnx.TensorProto.DataType.Name(elem_type).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


def _index_limits(model: Any) -> dict[str, int]:
    """Input -> rows of the smallest stored table that a Gather picks from with it (also through a cast)."""
    rows = {t.name: t.dims[0] for t in model.graph.initializer if t.dims}
    origin = {value.name: value.name for value in model.graph.input}
    limits: dict[str, int] = {}
    for node in model.graph.node:
        if len(node.input) < _INPUTS.get(node.op_type, 9) or not node.output:
            continue  # not our concern, or broken: that is for the checker to say
        if node.op_type == "Cast" and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
        if node.op_type == "Gather" and axis == 0 and node.input[0] in rows and node.input[1] in origin:
            name = origin[node.input[1]]
            limits[name] = min(rows[node.input[0]], limits.get(name, rows[node.input[0]]))
    return limits


def _check_valid(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(path)
    except Exception as error:  # also what it meets while it words its own complaint
        raise OnnxRefused("invalid", f"{path.name} is no valid ONNX model: {_one_line(error)}") from None


def _check_shapes(path: Path, model: Any) -> None:
    """Every declared type and shape must be the one that follows from the operators."""
    import onnx

    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # its own class, or one of the checker's
        raise OnnxRefused(
            "shape_inconsistent", f"{path.name}: shapes or types contradict each other: {_one_line(error)}"
        ) from None


def _hash(path: Path, side_files: tuple[str, ...]) -> str:
    own = file_hash(path)
    if not side_files:
        return own
    both = hashlib.sha256(own.encode())
    for name in side_files:
        both.update(f"\n{name}\0{file_hash(path.parent / name)}".encode())
    return both.hexdigest()


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 400 else text[:397] + "..."
