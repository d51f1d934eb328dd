"""Every view over stored records: `render` one format, or `write_all` of a run's reports.

Views only look: they take `list[Record]`, the run header and the catalog, and give text.
Each format is loaded when it is asked for, so that a command's `--help` stays quick.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError
from matrix.records import Record
from matrix.store import durable

if TYPE_CHECKING:
    from matrix.report.metrics import Catalog
    from matrix.report.style import Style

__all__ = ["FORMATS", "Options", "render", "write_all"]

#: format -> the name of its file in a run's `reports/`; None: made only when asked for
FORMATS: dict[str, str | None] = {
    "table": "matrix.txt",
    "markdown": "matrix.md",
    "html": "matrix.html",
    "csv": "matrix.csv",
    "json": "matrix.json",
    "svg": "matrix.svg",
    "junit": None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a view may be told. Everything has a default that suits a file."""

    metrics: Sequence[str] = ()  # registry ids; the view's own choice where empty
    baseline: str | None = None  # a column's label or environment name
    style: Style | None = None  # of the terminal; plain ASCII without one
    reports: Sequence[Path] = ()  # paths that the terminal report ends with
    run_dir: Path | None = None  # where samples and logs lie, for the page
    link_base: str = ""  # from the page to `run_dir`, "" for no links


def render(
    report_format: str,
    records: Sequence[Record],
    header: Mapping[str, Any],
    catalog: Catalog,
    options: Options | None = None,
) -> str:
    """The records in one format. Raises UsageError for an unknown format, metric or baseline."""
    options = options or Options()
    view = _VIEWS.get(report_format)
    if options.metrics and report_format in ("csv", "json"):
        records = [_only(record, options.metrics, catalog) for record in records]
    if view is None:
        raise UsageError(f"no report format is called {report_format!r}; there are {', '.join(FORMATS)}")
    return view(records, header, catalog, options)


def write_all(
    run_dir: Path, records: Sequence[Record], header: Mapping[str, Any], catalog: Catalog
) -> list[Path]:
    """Write `reports/matrix.*` of a run, each file whole or not at all. Raises StorageError."""
    folder = run_dir / "reports"
    options = Options(run_dir=run_dir, link_base="../")
    with durable.storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, file in FORMATS.items():
        if file is not None:
            durable.replace(folder / file, render(name, records, header, catalog, options))
            written.append(folder / file)
    return written


def _only(record: Record, metrics: Sequence[str], catalog: Catalog) -> Record:
    """The record with these metrics alone. Raises UsageError for one that the registry does not know."""
    from matrix.report.metrics import metric

    for name in metrics:
        metric(catalog, name)
    return record.model_copy(
        update={
            "metrics": {name: value for name, value in record.metrics.items() if name in metrics},
            "absent": {name: why for name, why in record.absent.items() if name in metrics},
        }
    )


Records = Sequence[Record]
Header = Mapping[str, Any]


def _table(records: Records, header: Header, catalog: Catalog, options: Options) -> str:
    from matrix.report import terminal

    return terminal.render(
        records,
        header,
        catalog,
        style=options.style,
        metrics=options.metrics,
        baseline=options.baseline,
        reports=options.reports,
    )


def _markdown(records: Records, header: Header, catalog: Catalog, options: Options) -> str:
    from matrix.report import markdown

    return markdown.render(records, header, catalog, metrics=options.metrics, baseline=options.baseline)


def _html(records: Records, header: Header, catalog: Catalog, options: Options) -> str:
    from matrix.report import html
    from matrix.report.run_files import RunFiles

    files, base = RunFiles(options.run_dir), options.link_base
    return html.render(records, header, catalog, files=files, baseline=options.baseline, link_base=base)


def _svg(records: Records, header: Header, catalog: Catalog, options: Options) -> str:
    from matrix.report import operators, svg

    picked = {"metric": options.metrics[0]} if options.metrics else {}
    matrix, _ = operators.split(records)  # a pass table is no picture
    return svg.render(matrix, header, catalog, baseline=options.baseline, **picked)


def _csv(records: Records, header: Header, _: Catalog, __: Options) -> str:
    from matrix.report import long_csv

    return long_csv.render(records, header)


def _json(records: Records, header: Header, _: Catalog, __: Options) -> str:
    from matrix.report import run_json

    return run_json.render(records, header)


def _junit(records: Records, header: Header, _: Catalog, __: Options) -> str:
    from matrix.report import junit

    return junit.render(records, header)


_VIEWS = {
    "table": _table,
    "markdown": _markdown,
    "html": _html,
    "csv": _csv,
    "json": _json,
    "svg": _svg,
    "junit": _junit,
}
