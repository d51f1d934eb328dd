"""Comparing runs of this product: live pairs, states, numerics, contracts, machines, environments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from comparison_runs import MACHINE, Imported, cells, paired, parity, record, verdicts, write_run

from matrix.records import ReasonRecord, Record
from matrix_adapters.protocol import State

OLD, NEW = "onnxruntime-1.31.0-cpu", "onnxruntime-1.32.0-cpu"
AB = {"base": [OLD], "candidates": [[NEW]]}
LABEL = "resnet50 b1 fp32 1t"


@pytest.fixture
def made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Imported:
    return Imported(tmp_path, capsys)


def couple(
    factor: float = 1.0, subject: str = "resnet50", *, pair: str = NEW, seed: int = 0, **changes: Any
) -> list[Record]:
    """Both halves of one workload's live pairs."""
    base, candidate = paired(factor, seed=seed)
    return [
        record("1.31.0", subject, base, pair=pair, **changes),
        record("1.32.0", subject, candidate, pair=pair, **changes),
    ]


def one_run(made: Imported, records: Sequence[Record], **header: Any) -> None:
    write_run(made.results, "ab", records, **{"comparison": AB, **header})


def test_an_ab_run_is_compared_as_it_was_planned(made: Imported) -> None:
    one_run(made, [*couple(1.10), *couple(1.0, "distilbert", seed=1)])
    code, out, _ = made.run("compare", "latest")
    assert code == 1 and "1 regressed" in out
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert code == 1
    assert verdicts(answer) == {LABEL: "regressed", "distilbert b1 fp32 1t": "no worse"}
    assert cells(answer)[LABEL]["layout"] == "live-pair"
    assert cells(answer)[LABEL]["clock"] == "wall"


def test_throughput_follows_latency_and_is_counted_once(made: Imported) -> None:
    one_run(made, couple(1.10))
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "throughput_items_s")[LABEL]
    assert found["verdict"] == "regressed" and found["derived"] and found["base"] > found["candidate"]
    assert answer["summary"]["counts"]["regressed"] == 1
    assert answer["summary"]["failing"] == {"regressed": 1}


def test_swapping_the_sides_of_live_pairs_negates_the_effect(made: Imported) -> None:
    one_run(made, couple(0.80))
    there, back = made.compare(f"ab:{OLD}", f"ab:{NEW}")[1], made.compare(f"ab:{NEW}", f"ab:{OLD}")[1]
    assert cells(there)[LABEL]["verdict"] == "improved" and cells(back)[LABEL]["verdict"] == "regressed"
    assert cells(there)[LABEL]["log_effect"] == -cells(back)[LABEL]["log_effect"]
    assert cells(back)[LABEL]["layout"] == "live-pair"


def test_only_the_blocks_of_the_pair_count_and_the_pilot_never(made: Imported) -> None:
    base, candidate = couple(1.0)
    other = [
        x.model_copy(update={"pair": "somebody else", "metrics": {"latency_ms": 1e6}}) for x in base.launches
    ]
    pilot = base.launches[0].model_copy(update={"purpose": "pilot", "metrics": {"latency_ms": 1e6}})
    base = base.model_copy(update={"launches": (pilot, *other, *base.launches)})
    one_run(made, [base, candidate])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert cells(answer)[LABEL]["verdict"] == "no worse" and cells(answer)[LABEL]["n"] == 12


def test_the_last_attempt_at_a_block_counts(made: Imported) -> None:
    base, candidate = couple(1.0)
    wrong = [x.model_copy(update={"metrics": {"latency_ms": 1e6}}) for x in candidate.launches]
    candidate = candidate.model_copy(update={"launches": (*wrong, *candidate.launches)})
    one_run(made, [base, candidate])
    assert verdicts(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1]) == {LABEL: "no worse"}


