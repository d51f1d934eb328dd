"""From the arguments of `matrix bisect` to what is searched: the versions in order, the cells, the moment."""

from __future__ import annotations

import argparse

from matrix import paths
from matrix.bisect.state import State, versions_of
from matrix.catalog.types import Catalog, Framework
from matrix.commands import ab, shared
from matrix.commands import compare as comparing
from matrix.config.sweep import load_sweep
from matrix.environments import changes, interpreters, releases
from matrix.environments.cutoff import cut_off
from matrix.environments.releases import Candidate
from matrix.errors import UsageError
from matrix.plan import Plan
from matrix.records import Environment, Workload
from matrix.select import selector
from matrix.store.formats import utc_now
from matrix.store.names import new_id


def begun(args: argparse.Namespace, catalog: Catalog) -> State:
    """A new bisection. Raises UsageError, ConfigError, IndexUnreachable; nothing is written."""
    if not (args.framework and args.good and args.bad):
        raise UsageError(
            "say what to search: matrix bisect FRAMEWORK GOOD BAD, "
            "e.g. onnxruntime 1.26.0 1.32.0 --cell distilbert"
        )
    if args.wheels and args.images:
        raise UsageError("--wheels and --images: search through one or the other")
    framework = ab.framework_of(args.framework, catalog)
    comparing.metrics_of([args.metric] if args.metric else [], catalog)
    margins = comparing.margins_of(args.margin, catalog)
    side = changes.parse(args.changes, framework, "--with")
    plan = _plan(args, framework, catalog)
    select = _both(args.select, _cell(args.cell, plan) if args.cell else None)
    if select:
        plan = _plan(args, framework, catalog, select)
    build = _one_build(plan)
    candidates = releases.between(_candidates(args, framework, build, side), args.good, args.bad)
    environments = [
        Environment(framework=framework.name, version=c.version, hardware=build.hardware, build=build.build)
        for c in candidates
    ]
    cutoff = cut_off(args.as_of, framework, environments)
    return State(
        id=new_id(f"bisect-{framework.name}"),
        created=utc_now(),
        framework=framework.name,
        versions=tuple(versions_of(candidates)),
        config=_absolute(args.config, catalog),
        select=select,
        metric=args.metric,
        variant=side.variant,
        changes=side.changes,
        backend=args.backend,
        as_of=cutoff.at if cutoff else "",
        seed=args.seed,
        margins=margins,
    )


def _plan(
    args: argparse.Namespace, framework: Framework, catalog: Catalog, select: str | None = None
) -> Plan:
    config = load_sweep(args.config, catalog)
    alone = ab.for_framework(config, framework, framework.default_version, catalog)
    return shared.plan_for_this_machine(alone, catalog, select or args.select)


def _candidates(
    args: argparse.Namespace, framework: Framework, environment: Environment, side: changes.Side
) -> list[Candidate]:
    if args.wheels:
        return releases.of_wheels(args.wheels, framework)
    if args.images:
        return releases.of_images(args.images, environment.version)
    wanted = changes.of(side.changes).python
    try:
        python = interpreters.find(wanted).path if wanted else ""
    except interpreters.NoInterpreter as missing:
        raise UsageError(f"--with python={wanted}: {missing}") from None
    found = releases.released(
        releases.source_of(framework, environment.build),
        home=paths.home(),
        pre=args.pre,
        keep=(args.good, args.bad),
        python=python,
    )
    return releases.of_versions(found)


def _one_build(plan: Plan) -> Environment:
    """The one environment whose versions are searched. Raises UsageError where the cells are of several."""
    environments = plan.environments
    if len(environments) != 1:
        hardware = ", ".join(environment.hardware for environment in environments) or "none"
        raise UsageError(
            f"the cells to be measured are of {len(environments)} environments ({hardware}): choose one, "
            "e.g. --cell 'hardware == \"cpu\"'"
        )
    return environments[0]


def _cell(text: str, plan: Plan) -> str:
    """`--cell` as an expression: the name of a row, a model, or an expression already."""
    rows = {cell.workload.label: cell.workload for cell in plan.cells}
    if text in rows:
        return _expression(rows[text])
    if text in {cell.workload.subject for cell in plan.cells}:
        return f'model == "{text}"'
    if not any(mark in text for mark in ("=", "<", ">", "(", " in ")):
        known = ", ".join(list(rows)[:8]) + (", ..." if len(rows) > 8 else "")
        raise UsageError(f"--cell: no row or model is called {text!r}; the sweep has {known}")
    selector(text)
    return text


def _expression(workload: Workload) -> str:
    parts = [
        f'model == "{workload.subject}"',
        f"batch == {workload.batch}",
        f'precision == "{workload.precision}"',
        f"threads == {workload.threads}",
    ]
    if workload.sequence is not None:
        parts.insert(2, f"sequence == {workload.sequence}")
    return " and ".join(parts)


def _both(first: str | None, second: str | None) -> str | None:
    return f"({first}) and ({second})" if first and second else first or second


def _absolute(config: str, catalog: Catalog) -> str:
    """A file by its whole path, so that a search can be gone on with from elsewhere."""
    return config if config in catalog.sweeps else str(paths.given(config, "-c"))
