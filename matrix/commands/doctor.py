"""`matrix doctor`: what this machine offers, and what would spoil a measurement on it."""

from __future__ import annotations

import argparse
import json

from matrix import paths
from matrix.commands import shared
from matrix.environments.choose import container_engine
from matrix.errors import ExitCode
from matrix.machine import doctor, hardware, load
from matrix.machine import fingerprint as machine
from matrix_adapters.protocol import plain


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix doctor`."""
    parser.add_argument("--json", action="store_true", help="print everything that was read, as JSON")
    parser.epilog = "example:\n  matrix doctor"


def execute(args: argparse.Namespace) -> int:
    """Print the findings."""
    catalog = shared.load_catalog()
    found = hardware.probe(catalog.hardware)
    host, now = machine.fingerprint(), load.snapshot()
    spoilers = doctor.warnings(host, now, paths.home())
    engine = container_engine()
    if args.json:
        print(
            json.dumps(
                {
                    "machine": plain(host),
                    "hardware": {name: plain(answer) for name, answer in found.items()},
                    "container_engine": plain(engine),
                    "spoilers": [plain(spoiler) for spoiler in spoilers],
                },
                indent=2,
            )
        )
        return ExitCode.OK
    print("Hardware")
    for name, answer in found.items():
        print(f"  {name:<8} {'found' if answer.found else 'not found'}: {answer.reason}")
    print(f"\nContainers\n  {engine.said}")
    print(f"\nCache\n  {paths.home()}")
    print("\nWhat would spoil a measurement")
    for spoiler in spoilers:
        print(f"  {spoiler.code}: {spoiler.text}")
    if not spoilers:
        print("  nothing found")
    return ExitCode.OK
