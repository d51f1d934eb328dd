"""How long a big run takes to be shown: 300 cells with 900 files of samples, all formats."""

import time
from pathlib import Path

import pytest
from synthetic_runs import header, many_records

from matrix.catalog import load
from matrix.records import Record
from matrix.report import FORMATS, Options, render, write_all

CATALOG = load()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("run")
    return folder, many_records(300, folder)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_one_format_of_three_hundred_cells(benchmark, run: tuple[Path, list[Record]], name: str) -> None:
    folder, records = run
    options = Options(run_dir=folder, link_base="../")
    text = benchmark(render, name, records, header(), CATALOG, options)
    assert text


def test_all_reports_of_three_hundred_cells_take_under_four_seconds(run: tuple[Path, list[Record]]) -> None:
    folder, records = run
    before = time.process_time()  # not the wall clock: others use this machine too
    write_all(folder, records, header(), CATALOG)
    assert time.process_time() - before < 4
