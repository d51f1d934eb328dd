"""The architecture page's picture and table are held to the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
EVERYWHERE = {"errors", "records", "protocol", "__version__", "__main__"}


def imports() -> dict[str, set[str]]:
    """package or module of `matrix` -> the others that it imports."""
    graph: dict[str, set[str]] = {}
    for file in (ROOT / "matrix").rglob("*.py"):
        me = file.relative_to(ROOT / "matrix").parts[0].removesuffix(".py")
        if me in EVERYWHERE | {"__init__"}:
            continue
        others = graph.setdefault(me, set())
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"matrix.{a.name}" for a in node.names] if node.module == "matrix" else [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            others |= {n.split(".")[1] for n in names if n.startswith("matrix.")}
        others -= EVERYWHERE | {me}
    return graph


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    todo = [*graph[start]]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += graph.get(name, ())
    return found


def reduced(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The arrows that do not follow from others (the transitive reduction of an acyclic graph)."""
    return {
        (a, b)
        for a, targets in graph.items()
        for b in targets
        if not any(b in reachable(graph, other) for other in targets - {b})
    }


def test_no_package_is_imported_by_what_it_imports() -> None:
    graph = imports()
    cycles = sorted(name for name in graph if name in reachable(graph, name))
    assert not cycles, f"imports go both ways between {cycles}"


def test_the_picture_shows_the_imports_of_the_code() -> None:
    drawn = set(re.findall(r"^\s+(\w+) --> (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    wanted = reduced(imports())
    lines = "\n".join(f"    {a} --> {b}" for a, b in sorted(wanted))
    assert drawn == wanted, f"docs/architecture.md should draw:\n{lines}"


def test_every_package_is_explained() -> None:
    explained = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(imports()) <= explained, sorted(set(imports()) - explained)


def test_the_readme_shows_a_matrix_that_the_tool_made() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```text\n(.*?)```", readme, re.DOTALL)
    assert shown is not None
    made = (ROOT / "docs" / "example" / "matrix.txt").read_text(encoding="utf-8")
    assert shown[1].strip() in made


def test_ci_runs_the_test_command_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(
        line for line in readme.splitlines() if line.startswith("$ ") and line.endswith("-s tests")
    )
    assert command.removeprefix("$ ") in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
