"""Images against a real engine: built from wheels, reused by content, and every way a build can fail."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from private_engine import BASE_TAG, PrivateEngine
from tiny_wheels import make_wheel, toy_environment, toy_framework

from matrix import catalog, cli
from matrix.catalog.types import Framework
from matrix.environments.base import BuildCancelled, BuildFailed, build_all
from matrix.environments.bundle import Bundle
from matrix.environments.images import (
    BuiltImage,
    ImageBuilder,
    ImageOptions,
    ensure_image,
    labels,
    shelf,
    sources,
)
from matrix.records import Environment

OFFLINE = ImageOptions(bases={"cpu": BASE_TAG})
SECRET = "hunter2-in-the-index-url"
SHIPPED = catalog.load_from(catalog.folder(), third_parties=False)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Where the toy's wheel lies."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


@pytest.fixture
def lab(client: docker.DockerClient, home: Path, tmp_path: Path, shop: Path) -> Iterator[Lab]:
    made = Lab(client, home, tmp_path, shop)
    yield made
    for item in shelf.contents(client):
        if item.image.startswith("toy"):
            for name in item.tags or (item.id,):
                client.images.remove(name, force=True)


@dataclasses.dataclass
class Lab:
    """A toy framework of a third party, whose Dockerfile a test may spoil."""

    client: docker.DockerClient
    home: Path
    folder: Path
    shop: Path

    def framework(self, edit: tuple[str, str] = ("", ""), *, seed: str = "", code: str = "") -> Framework:
        """The toy; `edit` replaces text in its Dockerfile; another `seed`, another content."""
        package = self.folder / "toy_package"
        package.mkdir(exist_ok=True)
        shipped = (sources.folder() / "onnxruntime" / "Dockerfile.cpu").read_text()
        assert edit[0] in shipped
        text = shipped.replace(*edit, 1) if edit[0] else shipped
        (package / "Dockerfile.cpu").write_text(text.replace("onnxruntime-cpu", "toy-cpu"))
        wheel = make_wheel(
            self.shop / f"seed-{seed}", "toy", files={"toy/__init__.py": f"seed = {seed!r}\n{code}\n"}
        )
        return toy_framework([str(wheel)]).model_copy(update={"source_dir": package})

    def build(self, framework: Framework, **more: object) -> BuiltImage:
        options = dataclasses.replace(OFFLINE, **more)  # type: ignore[arg-type]
        return ensure_image(
            self.client, framework, toy_environment(framework), home=self.home, options=options
        )

    def fails(self, framework: Framework, **more: object) -> BuildFailed:
        before = len(self.client.api.images(filters={"label": labels.IMAGE}))
        with pytest.raises(BuildFailed) as caught:
            self.build(framework, **more)
        assert len(self.client.api.images(filters={"label": labels.IMAGE})) == before
        return caught.value

    def run(self, image: BuiltImage, code: str) -> str:
        out = self.client.containers.run(
            image.id, [image.python, "-c", code], network_mode="none", remove=True
        )
        return str(out.decode())


def test_an_image_holds_what_was_asked_and_runs_as_an_ordinary_user(lab: Lab) -> None:
    image = lab.build(lab.framework(seed="held"))
    assert image.lock == ("toy==1.0",)
    assert image.python_version.startswith("3.11.")
    code = "import os, pwd, toy; print(os.getuid(), pwd.getpwuid(os.getuid()).pw_name, toy.seed)"
    assert lab.run(image, code).split() == ["10001", "matrix", "held"]
    with pytest.raises(docker.errors.ContainerError):
        lab.run(image, "open('/opt/matrix/x', 'w')")
    with pytest.raises(docker.errors.ContainerError):
        lab.run(image, "import pip")


def test_nothing_changed_is_found_again_in_no_time_and_a_change_is_not(lab: Lab) -> None:
    first = lab.build(lab.framework(seed="one"))
    again = lab.build(lab.framework(seed="one"))
    assert (again.id, again.key, again.reused) == (first.id, first.key, True)
    assert again.seconds < 0.2
    other = lab.build(lab.framework(seed="two"))
    assert other.key != first.key
    assert not other.reused


def test_a_change_of_an_adapter_rebuilds_no_image(lab: Lab) -> None:
    first = lab.build(lab.framework())
    adapter = lab.folder / "toy_package" / "adapter.py"
    paths = []
    for text in ("VERSION = 1\n", "VERSION = 2\n"):
        adapter.write_text(text)
        paths.append(Bundle(lab.home, [adapter.parent]).stage())
        assert lab.build(lab.framework()).id == first.id
    assert paths[0] != paths[1]  # the worker's sources did change


def test_every_stage_is_labelled_and_only_the_image_is_left(lab: Lab) -> None:
    image = lab.build(lab.framework(seed="labelled"))
    marked = lab.client.images.get(image.id).labels
    assert marked == {labels.IMAGE: "toy-cpu", labels.KEY: image.key}
    ours = [item for item in shelf.contents(lab.client) if item.key == image.key]
    assert [item.id for item in ours] == [image.id]
    assert image.tag.endswith(image.key)


def test_no_certificate_index_or_secret_of_the_build_is_in_any_layer_or_history(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_text(f"-----BEGIN {SECRET}\n")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://user:{SECRET}@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("HTTPS_PROXY_OF_NOBODY", SECRET)
    image = lab.build(lab.framework(seed="secret"))
    everything = json.dumps(
        [lab.client.images.get(image.id).attrs, lab.client.images.get(image.id).history()]
    )
    assert SECRET not in everything
    saved = b"".join(lab.client.images.get(image.id).save())
    assert SECRET.encode() not in saved
    for path in ("/build", "/root/.cache/pip", "/root/.config/pip"):
        assert lab.run(image, f"import os; print(os.path.exists({path!r}))").strip() == "False"


def test_an_index_with_credentials_is_refused_before_anything_is_built(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"http://user:{SECRET}@127.0.0.1:9/simple")
    failure = lab.fails(lab.framework(seed="refused"), packages="index")
    assert failure.reason.code == "secret_in_index"
    assert SECRET not in failure.reason.text


@pytest.mark.parametrize(
    ("edit", "code", "says"),
    [
        (
            ("RUN sh /build/install.sh", "RUN echo the last words; exit 7"),
            "build_step_failed",
            "status 7: the last words",
        ),
        (("RUN sh /build/install.sh", "RUM sh"), "dockerfile_syntax", "RUM"),
        (("COPY context /build", "COPY nowhere /build"), "build_error", "nowhere"),
        (("RUN sh", "RUN --mount=type=cache,target=/x sh"), "build_error", "BuildKit"),
        (
            ("RUN sh /build/install.sh", "RUN echo 'write: No space left on device'; exit 1"),
            "disk_full",
            "matrix images prune",
        ),
    ],
)
def test_a_build_that_fails_says_why_and_where_to_look(
    lab: Lab, edit: tuple[str, str], code: str, says: str
) -> None:
    failure = lab.fails(lab.framework(edit))
    assert failure.reason.code == code
    assert says in failure.reason.text
    assert failure.log is not None
    assert failure.log.exists()
    assert str(failure.log) in failure.reason.text


def test_a_package_that_cannot_be_imported_fails_the_build(lab: Lab) -> None:
    failure = lab.fails(lab.framework(seed="unfit", code="raise OSError('libfoo.so is missing')"))
    assert failure.reason.code == "build_step_failed"
    assert "libfoo.so is missing" in failure.reason.text


def test_a_base_that_is_not_there_is_told_in_seconds_with_the_ways_out(lab: Lab) -> None:
    began = time.monotonic()
    failure = lab.fails(lab.framework(), bases={"cpu": "registry.invalid/no/such:1"})
    assert time.monotonic() - began < 15
    assert failure.reason.code == "base_missing"
    assert "images.base" in failure.reason.text


def test_a_base_without_python_is_told(lab: Lab) -> None:
    lab.client.api.import_image_from_data(_empty_tar(), repository="toy-empty", tag="1")
    try:
        failure = lab.fails(lab.framework(), bases={"cpu": "toy-empty:1"})
    finally:
        lab.client.images.remove("toy-empty:1", force=True)
    assert failure.reason.code == "base_without_python"


def test_a_step_that_says_nothing_is_given_up_and_its_container_goes(lab: Lab) -> None:
    failure = lab.fails(lab.framework(("RUN sh /build/install.sh", "RUN sleep 300")), silence_s=3)
    assert failure.reason.code == "build_silent"
    _no_container(lab.client)


def test_a_cancelled_build_ends_soon_and_leaves_nothing(lab: Lab) -> None:
    framework = lab.framework(("RUN sh /build/install.sh", "RUN sleep 300"))
    cancelled = threading.Event()

    def stop(text: str) -> None:
        if "sleep 300" in text:
            threading.Timer(0.5, cancelled.set).start()

    began = time.monotonic()
    with pytest.raises(BuildCancelled):
        ensure_image(
            lab.client,
            framework,
            toy_environment(framework),
            home=lab.home,
            options=OFFLINE,
            progress=stop,
            cancelled=cancelled,
        )
    assert time.monotonic() - began < 60
    _no_container(lab.client)
    assert [item for item in shelf.contents(lab.client) if item.image == "toy-cpu"] == []


def test_two_runs_that_want_one_image_build_it_once(lab: Lab) -> None:
    framework = lab.framework(seed="both")
    ends: list[BuiltImage] = []
    threads = [threading.Thread(target=lambda: ends.append(lab.build(framework))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({end.id for end in ends}) == 1
    assert sorted(end.reused for end in ends) == [False, True]


def test_one_image_that_fails_does_not_stop_another(lab: Lab) -> None:
    good = lab.framework(seed="good")
    bad = SHIPPED.frameworks["tensorrt"]
    builder = ImageBuilder(lab.client, {"toy": good, "tensorrt": bad}, lab.home, OFFLINE)
    wanted = [
        toy_environment(good),
        Environment(framework="tensorrt", version="1", hardware="cpu", build="cuda"),
    ]
    ends = build_all(builder, wanted)
    assert isinstance(ends[wanted[0]], BuiltImage)
    assert isinstance(ends[wanted[1]], BuildFailed)


def test_the_command_lists_builds_and_prunes(
    private: PrivateEngine, lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", private.url)
    monkeypatch.setenv("FRAMEWORK_MATRIX_HOME", str(lab.home))
    argv = ["--framework", "onnxruntime", "--hardware", "cpu", "--json"]
    assert cli.main(["images", "build", "--base", BASE_TAG, *argv]) == 0
    (built,) = json.loads(capsys.readouterr().out)
    assert built["state"] == "ok"
    assert cli.main(["images", "list", *argv]) == 0
    (row,) = json.loads(capsys.readouterr().out)["images"]
    assert built["image"]["tag"] in row["built"][0]["tags"]
    assert cli.main(["images", "build", "--base", "registry.invalid/x:1", *argv]) == 1
    assert json.loads(capsys.readouterr().out)[0]["reason"]["code"] == "base_missing"
    assert cli.main(["images", "prune", *argv]) == 0
    assert json.loads(capsys.readouterr().out) == []  # no leftover, and images stay without --all


@pytest.mark.real
@pytest.mark.parametrize("name", ["onnxruntime", "pytorch", "tensorflow"])
def test_a_cpu_image_holds_the_pinned_set_and_is_no_larger_than_base_and_virtualenv(
    client: docker.DockerClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matrix import paths
    from matrix.environments import installed
    from matrix.environments.venv import VenvBackend

    framework = SHIPPED.frameworks[name]
    environment = Environment(
        framework=name, version=framework.version_for("cpu"), hardware="cpu", build="cpu"
    )
    monkeypatch.setenv("TOKEN_OF_THE_INDEX", SECRET)
    image = ensure_image(client, framework, environment, home=paths.home(), options=OFFLINE)
    again = ensure_image(client, framework, environment, home=paths.home(), options=OFFLINE)
    assert again.reused
    assert again.seconds < 0.2
    told = json.dumps([client.images.get(image.id).attrs, client.images.get(image.id).history()])
    assert [word for word in _private_words() if word in told] == []
    backend = VenvBackend(SHIPPED.frameworks, paths.home())
    try:
        built = backend.build(environment)
    finally:
        backend.close()
    assert image.flags == ()
    assert image.lock == built.lock
    size = client.images.get(BASE_TAG).attrs["Size"] + installed.folder_size(built.python.parent.parent)
    print(f"{image.tag}: {image.size_bytes / 1e6:.0f} MB; base and virtualenv {size / 1e6:.0f} MB")
    assert image.size_bytes <= 1.1 * size
    code = f"import {framework.import_package} as f; print(f.__version__)"
    said = client.containers.run(image.id, [image.python, "-c", code], network_mode="none", remove=True)
    assert environment.version in said.decode()


@pytest.mark.real
@pytest.mark.parametrize(
    ("hardware", "provider"),
    [("intel-gpu", "OpenVINOExecutionProvider"), ("ascend", "CANNExecutionProvider")],
)
def test_an_image_for_hardware_that_is_not_here_is_built_with_its_provider(
    client: docker.DockerClient, hardware: str, provider: str
) -> None:
    from matrix import paths

    framework = SHIPPED.frameworks["onnxruntime"]
    environment = Environment(
        framework=framework.name,
        version=framework.version_for(hardware),
        hardware=hardware,
        build=framework.hardware[hardware].build,
    )
    image = ensure_image(
        client, framework, environment, home=paths.home(), options=ImageOptions(bases={hardware: BASE_TAG})
    )
    code = "import onnxruntime; print(onnxruntime.get_available_providers())"
    said = client.containers.run(image.id, [image.python, "-c", code], network_mode="none", remove=True)
    assert provider in said.decode()
    assert image.flags == ()


@pytest.mark.real
def test_the_index_path_installs_with_the_hosts_index_and_certificates_and_leaves_neither(
    client: docker.DockerClient,
) -> None:
    from matrix import paths

    framework = SHIPPED.frameworks["onnxruntime"]
    environment = Environment(framework="onnxruntime", version="1.32.0", hardware="cpu", build="cpu")
    offline = ensure_image(client, framework, environment, home=paths.home(), options=OFFLINE)
    options = dataclasses.replace(OFFLINE, packages="index")
    image = ensure_image(client, framework, environment, home=paths.home(), options=options)
    assert image.key != offline.key
    assert image.lock == offline.lock
    code = "import os; print([p for p in ('/build', '/etc/pip.conf', '/root/.config') if os.path.exists(p)])"
    said = client.containers.run(image.id, [image.python, "-c", code], network_mode="none", remove=True)
    assert said.decode().strip() == "[]"
    assert "ca.pem" not in json.dumps(client.images.get(image.id).history())


def test_buildkit_takes_the_same_dockerfiles(private: PrivateEngine, lab: Lab) -> None:
    """Through the command line, since the SDK cannot: Debian's has BuildKit built in."""
    image = lab.build(lab.framework(seed="kit"))
    folder = lab.folder / "context"
    (folder / "context" / "wheels").mkdir(parents=True)
    (pip,) = lab.home.glob("wheels/*/pip-*.whl")
    (toy,) = lab.shop.glob("seed-kit/*.whl")
    shutil.copy(lab.folder / "toy_package" / "Dockerfile.cpu", folder / "Dockerfile")
    shutil.copy(sources.install_script(), folder / "context")
    shutil.copy(pip, folder / "context" / "pip.whl")
    shutil.copy(toy, folder / "context" / "wheels")
    (folder / "context" / "import").write_text("toy\n")
    command = ["/usr/bin/docker", "build", "--network=none", "-t", "toy-kit:1"]
    command += ["--build-arg", f"BASE={BASE_TAG}", "--build-arg", "KEY=kit", str(folder)]
    environ = {**os.environ, "DOCKER_HOST": private.url, "DOCKER_BUILDKIT": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if "buildx component is missing" in done.stderr:
        pytest.skip("this docker command has no BuildKit")
    assert done.returncode == 0, done.stderr
    made = lab.client.images.get("toy-kit:1")
    assert made.attrs["Config"]["User"] == image.user
    assert (
        lab.client.containers.run(made.id, ["python", "-c", "import toy; print(toy.seed)"], remove=True)
        == b"kit\n"
    )


def _private_words() -> list[str]:
    """What this machine's pip, proxies and certificates are told, and a secret that we planted."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    values = [line.partition("=")[2].strip("'\"") for line in lines]
    names = ("_PROXY", "_CERT_FILE", "_CA_BUNDLE", "INDEX_URL", "PIP_CERT")
    values += [value for name, value in os.environ.items() if name.upper().endswith(names)]
    return [SECRET, *(value for value in values if len(value) > 8)]


def _no_container(client: docker.DockerClient) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and client.containers.list(all=True):
        time.sleep(0.2)
    assert client.containers.list(all=True) == []


def _empty_tar() -> bytes:
    import io
    import tarfile

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("nothing"))
    return stream.getvalue()
