"""The parts of a live pair one by one: words, answers, which samples count, what is flagged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_toys import ToyHalf

from matrix.execution import process
from matrix.execution.answers import Answers
from matrix.execution.environ import shaken
from matrix.execution.live import open_live
from matrix_adapters import checks, clock, memory, protocol, slices, supervisor
from matrix_adapters.failures import Interrupted, Misunderstood
from matrix_adapters.protocol import Result, State, Task, TaskKind
from matrix_adapters.words import Words, take


class Line:
    """Both directions between a `Words` and a test."""

    def __init__(self) -> None:
        heard, self.mouth = os.pipe()
        self.ear, answers = os.pipe()
        self.fds = [heard, self.mouth, self.ear, answers]
        self.words = Words(heard, answers)

    def say(self, data: bytes) -> None:
        os.write(self.mouth, data)

    def hang_up(self) -> None:
        os.close(self.mouth)
        self.fds.remove(self.mouth)

    def stop_listening(self) -> None:
        os.close(self.ear)
        self.fds.remove(self.ear)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line()
    yield made
    made.close()


# What the worker hears


def test_several_words_at_once_are_heard_one_by_one(line: Line) -> None:
    line.say(b"run 3\nrun 12\nquit\nrun 1\n")
    assert [line.words.samples_wanted() for _ in range(4)] == [3, 12, None, 1]


def test_a_word_in_two_pieces_is_one_word(line: Line) -> None:
    line.say(b"ru")
    line.say(b"n 4")
    assert line.words.wait(0)  # something was said
    line.say(b"2\n")
    assert line.words.samples_wanted() == 42


def test_waiting_ends_when_a_word_is_left_over_or_nobody_can_say_one_any_more(line: Line) -> None:
    assert not line.words.wait(0.01)
    line.say(b"run 1\nrun 2\n")
    assert line.words.samples_wanted() == 1
    assert line.words.wait(0)
    assert line.words.samples_wanted() == 2
    assert not line.words.wait(0.01)
    line.hang_up()
    assert line.words.wait(10)
    with pytest.raises(Interrupted):
        line.words.samples_wanted()


@pytest.mark.parametrize(
    "said", [b"run 1000001\n", b"run 1_0\n", b"run \xb2\n", b"\xff\n", b"x" * 65, b"quit now\n"]
)
def test_what_is_no_word_is_refused_and_quoted(line: Line, said: bytes) -> None:
    line.say(said)
    with pytest.raises(Misunderstood, match="no word"):
        line.words.samples_wanted()


def test_an_answer_that_nobody_hears_is_the_end(line: Line) -> None:
    line.words.answer("ready")
    assert os.read(line.ear, 99) == b"ready\n"
    line.stop_listening()
    with pytest.raises(Interrupted):
        line.words.answer("done")


@pytest.mark.parametrize("number", ["", "x", "-1", "123456"])
def test_without_an_open_file_to_answer_on_there_is_no_conversation(number: str) -> None:
    environ = {protocol.ANSWERS_VARIABLE: number}
    assert take(environ) is None
    assert environ == {}


# What the host hears


@given(st.lists(st.sampled_from(["ready", "done"]), max_size=8), st.integers(1, 7))
def test_answers_come_whole_and_in_order_however_they_are_cut(said: list[str], size: int) -> None:
    read, write = os.pipe()
    answers = Answers(read)
    data = "".join(f"{word}\n" for word in said).encode()
    heard = []
    for start in range(0, len(data), size):
        os.write(write, data[start : start + size])
        while (word := answers.next()) is not None:
            heard.append(word)
    assert heard == said
    assert answers.next() is None
    assert answers.is_open
    os.close(write)
    assert answers.next() is None
    assert not answers.is_open
    answers.close()
    answers.close()


def test_what_is_no_answer_is_handed_on_instead_of_waited_for() -> None:
    read, write = os.pipe()
    answers = Answers(read)
    os.write(write, b"\xff" * 100)
    assert answers.next() is not None
    os.close(write)
    answers.close()


# Which samples count


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ([0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 1, 1]),
        ([0, 1, 2], [1, 1, 1]),
        ([0, 0, 1, 2, 2], [0, 1, 1, 0, 1]),
        ([0], [1]),
    ],
)
def test_the_first_sample_of_a_slice_is_dropped_unless_it_is_alone(
    numbers: list[int], kept: list[int]
) -> None:
    assert slices.kept_samples(np.array(numbers, np.int64)).tolist() == [bool(one) for one in kept]


def samples(wall_ms: np.ndarray, cpu_share: float = 1.0) -> clock.Samples:
    wall = np.asarray(wall_ms * 1e6, np.int64)
    cpu = np.asarray(wall * cpu_share, np.int64)
    zeros = np.zeros_like(wall)
    return clock.Samples(
        wall_ns=wall,
        cpu_ns=cpu,
        process_ns=cpu,
        nivcsw=zeros,
        nvcsw=zeros,
        calls=zeros + 1,
        start_ns=np.cumsum(wall),
    )


NUMBERS = np.repeat(np.arange(16, dtype=np.int64), 20)


def steady_ms() -> np.ndarray:
    return 10 + np.random.default_rng(1).normal(0, 0.1, len(NUMBERS))


def codes(wall_ms: np.ndarray, cpu_share: float = 1.0) -> set[str]:
    return {flag.code for flag in checks.slice_flags(samples(wall_ms, cpu_share), NUMBERS)}


def test_steady_slices_have_no_flag() -> None:
    assert codes(steady_ms()) == set()


def test_a_single_sample_that_waited_is_no_flag_among_thousands() -> None:
    wall = steady_ms()
    wall[200] *= 30
    assert codes(wall) == set()


def test_a_slice_that_is_out_of_line_as_a_whole_is() -> None:
    wall = steady_ms()
    wall[NUMBERS == 9] *= 8
    assert codes(wall, cpu_share=0.1) == {"outlier"}


def test_a_compilation_in_an_early_slice_is() -> None:
    wall = steady_ms()
    wall[3] *= 30
    assert codes(wall) == {"late_compile"}


def test_slices_that_drift_are() -> None:
    assert codes(steady_ms() * (1 + NUMBERS / 40)) == {"not_stationary"}


def test_parts_of_samples_are_joined_and_chosen_from() -> None:
    one, two = samples(np.array([1.0, 2.0])), samples(np.array([3.0]))
    both = clock.joined([one, two])
    assert both.wall_ns.tolist() == [1_000_000, 2_000_000, 3_000_000]
    assert both.only(np.array([False, True, True])).wall_ns.tolist() == [2_000_000, 3_000_000]


def test_the_own_peak_is_that_of_this_program_not_of_what_started_it() -> None:
    code = "from matrix_adapters import memory; print(memory.own_peak()[0])"
    ballast = np.ones(150 << 17)  # 150 MiB in the process that starts it
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(memory.__file__).parents[1])},
        capture_output=True,
        check=True,
    )
    assert 4 << 20 < int(found.stdout) < ballast.nbytes


def test_where_there_is_no_high_water_mark_the_lifetime_peak_stands_in(tmp_path: Path) -> None:
    peak, method = memory.own_peak(tmp_path)
    assert method == "ru_maxrss"
    assert peak > 1 << 20


# How it is started


def test_padding_and_seed_are_recorded_as_they_are_set() -> None:
    seen = [shaken() for _ in range(20)]
    for variables, noted in seen:
        assert int(noted["shaken"]["padding_bytes"]) == len(variables["FRAMEWORK_MATRIX_PADDING"]) <= 4095
        assert noted["shaken"]["hash_seed"] == variables["PYTHONHASHSEED"]
        assert 0 < int(variables["PYTHONHASHSEED"]) < 2**32
    assert len({variables["PYTHONHASHSEED"] for variables, _ in seen}) > 10


def test_turns_work_where_the_kernel_has_no_process_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_pidfd", lambda _: None)
    built = ToyHalf(tmp_path / "a")
    with open_live(built, built.task(), tmp_path / "launch", timeout_s=60, stall_s=30) as live:
        assert live.wait_ready()
        assert live.run(2) is not None
        assert live.finish().state is State.OK


def test_the_supervisor_hands_on_its_input_and_keeps_its_output_for_answers(tmp_path: Path) -> None:
    code = """
