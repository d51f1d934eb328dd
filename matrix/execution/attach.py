"""A container's standard input and output through its engine: what a live worker is told, and answers.

The engine's attach call turns an HTTP connection into a stream both ways, the same over a
socket, TLS or ssh; what comes back is cut into frames with a header of 8 bytes, which the
SDK reads. A thread of its own sleeps in that read and hands the answers on through a pipe, so
that everybody else can wait for them beside other things.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any

import docker
from docker.utils.socket import frames_iter

from matrix.execution.answers import Answers
from matrix.execution.engine import ENGINE_ERRORS

_STDOUT = 1  # the other streams of an attached container are 0 and 2
_END_S = 5.0
_PARAMS = {"stdin": 1, "stdout": 1, "stream": 1}


class Attachment:
    """Made before the container starts: nothing that it says is lost then. Errors as the SDK has them."""

    def __init__(self, api: docker.APIClient, name: str) -> None:
        self._socket: Any = api.attach_socket(name, params=_PARAMS)
        read, self._write = os.pipe()
        self.answers = Answers(read)
        self._thread = threading.Thread(target=self._receive, daemon=True, name=f"answers of {name}")
        self._thread.start()

    def say(self, line: str) -> None:
        """One line to the container; where it cannot be sent, its end tells."""
        with contextlib.suppress(*ENGINE_ERRORS):
            self._sender().sendall(f"{line}\n".encode("ascii"))

    def close(self) -> None:
        """End the stream: the container's standard input is at its end then. Can be called again."""
        if self.answers.fd < 0:
            return
        with contextlib.suppress(*ENGINE_ERRORS):
            self._sender().shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(*ENGINE_ERRORS, ValueError):
            self._sender().close()  # of an ssh connection, its command
        self._thread.join(_END_S)  # what it reads from cannot be closed under it
        if not self._thread.is_alive():
            with contextlib.suppress(*ENGINE_ERRORS, AttributeError, ValueError):
                self._socket._response.close()
            with contextlib.suppress(*ENGINE_ERRORS, ValueError):
                self._socket.close()
        self.answers.close()

    def _sender(self) -> Any:
        """What the SDK returns for a plain socket can only be read; the socket is behind it."""
        return self._socket if hasattr(self._socket, "sendall") else self._socket._sock

    def _receive(self) -> None:
        try:
            with contextlib.suppress(*ENGINE_ERRORS, ValueError):
                for stream, data in frames_iter(self._socket, tty=False):  # type: ignore[no-untyped-call]
                    if stream == _STDOUT:
                        os.write(self._write, data)
        finally:
            os.close(self._write)
