"""An ssh server on the loopback interface, whose sessions find the engine of the tests.

Keys, configuration and known hosts are its own: nothing of the user's is read or written. Needs root and
Debian's `openssh-server`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

_SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv DOCKER_HOST={engine}
"""
_CLIENT = """\
Host *
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile none
    BatchMode yes
    ControlMaster auto
    ControlPath {folder}/control
    ControlPersist 60
"""


@contextlib.contextmanager
def an_ssh_server(folder: Path, engine: str) -> Iterator[str]:
    """The engine's address over ssh, `ssh://root@127.0.0.1:PORT`; skips the test where none can be had.

    `folder/bin` holds an `ssh` that knows the server: it belongs at the front of PATH.
    """
    import pytest

    path = f"{os.environ['PATH']}:/usr/sbin"
    sshd, ssh, keygen = (shutil.which(name, path=path) for name in ("sshd", "ssh", "ssh-keygen"))
    if not (sshd and ssh and keygen):
        pytest.skip("sshd, ssh and ssh-keygen are needed (Debian: openssh-server openssh-client)")
    if os.geteuid() != 0:
        pytest.skip("an ssh server of our own needs root")
    port = _free_port()
    for name in ("host_key", "user_key"):
        command = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    host_key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {' '.join(host_key)}\n")
    (folder / "sshd_config").write_text(_SERVER.format(folder=folder, port=port, engine=engine))
    (folder / "ssh_config").write_text(_CLIENT.format(folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {folder}/ssh_config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    Path("/run/sshd").mkdir(exist_ok=True)  # it wants that one place to give its rights up in
    log = folder / "sshd.log"
    server = subprocess.Popen(
        [sshd, "-D", "-f", str(folder / "sshd_config"), "-E", str(log)], start_new_session=True
    )
    try:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not _answers(port):
            if server.poll() is not None:
                pytest.skip(f"sshd does not start here: {log.read_text()[-200:]}")
            time.sleep(0.05)
        yield f"ssh://root@127.0.0.1:{port}"
    finally:
        master = [ssh, "-F", str(folder / "ssh_config"), "-O", "exit", "127.0.0.1"]
        subprocess.run(master, check=False, capture_output=True)
        server.terminate()
        server.wait(10)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
