"""Figures of the guide are those of the code: a changed constant fails here until the page has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pages import ROOT

from matrix import catalog
from matrix.catalog.types import Metric
from matrix.config.sweep import MeasureChoice, SweepFile, load_sweep
from matrix.consolidate.contract import COMPARED
from matrix.consolidate.flags import NOISY_SHARE
from matrix.judge.parity import MAX_UNDECIDABLE
from matrix.plan import make_plan
from matrix_adapters import checks, clock

NUMBERS = ROOT / "docs" / "how-a-number-is-made.md"
MATRIX = ROOT / "docs" / "matrix.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"
STARTED = ROOT / "docs" / "getting-started.md"

MEASURE = MeasureChoice()
TOLERANCES = catalog.load().tolerances
FP32, BF16, FP16 = (TOLERANCES.inference[name] for name in ("fp32", "bf16", "fp16"))
PERCENTILES = [metric for metric in catalog.load().metrics.values() if metric.quantile is not None]

NUMBERS_SAY = [
    f"at least {MEASURE.warmup_calls} calls and {clock.MIN_WARMUP_NS / 1e6:g} ms",
    f"ms, at most {MEASURE.max_warmup_s:g} s",
    f"{MEASURE.samples} samples, or as many as fit in {MEASURE.max_steady_s:g} s",
    f"s, never fewer than {MEASURE.min_samples}",
    f"shorter than {MEASURE.min_sample_s * 1e6:g} microseconds is batched",
    f"less than {clock.CLOCK_SHARE:.0%}".replace("%", " %"),
    f"more than {checks.OVERHEAD_SHARE:.0%} of a call".replace("%", " %"),
    f"clamp({FP32.floor_factor:g} x floor, {FP32.least:g}, {FP32.most:g})",
    f"bf16 is allowed {BF16.most:g}, fp16 {FP16.most:g}",
    f"floor is above {TOLERANCES.ill_conditioned_floor:g}",
    f"give {MEASURE.launches * MEASURE.samples} samples",
    f"If more than {MAX_UNDECIDABLE:.0%} of the rows have no such margin".replace("%", " %"),
]
MATRIX_SAYS = [
    f"more than {NOISY_SHARE:.0%} |".replace("%", " %"),
    f"one sample took more than {checks.OUTLIER_FACTOR:g} times the median",
    f"in more than {checks.WAIT_SHARE:.0%} of the steady phase".replace("%", " %"),
    f"more than {checks.WAIT_SHARE:g} CPUs to others",
    f"more than {checks.TREND_SHARE:.0%} from the first to the last third".replace("%", " %"),
    f"our own loop is more than {checks.OVERHEAD_SHARE:.0%} of the call".replace("%", " %"),
]


def words(page: Path) -> str:
    return " ".join(page.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("phrase", NUMBERS_SAY)
def test_the_figures_of_how_a_number_is_made_are_those_of_the_code(phrase: str) -> None:
    assert phrase in words(NUMBERS)


@pytest.mark.parametrize("phrase", MATRIX_SAYS)
def test_the_thresholds_of_the_flags_are_those_of_the_code(phrase: str) -> None:
    assert phrase in words(MATRIX)


@pytest.mark.parametrize("page", [NUMBERS, MATRIX])
def test_the_contract_fields_that_must_agree_are_all_named(page: Path) -> None:
    named = {"cache": "cache policy", "math_mode": "math mode"}
    assert [field for field in COMPARED if named.get(field, field) not in words(page)] == []


def test_the_defaults_of_the_measure_section_are_those_of_the_code() -> None:
    text = CONFIGURATION.read_text(encoding="utf-8")
    section = {line.split(":")[0].strip(): line for line in text.splitlines() if line.startswith("  ")}
    for key, value in MEASURE.model_dump().items():
        assert section[key].endswith(f"({value if isinstance(value, str) else f'{value:g}'})"), key


@pytest.mark.parametrize("key", ["timeout", "seed", "batch", "threads", "precisions", "hardware"])
def test_the_defaults_of_a_sweep_file_are_those_of_the_code(key: str) -> None:
    default = SweepFile.model_fields[key].default
    shown = f"[{default[0]}]" if isinstance(default, list) else f"{default:g}"
    row = next(line for line in CONFIGURATION.read_text().splitlines() if line.startswith(f"| `{key}`"))
    assert row.replace("`", "").endswith(f"| {shown} |")


@pytest.mark.parametrize("metric", PERCENTILES, ids=lambda metric: metric.id)
def test_the_least_samples_of_a_percentile_are_those_of_the_binomial_bound(metric: Metric) -> None:
    """One slower query allowed, 99 % confidence: P(at most one of n lies beyond the quantile) <= 1 %."""
    inside = metric.quantile or 0.0
    chances = [inside**n + n * (1 - inside) * inside ** (n - 1) for n in range(metric.min_samples + 1)]
    assert chances[metric.min_samples] <= 0.01 < chances[metric.min_samples - 1]


def test_the_cost_of_the_default_sweep_is_what_the_plan_estimates_for_an_empty_cache() -> None:
    shipped = catalog.load()
    plan = make_plan(load_sweep("quick", shipped), shipped, hardware={}, usable_threads=2)
    said = re.search(r"About ([\d.]+) minutes and ([\d.]+) GB for the default sweep", words(STARTED))
    assert said, "getting-started.md says what the default sweep costs"
    assert float(said[1]) == pytest.approx(plan.estimate.minutes, rel=0.25)
    assert float(said[2]) == pytest.approx(plan.estimate.disk_mb / 1000, rel=0.15)
