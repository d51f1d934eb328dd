"""What this machine can: products through a framework, memory by how much of it is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix_adapters import bandwidth, caches
from matrix_adapters.adapter import Unavailable
from matrix_adapters.heartbeat import Heart
from matrix_adapters.launch import Launch
from matrix_adapters.operators import case_folder, peaks
from matrix_adapters.protocol import Node, OperatorCase, Task, TaskKind, TensorSpec

SMALL = caches.Caches({2: 1 << 14, 3: 1 << 18}, 1 << 18)


class Toy:
    """NumPy as a framework; what it says of itself can be planted."""

    name = "toy"
    synchronous = True

    def __init__(self, *, threads: int = 1, device: str = "cpu", raises: Exception | None = None) -> None:
        self._told = {"device": device, "threads": threads}
        self._raises = raises
        self.environment: dict[str, str] = {}
        self.closed = 0

    def start(self) -> None: ...

    def probe(self) -> dict[str, Any]:
        return {"version": "1.0"}

    def load(self, model: Any, artefacts: Any) -> Toy:
        del model, artefacts
        return self

    def prepare(self, feed: Any) -> Any:
        return feed

    def compile(self, feed: Any) -> bool:
        del feed
        return False

    def run(self, feed: Any) -> Any:
        if self._raises:
            raise self._raises
        return feed["A"] @ feed["B"]

    def sync(self) -> None: ...

    def fetch(self, outputs: Any) -> Any:
        return {"Y": outputs}

    def effective(self) -> dict[str, Any]:
        return dict(self._told)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here depends on how exact the figures are."""
    monkeypatch.setattr(bandwidth, "_LEAST_S", 1e-4)


def product(
    name: str = "MatMul/gemm", shapes: tuple[tuple[int, ...], ...] = ((4, 8), (8, 5))
) -> OperatorCase:
    specs = tuple(TensorSpec(name=n, dtype="float32", shape=s) for n, s in zip("AB", shapes, strict=True))
    node = Node(op="MatMul", inputs=("A", "B"), outputs=("Y",))
    return OperatorCase(name=name, dtype="float32", nodes=(node,), inputs=specs, outputs=("Y",), opset=13)


def folder_of(home: Path, case: OperatorCase) -> str:
    arrays = {spec.name: np.ones(spec.shape, np.float32) for spec in case.inputs}
    case_folder.write_case(home, case, arrays)
    return str(home)


def measured(toy: Toy, tmp_path: Path, *, memory: bool = False) -> Launch:
    out = tmp_path / "out"
    out.mkdir()
    launch = Launch(out_dir=out, heart=Heart(out))
    options = {"cases": [folder_of(tmp_path / "case", product())], "memory": memory}
    task = Task(kind=TaskKind.PEAKS, framework="toy", adapter="toy", threads=1, options=options)
    peaks.run(toy, task, launch)
    return launch


def test_a_product_has_its_operations_its_best_time_and_the_threads_that_made_it(tmp_path: Path) -> None:
    toy = Toy(threads=2)
    (told,) = measured(toy, tmp_path).artefacts["products"]
    assert (told["case"], told["dtype"], told["flops"]) == ("MatMul/gemm", "float32", 2 * 4 * 5 * 8)
    assert told["threads"] == 2  # as the framework says, whatever was asked
    assert 0 < told["best_s"] < 1
    assert toy.closed == 1


def test_a_product_that_fails_has_a_reason_and_no_time(tmp_path: Path) -> None:
    (told,) = measured(Toy(raises=RuntimeError("planted")), tmp_path).artefacts["products"]
    assert "planted" in told["absent"]
    assert "best_s" not in told


def test_a_device_that_was_not_asked_for_gives_no_peak(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cpu asked, cuda:0 used"):
        measured(Toy(device="cuda:0"), tmp_path)


def test_memory_is_measured_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "read", lambda: SMALL)
    launch = measured(Toy(), tmp_path, memory=True)
    assert [level["where"] for level in launch.artefacts["bandwidth"]][-1] == "memory"
    assert launch.artefacts["caches"]["last"] == SMALL.last


@pytest.mark.parametrize("shapes", [((2, 4, 8), (2, 8, 5)), ((8,), (8,))])
def test_only_products_of_two_matrices_tell_a_peak(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="is no product of two matrices"):
        peaks.operations(product(shapes=shapes))


def test_working_sets_go_from_what_a_cache_holds_to_what_none_does() -> None:
    levels = bandwidth.measure(1, SMALL)
    assert [level.where for level in levels] == ["cache", "cache", "cache", "memory", "memory"]
    sizes = [level.bytes for level in levels]
    assert sizes == sorted(sizes)
    assert sizes[-1] > 11 * SMALL.last  # three arrays of four times the cache
    assert all(level.bytes_s > 0 and level.kernel in bandwidth.KERNELS for level in levels)


def test_a_limit_below_the_cache_leaves_memory_unmeasured() -> None:
    """Planted: what is left fits the cache. Its bandwidth must not be called memory's."""
    assert {level.where for level in bandwidth.measure(1, SMALL, most_bytes=SMALL.last)} == {"cache"}


def test_two_threads_have_a_slice_each() -> None:
    one, two = (bandwidth.measure(n, SMALL) for n in (1, 2))
    assert one[-1].bytes == pytest.approx(two[-1].bytes, rel=0.01)  # the same working set, in two parts
    assert two[0].bytes == pytest.approx(
        2 * one[0].bytes, rel=0.01
    )  # each core has a second cache of its own


def test_the_kernels_compute_what_they_are_called() -> None:
    a, b, c = np.zeros(10_000), np.arange(10_000.0), np.full(10_000, 2.0)
    scratch = np.zeros(4096)
    bandwidth.add(a, b, c, scratch)
    np.testing.assert_array_equal(a, b + c)
    bandwidth.triad(a, b, c, scratch)
    np.testing.assert_array_equal(a, b + 3.0 * c)
    before = a.copy()
    bandwidth.read(a, b, c, scratch)
    np.testing.assert_array_equal(a, before)
