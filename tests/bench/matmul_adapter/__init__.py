"""A framework that multiplies matrices with NumPy and does nothing else."""

from types import MappingProxyType

import numpy as np

SIZE = 1024


class Adapter:
    name = "matmul"
    environment = MappingProxyType({})

    def __init__(self, task):
        self.task = task

    def start(self):
        pass

    def probe(self):
        return {"version": np.__version__}

    def load(self, model, artefacts):
        return Runner(self.task)


class Runner:
    synchronous = True

    def __init__(self, task):
        self.task = task
        self.b = np.random.default_rng(1).standard_normal((SIZE, SIZE), dtype=np.float32)

    def prepare(self, feed):
        return dict(feed)

    def compile(self, feed):
        return False

    def run(self, feed):
        return feed["x"] @ self.b

    def sync(self):
        pass

    def fetch(self, outputs):
        return {"y": outputs}

    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "precision": "fp32", "math_mode": "fp32"}

    def close(self):
        pass
