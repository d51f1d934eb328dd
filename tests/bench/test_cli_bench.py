"""How long a user waits for the command line itself."""

from __future__ import annotations

import subprocess
import sys

from pytest_benchmark.fixture import BenchmarkFixture


def test_help_answers_at_once(benchmark: BenchmarkFixture) -> None:
    """The promise is 0.2 s, the interpreter's own start included."""
    command = [sys.executable, "-m", "matrix", "--help"]
    benchmark.pedantic(
        subprocess.run, args=(command,), kwargs={"capture_output": True, "check": True}, rounds=10
    )
    if benchmark.stats is not None:
        assert benchmark.stats.stats.median < 0.2
