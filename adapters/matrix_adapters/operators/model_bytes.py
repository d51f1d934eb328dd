"""An ONNX file with one operator of another domain in the place of all its nodes, without `onnx` at hand.

ONNX Runtime's environments hold no `onnx`, and what is to be changed is little: the file is a
protocol buffer (wire format: protobuf.dev/programming-guides/encoding), and these are its fields, by
their numbers in onnx.proto: ModelProto graph 7, opset_import 8; GraphProto node 1; NodeProto input 1,
output 2, name 3, op_type 4, attribute 5, domain 7; OperatorSetIdProto domain 1, version 2.
All else is copied as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_GRAPH, _OPSET = 7, 8
_NODE = 1
_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_BYTES = 2  # wire type of what has a length: text, and messages


def replaced(
    model: bytes,
    *,
    operator: str,
    domain: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    version: int = 1,
) -> bytes:
    """`model` with one node of `domain` that makes `outputs` of `inputs`; "" leaves one out.

    The attributes of a model's only node are kept; those of several belong to none of them alone.
    Raises ValueError for bytes that are no such file.
    """
    made = bytearray()
    for number, whole, payload in _fields(model):
        if number == _GRAPH:
            made += _field(_GRAPH, _graph(payload, operator, domain, inputs, outputs))
        else:
            made += whole
    opset = _field(1, domain.encode()) + bytes([2 << 3]) + _varint(version)
    return bytes(made + _field(_OPSET, opset))


def _graph(graph: bytes, operator: str, domain: str, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    parts = list(_fields(graph))
    nodes = [payload for number, _, payload in parts if number == _NODE]
    if not nodes:
        raise ValueError("the graph has no nodes")
    attributes = [whole for number, whole, _ in _fields(nodes[0]) if number == _ATTRIBUTE]
    node = b"".join(
        [
            *(_field(_INPUT, name.encode()) for name in inputs),
            *(_field(_OUTPUT, name.encode()) for name in outputs),
            _field(_NAME, b"candidate"),
            _field(_OPERATOR, operator.encode()),
            *(attributes if len(nodes) == 1 else ()),
            _field(_DOMAIN, domain.encode()),
        ]
    )
    return _field(_NODE, node) + b"".join(whole for number, whole, _ in parts if number != _NODE)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(number, the field with its tag, what it holds) in the order of the message."""
    at = 0
    while at < len(message):
        begin = at
        tag, at = _read_varint(message, at)
        kind = tag & 7
        if kind == 0:
            payload, end = b"", _read_varint(message, at)[1]
        elif kind in _FIXED:
            payload, end = b"", at + _FIXED[kind]
        elif kind == _BYTES:
            size, at = _read_varint(message, at)
            end = at + size
            payload = message[at:end]
        else:
            raise ValueError(f"a field of wire type {kind}: this is no ONNX file")
        if end > len(message):
            raise ValueError("a field ends after the file: it was cut off, or is no ONNX file")
        yield tag >> 3, message[begin:end], payload
        at = end


_FIXED = {1: 8, 5: 4}  # wire type -> bytes


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends: seven bits a byte, the lowest first."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end: this is no ONNX file")


def _varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(payload)) + payload
