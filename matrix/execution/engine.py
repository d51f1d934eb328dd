"""The container engine's answers, translated once: what it refuses, and that it is gone.

Everything here goes through the Docker SDK, so that a local engine, a remote one and
podman's socket are the same. Durations and retries are the caller's business.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import docker
import docker.errors
import requests
import urllib3

from matrix.errors import EngineLost
from matrix.execution.cancel import Cancel
from matrix_adapters.protocol import Reason, State

#: how long a run waits for an engine that went away before it gives up
BACK_S = 60.0
_POLL_S = 0.5
_PING_TIMEOUT_S = 10.0

#: everything that the SDK lets through when the engine or the way to it breaks
ENGINE_ERRORS = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)
# What the engine says in words only. Docker, podman, runc and the NVIDIA toolkit, as seen.
_FULL = ("no space left on device", "disk quota exceeded")
_DEVICE = (
    "could not select device driver",
    "error gathering device information",
    "nvidia-container-cli",
    "unresolvable cdi devices",
    "/dev/",
)


class Refused(Exception):
    """The engine answered, and will not do it; trying again changes nothing."""

    def __init__(self, reason: Reason, state: State = State.FAILED) -> None:
        super().__init__(reason.text)
        self.reason = reason
        self.state = state


class Gone(Exception):
    """The container is not there any more: somebody removed it."""


class Silent(Exception):
    """No answer: the engine, or the way to it, broke in the middle of a call."""


class Engine:
    """One engine, and whether it was there when it was asked last. Safe for several threads."""

    def __init__(self, client: docker.DockerClient, *, back_s: float = BACK_S) -> None:
        self.client = client
        self._back_s = back_s
        self._given_up = False

    @property
    def api(self) -> docker.APIClient:
        """The low-level calls."""
        return self.client.api

    @contextlib.contextmanager
    def calling(self) -> Iterator[docker.APIClient]:
        """Inside, errors of the engine are Refused, Gone or Silent."""
        try:
            yield self.api
        except ENGINE_ERRORS as error:
            raise translated(error) from error

    def answers(self) -> bool:
        """Whether it answers now."""
        try:
            self.api.ping()
        except ENGINE_ERRORS:
            return False
        return True

    def comes_back(self, cancel: Cancel | None = None) -> bool:
        """Wait until it answers, for `back_s` seconds at most; a second loss is not waited for again."""
        deadline = time.monotonic() + (0.0 if self._given_up else self._back_s)
        pause: Callable[[float], object] = time.sleep if cancel is None else cancel.wait
        while not self.answers():
            if time.monotonic() >= deadline or (cancel is not None and cancel.is_set()):
                self._given_up = True
                return False
            pause(_POLL_S)
        self._given_up = False
        return True

    def must_answer(self, cancel: Cancel | None = None) -> None:
        """Before a launch. Raises EngineLost when it does not answer, or not in time."""
        if not self.comes_back(cancel):
            raise EngineLost(
                f"the container engine at {self.api.base_url} does not answer: start it, "
                "then continue with --resume"
            )


def translated(error: BaseException) -> Refused | Gone | Silent:
    """What an error of the SDK means for a launch."""
    if isinstance(error, docker.errors.ImageNotFound):
        text = f"the image is gone from the engine ({_said(error)}): run again to build it"
        return Refused(Reason(code="image_gone", text=text))
    if isinstance(error, docker.errors.NotFound):
        if "image" in _said(error).lower():
            text = f"the image is gone from the engine ({_said(error)}): run again to build it"
            return Refused(Reason(code="image_gone", text=text))
        return Gone(_said(error))
    if isinstance(error, docker.errors.APIError):
        return _refusal(_said(error))
    return Silent(_innermost(error))


def _refusal(said: str) -> Refused:
    lower = said.lower()
    if any(words in lower for words in _FULL):
        text = f"disk full on the container engine: {said}. Free space there (matrix images --prune)"
        return Refused(Reason(code="disk_full", text=text))
    if any(words in lower for words in _DEVICE):
        text = f"the container engine cannot give the device: {said}"
        return Refused(Reason(code="device_refused", text=text), State.UNAVAILABLE)
    return Refused(Reason(code="engine_refused", text=f"the container engine refused: {said}"))


def _said(error: docker.errors.APIError) -> str:
    return " ".join(str(error.explanation or error).split())[:300]


def _innermost(error: BaseException) -> str:
    """The first cause, in one line; the outer ones repeat it with addresses of objects."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__ or error
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())[:160]
