"""What many launches on one engine read: kept there in named volumes, one per content, filled once.

A volume's name is made from what it holds. It counts as filled when its mark is there, which
is put in last; launches mount it read-only. A lock on the host keeps two runs from filling
the same one at the same time.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import docker.types
from filelock import FileLock

from matrix.execution import leases
from matrix.execution.archives import UID, Entry, folder_entries, pack
from matrix.execution.engine import ENGINE_ERRORS, Engine, Gone, Refused
from matrix_adapters.protocol import Reason, content_hash, file_hash

CONTENT = "content"  # the folder in a model's volume that holds it, so that the mark is not among its files
_MARK = ".complete"
_FILL_TIMEOUT_S = 600

Options = dict[str, object]


class Volumes:
    """The content volumes of one engine. Safe for several threads and several processes."""

    def __init__(self, engine: Engine, home: Path, run: str) -> None:
        self._engine, self._locks, self._run = engine, home / "volumes", run
        self._filled: set[str] = set()
        self._hashes: dict[tuple[Path, int, int], str] = {}
        self._beside: dict[tuple[Path, int, int], tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def of_path(self, path: Path, image: str) -> str:
        """A volume that holds the contents of a folder, or one file (with what lies beside a model)."""
        files = self._files(path)
        key = content_hash([[name, self._hash(file)] for name, file in files])
        entries = [Entry(f"{CONTENT}/{name}", file) for name, file in files]
        folders = sorted({str(parent) for entry in entries for parent in Path(entry.name).parents} - {"."})
        return self._ensure(f"model-{key}", image, [*(Entry(f, mode=0o755) for f in folders), *entries])

    def of_worker(self, source: Path, image: str, python: str) -> str:
        """A volume that holds the worker's sources, compiled by the image's own Python."""
        digest = hashlib.sha256(f"{source.name}\0{image}".encode()).hexdigest()[:16]
        entries = list(folder_entries(source, uid=UID))
        compile_all = [python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        return self._ensure(f"worker-{digest}", image, entries, then=[*compile_all, "{}"])

    def forget(self) -> None:
        """Look again whether they are there: the engine was lost, or somebody removed one."""
        with self._lock:
            self._filled.clear()

    def _ensure(self, what: str, image: str, entries: Iterable[Entry], then: Sequence[str] = ()) -> str:
        name = f"framework-matrix-{what}"
        with self._lock:
            if name in self._filled:
                return name
        self._locks.mkdir(parents=True, exist_ok=True)
        with FileLock(self._locks / f"{name}.lock"):
            self._fill(name, image, entries, then)
        with self._lock:
            self._filled.add(name)
        return name

    def _fill(self, name: str, image: str, entries: Iterable[Entry], then: Sequence[str]) -> None:
        folder = "/cache"
        command = [word.format(folder) for word in then] or ["/bin/true"]
        container = f"framework-matrix-fill-{secrets.token_hex(6)}"
        with self._engine.calling() as api:
            api.create_volume(name, labels={leases.CACHE_LABEL: "content"})
            try:
                api.create_container(
                    image,
                    command,
                    name=container,
                    entrypoint=[],
                    user=str(UID),
                    labels=leases.labels(self._run),
                    host_config=api.create_host_config(
                        network_mode="none",
                        cap_drop=["ALL"],
                        security_opt=["no-new-privileges"],
                        mounts=[docker.types.Mount(target=folder, source=name, type="volume")],
                    ),
                )
                if self._marked(container, folder):
                    return
                # Its root belongs to the user of launches, so that what compiles can write there.
                root = [Entry("./", mode=0o755, uid=UID)]
                api.put_archive(container, folder, pack([*root, *entries]))
                if then:
                    self._run_once(container)
                api.put_archive(container, folder, b"".join(pack([Entry(_MARK, b"")])))
            finally:
                with contextlib.suppress(*ENGINE_ERRORS):
                    api.remove_container(container, v=True, force=True)

    def _marked(self, container: str, folder: str) -> bool:
        try:
            with self._engine.calling() as api:
                stream, _ = api.get_archive(container, f"{folder}/{_MARK}")
                for _ in stream:
                    pass
        except Gone:
            return False
        return True

    def _run_once(self, container: str) -> None:
        api = self._engine.api
        api.start(container)
        status = api.wait(container, timeout=_FILL_TIMEOUT_S)["StatusCode"]
        if status != 0:
            said = api.logs(container, tail=3).decode("utf-8", errors="replace").strip()
            text = f"the worker's sources could not be compiled in the image (exit status {status}): {said}"
            raise Refused(Reason(code="image_broken", text=text))

    def _files(self, path: Path) -> list[tuple[str, Path]]:
        """(name in the volume, file), sorted: a folder's files, or a file and its weights beside it."""
        if path.is_dir():
            found = [(p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file()]
            return sorted(found)
        if path.suffix != ".onnx":
            return [(path.name, path)]
        key = _identity(path)
        with self._lock:
            beside = self._beside.get(key)
        if beside is None:
            from matrix.artefacts import onnx_file  # heavy

            beside = onnx_file.inspect(path).side_files
            with self._lock:
                self._beside[key] = beside
        return sorted([(path.name, path), *((name, path.parent / name) for name in beside)])

    def _hash(self, path: Path) -> str:
        key = _identity(path)
        with self._lock:
            known = self._hashes.get(key)
        if known is None:
            known = file_hash(path)
            with self._lock:
                self._hashes[key] = known
        return known


def _identity(path: Path) -> tuple[Path, int, int]:
    """Equal as long as the file was not changed."""
    stat = path.stat()
    return path, stat.st_mtime_ns, stat.st_size
