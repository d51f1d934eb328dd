"""A framework that does to its container whatever the model's name begins with."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from types import MappingProxyType

import numpy as np


class Adapter:
    name = "toy"
    environment = MappingProxyType({})

    def __init__(self, task):
        self.does, _, self.how = (task.model.name if task.model else "good").partition("_")
        self.task = task

    def start(self):
        does = self.does
        if does == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif does == "segv":
            ctypes.string_at(0)
        elif does == "abort":
            os.abort()
        elif does == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif does == "slow":
            time.sleep(float(self.how or 8))
        elif does == "exit":
            os._exit(7)
        elif does == "exit137":
            os._exit(137)
        elif does == "eat":
            _eat()
        elif does == "childeats":
            subprocess.run([sys.executable, "-c", "x = b'x' * (1 << 30)"], check=False)
        elif does == "hang":
            time.sleep(600)
        elif does == "deaf":  # does not end when told to
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        elif does == "wedge":  # holds the interpreter: no heartbeat, no processor time
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            os.kill(os.getpid(), signal.SIGSTOP)
        elif does == "fill":
            with pathlib.Path("filler").open("wb") as stream:
                while True:
                    stream.write(b"\0" * (1 << 20))
        elif does == "clock":  # the clock of this container alone: see `faults.clock_set`
            pathlib.Path("/job/out/clock").write_text("+3600")
        elif does == "stray":
            subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
        elif does == "spy":
            self.seen = spy()

    def probe(self):
        return {"version": "1.0", **getattr(self, "seen", {})}

    def load(self, model, artefacts):
        self.read = {kind: sorted(p.name for p in _files(path)) for kind, path in artefacts.items()}
        return Runner(self)


class Runner:
    def __init__(self, adapter):
        self.adapter = adapter

    def prepare(self, feed):
        return dict(feed)

    def compile(self, feed):
        return False

    def run(self, feed):
        return feed["x"] * np.float32(2)

    def sync(self):
        pass

    def fetch(self, outputs):
        return {"y": outputs}

    def effective(self):
        return {
            "device": "cpu",
            "threads": self.adapter.task.threads,
            "precision": "fp32",
            "math_mode": "fp32",
            "read": self.adapter.read,
        }

    def close(self):
        pass


def spy():
    """What a worker can do that it should not."""
    return {
        "network": _tries(lambda: socket.create_connection(("192.0.2.1", 80), 2)),
        "root": _tries(lambda: pathlib.Path("/written").write_text("")),
        "worker": _tries(lambda: pathlib.Path("/worker/written").write_text("")),
        "setuid": _tries(lambda: os.setuid(0)),
        "mknod": _tries(lambda: os.mknod("/tmp/null", 0o600 | 0o020000, os.makedev(1, 3))),
        "user": os.getuid(),
        "interfaces": sorted(name for _, name in socket.if_nameindex()),
        "capabilities": _status("CapEff"),
        "no_new_privileges": _status("NoNewPrivs"),
    }


def _status(name):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name))


def _tries(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__ + " " + os.strerror(error.errno or 0)
    return "it worked"


def _eat():
    held = []
    while True:
        held.append(b"x" * (16 << 20))


def _files(path):
    return [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
