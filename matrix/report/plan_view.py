"""What `matrix plan` prints: how many cells, which cannot be and why, and what it would cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from matrix.estimate import Estimate
from matrix.plan import Plan
from matrix.records import Cell, dataclasses_dict

_LISTED = 8  # lines of a list, and names in a line, before it is shortened


def plan_text(plan: Plan, verbose: bool = False) -> str:
    """The plan for people, with no trailing newline; `verbose` shortens nothing and lists every cell."""
    counts = _counts(plan)
    total = len(plan.cells)
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    lines = [f"{plan.sweep}: {total} cell{_s(total)} ({states})"]
    if plan.deselected:
        lines.append(f"left out by --select {plan.select!r}: {plan.deselected}")
    lines += _section("will not run", _reasons(plan), verbose)
    lines += _section("environments", _environments(plan), verbose)
    lines += _section("models", _models(plan), verbose)
    if verbose:
        lines += _section("cells", [_cell_line(cell) for cell in plan.cells], verbose)
    lines += ["", *_estimate(plan.estimate)]
    return "\n".join(lines)


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan for scripts: every cell with its id, state and reason."""
    cost = plan.estimate
    return {
        "sweep": plan.sweep,
        "select": plan.select,
        "counts": _counts(plan),
        "deselected": plan.deselected,
        "estimate": {
            "minutes": round(cost.minutes, 2),
            "disk_mb": round(cost.disk_mb),
            "build_s": round(cost.build_s, 1),
            "artefacts_s": round(cost.artefacts_s, 1),
            "launches_s": round(cost.launches_s, 1),
            "to_build": [environment.name for environment in cost.to_build],
            "to_make": list(cost.to_make),
        },
        "environments": [environment.name for environment in plan.environments],
        "models": list(plan.models),
        "cells": [_cell_json(cell) for cell in plan.cells],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "label": cell.label,
        "environment": {"name": cell.environment.name, **dataclasses_dict(cell.environment)},
        "workload": dataclasses_dict(cell.workload),
        "arm": cell.arm,
        "required": cell.required,
        "xfail": cell.xfail,
        "state": cell.state.value if cell.state else "",
        "reason": {"code": cell.reason.code, "text": cell.reason.text} if cell.reason else None,
    }


def _counts(plan: Plan) -> dict[str, int]:
    found = Counter(cell.state.value if cell.state else "to run" for cell in plan.cells)
    return {"to run": found.pop("to run", 0), **dict(sorted(found.items()))}


def _reasons(plan: Plan) -> list[str]:
    """One line per reason: how many cells, of which environments."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.cells:
        if cell.state is not None and cell.reason is not None:
            groups.setdefault((cell.state.value, cell.reason.text), []).append(cell)
    lines = []
    for (state, text), cells in sorted(groups.items(), key=lambda item: -len(item[1])):
        names = dict.fromkeys(cell.environment.name for cell in cells)
        required = sum(cell.required for cell in cells)
        note = f" [{required} required]" if required else ""
        lines.append(f"{len(cells):>5} {state:<11} {text}{note}: {_list(names)}")
    return lines


def _environments(plan: Plan) -> list[str]:
    cells = Counter(cell.environment for cell in plan.runnable)
    to_build = set(plan.estimate.to_build)
    lines = [
        f"{count:>5} cell{_s(count)} {environment.name}{'' if environment in to_build else ' (built)'}"
        for environment, count in cells.items()
    ]
    helpers = [e.name for e in plan.estimate.to_build if e not in cells]
    return lines + [f"    - cells {name} (makes the models' files)" for name in helpers]


def _models(plan: Plan) -> list[str]:
    cells = Counter(cell.workload.subject for cell in plan.runnable)
    to_make = set(plan.estimate.to_make)
    lines = []
    for name, model in plan.models.items():
        count = cells[name]
        size = f", {model.cost.parameters_m:.3g} M parameters" if model.cost.parameters_m else ""
        cached = "" if name in to_make or not count else " (cached)"
        lines.append(f"{count:>5} cell{_s(count)} {name}{size}{cached}")
    return lines


def _cell_line(cell: Cell) -> str:
    state = f"{cell.state.value}: {cell.reason.text}" if cell.state and cell.reason else "to run"
    marks = "".join([" [required]" if cell.required else "", f" [xfail: {cell.xfail}]" if cell.xfail else ""])
    return f"  {cell.id} {cell.label} {state}{marks}"


def _estimate(cost: Estimate) -> list[str]:
    if not cost.minutes:
        return ["estimate: nothing to run"]
    disk = f"{cost.disk_mb / 1000:.1f} GB" if cost.disk_mb >= 1000 else f"{cost.disk_mb:.0f} MB"
    return [
        f"estimate: {duration(cost.build_s + cost.artefacts_s + cost.launches_s)}, {disk} more on disk",
        f"  builds {duration(cost.build_s)} ({len(cost.to_build)}), "
        f"model files {duration(cost.artefacts_s)} ({len(cost.to_make)}), "
        f"launches {duration(cost.launches_s)}",
    ]


def duration(seconds: float) -> str:
    """`40 s`, `5.4 min`, `1 h 20 min`: as exact as an estimate is."""
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.1f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min"


def _section(title: str, lines: list[str], verbose: bool) -> list[str]:
    if not lines:
        return []
    shown = lines if verbose or len(lines) <= _LISTED else lines[: _LISTED - 1]
    rest = len(lines) - len(shown)
    return ["", f"{title}:", *shown, *([f"      ... and {rest} more (--verbose)"] if rest else [])]


def _list(names: Iterable[str]) -> str:
    names = list(names)
    if len(names) <= _LISTED:
        return ", ".join(names)
    return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