def test_candidates_of_one_base_do_not_meet_each_other_in_time(made: Imported) -> None:
    third = "onnxruntime-1.30.0-cpu"
    base, candidate = couple(1.0)
    more = record("1.30.0", "resnet50", paired(1.0)[1], pair=third)
    one_run(made, [base, candidate, more])
    _, answer = made.compare(f"ab:{third}", f"ab:{NEW}")
    assert cells(answer)[LABEL]["layout"] == "separate-runs"
    assert cells(answer)[LABEL]["verdict"] == "inconclusive"


def test_launches_of_a_sweep_are_paired_by_block(made: Imported) -> None:
    write_run(made.results, "sweep", couple(1.10, pair=""))
    code, answer = made.compare(f"sweep:{OLD}", f"sweep:{NEW}")
    assert code == 1 and cells(answer)[LABEL]["layout"] == "fresh-launches"
    assert cells(answer)[LABEL]["verdict"] == "regressed"


def test_arms_that_differ_in_the_variant_alone(made: Imported) -> None:
    base, candidate = paired(1.10)
    records = [
        record("1.31.0", "resnet50", base, pair=OLD, variant="eager"),
        record("1.31.0", "resnet50", candidate, pair=OLD, variant="compile"),
    ]
    comparison = {"base": [OLD], "candidates": [[OLD]], "variants": ["eager", "compile"]}
    one_run(made, records, comparison=comparison)
    code, out, err = made.run("compare", "ab", "--json")
    assert code == 1, err
    assert '"regressed": 1' in out


def test_the_control_and_the_arm_against_itself_are_instruments_and_no_cells(made: Imported) -> None:
    records = [*couple(1.0), *couple(1.0, "control", level="control", seed=2)]
    itself = [
        record("1.31.0", "resnet50", values, pair=f"{OLD}@aa", arm=arm)
        for values, arm in zip(paired(seed=5), ("", "aa"), strict=True)
    ]
    base = records[0].model_copy(update={"launches": (*records[0].launches, *itself[0].launches)})
    one_run(made, [base, *records[1:], itself[1]])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert set(verdicts(answer)) == {LABEL}
    assert answer["summary"]["instrument"]["aa_rows"] == 1
    assert answer["summary"]["instrument"]["control_effect"] == pytest.approx(0, abs=0.02)


def test_a_machine_that_moved_withholds_the_verdicts(made: Imported) -> None:
    one_run(made, [*couple(1.12), *couple(1.12, "control", level="control", seed=2)])
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert code == 0 and verdicts(answer) == {LABEL: "inconclusive"}
    assert answer["summary"]["common_shift"] == pytest.approx(0.12, abs=0.01)


# --- clocks -------------------------------------------------------------------------------


def clocked(record_: Record, **more: Any) -> Record:
    """The same latencies, by the clocks of live halves."""
    launches = []
    for launch in record_.launches:
        ms = launch.metrics["latency_ms"]
        clocks = {"wall": ms, "wall-clean": ms, "clean_share": 0.9, "cpu": ms * 0.99, "cpu_valid": True}
        sampling = {"samples": 50, "block_s": 7.0, "clocks": {**clocks, **more}}
        metrics = {"latency_ms": ms * 3, "cpu_time_ms": ms * 5}
        launches.append(launch.model_copy(update={"sampling": sampling, "metrics": metrics}))
    return record_.model_copy(update={"launches": tuple(launches)})


def test_live_halves_are_judged_by_their_clocks(made: Imported) -> None:
    base, candidate = couple(1.10)
    one_run(made, [clocked(base), clocked(candidate)])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert cells(answer)[LABEL]["base"] == pytest.approx(base.metrics["latency_ms"].value, rel=0.02)
    assert cells(answer, "cpu_time_ms")[LABEL]["verdict"] == "regressed"


