"""Hand-made distributions of a few hundred bytes, and a toy framework installed from them."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.catalog.types import Build, BuildCost, Framework, HardwareSupport, InstallStep
from matrix.records import Environment


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    tag: str = "py3-none-any",
    requires_python: str = "",
) -> Path:
    """A wheel that pip installs; `files` defaults to an empty package called `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {line}" for line in requires]
    if requires_python:
        metadata.append(f"Requires-Python: {requires_python}")
    contents = dict({f"{name}/__init__.py": f"__version__ = {version!r}\n"} if files is None else files)
    contents[f"{info}/METADATA"] = "\n".join(metadata) + "\n"
    contents[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n"
    rows = []
    for path, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}\n")
    contents[f"{info}/RECORD"] = "".join(rows) + f"{info}/RECORD,,\n"
    wheel = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return wheel


def make_source(folder: Path, name: str, version: str = "1.0", *, hook: str) -> Path:
    """A source distribution whose own build backend runs `hook` when pip prepares it."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "backend.py": f"{hook}\n\ndef build_wheel(*_, **__):\n    raise SystemExit(1)\n",
    }
    path = folder / f"{name}-{version}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member, text in members.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{member}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def toy_framework(
    *steps: Sequence[str] | InstallStep,
    name: str = "toy",
    version: str = "1.0",
    provided_by: Sequence[str] | None = None,
    import_package: str | None = None,
    constraints: Path | None = None,
    disk_mb: float = 1,
) -> Framework:
    """A framework that is installed from tiny wheels; `constraints`: a file of pins."""
    made = [step if isinstance(step, InstallStep) else InstallStep(install=list(step)) for step in steps]
    if constraints is not None:
        (constraints.parent / "constraints").mkdir(exist_ok=True)
        target = constraints.parent / "constraints" / constraints.name
        target.write_text(constraints.read_text())
    return Framework(
        name=name,
        title=name.title(),
        adapter=f"{name}_adapter",
        import_package=name if import_package is None else import_package,
        provided_by=list(provided_by or [name]),
        consumes="onnx",
        default_version=version,
        hardware={"cpu": HardwareSupport(build="cpu", device="cpu", precisions=["fp32"])},
        builds={
            "cpu": Build(
                versions=[version],
                steps=made or [InstallStep(install=[f"{name}=={{version}}"])],
                constraints=constraints.name if constraints else None,
                cost=BuildCost(disk_mb=disk_mb),
            )
        },
        data_dir=constraints.parent if constraints else Path(),
    )


def toy_environment(framework: Framework, version: str | None = None) -> Environment:
    """The framework's one environment."""
    return Environment(
        framework=framework.name, version=version or framework.default_version, hardware="cpu", build="cpu"
    )
