"""One build on the engine: the context streamed in, the engine's words streamed to a file.

Through the low-level API, since docker-py's other one says nothing until the end and finds the
image by a regular expression. The classic builder; BuildKit takes the same Dockerfiles.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import requests

from matrix.environments.base import BuildCancelled, BuildFailed, Progress
from matrix.environments.images import context, failures

SILENCE_S = 900.0  # the longest that a step may say nothing: unpacking CUDA takes minutes
TAIL_LINES = 60
WATCH_S = 0.1


def build(
    client: docker.DockerClient,
    entries: Sequence[context.Entry],
    *,
    tag: str,
    buildargs: Mapping[str, str],
    network: str,
    log: Path,
    progress: Progress,
    cancelled: threading.Event | None,
    silence_s: float = SILENCE_S,
) -> None:
    """Make the image `tag`. Raises BuildFailed, or BuildCancelled when `cancelled` was set meanwhile.

    The engine ends a build whose client is gone, so a cancelled one leaves no container.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    trouble = ""
    try:
        with _cancellable(client, cancelled), log.open("a", encoding="utf-8") as stream:
            events = client.api.build(
                fileobj=context.tar(entries),  # type: ignore[arg-type]  # requests takes any iterator
                custom_context=True,
                tag=tag,
                rm=True,
                forcerm=True,
                decode=True,
                network_mode=network,
                buildargs=dict(buildargs),
                timeout=silence_s,  # type: ignore[arg-type]
                use_config_proxy=False,
            )
            for event in events:
                said = str(event.get("stream", ""))
                stream.write(said)
                tail.append(said)
                if said.startswith("Step "):
                    stream.flush()
                    progress(said.strip()[:100])
                if "error" in event:
                    trouble = str(event["error"])
                    stream.write(trouble + "\n")
    except failures.ENGINE_ERRORS as error:
        if cancelled is not None and cancelled.is_set():
            raise BuildCancelled from error
        raise BuildFailed(failures.of_exception(error, silent_s=silence_s, log=log), log) from error
    if cancelled is not None and cancelled.is_set():
        raise BuildCancelled
    if trouble:
        raise BuildFailed(failures.of_event(trouble, list(tail), log), log)


@contextlib.contextmanager
def _cancellable(client: docker.DockerClient, cancelled: threading.Event | None) -> Iterator[None]:
    """End the answer that this thread is reading when `cancelled` is set: a read cannot be interrupted.

    The answer is caught by a hook of the session, which all threads share: only ours counts.
    """
    if cancelled is None:
        yield
        return
    ours, over = threading.get_ident(), threading.Event()
    answers: list[requests.Response] = []

    def caught(answer: requests.Response, *_: Any, **__: Any) -> None:
        if threading.get_ident() == ours:
            answers.append(answer)

    def watch() -> None:
        while not over.is_set():
            if cancelled.wait(WATCH_S):
                while not answers and not over.wait(WATCH_S):
                    pass
                for answer in answers:
                    with contextlib.suppress(OSError, ValueError, RuntimeError):
                        answer.raw.shutdown()
                return

    client.api.hooks["response"].append(caught)
    watcher = threading.Thread(target=watch, daemon=True, name="cancel build")
    watcher.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(ValueError):
            client.api.hooks["response"].remove(caught)
        for answer in answers:
            answer.close()
