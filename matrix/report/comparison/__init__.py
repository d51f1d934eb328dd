"""Every view over a comparison: `render` gives one format."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.errors import UsageError

if TYPE_CHECKING:
    from matrix.catalog.types import Catalog
    from matrix.compare.comparison import Comparison
    from matrix.report.style import Style

__all__ = ["FILES", "FORMATS", "Options", "render", "write_all"]

#: format -> what it is for; the module that makes it is named after it, where it is no data of ours
FORMATS: dict[str, str] = {
    "table": "for people, in a terminal or a log",
    "markdown": "for a pull request or a job summary on GitHub",
    "html": "one page with everything, to be kept",
    "junit": "one test case for each finding, for whatever shows test results",
    "json": "for scripts",
    "github": "github-action-benchmark, customSmallerIsBetter: metrics of which less is better",
    "github-bigger": "github-action-benchmark, customBiggerIsBetter: metrics of which more is better",
    "bencher": "Bencher Metric Format",
}

#: what an A/B run leaves in its `reports/`, by format
FILES: dict[str, str] = {
    "table": "comparison.txt",
    "markdown": "comparison.md",
    "html": "comparison.html",
    "junit": "comparison.junit.xml",
    "json": "comparison.json",
}

_MODULES = {"json": "as_json", "github-bigger": "github"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What a view may be told."""

    style: Style | None = None  # of the terminal; plain ASCII without one
    all: bool = False  # also list the rows that are well


def render(
    report_format: str, comparison: Comparison, catalog: Catalog, options: Options | None = None
) -> str:
    """The comparison in one format. Raises UsageError for an unknown one."""
    if report_format not in FORMATS:
        raise UsageError(f"no format is called {report_format!r}; there are {', '.join(FORMATS)}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(report_format, report_format)}")
    bigger = {"better": "higher"} if report_format == "github-bigger" else {}
    text: str = module.render(comparison, catalog, options or Options(), **bigger)
    return text


def write_all(run_dir: Path, comparison: Comparison, catalog: Catalog) -> list[Path]:
    """Write `reports/comparison.*` of a run, each file whole or not at all. Raises StorageError."""
    from matrix.store import durable

    folder = run_dir / "reports"
    with durable.storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, file in FILES.items():
        durable.replace(folder / file, render(name, comparison, catalog, Options(all=name == "table")))
    return [folder / file for file in FILES.values()]
