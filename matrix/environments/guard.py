"""Run one command, and take its whole process group down when the parent goes away.

Started as a script (`python -I -S guard.py COMMAND...`) in a session of its own, with the
read end of a pipe as standard input. The kernel closes the pipe however the parent ends,
kill -9 included, so this needs neither polling nor anything that only one system has.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    """Exit status of `command`; 128 + n when signal n ended it."""
    threading.Thread(target=_kill_group_when_parent_is_gone, daemon=True).start()
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    return status if status >= 0 else 128 - status


def _kill_group_when_parent_is_gone() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
