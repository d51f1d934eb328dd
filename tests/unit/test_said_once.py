"""What an environment holds is written once into cells.jsonl, and read as if it stood in every record."""

from __future__ import annotations

import json
from typing import Any

from matrix.store.said_once import Locks


def line(environment: str, *lock: str, key: str = "k") -> dict[str, Any]:
    """A record as it is dumped: no lock where there is none."""
    fields = {"name": environment, "key": key, "backend": "venv"} | ({"lock": lock} if lock else {})
    return {"id": "1", "environment": fields}


def test_the_first_record_of_each_environment_has_the_list_and_the_others_get_it_back() -> None:
    given = [line("a", "numpy==2"), line("b", "torch==1"), line("a", "numpy==2"), line("b", "torch==1")]
    wanted = json.loads(json.dumps(given))
    writing, reading = Locks(), Locks()
    written = [json.dumps(writing.left_out(one)) for one in given]
    assert [one.count("lock") for one in written] == [1, 1, 0, 0]
    assert [reading.put_back(json.loads(one)) for one in written] == wanted


def test_a_list_that_differs_is_written_again() -> None:
    given = [line("a", "numpy==2"), line("a", "numpy==1"), line("a", "numpy==2")]
    wanted = json.loads(json.dumps(given))
    writing, reading = Locks(), Locks()
    written = [json.loads(json.dumps(writing.left_out(one))) for one in given]
    assert ["lock" in one["environment"] for one in written] == [True, True, False]
    assert [reading.put_back(one) for one in written] == wanted


def test_an_environment_that_was_never_built_gets_nobody_elses() -> None:
    reading = Locks()
    reading.put_back(line("a", "numpy==2"))
    assert "lock" not in reading.put_back(line("a", key=""))["environment"]
    assert "lock" not in reading.put_back(line("b"))["environment"]


def test_what_is_no_record_is_left_to_whoever_checks_it() -> None:
    not_records: tuple[Any, ...] = (None, [], 3, {}, {"environment": "a"})
    for strange in not_records:
        assert Locks().put_back(strange) == strange


def test_lines_of_before_with_the_list_in_each_are_read_as_they_are() -> None:
    reading = Locks()
    assert [reading.put_back(line("a", "numpy==2"))["environment"]["lock"] for _ in range(3)] == [
        ("numpy==2",)
    ] * 3
