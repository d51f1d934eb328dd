"""Environments of the real frameworks, built once and shared by content key.

They lie in the ordinary cache folder (FRAMEWORK_MATRIX_HOME moves it), so that a run of the
product, the tests, the benches and their next run build each of them once in all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from matrix import catalog, paths
from matrix.environments.base import BuiltEnvironment
from matrix.environments.venv import VenvBackend
from matrix.records import Environment


def builder() -> Callable[[str], BuiltEnvironment]:
    """framework name -> its default version's CPU environment (or the only build it has)."""
    facts = catalog.load()
    backend = VenvBackend(facts.frameworks, paths.home())

    @functools.cache
    def build(framework: str) -> BuiltEnvironment:
        entry = facts.frameworks[framework]
        hardware = "cpu" if "cpu" in entry.hardware else next(iter(entry.hardware))
        return backend.build(
            Environment(
                framework=framework,
                version=entry.version_for(hardware),
                hardware=hardware,
                build=entry.hardware[hardware].build,
            )
        )

    return build
