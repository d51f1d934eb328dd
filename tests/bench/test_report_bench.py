"""How long a big run takes to be shown: 300 cells with 900 files of samples, all formats."""

import time
from pathlib import Path

import pytest
from synthetic_runs import header, many_records

from matrix.catalog import load
from matrix.report import FORMATS, Options, render, write_all

CATALOG = load()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_one_format_of_three_hundred_cells(benchmark, tmp_path: Path, name: str) -> None:
    records = many_records(300, tmp_path)
    options = Options(run_dir=tmp_path, link_base="../")
    text = benchmark(render, name, records, header(), CATALOG, options)
    assert text


def test_all_reports_of_three_hundred_cells_take_less_than_four_seconds_of_this_process(
    tmp_path: Path,
) -> None:
    records = many_records(300, tmp_path)
    before = time.process_time()  # not the wall clock: others use this machine too
    write_all(tmp_path, records, header(), CATALOG)
    assert time.process_time() - before < 4
