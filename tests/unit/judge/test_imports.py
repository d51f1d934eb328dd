"""Judging costs nothing until something is judged."""

from __future__ import annotations

import subprocess
import sys


def test_scipy_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, matrix.judge.verdicts, matrix.judge.looks; print('scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