@pytest.mark.parametrize(
    ("shares", "kept"),
    [
        ([0.9] * 12, True),
        ([0.91] * 12, True),  # another share, and too little to matter
        ([0.5] * 12, False),
        ([0.3, 0.95] * 6, True),  # as often more as less than the base's
        ([0.60 + 0.01 * i for i in range(12)], False),
    ],
)
def test_undisturbed_samples_count_where_both_sides_have_the_same_share(
    made: Imported, shares: list[float], kept: bool
) -> None:
    from matrix.compare import launches, native

    base, candidate = (clocked(half) for half in couple(1.0))
    odd = [
        x.model_copy(
            update={"sampling": {**x.sampling, "clocks": {**x.sampling["clocks"], "clean_share": s}}}
        )
        for x, s in zip(candidate.launches, shares, strict=True)
    ]
    sides = [launches.measured(x, batch=1, threads=1, pair=NEW) for x in (base.launches, odd)]
    assert native._as_clean(*sides) is kept
    assert native._as_clean(*reversed(sides)) is kept, "whichever side is called the base"


def test_cpu_time_that_is_valid_on_one_side_only_is_not_comparable(made: Imported) -> None:
    base, candidate = couple(1.0)
    one_run(made, [clocked(base), clocked(candidate, cpu_valid=False)])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "cpu_time_ms")[LABEL]
    assert found["verdict"] == "not comparable" and "one side only (base)" in found["reason"]
    assert cells(answer)[LABEL]["verdict"] == "no worse"


def test_cpu_time_that_is_valid_on_neither_side_is_no_row(made: Imported) -> None:
    one_run(made, [clocked(half, cpu_valid=False) for half in couple(1.0)])
    assert cells(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1], "cpu_time_ms") == {}


def test_flags_of_most_launches_keep_a_cell_from_being_certified(made: Imported) -> None:
    flag = ReasonRecord(code="not_stationary", text="samples drift by 30 %")
    base, candidate = couple(1.0)
    drifting = [x.model_copy(update={"flags": (flag,)}) for x in candidate.launches]
    one_run(made, [base, candidate.model_copy(update={"launches": tuple(drifting)})])
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer)[LABEL]
    assert code == 0 and found["verdict"] == "inconclusive" and "30 %" in found["reason"]


# --- start-up and memory ------------------------------------------------------------------


def test_a_cold_start_that_got_twice_as_slow_is_a_regression_of_its_own(made: Imported) -> None:
    loads = [{"load_s": paired(level=1.0)[0]}, {"load_s": paired(2.1, level=1.0)[1]}]
    base, candidate = paired(1.0)
    one_run(
        made,
        [
            record("1.31.0", "resnet50", base, pair=NEW, metrics=loads[0]),
            record("1.32.0", "resnet50", candidate, pair=NEW, metrics=loads[1]),
        ],
    )
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert code == 1
    assert cells(answer, "load_s")[LABEL]["verdict"] == "regressed"
    assert cells(answer)[LABEL]["verdict"] == "no worse"


def test_a_phase_that_took_no_time_on_either_side_is_no_row(made: Imported) -> None:
    nothing = {"compile_s": [0.0] * 12}
    one_run(made, couple(1.0, metrics=nothing))
    assert cells(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1], "compile_s") == {}


def test_a_phase_that_was_nothing_before_is_a_reason_and_no_crash(made: Imported) -> None:
    base, candidate = paired()
    one_run(
        made,
        [
            record("1.31.0", "resnet50", base, pair=NEW, metrics={"compile_s": [0.0] * 12}),
            record("1.32.0", "resnet50", candidate, pair=NEW, metrics={"compile_s": [0.5] * 12}),
        ],
    )
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "compile_s")[LABEL]
    assert code == 0 and found["verdict"] == "not comparable" and "above zero" in found["reason"]


