"""`matrix clean`: list or remove what the cache holds. Runs in `results/` are never touched."""

from __future__ import annotations

import argparse
import math
import time

from tabulate import tabulate

from matrix import paths
from matrix.environments import clean
from matrix.errors import ExitCode, UsageError
from matrix.report.units import human
from matrix.strict_yaml.located import did_you_mean


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix clean`."""
    parser.add_argument("--all", action="store_true", help="remove everything that no run is using")
    parser.add_argument("--framework", metavar="NAME", help="remove the environments of this framework")
    parser.add_argument(
        "--older-than", metavar="DAYS", type=days, help="remove what was not used for so long"
    )
    parser.add_argument(
        "--kind",
        choices=sorted(set(clean.FOLDERS.values())),
        action="append",
        help="only this kind (repeatable)",
    )
    parser.epilog = (
        "examples:\n  matrix clean                   list, remove nothing\n  matrix clean --older-than 30"
    )


def execute(args: argparse.Namespace) -> int:
    """List the cache, or remove the part that was asked for."""
    home = paths.home()
    items = clean.contents(home)
    if not (args.all or args.framework or args.older_than is not None or args.kind):
        print(_listing(items) if items else f"{home} holds nothing")
        return ExitCode.OK
    known = {item.framework for item in items if item.framework}
    if args.framework and args.framework not in known:
        hint = did_you_mean(args.framework, known)
        has = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"--framework {args.framework}: the cache has no environment of it{hint}; it has {has}"
        )
    chosen = clean.choose(
        items,
        older_than_s=None if args.older_than is None else args.older_than * 86400,
        framework=args.framework,
        kinds=args.kind,
    )
    removals = clean.remove(chosen)
    freed = sum(r.item.size_bytes for r in removals if not r.kept)
    for removal in removals:
        if removal.kept:
            print(f"kept {removal.item.name}: {removal.kept}")
    print(f"removed {sum(not r.kept for r in removals)} of {len(removals)}, {human(freed, 'bytes')} freed")
    return ExitCode.OK


def days(text: str) -> float:
    """Days of `--older-than`. Raises ArgumentTypeError for what would silently choose all or nothing."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days; write one from 0 on")
    return value


def _listing(items: list[clean.Cached]) -> str:
    now = time.time()
    rows = [
        (
            item.kind,
            item.name,
            human(item.size_bytes, "bytes"),
            f"{(now - item.last_used) / 86400:.1f} days ago",
            "in use" if item.in_use else "",
        )
        for item in items
    ]
    total = human(sum(item.size_bytes for item in items), "bytes")
    table = tabulate(rows, headers=("kind", "what", "size", "last used", ""))
    return f"{table}\n\n{total} in all; what a container engine holds: `matrix images`"
