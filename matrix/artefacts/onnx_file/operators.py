"""Operators, domains and names: what a graph uses, against what is defined."""

from __future__ import annotations

import collections
import difflib
import functools
from collections.abc import Iterable, Mapping
from typing import Any

from matrix.artefacts.onnx_file.facts import OnnxRefused
from matrix.artefacts.onnx_file.walk import all_nodes, called, domain_of, subgraphs


def check_opsets(model: Any) -> dict[str, int]:
    """Imported version by domain. Raises OnnxRefused for one that is newer than any known."""
    import onnx

    if model.ir_version > onnx.IR_VERSION:
        raise OnnxRefused(
            "ir_too_new",
            f"the file's IR version is {model.ir_version}, onnx {onnx.__version__} knows up to "
            f"{int(onnx.IR_VERSION)}: save it in an older one, or update onnx",
        )
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    for domain, version in opsets.items():
        newest = _known_domains().get(domain)
        if newest is not None and version > newest:
            raise OnnxRefused(
                "opset_too_new",
                f"the file wants opset {version} of domain {domain}, "
                f"onnx {onnx.__version__} knows up to {newest}",
            )
        if version < 1:
            raise OnnxRefused("opset_invalid", f"the file imports opset {version} of domain {domain}")
    return opsets


def check_operators(model: Any, opsets: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """How often each operator is used, and those that only a runtime can know.

    Raises OnnxRefused naming the node whose operator or domain does not exist.
    """
    functions = {(f.domain or "ai.onnx", f.name) for f in model.functions}
    imports = dict(opsets)
    for function in model.functions:
        imports |= {e.domain or "ai.onnx": e.version for e in function.opset_import}
    counts: collections.Counter[str] = collections.Counter()
    unchecked = set()
    for position, node in enumerate(all_nodes(model)):
        domain = domain_of(node)
        name = node.op_type if domain == "ai.onnx" else f"{domain}:{node.op_type}"
        counts[name] += 1
        if (domain, node.op_type) in functions:
            continue
        if domain not in imports:
            known = ", ".join(f"{d} {v}" for d, v in imports.items())
            raise OnnxRefused(
                "domain_not_imported",
                f"{called(node, position)} is in domain {domain!r}, "
                f"which the file does not import (it has {known})",
            )
        if domain in _known_domains():
            _check_defined(node, position, domain, imports[domain])
        else:
            unchecked.add(name)
    return dict(sorted(counts.items())), tuple(sorted(unchecked))


def check_names(graph: Any, outer: frozenset[str] = frozenset()) -> None:
    """Raises OnnxRefused for a node input or graph output that nothing produces before it."""
    known = set(outer) | {value.name for value in graph.input} | {t.name for t in graph.initializer}
    known |= {sparse.values.name for sparse in graph.sparse_initializer}
    for position, node in enumerate(graph.node):
        for name in node.input:
            if name and name not in known:
                raise OnnxRefused(
                    "undefined_input",
                    f"{called(node, position)}: nothing before it produces its input "
                    f"{name!r}{_near(name, known)}",
                )
        for inner in subgraphs(node):
            check_names(inner, frozenset(known))
        known.update(name for name in node.output if name)
    for value in graph.output:
        if value.name not in known:
            raise OnnxRefused(
                "undefined_output", f"nothing produces the output {value.name!r}{_near(value.name, known)}"
            )


def _check_defined(node: Any, position: int, domain: str, version: int) -> None:
    import onnx

    try:
        onnx.defs.get_schema(node.op_type, version, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        pass
    else:
        return
    versions = _defined(domain).get(node.op_type)
    if versions:
        raise OnnxRefused(
            "operator_too_new",
            f"{called(node, position)} exists from opset {min(versions)} of domain {domain} on, "
            f"the file imports {version}",
        )
    near = _near(node.op_type, _defined(domain))
    raise OnnxRefused(
        "unknown_operator", f"{called(node, position)}: domain {domain} has no such operator{near}"
    )


@functools.cache
def _defined(domain: str) -> dict[str, list[int]]:
    """Operator -> the opset versions that define it."""
    import onnx

    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if (schema.domain or "ai.onnx") == domain:
            found.setdefault(schema.name, []).append(schema.since_version)
    return found


@functools.cache
def _known_domains() -> dict[str, int]:
    """Domain -> the newest opset that the `onnx` package defines."""
    import onnx

    newest: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        domain = schema.domain or "ai.onnx"
        newest[domain] = max(newest.get(domain, 1), schema.since_version)
    # an opset may bring no new operator: the package's own numbers say how far it goes
    newest["ai.onnx"] = max(newest["ai.onnx"], onnx.defs.onnx_opset_version())
    return newest


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
