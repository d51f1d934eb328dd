"""Jinja as the pages use it: escaping always on, templates from this package."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from matrix.report import units
from matrix_adapters.protocol import State

_FOLDER = Path(__file__).parent / "templates"


@functools.cache
def environment() -> Any:
    """The one template environment (jinja2 is loaded on first use)."""
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    env.filters["pretty"] = units.pretty
    env.filters["words"] = lambda text: str(text).replace("_", " ")
    env.filters["human"] = lambda value, unit: units.pretty(units.human(value, unit))
    env.filters["ratio"] = lambda value: units.pretty(units.ratio(value))
    env.filters["pct"] = lambda value: f"{value * 100:.4g}%"
    env.globals["State"] = State
    return env


def render(name: str, **values: Any) -> str:
    text: str = environment().get_template(name).render(**values)
    return text


@functools.cache
def text(name: str) -> Any:
    """A file of ours that goes into a page as it is (Markup, so that it is not escaped)."""
    from markupsafe import Markup

    return Markup((_FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704 - package data
