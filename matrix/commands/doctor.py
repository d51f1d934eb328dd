"""`matrix doctor`: what this machine offers, and what would spoil a measurement on it."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tabulate import tabulate

from matrix import paths
from matrix.catalog.types import Hardware
from matrix.commands import shared
from matrix.environments.choose import ENGINE_TIMEOUT_S, container_engine
from matrix.errors import ExitCode, UsageError
from matrix.machine import doctor, hardware, load
from matrix.machine import fingerprint as machine
from matrix.report.units import human
from matrix_adapters.protocol import plain

if TYPE_CHECKING:
    from matrix.noise import Noise

#: how long `--noise` measures
NOISE_S = 60.0
NO_ENGINE = "engine_absent"
ANY = "any"
#: everything that can be found, and so everything that `--fail-on` may name
CODES = (
    *("load_high", "pressure", "load_unknown", "cgroup_unknown", "cpu_quota", "quota_throttled", "affinity"),
    *("numa", "governor", "thermal", "virtual", "turbo", "huge_pages", "steal", "disk", "memory", "swap"),
    *("engine_disk", "engine_cpuset", "engine_memory", "engine_storage", "engine_podman", NO_ENGINE),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix doctor`."""
    parser.add_argument("--json", action="store_true", help="print everything that was read, as JSON")
    parser.add_argument(
        "--fail-on",
        metavar="CODES",
        default="",
        help=f"exit with 1 when one of these was found, separated by commas; `{ANY}` for all of them, "
        f"`{NO_ENGINE}` for no container engine",
    )
    parser.add_argument(
        "--noise",
        action="store_true",
        help="measure for about a minute what slowdown can be found on this machine, and in which time",
    )
    parser.epilog = (
        "examples:\n  matrix doctor\n  matrix doctor --noise\n"
        "  matrix doctor --fail-on load_high,cpu_quota,engine_absent\n\n"
        "exit codes: 0, or 1 when something of --fail-on was found; 2 for an unknown code"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the findings."""
    wanted = _wanted(args.fail_on)
    catalog = shared.load_catalog()
    found = hardware.probe(catalog.hardware)
    host, now = machine.fingerprint(), load.snapshot()
    spoilers = doctor.warnings(host, now, paths.home())
    engine = container_engine()
    inside: dict[str, Any] = {}
    if engine.answers:
        inside, more = _engine(catalog.hardware)
        spoilers += more
    codes = {spoiler.code for spoiler in spoilers} | (set() if engine.answers else {NO_ENGINE})
    code = ExitCode.VERDICT if codes & wanted else ExitCode.OK
    measured = _noise() if args.noise else None
    if args.json:
        print(
            json.dumps(
                {
                    "machine": plain(host),
                    "hardware": {name: plain(answer) for name, answer in found.items()},
                    "container_engine": {**plain(engine), **inside},
                    "spoilers": [plain(spoiler) for spoiler in spoilers],
                    **({"noise": plain(measured)} if measured else {}),
                },
                indent=2,
            )
        )
        return code
    print("Hardware")
    for name, answer in found.items():
        print(f"  {name:<10} {'found' if answer.found else 'not found'}: {answer.reason}")
    print(f"\nContainers\n  {engine.said}")
    for line in _described(inside):
        print(f"  {line}")
    print(f"\nCache\n  {paths.home()}")
    print("\nWhat would spoil a measurement")
    for spoiler in spoilers:
        print(f"  {spoiler.code}: {spoiler.text}")
    if not spoilers:
        print("  nothing found")
    if measured is not None:
        print("\nNoise")
        for line in _noise_lines(measured):
            print(f"  {line}")
    return code


def _wanted(text: str) -> set[str]:
    asked = {part.strip() for part in text.split(",") if part.strip()}
    unknown = sorted(asked - {*CODES, ANY})
    if unknown:
        raise UsageError(f"--fail-on {unknown[0]}: the codes are {', '.join(sorted(CODES))}, and {ANY}")
    return set(CODES) if ANY in asked else asked


def _engine(profiles: Mapping[str, Hardware]) -> tuple[dict[str, Any], list[doctor.Spoiler]]:
    """What the engine says of itself; nothing where it went away meanwhile."""
    from matrix.execution import connect, engine_facts
    from matrix.execution.engine import ENGINE_ERRORS

    try:
        with contextlib.closing(connect.client(ENGINE_TIMEOUT_S)) as client:
            facts = engine_facts.read(client)
    except ENGINE_ERRORS:
        return {}, []
    devices = engine_facts.devices(facts, profiles)
    seen = {name: plain(answer) for name, answer in devices.items()}
    return {"engine": plain(facts), "devices": seen}, engine_facts.spoilers(facts)


def _described(inside: dict[str, Any]) -> list[str]:
    if not inside:
        return []
    facts = inside["engine"]
    free = facts["storage_free_bytes"]
    room = f", {human(free, 'bytes')} free" if free is not None else ""
    lines = [
        f"{facts['kind']} {facts['version']}, API {facts['api']}, on {facts['system']}"
        f"{'' if facts['local'] else ' (remote)'}{', rootless' if facts['rootless'] else ''}",
        f"storage {facts['storage_driver']} at {facts['storage_folder']}{room}",
        f"cgroup v{facts['cgroup_version']} ({facts['cgroup_driver']}); {facts['cpus']} CPUs, "
        f"{human(facts['memory_bytes'] or 0, 'bytes')}; "
        f"CPU sets {_yes(facts['cpuset'])}, memory limits {_yes(facts['memory_limit'])}",
    ]
    for name, answer in inside["devices"].items():
        lines.append(f"{name:<10} {'offered' if answer['found'] else 'not offered'}: {answer['reason']}")
    return lines


def _noise() -> Noise:
    from matrix import noise  # NumPy and SciPy: only where something is measured

    return noise.measure(NOISE_S, paths.home())


def _noise_lines(measured: Noise) -> list[str]:
    """The table: a line for each clock, a column for each number of blocks."""
    from matrix.report.comparison import words

    if measured.problem or measured.block_s is None:
        return [f"could not be measured: {measured.problem or 'nothing was timed'}"]
    lines = [
        f"a fixed workload against itself for {measured.seconds:.0f} s, {measured.block_s:.1f} s a block.",
        "Slowdown that would be found in 80 % of cases:",
    ]
    rows = []
    for clock in measured.clocks:
        row = {"clock": clock.clock}
        for blocks, effect, seconds in clock.detectable:
            row[f"{blocks} blocks ({seconds:.0f} s)"] = words.fraction(effect)
        low, high = words.percent(clock.low), words.percent(clock.high)
        row["difference seen"] = words.percent(clock.mean)
        row[words.INTERVAL] = f"{low} to {high}"
        row["blocks"] = str(clock.blocks)
        rows.append(row)
    if rows:
        lines += tabulate(rows, headers="keys", disable_numparse=True).splitlines()
    lines.append("A framework's own start takes longer than this workload's: its blocks cost more time.")
    return lines


def _yes(value: bool | None) -> str:
    return "not told" if value is None else "yes" if value else "no"
