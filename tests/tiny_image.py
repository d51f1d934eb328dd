"""A tiny image with what a worker needs: the base image's Python, and NumPy."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import platformdirs
import private_engine
from filelock import FileLock
from private_engine import PrivateEngine

from matrix.execution.archives import Entry, folder_entries, pack

NUMPY = "numpy==2.3.5"
TINY_TAG = "framework-matrix-test-tiny:1"


def make_tiny(private: PrivateEngine) -> str:
    with private.client() as client:
        context = [
            Entry(
                "Dockerfile",
                f"FROM {private_engine.BASE_TAG}\nCOPY packages /usr/lib/python3/dist-packages\n".encode(),
            ),
            *folder_entries(_numpy(), "packages/"),
        ]
        client.images.build(
            fileobj=io.BytesIO(b"".join(pack(context))), custom_context=True, tag=TINY_TAG, rm=True
        )
        return str(client.images.get(TINY_TAG).id)


def _numpy() -> Path:
    """NumPy for the base image's Python, unpacked; downloaded once by the user's own pip."""
    home = platformdirs.user_cache_path("framework-matrix-tests")
    home.mkdir(parents=True, exist_ok=True)
    folder = home / NUMPY.replace("==", "-")
    platforms = [f"--platform=manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "2014")]
    with FileLock(home / "numpy.lock"), tempfile.TemporaryDirectory(dir=home) as temporary:
        if not folder.exists():
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version=3.11", *platforms, "-d", temporary, NUMPY]
            subprocess.run(command, check=True)
            (wheel,) = Path(temporary).glob("*.whl")
            zipfile.ZipFile(wheel).extractall(Path(temporary) / "out")
            (Path(temporary) / "out").rename(folder)
    return folder
