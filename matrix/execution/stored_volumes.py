"""The volumes that this product keeps on an engine: which there are, how large, and how to remove them.

They hold models and worker sources, one volume per content, and can be filled again from this
machine at any time. One that a container was made with is kept; whether a run is between two
launches is for the caller to know.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection

from matrix.execution import leases
from matrix.execution.engine import ENGINE_ERRORS, Engine, Gone, Refused

_PREFIX = "framework-matrix-"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """One volume. `size_bytes`: None where the engine does not tell."""

    name: str
    what: str  # "model" or "worker"
    size_bytes: int | None
    in_use: bool  # a container, running or not, was made with it


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What became of one volume. `kept` says why it is still there; "" when it is gone."""

    item: Stored
    kept: str = ""


def contents(engine: Engine) -> list[Stored]:
    """All of ours, the largest first. Raises the errors of `Engine.calling`."""
    with engine.calling() as api:
        found = api.volumes(filters={"label": leases.CACHE_LABEL})["Volumes"] or []
        used = {
            mount.get("Name")
            for container in api.containers(all=True)
            for mount in container.get("Mounts") or ()
        }
    sizes = _sizes(engine) if found else {}
    items = [
        Stored(
            name=volume["Name"],
            what=str(volume["Name"]).removeprefix(_PREFIX).partition("-")[0],
            size_bytes=sizes.get(volume["Name"]),
            in_use=volume["Name"] in used,
        )
        for volume in found
    ]
    return sorted(items, key=lambda item: (-(item.size_bytes or 0), item.name))


def remove(engine: Engine, items: Collection[Stored]) -> list[Removal]:
    """Remove them; what a container was made with, or the engine will not let go, is kept."""
    return [_remove(engine, item) for item in items]


def _remove(engine: Engine, item: Stored) -> Removal:
    try:
        with engine.calling() as api:
            api.remove_volume(item.name)
    except Gone:
        return Removal(item=item)
    except Refused as refused:
        return Removal(item=item, kept=refused.reason.text)
    return Removal(item=item)


def _sizes(engine: Engine) -> dict[str, int]:
    """Name -> bytes, as `docker system df` counts them; it walks through the files."""
    with contextlib.suppress(*ENGINE_ERRORS, ValueError):
        usage = engine.api.df().get("Volumes") or []
        told = {v["Name"]: (v.get("UsageData") or {}).get("Size", -1) for v in usage}
        return {name: int(size) for name, size in told.items() if size >= 0}
    return {}
