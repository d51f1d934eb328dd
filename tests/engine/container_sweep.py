"""A toy sweep whose launches are containers; as a script, so that a test can kill it.

`python container_sweep.py FOLDER ENGINE IMAGE SECONDS` runs, or resumes, what FOLDER/toy.json describes.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
from tiny_wheels import toy_framework
from toy_sweep import ToySweep

from matrix import catalog
from matrix.environments.bundle import Bundle
from matrix.environments.docker import ContainerEnvironment, DockerBackend
from matrix.environments.images import BuiltImage
from matrix.execution import connect
from matrix.execution.engine import Engine
from matrix.records import Environment

ADAPTER = Path(__file__).with_name("toy_adapter")
PYTHON = "/usr/bin/python3"


class TinyBackend(DockerBackend):
    """The real backend around an image that needs no building."""

    def __init__(
        self, home: Path, engine: str, image: str, *, back_s: float = 30, changes: Mapping[str, Any]
    ) -> None:
        client = (
            connect.client_over_ssh(engine, 60)
            if engine.startswith("ssh://")
            else docker.DockerClient(base_url=engine, timeout=60)
        )
        super().__init__(
            {"toy": toy_framework()}, catalog.load().hardware, home, client, memory_bytes=256 << 20
        )
        self.engine = Engine(client, back_s=back_s)
        self._bundle = Bundle(home, [ADAPTER])
        self._image, self._changes = image, changes

    def build(self, environment: Environment, **_: Any) -> ContainerEnvironment:
        built = self._environment(
            BuiltImage(
                environment=environment,
                key="tiny",
                tag="tiny",
                id=self._image,
                base="base",
                python=PYTHON,
                python_version="3.11.2",
                user="",
                lock=("toy==1.0",),
                size_bytes=1,
                reused=True,
            )
        )
        return dataclasses.replace(built, plan=dataclasses.replace(built.plan, **self._changes))


def container_sweep(
    folder: Path,
    engine: str,
    image: str,
    *,
    back_s: float = 30,
    changes: Mapping[str, Any] | None = None,
    **described: Any,
) -> ToySweep:
    """The sweep in `folder`, made from `described` or found there; `changes` to how containers are made."""
    sweep = ToySweep(folder, **described) if described else ToySweep.described_in(folder)
    sweep.backend = TinyBackend(  # type: ignore[assignment]
        folder / "home", engine, image, back_s=back_s, changes=changes or {}
    )
    return sweep


def started(folder: Path, engine: str, image: str, *, back_s: float = 30) -> subprocess.Popen[bytes]:
    """The sweep of `folder` in a process of its own."""
    tests = Path(__file__).parents[1]
    path = os.pathsep.join([str(tests.parent), str(tests.parent / "adapters"), str(tests)])
    return subprocess.Popen(
        [sys.executable, __file__, str(folder), engine, image, str(back_s)],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


if __name__ == "__main__":
    this = container_sweep(Path(sys.argv[1]), *sys.argv[2:4], back_s=float(sys.argv[4]))
    ended = this.resume() if list(this.results.glob("*/run.json")) else this.run()
    sys.exit(ended.exit_code)
