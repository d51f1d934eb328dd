"""How long it takes to import and to compare many cells: 10,000 of 30 launches on each side."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from matrix.cli import main

CELLS, LAUNCHES = 10_000, 30


def rows(environment: str, seed: int) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    for workload in range(CELLS):
        values = 10 * np.exp(rng.normal(0, 0.01, LAUNCHES))
        for block, value in enumerate(values.tolist()):
            yield f"{environment},model {workload},latency_ms,{block},0,{value:.6f}\n"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with both sides in it, and one of a second run."""
    folder = tmp_path_factory.mktemp("big")
    for name, environments in (("both", ("old", "new")), ("later", ("new",))):
        with (folder / f"{name}.csv").open("w", encoding="utf-8") as stream:
            stream.write("environment,workload,metric,block,launch,value\n")
            for seed, environment in enumerate(environments):
                stream.writelines(rows(environment, seed))
    return folder


def run(results: Path, *arguments: str) -> tuple[int, float]:
    """Exit code and seconds of CPU time: others use this machine too."""
    before = time.process_time()
    with redirect_stdout(io.StringIO()):
        code = main([*arguments, "--results", str(results / "results")])
    return code, time.process_time() - before


def test_importing_600_000_samples_takes_seconds(results: Path) -> None:
    code, seconds = run(results, "import", str(results / "both.csv"), "--name", "both")
    assert code == 0 and seconds < 20
    code, seconds = run(results, "import", str(results / "later.csv"), "--name", "later")
    assert code == 0 and seconds < 10
    print(f"\nimport of 300,000 samples: {seconds:.1f} s")


@pytest.mark.parametrize("sides", [("both:old", "both:new"), ("both:old", "later:new")])
@pytest.mark.parametrize("report_format", ["json", "table", "markdown", "html", "junit"])
def test_comparing_10_000_cells_takes_under_ten_seconds(
    results: Path, sides: tuple[str, str], report_format: str
) -> None:
    code, seconds = run(results, "compare", *sides, "--format", report_format)
    assert code == 0
    print(f"\n{' with '.join(sides)} as {report_format}: {seconds:.1f} s")
    assert seconds < 10
