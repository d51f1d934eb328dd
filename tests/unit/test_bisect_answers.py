"""From a comparison's findings to good, bad or skip; and what a user may type wrong."""

from __future__ import annotations

import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_wheels import make_wheel

from matrix.bisect.answers import answer_of
from matrix.bisect.state import Target
from matrix.bisect.state import Tested as Answered
from matrix.cli import main
from matrix.compare.findings import STATE, Finding
from matrix.errors import ExitCode
from matrix.judge.bisection import Answer
from matrix.judge.rows import Verdict, Word
from matrix.report.comparison.words import sentence

LATENCY = Target(workload="bert b1", metric="latency_ms")
GOOD, BAD, SKIP = Answer.GOOD, Answer.BAD, Answer.SKIP


def finding(word: Word, metric: str = "latency_ms", *, effect: float = 0.0, **more: Any) -> Finding:
    judged = Verdict(
        workload="bert b1", metric=metric, unit="ms", verdict=word, effect=effect, low=effect, high=effect
    )
    return Finding(
        **{
            "workload": "bert b1",
            "metric": metric,
            "verdict": word,
            "judged": None if metric == STATE else judged,
            **more,
        }
    )


def state(candidate: str, word: Word = Word.REGRESSED) -> Finding:
    return finding(word, STATE, base="ok", candidate=candidate, reason="it broke", kind="state")


def answered(findings: Sequence[Finding], target: Target | None = LATENCY, metric: str = "") -> Answered:
    """Only what the function reads of a comparison."""
    side = types.SimpleNamespace(run=types.SimpleNamespace(id="run-1"))
    comparison: Any = types.SimpleNamespace(
        findings=tuple(findings), duels=(types.SimpleNamespace(candidate=side),)
    )
    return answer_of(comparison, target, metric, (("toy==1",), ("toy==2",)), sentence)


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (Word.REGRESSED, BAD),
        (Word.NO_WORSE, GOOD),
        (Word.IMPROVED, GOOD),
        (Word.INCONCLUSIVE, SKIP),
        (Word.NOT_COMPARABLE, SKIP),
    ],
)
def test_each_verdict_on_the_target_is_an_answer_and_other_rows_do_not_count(
    word: Word, answer: Answer
) -> None:
    other = finding(Word.REGRESSED, "load_s", effect=9.0)
    found = answered([other, finding(word, effect=0.05)])
    assert found.answer is answer
    assert found.verdict.startswith(f"bert b1, latency_ms: {word.value}")
    assert (found.effect, found.run) == (0.05, "run-1")
    assert (found.good_lock, found.lock) == (("toy==1",), ("toy==2",))


def test_the_first_test_chooses_the_worst_regression_and_keeps_the_others() -> None:
    worst, second = finding(Word.REGRESSED, "load_s", effect=0.5), finding(Word.REGRESSED, effect=0.1)
    found = answered([worst, second, finding(Word.NO_WORSE, "cpu_time_ms")], target=None)
    assert found.target == Target(workload="bert b1", metric="load_s")
    assert [text.partition(":")[0] for text in found.also] == ["bert b1, latency_ms"]
    asked = answered([worst, second], target=None, metric="latency_ms")
    assert (asked.target, asked.also) == (LATENCY, ())


def test_a_metric_that_repeats_another_ones_verdict_is_never_chosen_but_may_be_asked_for() -> None:
    mirror = finding(Word.REGRESSED, "throughput_items_s", derived=True)
    plain = finding(Word.REGRESSED)
    assert answered([mirror, plain], target=None).target == LATENCY
    asked = answered([mirror, plain], target=None, metric="throughput_items_s")
    assert asked.target is not None
    assert asked.target.metric == "throughput_items_s"