import os, sys
print("chatter", flush=True)
word = sys.stdin.readline()
os.write(int(os.environ["FRAMEWORK_MATRIX_ANSWERS"]), b"heard " + word.encode())
"""
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(tmp_path), "30", "30", "1000000"]
    command += [sys.executable, "-c", code]
    found = subprocess.run(
        command,
        input=b"run 3\n",
        capture_output=True,
        env={**os.environ, "FRAMEWORK_MATRIX_ANSWERS": "3"},
        check=True,
    )
    assert found.stdout == b"heard run 3\n"
    assert (tmp_path / "log.txt").read_text() == "chatter\n"
    assert json.loads((tmp_path / "exit.json").read_text())["status"] == 0


def test_supervisor_and_protocol_mean_the_same_variable() -> None:
    assert supervisor.ANSWERS_VARIABLE == protocol.ANSWERS_VARIABLE


def test_an_environment_that_runs_only_half_of_its_launches_itself_is_refused(tmp_path: Path) -> None:
    class Half:
        def command(self, in_dir: Path, out_dir: Path) -> list[str]:
            return ["/bin/true"]

        def environ(self) -> dict[str, str]:
            return {}

        def run_task(self, *_: object, **__: object) -> Result:
            return Result(state=State.OK)

    task = Task(kind=TaskKind.SLICES, framework="t", adapter="t")
    with pytest.raises(TypeError, match="both `run_task` and `open_live`"):
        open_live(Half(), task, tmp_path, timeout_s=1, stall_s=1)
