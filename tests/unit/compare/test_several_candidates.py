"""One base and several candidates in one A/B run: who is who is told, and nothing is told twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from comparison_runs import Imported, paired, record, write_run
from synthetic_runs import environment

from matrix.compare.environments import lock_changes
from matrix.records import ReasonRecord
from matrix_adapters.protocol import State

NEW = ("1.32.0", "1.33.0", "1.34.0", "1.35.0")
FLAG = (ReasonRecord(code="contended", text="CPUs 95% busy"),)


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def ab_run(made: Imported, new: tuple[str, ...] = NEW) -> None:
    base, candidate = paired()
    records = [record("1.31.0", latencies=base, flags=FLAG)]
    records += [record(version, latencies=candidate, flags=FLAG) for version in new]
    comparison = {
        "base": [records[0].environment.name],
        "candidates": [[each.environment.name] for each in records[1:]],
    }
    write_run(made.results, "nightly", records, comparison=comparison)


def test_a_title_names_the_base_however_many_candidates_there_are(made: Imported) -> None:
    ab_run(made)
    title = made.run("compare", "nightly")[1].splitlines()[0]
    assert title == "4 candidates against onnxruntime-1.31.0-cpu, in nightly"


def test_flagged_cells_are_told_once_and_by_name(made: Imported) -> None:
    ab_run(made, NEW[:2])
    warnings = json.loads(made.run("compare", "nightly", "--json")[1])["summary"]["warnings"]
    versions = ("1.31.0", *NEW[:2])
    assert warnings == [f"flagged cells of onnxruntime-{v}-cpu: contended 1" for v in versions]


def test_of_one_pair_the_words_base_and_candidate_are_enough(made: Imported) -> None:
    ab_run(made, NEW[:1])
    warnings = json.loads(made.run("compare", "nightly", "--json")[1])["summary"]["warnings"]
    assert warnings == [f"flagged cells of the {side}: contended 1" for side in ("base", "candidate")]


def test_an_environment_that_could_not_be_built_has_removed_nothing(made: Imported) -> None:
    built = environment("onnxruntime", version="1.31.0", lock=("numpy==2.4.6",), python="3.12.1")
    broken = environment("onnxruntime", version="9.9.9", lock=(), python="")
    assert lock_changes(built, broken) == lock_changes(broken, built) == ()
    records = [record("1.31.0", latencies=paired()[0], environment={"lock": ("numpy==2.4.6",)})]
    failed: dict[str, Any] = {"lock": (), "python": ""}
    records.append(record("9.9.9", state=State.BUILD_FAILED, environment=failed))
    write_run(made.results, "run", records)
    sides = [f"run:{each.environment.name}" for each in records]
    code, answer = made.compare(*sides)
    assert code == 1 and not any(answer["summary"]["lock_changes"].values())


def test_an_environment_of_an_a_b_run_alone_says_what_is_missing(made: Imported) -> None:
    ab_run(made)
    code, _, err = made.run("compare", "nightly:onnxruntime-1.31.0-cpu")
    assert code == 2 and "name a CANDIDATE too, or leave the environment out" in err


def test_the_command_that_would_settle_two_runs_can_be_pasted_into_a_shell(made: Imported) -> None:
    base, candidate = paired()
    write_run(made.results, "monday", [record("1.31.0", latencies=base)])
    changed = {"changes": ("env:OMP_PROC_BIND=close spread",)}
    write_run(made.results, "tuesday", [record("1.31.0", latencies=candidate, environment=changed)])
    reasons = {cell["reason"] for cell in made.compare("monday", "tuesday")[1]["cells"]}
    assert any("--candidate-with 'env:OMP_PROC_BIND=close spread'`" in reason for reason in reasons)
