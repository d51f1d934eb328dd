"""The catalog: frameworks, hardware, models, metrics, tolerances and sweeps, all as data.

`load()` reads the YAML files that ship with the package, adds third parties'
frameworks (entry-point group `framework_matrix.adapters`) and checks that what one
file names exists in the other.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.resources
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from matrix.catalog.types import Catalog, Framework, Hardware, Metric, ModelEntry, Tolerances
from matrix.errors import ConfigError
from matrix.strict_yaml.located import Checker
from matrix.strict_yaml.source import read

ENTRY_POINTS = "framework_matrix.adapters"

__all__ = ["ENTRY_POINTS", "Catalog", "folder", "load", "load_from"]

_Model = TypeVar("_Model", bound=BaseModel)


def folder() -> Path:
    """Where the catalog's files lie: package data, so also in an installed wheel."""
    return Path(str(importlib.resources.files("matrix.catalog")))


@functools.cache
def load() -> Catalog:
    """The catalog, read once per process. Raises ConfigError with every mistake in it."""
    return load_from(folder())


def load_from(root: Path, *, third_parties: bool = True) -> Catalog:
    """Read a catalog from `root` and add the third-party frameworks that are installed."""
    problems: list[str] = []
    hardware = _entries(root / "hardware", Hardware, problems)
    frameworks = _entries(root / "frameworks", Framework, problems)
    frameworks = {name: entry.model_copy(update={"data_dir": root}) for name, entry in frameworks.items()}
    models = _entries(root / "models", ModelEntry, problems)
    metrics = _metrics(root / "metrics.yaml", problems)
    tolerances = _one(root / "tolerances.yaml", Tolerances, problems)
    problems += _cross_references(frameworks, hardware)
    models.update(_twins(models, root, problems))
    if problems or tolerances is None:
        raise ConfigError(problems)
    broken: dict[str, str] = {}
    for name, found in _third_parties(broken) if third_parties else ():
        if name in frameworks:
            broken[name] = f"the framework {name} is already in the catalog"
            continue
        wrong = _cross_references({name: found}, hardware)
        if wrong:
            broken[name] = "; ".join(wrong)
        else:
            frameworks[name] = found
    sweeps = {path.stem: path for path in sorted((root / "sweeps").glob("*.yaml"))}
    return Catalog(
        frameworks=frameworks,
        hardware=hardware,
        models=models,
        metrics=metrics,
        tolerances=tolerances,
        sweeps=sweeps,
        operators=root / "operators",
        broken=broken,
    )


def _entries(directory: Path, kind: type[_Model], problems: list[str]) -> dict[str, _Model]:
    entries: dict[str, _Model] = {}
    for path in sorted(directory.glob("*.yaml")):
        entry = _one(path, kind, problems)
        if entry is None:
            continue
        name: str = entry.name  # type: ignore[attr-defined]
        if name != path.stem:
            problems.append(f"{path}: name: {name!r} must be the file's name, {path.stem!r}")
        entries[name] = entry
    return entries


def _one(path: Path, kind: type[_Model], problems: list[str]) -> _Model | None:
    try:
        checker = Checker(read(path))
        entry = checker.validate(kind)
        checker.finish()
    except ConfigError as error:
        problems += error.problems
        return None
    return entry


def _metrics(path: Path, problems: list[str]) -> dict[str, Metric]:
    """The file is a mapping from id to the rest; one document per entry keeps the positions."""
    try:
        document = read(path)
        checker = Checker(document)
        metrics: dict[str, Metric] = {}
        data = document.data if isinstance(document.data, dict) else {}
        for name, fields in data.items():
            try:
                metrics[name] = Metric.model_validate({"id": name, **fields})
            except (ValidationError, TypeError) as error:
                checker.add((name,), " ".join(str(error).split()))
        checker.finish()
    except ConfigError as error:
        problems += error.problems
        return {}
    return metrics


def _twins(models: Mapping[str, ModelEntry], root: Path, problems: list[str]) -> dict[str, ModelEntry]:
    twins: dict[str, ModelEntry] = {}
    for name, model in models.items():
        try:
            twin = model.tiny_twin()
        except ValidationError as error:
            problems.append(f"{root / 'models' / name}.yaml: tiny: {' '.join(str(error).split())}")
            continue
        if twin is not None:
            twins[twin.name] = twin
    return twins


def _cross_references(frameworks: Mapping[str, Framework], hardware: Mapping[str, Hardware]) -> list[str]:
    """What one entry's own type cannot check, because another file has to agree."""
    wrong: list[str] = []
    for name, framework in frameworks.items():
        strange = [profile for profile in framework.hardware if profile not in hardware]
        wrong += [f"framework {name}: hardware: there is no profile {profile!r}" for profile in strange]
        for build_name, build in framework.builds.items():
            for version in build.versions:
                path = framework.constraints(build_name, version)
                if path is not None and not path.is_file():
                    wrong.append(f"framework {name}: builds.{build_name}: no constraints file {path.name}")
    return wrong


def _third_parties(broken: dict[str, str]) -> Iterator[tuple[str, Framework]]:
    """Installed frameworks of others, found without importing their code."""
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            source = _package_folder(entry.value.partition(":")[0].strip())
            checker = Checker(read(source / "framework.yaml"))
            framework = checker.validate(Framework)
            if framework is not None and framework.name != entry.name:
                checker.add(("name",), f"must be the entry point's name, {entry.name!r}")
            checker.finish()
        except ConfigError as error:
            broken[entry.name] = "; ".join(error.problems)
            continue
        if framework is not None:
            yield entry.name, framework.model_copy(update={"source_dir": source, "data_dir": source})


def _package_folder(package: str) -> Path:
    """The folder of an installed package, its code left unrun (no parent is imported either)."""
    top, *inner = package.split(".")
    spec = importlib.util.find_spec(top)
    name = top
    for part in inner:
        name = f"{name}.{part}"
        search = spec.submodule_search_locations if spec else None
        spec = importlib.machinery.PathFinder.find_spec(name, search) if search else None
    locations = list(spec.submodule_search_locations or ()) if spec else []
    if not locations:
        raise ConfigError([f"entry point {package!r}: there is no such package"])
    return Path(locations[0])
