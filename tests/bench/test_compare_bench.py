"""How long it takes to import and to compare many cells: 10,000 of 30 launches on each side.

In the plain suite the same with a hundred cells, which only shows that it works.
"""

from __future__ import annotations

import dataclasses
import io
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrix.cli import main

MANY, FEW, LAUNCHES = 10_000, 100, 30


@dataclasses.dataclass(frozen=True)
class Big:
    """A folder of runs made from a file with both sides in it, and from one of a second run."""

    folder: Path
    import_s: float  # CPU seconds for the file with both sides

    def run(self, *arguments: str) -> tuple[int, float]:
        """Exit code and seconds of CPU time: others use this machine too."""
        before = time.process_time()
        with redirect_stdout(io.StringIO()):
            code = main([*arguments, "--results", str(self.folder / "results")])
        return code, time.process_time() - before


def rows(environment: str, seed: int, cells: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    for workload in range(cells):
        values = 10 * np.exp(rng.normal(0, 0.01, LAUNCHES))
        for block, value in enumerate(values.tolist()):
            yield f"{environment},model {workload},latency_ms,{block},0,{value:.6f}\n"


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Big:
    folder = tmp_path_factory.mktemp("big")
    cells = MANY if request.config.getoption("benchmark_enable") else FEW
    made = Big(folder=folder, import_s=0.0)
    for name, environments in (("both", ("old", "new")), ("later", ("new",))):
        with (folder / f"{name}.csv").open("w", encoding="utf-8") as stream:
            stream.write("environment,workload,metric,block,launch,value\n")
            for seed, environment in enumerate(environments):
                stream.writelines(rows(environment, seed, cells))
        code, seconds = made.run("import", str(folder / f"{name}.csv"), "--name", name)
        assert code == 0
        made = dataclasses.replace(made, import_s=max(made.import_s, seconds))
    return made


def test_importing_600_000_samples_takes_seconds(big: Big, benchmark: Any) -> None:
    benchmark.pedantic(lambda: None, rounds=1)  # it was done once, by the fixture
    print(f"\nimport of 600,000 samples: {big.import_s:.1f} s")
    assert big.import_s < 20


@pytest.mark.parametrize("sides", [("both:old", "both:new"), ("both:old", "later:new")])
@pytest.mark.parametrize("report_format", ["json", "table", "markdown", "html", "junit"])
def test_comparing_10_000_cells_takes_under_ten_seconds(
    big: Big, sides: tuple[str, str], report_format: str, benchmark: Any
) -> None:
    code, seconds = benchmark.pedantic(big.run, args=("compare", *sides, "--format", report_format), rounds=1)
    assert code == 0
    print(f"\n{' with '.join(sides)} as {report_format}: {seconds:.1f} s")
    assert seconds < 10
