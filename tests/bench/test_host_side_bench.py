"""The host side of a 1,000-cell run, with workers that cost nothing."""

from __future__ import annotations

from pathlib import Path

import host_cost


def test_a_run_of_1000_cells_costs_under_50_ms_a_cell_and_300_mb(tmp_path: Path) -> None:
    found = host_cost.measure(tmp_path, 1000)
    print(
        f"\n{found['ms_per_cell']:.1f} ms a cell ({found['cpu_ms_per_cell']:.1f} ms of processor time), "
        f"peak {found['peak_bytes'] / 1e6:.0f} MB; "
        f"records read in {found['read_s']:.2f} s, table made in {found['table_s']:.2f} s"
    )
    assert found["cpu_ms_per_cell"] < 50
    assert found["peak_bytes_with_table"] < 300e6
    assert found["read_s"] < 5
