"""The run as one self-contained page: readable without scripts, offline, on paper and in the dark.

No request leaves the page: its policy forbids them, and the only script that may run is the
one it ships with, named by its hash.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from matrix.records import EnvironmentRecord, Record
from matrix.report import templating
from matrix.report.cell_view import CellView, cell_view
from matrix.report.chart import Group, colours, groups
from matrix.report.header import RunView, run_view
from matrix.report.matrix_table import Mark, MatrixTable, TableCell, build
from matrix.report.metrics import DEFAULT, Catalog, present, short
from matrix.report.operators import split
from matrix.report.operators.page import OperatorsView, operators_view
from matrix.report.operators.speed_page import SpeedView, speed_view
from matrix.report.run_files import RunFiles
from matrix.report.summary import (
    STATE_HELP,
    Notes,
    counts,
    counts_text,
    headline,
    notes,
)
from matrix_adapters.protocol import State

#: factors of the best of row at which the shade of a cell changes
_SHADES = (1.02, 1.25, 1.6, 2.5, 5.0)


@dataclasses.dataclass(frozen=True)
class Panel:
    """One metric's view: the matrix, and bars where bars mean something."""

    id: str
    name: str
    table: MatrixTable
    said: list[str]
    groups: list[Group]


@dataclasses.dataclass(frozen=True)
class Page:
    """All that the template draws."""

    view: RunView
    counts: dict[State, int]
    counts_text: str
    panels: list[Panel]
    colours: list[str]
    notes: Notes
    cells: list[tuple[str, list[CellView]]]
    environments: list[EnvironmentRecord]
    state_help: dict[State, str]
    links: dict[str, str]  # record id -> the words by which a note links to it
    titles: dict[str, str]
    operators: OperatorsView | None  # the pass table, where operators were checked
    speed: SpeedView | None  # where some of them were timed


def render(
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    *,
    files: RunFiles | None = None,
    baseline: str | None = None,
    link_base: str = "",
) -> str:
    """The page. `link_base` leads from it to the run folder, for links to logs ("../"; "" for none)."""
    page = _page(records, header, catalog, files or RunFiles(), baseline)
    script = templating.text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return templating.render(
        "page.html.j2",
        page=page,
        script=script,
        script_hash=f"sha256-{digest}",
        link_base=link_base,
        shade=shade,
        best=Mark.BEST,
        tied=Mark.TIED,
    )


def shade(cell: TableCell, better: str) -> str:
    """The heat of a cell as a CSS class: h0 the best of row, h5 far from it; none without a rank."""
    if cell.ratio is None:
        return ""
    factor = cell.ratio if better == "lower" else 1 / cell.ratio
    return f"h{sum(factor > edge for edge in _SHADES)}"


def _page(
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    files: RunFiles,
    baseline: str | None,
) -> Page:
    matrix, checked = split(records)
    wanted = present(matrix, catalog)
    panels = [_panel(build(matrix, catalog, name, baseline), catalog) for name in wanted]
    first = panels[0].table
    places: dict[str, int] = {}
    environments: list[EnvironmentRecord] = []
    for record in records:
        identity = json.dumps([record.environment.name, record.environment.key, record.environment.backend])
        if identity not in places:
            places[identity] = len(environments)
            environments.append(record.environment)
    grouped = []
    for row in first.rows:
        views = []
        for i, cell in enumerate(row.cells):
            if cell is not None:
                e = cell.record.environment
                place = places[json.dumps([e.name, e.key, e.backend])]
                views.append(
                    cell_view(
                        cell,
                        title=first.columns[i].label,
                        workload=row.key.label(),
                        catalog=catalog,
                        files=files,
                        environment=place,
                    )
                )
        grouped.append((first.row_label(row), views))
    return Page(
        view=run_view(header),
        counts=counts(records),
        counts_text=counts_text(records),
        panels=panels,
        colours=colours(first.columns),
        notes=notes(matrix, first),
        cells=grouped,
        environments=environments,
        state_help=STATE_HELP,
        links={r.id: f"{r.workload.subject} on {r.environment.framework}" for r in matrix},
        titles={view.record.id: f"{view.title}, {view.workload}" for _, views in grouped for view in views},
        operators=operators_view(checked, catalog),
        speed=speed_view(checked, header, catalog),
    )


def _panel(table: MatrixTable, catalog: Catalog) -> Panel:
    drawn = groups(table) if table.metric_id in DEFAULT and table.metric.ranked else []
    return Panel(table.metric_id, short(catalog, table.metric_id), table, headline(table), drawn)