def test_ends_without_a_regression_are_good_only_where_everything_was_decided() -> None:
    fine = [finding(Word.NO_WORSE), finding(Word.IMPROVED, "load_s")]
    assert answered(fine, target=None).answer is GOOD
    assert answered(fine, target=None).verdict == "no worse in any of 2 rows"
    found = answered([*fine, finding(Word.INCONCLUSIVE, "cpu_time_ms")], target=None)
    assert (found.answer, found.target) == (SKIP, None)
    assert answered([], target=None).answer is SKIP


@pytest.mark.parametrize("ended", ["build_failed", "unavailable", "unsupported", "interrupted", "not_run"])
def test_a_version_that_could_not_be_had_is_skipped_whatever_is_followed(ended: str) -> None:
    for target in (None, LATENCY, Target(workload="bert b1", metric=STATE)):
        found = answered([state(ended)], target=target)
        assert found.answer is SKIP
        assert "it broke" in found.verdict


@pytest.mark.parametrize("ended", ["failed", "oom", "timeout", "incorrect"])
def test_a_version_that_breaks_is_bad_where_the_state_is_followed_and_skipped_elsewhere(ended: str) -> None:
    assert answered([state(ended)], target=None).target == Target(workload="bert b1", metric=STATE)
    assert answered([state(ended)], target=Target(workload="bert b1", metric=STATE)).answer is BAD
    assert answered([state(ended)], target=LATENCY).answer is SKIP


def test_where_the_state_is_followed_a_version_without_a_finding_is_good() -> None:
    found = answered([finding(Word.REGRESSED)], target=Target(workload="bert b1", metric=STATE))
    assert (found.answer, found.verdict) == (GOOD, "bert b1, state: ok on both sides")


def test_a_row_that_is_not_there_is_skipped() -> None:
    assert answered([finding(Word.NO_WORSE, "load_s")]).answer is SKIP


# --- what a user types --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to search: matrix bisect FRAMEWORK GOOD BAD"),
        (["onnxruntime", "1.31.0"], "say what to search"),
        (["onnxruntme", "1.31.0", "1.32.0"], 'did you mean "onnxruntime"'),
        (["onnxruntime", "1", "2", "--wheels", "a", "--images", "b"], "--wheels and --images"),
        (["onnxruntime", "1", "2", "--wheels", "gone"], "--wheels gone: neither a folder nor a wheel"),
        (["onnxruntime", "a:1", "a:3", "--images", "a:1", "a:2"], "there is no 'a:3'"),
        (
            ["onnxruntime", "a:1", "a:2", "--images", "a:1", "a:2", "--cell", "brt"],
            "no row or model is called 'brt'",
        ),
        (
            ["onnxruntime", "a:1", "a:2", "--images", "a:1", "a:2", "--cell", "modle == 'x'"],
            'did you mean "model"',
        ),
        (["onnxruntime", "1", "2", "--metric", "speed"], "speed"),
        (["onnxruntime", "1", "2", "--margin", "latency_ms=7"], "--margin"),
        (["onnxruntime", "1", "2", "--with", "numpi=2.2.0"], "did you mean 'numpy'?"),
        (["onnxruntime", "1", "2", "--with", "onnxruntime=1.31.0"], "that is ONNX Runtime itself"),
        (["onnxruntime", "a:1", "a:2", "--images", "a:1", "a:2", "--as-of", "soon"], "is no date"),
        (["--resume", "nothing"], "none is called 'nothing'"),
        (["--resume", "latest", "--cell", "gpt2"], "--resume goes on with a search as it was begun"),
    ],
)
def test_a_mistake_costs_nothing_and_says_what_to_write(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bisect", *arguments]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def test_good_and_bad_must_be_among_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for version in ("1.0", "1.1"):
        make_wheel(tmp_path / "wheels", "onnxruntime", version)
    assert main(["bisect", "onnxruntime", "1.1", "1.0", "--wheels", "wheels"]) == ExitCode.USAGE
    assert "write 1.0 1.1 if that is what is meant" in capsys.readouterr().err
