"""From `--backend` to a backend, for every command that builds environments."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from matrix import paths
from matrix.catalog.types import Catalog
from matrix.config.sweep import SweepConfig
from matrix.environments.choose import Asked, Chosen, Containers, choose
from matrix.environments.cutoff import CutOff
from matrix.estimate import artefact_environment
from matrix.records import Environment


def choose_for(
    asked: str,
    catalog: Catalog,
    config: SweepConfig,
    environments: Iterable[Environment],
    cutoff: CutOff | None = None,
) -> Chosen:
    """The backend for these environments and the one that makes models, and why it is that one."""
    setup = functools.partial(_containers, catalog, config, environments, cutoff)
    word: Asked = asked  # type: ignore[assignment] # argparse and the run's header know the words
    return choose(word, catalog.frameworks, paths.home(), setup, cutoff=cutoff)


def _containers(
    catalog: Catalog, config: SweepConfig, wanted: Iterable[Environment], cutoff: CutOff | None
) -> Containers:
    """What `choose` needs to know of containers; imported only where an engine answers."""
    from matrix.environments import docker
    from matrix.environments.images import ImageOptions

    maker = artefact_environment(catalog)
    return docker.Setup(
        frameworks=catalog.frameworks,
        hardware=catalog.hardware,
        home=paths.home(),
        environments=tuple(dict.fromkeys([*wanted, *([maker] if maker else [])])),
        options=ImageOptions(bases=config.images.base, packages=config.images.packages, cutoff=cutoff),
    )
