"""Everything inside an ONNX model that can hold something else: graphs, nodes, tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def all_graphs(model: Any) -> Iterator[Any]:
    """The main graph and every subgraph, also those inside functions."""
    yield from _graphs(model.graph)
    for function in model.functions:
        for node in function.node:
            for graph in subgraphs(node):
                yield from _graphs(graph)


def all_nodes(model: Any) -> Iterator[Any]:
    """Every node of the graphs and the functions."""
    for graph in all_graphs(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def all_tensors(model: Any) -> Iterator[Any]:
    """Every stored tensor: initializers, sparse ones, and those in attributes."""
    for graph in all_graphs(model):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            yield from attribute.tensors


def all_names(model: Any) -> Iterator[Any]:
    """Every name that something is looked up by; protobuf gives bytes for one that is not UTF-8."""
    for node in all_nodes(model):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for graph in all_graphs(model):
        for value in (*graph.input, *graph.output):
            yield value.name
            yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in all_tensors(model):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for item in (*model.opset_import, *model.functions):
        yield item.domain


def subgraphs(node: Any) -> Iterator[Any]:
    """The bodies of one control-flow node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def domain_of(node: Any) -> str:
    """The default domain has two spellings; this is the one shown to people."""
    return node.domain or "ai.onnx"


def called(node: Any, position: int) -> str:
    """How a message names a node: many have no name of their own."""
    return f"node {node.name!r} ({node.op_type})" if node.name else f"node {position} ({node.op_type})"


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)
