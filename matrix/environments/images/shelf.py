"""The images of this product on an engine: what there is, and how to remove what nobody needs.

An image is ours when it bears our label; names are for people. Leftovers are build stages of
builds that were killed, and images whose tag moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound

from matrix.environments.images import labels

UNTAGGED = "<none>:<none>"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Shelved:
    """One image of ours."""

    id: str
    tags: tuple[str, ...]  # none: a leftover
    image: str  # "<framework>-<hardware>"
    key: str
    size_bytes: int
    created: int  # seconds since 1970
    in_use: bool  # a container, running or not, was made from it

    @property
    def leftover(self) -> bool:
        """Nothing can start from it by name."""
        return not self.tags


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What became of one image. `kept` says why it is still there; "" when it is gone."""

    item: Shelved
    kept: str = ""


def contents(client: docker.DockerClient) -> list[Shelved]:
    """All of our images, leftovers included, the largest first."""
    used = {str(container["ImageID"]) for container in client.api.containers(all=True)}
    found = [_described(image, used) for image in client.api.images(filters={"label": labels.IMAGE})]
    return sorted(found, key=lambda item: (-item.size_bytes, item.id))


def remove(client: docker.DockerClient, items: Collection[Shelved]) -> list[Removal]:
    """Remove them; what a container was made from is kept."""
    return [_remove(client, item) for item in items]


def _remove(client: docker.DockerClient, item: Shelved) -> Removal:
    try:
        for name in item.tags or (item.id,):
            client.images.remove(name)
    except ImageNotFound:
        return Removal(item=item)
    except APIError as error:
        return Removal(item=item, kept=" ".join(str(error.explanation or error).split())[:200])
    return Removal(item=item)


def _described(image: Mapping[str, Any], used: set[str]) -> Shelved:
    marked = image.get("Labels") or {}
    return Shelved(
        id=str(image["Id"]),
        tags=tuple(tag for tag in image.get("RepoTags") or () if tag != UNTAGGED),
        image=marked.get(labels.IMAGE, ""),
        key=marked.get(labels.KEY, ""),
        size_bytes=int(image["Size"]),
        created=int(image.get("Created") or 0),
        in_use=image["Id"] in used,
    )