# --- states -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "word", "code"),
    [
        (State.OK, State.INCORRECT, "regressed", 1),
        (State.OK, State.BUILD_FAILED, "regressed", 1),
        (State.OK, State.FAILED, "regressed", 1),
        (State.OK, State.OOM, "regressed", 1),
        (State.OK, State.TIMEOUT, "regressed", 1),
        (State.FAILED, State.OK, "improved", 0),
        (State.INCORRECT, State.OK, "improved", 0),
        (State.OK, State.UNSUPPORTED, "not comparable", 0),
        (State.UNAVAILABLE, State.OK, "not comparable", 0),
        (State.OK, State.NOT_RUN, "not comparable", 0),
        (State.FAILED, State.TIMEOUT, "not comparable", 0),
        (State.FAILED, State.FAILED, "not comparable", 0),
        (State.INCORRECT, State.INCORRECT, "not comparable", 1),
    ],
)
def test_a_state_that_changed_is_a_row_of_its_own(
    made: Imported, before: State, after: State, word: str, code: int
) -> None:
    base, candidate = couple(1.0)
    halves = []
    for half, state in ((base, before), (candidate, after)):
        reason = None if state is State.OK else ReasonRecord(code="x", text="signal 11")
        halves.append(half.model_copy(update={"state": state, "reason": reason}))
    one_run(made, halves)
    got, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "state")[LABEL]
    assert found["verdict"] == word and got == code
    assert (found["base"], found["candidate"]) == (before.value, after.value)
    assert before.value in found["reason"] and after.value in found["reason"]
    assert cells(answer) == {}, "no time is told of what is not ok"


def test_no_state_row_where_both_are_ok(made: Imported) -> None:
    one_run(made, couple(1.0))
    assert cells(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1], "state") == {}


def test_a_cell_on_one_side_only(made: Imported) -> None:
    one_run(made, [couple(1.0)[0], *couple(1.0, "distilbert"), couple(1.0, "gpt2")[1]])
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "state")
    assert code == 1 and answer["summary"]["failing"] == {"missing": 1}
    assert found[LABEL]["missing"] and found[LABEL]["reason"] == "ok, no such cell"
    assert not found["gpt2 b1 fp32 1t"]["missing"]
    assert {cell["verdict"] for cell in found.values()} == {"not comparable"}


def test_an_expected_failure_fails_nothing(made: Imported) -> None:
    base, candidate = couple(1.0)
    broken = {"state": State.INCORRECT, "xfail": "int8 without calibration"}
    one_run(made, [base, candidate.model_copy(update=broken)])
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert code == 0 and "int8 without calibration" in cells(answer, "state")[LABEL]["reason"]


def test_failures_are_left_out_of_the_mean_and_counted_beside_it(made: Imported) -> None:
    records = [
        *couple(0.7, "a"),
        *couple(0.8, "b", seed=1),
        *couple(0.9, "c", seed=2),
        *couple(1.0, "d", seed=3),
    ]
    records[-1] = records[-1].model_copy(update={"state": State.FAILED})
    one_run(made, records)
    summary = made.compare(f"ab:{OLD}", f"ab:{NEW}")[1]["summary"]
    (mean,) = summary["geometric_mean"]
    assert mean["ratio"] == pytest.approx(0.796, abs=0.003) and mean["rows"] == 3
    assert summary["pass_rate"] == {"base": {"ok": 4, "cells": 4}, "candidate": {"ok": 3, "cells": 4}}


# --- numerics -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "notable"),
    [
        (parity(3e-6), ""),
        (parity(9e-5), "the error grew to 30 times what it was"),
        (parity(3e-6, top1=0.99), "top-1 agreement fell from 1 to 0.99"),
    ],
)
def test_numerics_that_got_worse_within_the_limits_are_told(made: Imported, after: Any, notable: str) -> None:
    base, candidate = couple(1.0)
    one_run(
        made,
        [base.model_copy(update={"parity": parity(3e-6)}), candidate.model_copy(update={"parity": after})],
    )
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    found = cells(answer, "parity")[LABEL]
    assert code == 0 and found["verdict"] == "no worse"
    assert notable in found["reason"] and bool(found["reason"]) == bool(notable)
    _, out, _ = made.run("compare", "ab")
    assert ("parity" in out) == bool(notable)


def test_outputs_that_were_not_checked_on_one_side_are_told(made: Imported) -> None:
    base, candidate = couple(1.0)
    one_run(made, [base.model_copy(update={"parity": parity(3e-6)}), candidate])
    found = cells(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1], "parity")[LABEL]
    assert found["verdict"] == "not comparable" and "candidate were not checked" in found["reason"]


