"""The operators of a model's ONNX file, read once for each file and set of input shapes.

Reading is a worker task (it needs `onnx`); what it found is kept under the hash of the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matrix_adapters
from matrix.artefacts.content_cache import ContentCache, read_contents
from matrix_adapters.protocol import Result, State, Task, TaskKind, content_hash, file_hash

CASES_FILE = "cases.json"
_KIND = "graphs"
_MAKERS = ("operators/graph_cases.py", "operators/graph_shapes.py")


class GraphFailed(Exception):
    """The file's operators could not be read; the message says why."""


def graph_cases(
    cache: ContentCache,
    environment_key: str,
    *,
    model: str,
    onnx: Path,
    sha256: str,
    shapes: Mapping[str, list[int]],
    run: Callable[[Task, Path], Result],
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """[{"case", "count"}] in the order of the graph, and the nodes that are no cases, by reason.

    `shapes`: of each input of the model. Raises GraphFailed, StorageError.
    """
    code = [file_hash(Path(matrix_adapters.__path__[0]) / name) for name in _MAKERS]
    key = content_hash([sha256, dict(shapes), environment_key, code])

    def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
        task = Task(
            kind=TaskKind.GRAPH,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            artefacts={"onnx": str(onnx)},
            options={"name": model, "inputs": dict(shapes)},
        )
        result = run(task, folder)
        if result.state is not State.OK:
            raise GraphFailed(result.reason.text if result.reason else str(result.state))
        for path in folder.iterdir():
            if path.name != CASES_FILE:
                path.unlink()
        return 0, {"left_out": dict(result.artefacts.get("left_out", {}))}

    folder = cache.get_or_make(_KIND, model, [key], make)
    try:
        cases = json.loads((folder / CASES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GraphFailed(f"{folder / CASES_FILE} cannot be read: {error}") from None
    facts = (read_contents(folder) or {"facts": {}})["facts"]
    return cases, facts.get("left_out", {})
