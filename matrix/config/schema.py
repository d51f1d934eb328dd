"""The JSON Schema of a sweep file, generated from the types that load it.

It is shipped as `matrix/catalog/sweep.schema.json`; an editor with a YAML language
server completes a sweep whose first line is
`# yaml-language-server: $schema=<path or URL of that file>`. `python -m matrix.config.schema`
writes it again after a change of the types or of the catalog's names; a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matrix import catalog
from matrix.catalog.types import Catalog
from matrix.config.sweep import ALL, AUTO, SweepFile
from matrix.operators.suites import SUITES

FILE = "sweep.schema.json"


def sweep_schema(shipped: Catalog) -> dict[str, Any]:
    """The schema, with the catalog's names as suggestions: other names are allowed too.

    Strict where the loader is: unknown keys are errors. What a schema cannot say (a path
    exists, an expression is right) is left to the loader.
    """
    schema = SweepFile.model_json_schema()
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Framework Matrix sweep",
        **{key: value for key, value in schema.items() if key != "title"},
    }
    properties, choice = schema["properties"], schema["$defs"]["FrameworkChoice"]["properties"]
    hardware = [*shipped.hardware, AUTO]
    frameworks = _suggest(shipped.frameworks)
    _named(properties["frameworks"]["items"], frameworks)
    _named(properties["models"]["items"], _suggest(shipped.models))
    _named(properties["threads"]["items"], {"const": ALL})
    properties["operators"]["items"] = _suggest(SUITES)  # operators are many: the loader names them
    schema["anyOf"] = [{"required": ["models"]}, {"required": ["operators"]}, {"required": ["candidates"]}]
    properties["hardware"]["items"] = _suggest(hardware)
    choice["name"] = frameworks
    choice["hardware"]["items"] = _suggest(hardware)
    choice["variants"]["items"] = _suggest(v for f in shipped.frameworks.values() for v in f.variants)
    return schema


def text(shipped: Catalog) -> str:
    """The file's content."""
    return json.dumps(sweep_schema(shipped), indent=2) + "\n"


def path() -> Path:
    """Where the shipped schema lies."""
    return catalog.folder() / FILE


def _suggest(names: Iterable[str]) -> dict[str, Any]:
    return {"anyOf": [{"enum": sorted(set(names))}, {"type": "string"}]}


def _named(items: dict[str, Any], names: dict[str, Any]) -> None:
    """Put `names` for the plain-text form of an item that may also be a mapping."""
    forms = items["oneOf"]
    forms[next(i for i, form in enumerate(forms) if form.get("type") == "string")] = names


if __name__ == "__main__":
    path().write_text(text(catalog.load_from(catalog.folder(), third_parties=False)), encoding="utf-8")