# --- contracts, machines, environments ----------------------------------------------------


@pytest.mark.parametrize(
    ("field", "mine", "other", "said"),
    [
        ("transfer", "included", "excluded", "transfer differs: included, excluded"),
        ("math_mode", "fp32", "tf32", "math mode differs: fp32, tf32"),
        ("threads", 1, 2, "threads differs: 1, 2"),
        ("weights", "a" * 64, "b" * 64, "weights differs: aaaaaaaaaaaa..., bbbbbbbbbbbb..."),
    ],
)
def test_cells_that_were_not_measured_alike_are_not_comparable(
    made: Imported, field: str, mine: Any, other: Any, said: str
) -> None:
    base, candidate = couple(2.0)
    one_run(
        made,
        [
            base.model_copy(update={"contract": {field: mine}}),
            candidate.model_copy(update={"contract": {field: other}}),
        ],
    )
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert code == 0
    assert cells(answer)[LABEL]["verdict"] == "not comparable" and cells(answer)[LABEL]["reason"] == said


def test_a_fallback_on_one_side_is_not_comparable(made: Imported) -> None:
    base, candidate = couple(3.0)
    flag = ReasonRecord(code="partial_fallback", text="3 of 122 nodes off the device")
    one_run(made, [base, candidate.model_copy(update={"flags": (flag,)})])
    found = cells(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1])[LABEL]
    assert found["reason"] == "fallback differs: none, 3 of 122 nodes off the device"


def test_two_runs_of_one_machine_name_the_command_that_settles_it(made: Imported) -> None:
    base, candidate = couple(1.5, pair="")
    write_run(made.results, "monday", [base.model_copy(update={"parity": parity(1e-6)})])
    wrong = candidate.model_copy(update={"parity": parity(1e-6)})
    write_run(made.results, "tuesday", [wrong, record("1.32.0", "gpt2", [1.0])])
    code, answer = made.compare("monday", "tuesday")
    found = cells(answer)[LABEL]
    assert code == 0 and found["verdict"] == "inconclusive"
    assert found["reason"] == "not interleaved: `matrix upgrade onnxruntime 1.31.0 1.32.0` would settle it"
    assert found["low"] < found["effect"] < found["high"]
    assert cells(answer, "parity")[LABEL]["verdict"] == "no worse"
    assert cells(answer, "state")["gpt2 b1 fp32 1t"]["base"] == "no such cell"


def test_states_of_two_runs_are_judged_fully(made: Imported) -> None:
    base, candidate = couple(1.0, pair="")
    write_run(made.results, "monday", [base])
    write_run(made.results, "tuesday", [candidate.model_copy(update={"state": State.INCORRECT})])
    assert made.compare("monday", "tuesday")[0] == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "arm64"}, "architecture differs: x86_64, arm64"),
        ({"cpu_model": "Intel Xeon"}, "CPU differs: AMD EPYC, Intel Xeon"),
        ({"usable_threads": 4}, "usable threads differ: 2, 4"),
        ({}, "machine differs: AMD EPYC, 2 threads (0123456789ab), AMD EPYC, 2 threads (ffff)"),
    ],
)
def test_another_machine_is_refused_with_both_shown(made: Imported, changes: Any, said: str) -> None:
    base, candidate = couple(2.0, pair="")
    write_run(made.results, "laptop", [base])
    write_run(made.results, "server", [candidate], machine={**MACHINE, **changes, "identity": "ffff"})
    code, answer = made.compare("laptop", "server")
    assert code == 0
    found = cells(answer)[LABEL]
    assert found["verdict"] == "not comparable" and found["reason"] == said
    (warning,) = (text for text in answer["summary"]["warnings"] if "two machines" in text)
    assert "`matrix upgrade onnxruntime 1.31.0 1.32.0` would settle it" in warning


