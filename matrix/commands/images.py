"""`matrix images`: list, build and remove what this product keeps on a container engine."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import docker
from tabulate import tabulate

from matrix import paths
from matrix.catalog.types import Catalog
from matrix.commands import shared
from matrix.config.sweep import load_sweep
from matrix.environments import clean, locks
from matrix.environments.base import BuildFailed, build_all
from matrix.environments.images import ImageBuilder, ImageOptions, pins, shelf, sources
from matrix.environments.images.base import VARIABLE
from matrix.errors import EngineLost, ExitCode, UsageError
from matrix.execution import connect, leases, stored_volumes
from matrix.execution.engine import ENGINE_ERRORS, Engine, Gone, Refused, Silent
from matrix.machine import hardware
from matrix.records import Environment
from matrix.report.units import human
from matrix_adapters.protocol import plain

JOBS = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of `matrix images`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "build", "prune"),
        default="list",
        help="list what can be built and what is there (the default), build, or remove",
    )
    parser.add_argument("--framework", metavar="NAME", action="append", help="only this one (repeatable)")
    parser.add_argument(
        "--hardware",
        metavar="NAME",
        action="append",
        help="only this profile (repeatable); build takes those of this machine without it",
    )
    parser.add_argument("--version", metavar="X", help="build this version instead of the default one")
    parser.add_argument("-c", "--config", metavar="FILE", help="take `images` from this sweep")
    parser.add_argument("--base", metavar="IMAGE", help=f"build from this image (or set {VARIABLE})")
    parser.add_argument(
        "--packages", choices=("offline", "index"), help="copy wheels in, or ask an index while building"
    )
    parser.add_argument("--jobs", metavar="N", type=_positive, default=JOBS, help="builds at a time")
    parser.add_argument(
        "--all",
        action="store_true",
        help="prune: images and volumes too, not only leftovers; volumes without --framework and --hardware",
    )
    parser.add_argument(
        "--pin",
        action="store_true",
        help=f"write the digests of the base images to images/{sources.LOCK_FILE}",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.epilog = (
        "examples:\n  matrix images build --framework onnxruntime --hardware cpu\n"
        "  matrix images prune --all\n\n"
        "exit codes: 0 all well; 1 an image could not be built or removed; 3 no engine answers"
    )


def execute(args: argparse.Namespace) -> int:
    """Do what was asked."""
    catalog = shared.load_catalog()
    _check(args, catalog)
    if args.pin:
        return _pin(args)
    action = {"list": _list, "build": _build, "prune": _prune}[args.action]
    return action(args, catalog)


def _list(args: argparse.Namespace, catalog: Catalog) -> int:
    try:
        with _engine() as client:
            there, kept, engine = shelf.contents(client), stored_volumes.contents(Engine(client)), ""
    except EngineLost as absent:
        there, kept, engine = [], [], str(absent)
    wanted = _combinations(args, catalog, everywhere=True)
    rows = [_row(environment, catalog, there) for environment in wanted]
    leftovers = [item for item in there if item.leftover]
    if args.json:
        answer = {
            "engine": engine,
            "images": rows,
            "leftovers": [plain(item) for item in leftovers],
            "volumes": [plain(item) for item in kept],
        }
        print(json.dumps(answer, indent=2))
        return ExitCode.OK
    table = [(r["framework"], r["hardware"], r["version"], r["base"], _state(r)) for r in rows]
    print(tabulate(table, headers=("framework", "hardware", "version", "base image", "on the engine")))
    if leftovers:
        size = human(sum(item.size_bytes for item in leftovers), "bytes")
        print(f"\n{len(leftovers)} leftovers of builds that were stopped, {size}: `matrix images prune`")
    if kept:
        size = human(sum(item.size_bytes or 0 for item in kept), "bytes")
        print(f"\n{len(kept)} volumes with models and worker sources, {size}: `matrix images prune --all`")
    if engine:
        print(f"\n{engine}")
    return ExitCode.OK


def _build(args: argparse.Namespace, catalog: Catalog) -> int:
    wanted = _combinations(args, catalog, everywhere=False)
    options = _options(args, catalog)
    with _engine() as client:
        builder = ImageBuilder(client, catalog.frameworks, paths.home(), options)
        ends = build_all(builder, wanted, jobs=args.jobs, progress=_teller(args))
    failed = [end for end in ends.values() if isinstance(end, BuildFailed)]
    if args.json:
        print(
            json.dumps(
                [_answer(environment, end) for environment, end in ends.items()], indent=2, default=str
            )
        )
        return ExitCode.VERDICT if failed else ExitCode.OK
    for environment, end in ends.items():
        if isinstance(end, BuildFailed):
            print(f"{environment.name}: failed ({end.reason.code}): {end.reason.text}")
        else:
            what = "there already" if end.reused else f"built in {end.seconds:.0f} s"
            print(f"{environment.name}: {what}, {human(end.size_bytes, 'bytes')}, {end.tag}")
            for note in [*end.notes, *(flag.text for flag in end.flags)]:
                print(f"  note: {note}")
    return ExitCode.VERDICT if failed else ExitCode.OK


def _prune(args: argparse.Namespace, catalog: Catalog) -> int:
    folder = paths.home() / "images"
    names = {f"{e.framework}-{e.hardware}" for e in _combinations(args, catalog, everywhere=True)}
    with _engine() as client:
        swept = leases.sweep(Engine(client))
        items = [
            item
            for item in shelf.contents(client)
            if (item.leftover or args.all)
            and item.image in names
            and not locks.in_use(folder / f"{item.key}.lock")  # being built now, by another run
        ]
        removals: list[shelf.Removal | stored_volumes.Removal] = [
            *shelf.remove(client, items),
            *_volumes_removed(args, Engine(client)),
        ]
    kept = [removal for removal in removals if removal.kept]
    freed = sum(removal.item.size_bytes or 0 for removal in removals if not removal.kept)
    if args.json:
        print(json.dumps([plain(removal) for removal in removals], indent=2))
    else:
        for name in swept:
            print(f"removed {name}, a container of a run that is gone")
        for removal in kept:
            print(f"kept {_called(removal.item)}: {removal.kept}")
        size = human(freed, "bytes")
        print(f"removed {len(removals) - len(kept)} of {len(removals)}, up to {size} freed")
    return ExitCode.VERDICT if kept else ExitCode.OK


def _volumes_removed(args: argparse.Namespace, engine: Engine) -> list[stored_volumes.Removal]:
    """Volumes belong to no framework, so they go only where all of it goes."""
    if not args.all or args.framework or args.hardware:
        return []
    items = stored_volumes.contents(engine)
    # Between two launches no container holds them, and a launch would find an empty one.
    if clean.any_run(paths.home()) or leases.any_alive(engine):
        return [stored_volumes.Removal(item=item, kept="a run uses it") for item in items]
    return stored_volumes.remove(engine, items)


def _called(item: shelf.Shelved | stored_volumes.Stored) -> str:
    if isinstance(item, stored_volumes.Stored):
        return item.name
    return " ".join(item.tags) or item.id


def _pin(args: argparse.Namespace) -> int:
    names = pins.named()
    try:
        with _engine() as client:
            answers = pins.resolve(names, pins.registry(client))
    except EngineLost as absent:
        answers = pins.resolve(names, pins.nobody(str(absent)))
    path = sources.folder() / sources.LOCK_FILE
    try:
        path.write_text(pins.text(answers), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): pin in a checkout") from None
    if args.json:
        print(json.dumps({name: plain(answer) for name, answer in answers.items()}, indent=2))
    else:
        for name, answer in answers.items():
            print(f"{name}: {answer.digest or f'{pins.UNRESOLVED} ({answer.problem})'}")
        print(f"written to {path}")
    return ExitCode.OK


@contextlib.contextmanager
def _engine() -> Iterator[docker.DockerClient]:
    """The engine that the environment is set up for. Raises EngineLost."""
    try:
        with contextlib.closing(connect.client(60)) as client:
            client.ping()
            yield client
    except (*ENGINE_ERRORS, Gone, Refused, Silent) as error:
        text = " ".join(str(error).split())[:200]
        raise EngineLost(
            f"no container engine answers ({text}): start one, set DOCKER_HOST, or use `--backend venv`"
        ) from None


def _check(args: argparse.Namespace, catalog: Catalog) -> None:
    for given, known, what in (
        (args.framework, catalog.frameworks, "framework"),
        (args.hardware, catalog.hardware, "hardware profile"),
    ):
        for name in given or ():
            if name not in known:
                raise UsageError(f"there is no {what} {name!r}; there are: {', '.join(sorted(known))}")


def _combinations(args: argparse.Namespace, catalog: Catalog, *, everywhere: bool) -> list[Environment]:
    """What has a Dockerfile, of the frameworks and the hardware asked for."""
    here = {name for name, answer in hardware.probe(catalog.hardware).items() if answer.found}
    profiles = set(args.hardware or (catalog.hardware if everywhere else here))
    found = []
    for framework in catalog.frameworks.values():
        if args.framework and framework.name not in args.framework:
            continue
        for name, support in framework.hardware.items():
            described = sources.described(framework, name)
            if name in profiles and (described or args.framework):
                version = args.version or framework.version_for(name)
                found.append(
                    Environment(framework=framework.name, version=version, hardware=name, build=support.build)
                )
    if not found:
        raise UsageError("no image fits: `matrix images` lists the combinations")
    return found


def _options(args: argparse.Namespace, catalog: Catalog) -> ImageOptions:
    choice = load_sweep(args.config or shared.DEFAULT_SWEEP, catalog).images
    bases = dict.fromkeys(catalog.hardware, args.base) if args.base else choice.base
    return ImageOptions(bases=bases, packages=args.packages or choice.packages)


def _row(environment: Environment, catalog: Catalog, there: list[shelf.Shelved]) -> dict[str, Any]:
    framework = catalog.frameworks[environment.framework]
    name = f"{environment.framework}-{environment.hardware}"
    source = sources.source(framework, environment.hardware)
    return {
        "framework": environment.framework,
        "hardware": environment.hardware,
        "version": environment.version,
        "base": source.base,
        "run_on_hardware": catalog.hardware[environment.hardware].run_on_hardware,
        "built": [plain(item) for item in there if item.image == name and not item.leftover],
    }


def _state(row: Mapping[str, Any]) -> str:
    built = row["built"]
    if not built:
        return "-"
    return "; ".join(f"{item['tags'][0]} ({human(item['size_bytes'], 'bytes')})" for item in built)


def _answer(environment: Environment, end: Any) -> dict[str, Any]:
    if isinstance(end, BuildFailed):
        return {"environment": environment.name, "state": "build_failed", "reason": plain(end.reason)}
    return {"environment": environment.name, "state": "ok", "image": plain(end)}


def _teller(args: argparse.Namespace) -> Callable[[Environment, str], None]:
    """Progress on standard error, for people only."""
    if args.json or not sys.stderr.isatty():
        return lambda _, __: None
    return lambda environment, text: print(f"{environment.name}: {text}", file=sys.stderr)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number
