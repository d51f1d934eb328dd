"""`matrix catalog`: the names that a sweep can use."""

from __future__ import annotations

import argparse
import json

from tabulate import tabulate

from matrix.commands import shared
from matrix.errors import ExitCode


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix catalog`."""
    parser.add_argument("--json", action="store_true", help="print the names as JSON")
    parser.epilog = "example:\n  matrix catalog"


def execute(args: argparse.Namespace) -> int:
    """Print frameworks with versions and variants, models, hardware and sweeps."""
    catalog = shared.load_catalog()
    frameworks = [
        {
            "framework": framework.name,
            "versions": list(dict.fromkeys(v for build in framework.builds.values() for v in build.versions)),
            "variants": list(framework.variants),
            "hardware": list(framework.hardware),
        }
        for framework in catalog.frameworks.values()
    ]
    models = [
        {
            "model": model.name,
            "title": model.title,
            "task": model.task,
            "parameters_m": model.cost.parameters_m or None,
        }
        for model in catalog.models.values()
    ]
    if args.json:
        names = {"frameworks": frameworks, "models": models, "hardware": list(catalog.hardware)}
        print(json.dumps({**names, "sweeps": list(catalog.sweeps)}, indent=2))
        return ExitCode.OK
    rows = [[" ".join(v) if isinstance(v, list) else v for v in f.values()] for f in frameworks]
    print(tabulate(rows, headers=["framework", "versions", "variants", "hardware"]), end="\n\n")
    print(tabulate([list(m.values()) for m in models], headers=["model", "title", "task", "M parameters"]))
    print(f"\nhardware: {', '.join(catalog.hardware)}\nsweeps: {', '.join(catalog.sweeps)}")
    return ExitCode.OK
