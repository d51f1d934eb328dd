"""A framework that behaves until its slices begin, and then does whatever the model's name says."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from types import MappingProxyType

import numpy as np

CALLS_BEFORE = 1 + 3  # the first one, and the frozen warm-up of the tests


class Adapter:
    name = "turning"
    environment = MappingProxyType({})

    def __init__(self, task):
        self.task = task

    def start(self):
        if self.task.model.name == "slow":
            time.sleep(600)

    def probe(self):
        return {"version": "1.0"}

    def load(self, model, artefacts):
        return Runner(self.task)


class Runner:
    def __init__(self, task):
        self.task, self.calls = task, 0

    def prepare(self, feed):
        return dict(feed)

    def compile(self, feed):
        return False

    def run(self, feed):
        self.calls += 1
        if self.calls > CALLS_BEFORE:
            self.act(self.task.model.name)
        return feed["x"] * np.float32(2)

    def act(self, does):
        if does == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif does == "hang":
            time.sleep(600)
        elif does == "nap":
            time.sleep(0.02)
        elif does == "eat":
            held = []
            while True:
                held.append(b"x" * (16 << 20))
        elif does == "chatty":
            print("done", flush=True)
            os.write(1, b"done\nready\n")
            subprocess.run(["/bin/sh", "-c", "echo chatter; cat"], check=True)

    def sync(self):
        pass

    def fetch(self, outputs):
        return {"y": outputs}

    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "precision": "fp32", "math_mode": "fp32"}

    def close(self):
        pass
