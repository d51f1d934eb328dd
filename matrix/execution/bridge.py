"""A socket of this machine that leads to a container engine over ssh.

Every connection to the socket becomes one `ssh HOST docker system dial-stdio`, which is how Docker's own
command reaches such an engine: the user's ssh configuration, keys and agent count, and nothing but ssh is
needed. docker-py has a way of its own; it needs one more package, opens no attach sockets, waits for an
answer for ever, and ends in tracebacks when the other side is gone.
"""

from __future__ import annotations

import atexit
import contextlib
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.parse
from pathlib import Path

#: never a question to the terminal; a host that is not there is given up; a dead connection is noticed
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=8", "ServerAliveInterval=15", "ServerAliveCountMax=4")
_lock = threading.Lock()
_open: dict[str, Bridge] = {}


class Bridge:
    """Listens until the process ends. `url` is what a client connects to."""

    def __init__(self, address: str) -> None:
        self._command = ssh_command(address)
        self._folder = Path(tempfile.mkdtemp(prefix="matrix-ssh-"))  # readable for this user only
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        self._words = self._folder / "stderr"
        self._children: list[subprocess.Popen[bytes]] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self._folder / "engine.sock"))
        self._server.listen()
        self.url = f"unix://{self._folder}/engine.sock"
        threading.Thread(target=self._serve, daemon=True, name=f"bridge to {address}").start()

    def last_words(self) -> str:
        """What ssh, or the command at the other end, complained of last; "" for nothing."""
        with contextlib.suppress(OSError):
            lines = self._words.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return lines[-1][:200] if lines else ""
        return ""

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # the process ends
                return
            with connection, contextlib.suppress(OSError), self._words.open("wb") as words:
                # The socket is the child's: whichever side ends first, the other one sees it.
                child = subprocess.Popen(
                    self._command,
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=words,
                    start_new_session=True,  # Ctrl-C is for us: containers are still to be removed
                )
                self._children = [c for c in self._children if c.poll() is None] + [child]


def bridge_to(address: str) -> Bridge:
    """The one bridge to `ssh://[USER@]HOST[:PORT][/SOCKET]`."""
    with _lock:
        if address not in _open:
            _open[address] = Bridge(address)
        return _open[address]


def ssh_command(address: str) -> list[str]:
    """What is run for each connection."""
    parts = urllib.parse.urlsplit(address)
    command = ["ssh", "-T"]
    for option in _OPTIONS:
        command += ["-o", option]
    if parts.username:
        command += ["-l", parts.username]
    if parts.port:
        command += ["-p", str(parts.port)]
    at = ["--host", f"unix://{parts.path}"] if parts.path.strip("/") else []
    return [*command, "--", parts.hostname or "", "docker", *at, "system", "dial-stdio"]
