"""Two runs of one sweep are compared cell by cell; what must be equal and is not is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from container_sweep import container_sweep
from private_engine import PrivateEngine
from same_as_virtualenvs import compare, main
from toy_sweep import ToySweep


def run_of(sweep: ToySweep) -> Path:
    sweep.run()
    (run,) = [path.parent for path in sweep.results.glob("*/run.json")]
    return run


def test_a_sweep_in_containers_says_what_one_in_processes_says(
    private: PrivateEngine, tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["good", "exit"]
    inside = run_of(container_sweep(tmp_path / "in", private.url, tiny, models=models, launches=1))
    outside = run_of(ToySweep(tmp_path / "out", models=models, launches=1))
    assert main([str(inside), str(outside)]) == 0
    assert "2 cells: 0 differ" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ('"weights":"wwww', '"weights":"xwww', "weights"),
        ('"passed":true', '"passed":false', "parity passed"),
        ('"state":"ok"', '"state":"failed"', "state"),
    ],
)
def test_a_planted_difference_is_found(tmp_path: Path, before: str, after: str, found: str) -> None:
    one = run_of(ToySweep(tmp_path / "one", models=["good"], launches=1))
    two = run_of(ToySweep(tmp_path / "two", models=["good"], launches=1))
    assert not compare(one, two)[0].wrong
    planted = 0
    for path in two.rglob("*.json*"):
        text = path.read_text()
        if before in text:
            path.write_text(text.replace(before, after))
            planted += 1
    assert planted
    (difference,) = compare(one, two)
    assert any(found in problem for problem in difference.wrong), difference.wrong
    assert main([str(one), str(two)]) == 1