def test_the_size_of_the_environment_is_one_row_without_chance(made: Imported) -> None:
    base, candidate = couple(1.0)
    bigger = candidate.environment.model_copy(update={"size_bytes": 1_500_000_000})
    one_run(made, [base, candidate.model_copy(update={"environment": bigger})])
    code, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    (found,) = cells(answer, "image_bytes").values()
    assert code == 1 and found["verdict"] == "regressed" and found["workload"] == "environment"


def test_every_difference_of_the_locks_is_told(made: Imported) -> None:
    base, candidate = couple(1.0)
    lock = (*candidate.environment.lock[1:], "numpy==2.4.0")
    place = candidate.environment.model_copy(update={"lock": lock, "python": "3.12.1"})
    one_run(made, [base, candidate.model_copy(update={"environment": place})])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    (changes,) = answer["summary"]["lock_changes"].values()
    assert [(c["name"], c["base"], c["candidate"]) for c in changes] == [
        ("Python", "3.11.7", "3.12.1"),
        ("numpy", "", "2.4.0"),
        ("package-0", "0.0", ""),
    ]


def test_a_profiler_on_one_side_is_a_warning(made: Imported) -> None:
    base, candidate = couple(1.0)
    flag = ReasonRecord(code="preload", text="CUDA_INJECTION64_PATH is set")
    one_run(made, [base.model_copy(update={"flags": (flag,)}), candidate])
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert any("CUDA_INJECTION64_PATH" in warning for warning in answer["summary"]["warnings"])
    one_run_again = [half.model_copy(update={"flags": (flag,)}) for half in (base, candidate)]
    write_run(made.results, "both", one_run_again, comparison=AB)
    _, answer = made.compare(f"both:{OLD}", f"both:{NEW}")
    assert not any("CUDA_INJECTION64_PATH" in warning for warning in answer["summary"]["warnings"])


def test_variants_are_matched_where_frameworks_have_their_own_words(made: Imported) -> None:
    base, candidate = paired(1.2)
    records = [
        record("2.13.0", "resnet50", base, framework="pytorch", variant="eager"),
        record("1.32.0", "resnet50", candidate, variant="cpu"),
    ]
    write_run(made.results, "sweep", records)
    code, answer = made.compare("sweep:pytorch-2.13.0-cpu", f"sweep:{NEW}")
    assert code == 1 and len(verdicts(answer)) == 1


def test_labels_stay_unique_where_only_the_variant_differs(made: Imported) -> None:
    records = []
    for seed, variant in enumerate(("eager", "compile")):
        base, candidate = paired(1.0, seed=seed)
        records += [
            record("1.31.0", "resnet50", base, variant=variant, pair=NEW),
            record("1.32.0", "resnet50", candidate, variant=variant, pair=NEW),
        ]
    one_run(made, records)
    _, answer = made.compare(f"ab:{OLD}", f"ab:{NEW}")
    assert set(verdicts(answer)) == {f"{LABEL} [eager]", f"{LABEL} [compile]"}


# --- what a damaged file may hold ---------------------------------------------------------


@pytest.mark.parametrize(
    "comparison",
    [
        {"base": [OLD]},
        {"candidates": 3},
        {"base": [OLD], "candidates": [[NEW, NEW]]},
        {"candidates": [[NEW]]},
    ],
)
def test_a_damaged_comparison_in_the_header_is_exit_code_3(made: Imported, comparison: Any) -> None:
    one_run(made, couple(1.0), comparison=comparison)
    code, _, err = made.run("compare", "ab")
    assert code == 3 and "run.json is damaged: comparison" in err


@pytest.mark.parametrize("clocks", ["fast", {"wall": "fast"}, {"wall": None}, []])
def test_clocks_that_are_no_numbers_are_no_clocks(made: Imported, clocks: Any) -> None:
    halves = []
    for half in couple(1.10):
        odd = [x.model_copy(update={"sampling": {"clocks": clocks}, "stage": "?"}) for x in half.launches]
        halves.append(half.model_copy(update={"launches": tuple(odd)}))
    one_run(made, halves)
    assert verdicts(made.compare(f"ab:{OLD}", f"ab:{NEW}")[1]) == {LABEL: "regressed"}
