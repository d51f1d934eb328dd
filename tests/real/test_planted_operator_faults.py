"""Mistakes planted in PyTorch's mapping of operators are caught by all cases of the operators concerned.

The whole way of `matrix run`: plan, oracle, correctness batch, judge, record, exit code. The mapping
under test is a third party's adapter (`toys/planted_operators`); nothing in the product knows of it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from toys import planted_operators
from toys.planted_operators import FAULTS, UNTOUCHED

from matrix import catalog, cli
from matrix.catalog.types import Catalog
from matrix.consolidate.stored import records_of
from matrix.errors import ExitCode
from matrix.records import Record, operator_of
from matrix.store.names import find_run
from matrix.store.runs import StoredRun
from matrix_adapters.protocol import State

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("planted operators"), pytest.mark.timeout(900)]

OPERATORS = sorted({operator for planted in FAULTS.values() for operator in planted})
SWEEP = f"""
name: planted
hardware: [cpu]
frameworks: [{{name: pytorch, variants: [{", ".join(FAULTS)}]}}]
operators: [{", ".join(OPERATORS)}]
threads: [1]
"""
#: variant -> cells in which it has to be seen, and what is said of it there
SEEN = {
    "gelu": {("Gelu/tanh", "fp32"): "tolerance", ("Gelu/tanh", "fp64"): "tolerance"},
    "pad": {
        ("Conv/same_pads", "fp32"): "tolerance",
        ("Conv/pad_at_end_only", "fp64"): "tolerance",
        ("MaxPool/pads", "fp32"): "values",
        ("AveragePool/pads_not_counted", "fp32"): "tolerance",
    },
    "int32": {
        ("Add/past_int32", "int64"): "wrapped",
        ("Mul/int64_past_int32", "int64"): "wrapped",
        ("CumSum/int64_past_int32", "int64"): "wrapped",
        ("ReduceSum/int64_past_int32", "int64"): "wrapped",
    },
    "tanh": {("Tanh/near_zero", "bf16"): "tolerance"},
    "nan": {
        ("Add/edge-nan-A", "fp32"): "non_finite",
        ("Add/edge-nan-B", "bf16"): "non_finite",
        ("ReduceSum/nan", "fp16"): "non_finite",
        ("Tanh/edge-nan", "fp64"): "non_finite",
    },
}
Cells = dict[tuple[str, str], Record]  # by case and precision


@dataclasses.dataclass(frozen=True)
class Planted:
    """A sweep over all variants: its folder, and the cells of each variant."""

    folder: Path
    cells: dict[str, Cells]

    def wrong(self, variant: str) -> dict[tuple[str, str], str]:
        """Case -> the code of its reason, of all that are neither right nor refused."""
        fine = (State.OK, State.UNSUPPORTED)
        return {
            case: record.reason.code if record.reason else ""
            for case, record in self.cells[variant].items()
            if record.state not in fine
        }


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    folder = tmp_path_factory.mktemp("planted")
    (folder / "sweep.yaml").write_text(SWEEP)
    spoilt = _with_faults(catalog.load())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "load", lambda: spoilt)
        arguments = ["-c", str(folder / "sweep.yaml"), "--backend", "venv", "--quiet"]
        code = cli.main(["run", *arguments, "--results", str(folder / "results")])
    assert code == ExitCode.VERDICT
    run = find_run(folder / "results", "latest")
    found: dict[str, Cells] = {variant: {} for variant in FAULTS}
    for record in records_of(StoredRun(run)):
        work = record.workload
        found[work.variant][work.subject, work.precision] = record
    assert len({len(of_variant) for of_variant in found.values()}) == 1
    return Planted(run, found)


def test_where_nothing_is_planted_the_same_cells_are_right(planted: Planted) -> None:
    cells = planted.cells[UNTOUCHED]
    for seen in SEEN.values():
        assert {case: cells[case].state for case in seen} == dict.fromkeys(seen, State.OK)
    wrong = {case.partition("/")[0] for case, _ in planted.wrong(UNTOUCHED)}
    assert wrong <= {"Gelu"}, "what PyTorch itself has wrong is in Gelu, far from 0"


@pytest.mark.parametrize("fault", SEEN)
def test_a_planted_fault_is_caught_in_every_operator_that_has_it(fault: str, planted: Planted) -> None:
    wrong = planted.wrong(fault)
    assert {case: wrong.get(case) for case in SEEN[fault]} == SEEN[fault]
    caught = wrong.keys() - planted.wrong(UNTOUCHED).keys()
    assert {case.partition("/")[0] for case, _ in caught} == set(FAULTS[fault])


@pytest.mark.parametrize("fault", SEEN)
def test_what_is_wrong_says_where_and_keeps_its_outputs(fault: str, planted: Planted) -> None:
    for case in SEEN[fault]:
        record = planted.cells[fault][case]
        assert record.reason is not None
        assert re.search(r"\w+(\[[\d, ]+\])?(: got| is) \S+", record.reason.text), record.reason.text
        assert (planted.folder / "samples" / record.id / "check-outputs.npz").is_file()


@pytest.mark.parametrize("fault", SEEN)
def test_operators_without_the_fault_are_as_before(fault: str, planted: Planted) -> None:
    for case, record in planted.cells[fault].items():
        if operator_of(record.workload) not in FAULTS[fault]:
            assert record.state is planted.cells[UNTOUCHED][case].state, case


def test_every_fault_of_the_adapter_is_asked_for() -> None:
    assert {UNTOUCHED, *SEEN} == set(FAULTS)


def _with_faults(shipped: Catalog) -> Catalog:
    """The catalog, PyTorch's adapter being the planted one, and the faults its variants."""
    pytorch = shipped.frameworks["pytorch"].model_copy(
        update={
            "adapter": "planted_operators",
            "source_dir": Path(planted_operators.__file__).parent,
            "variants": dict.fromkeys(FAULTS, "planted"),
            "default_variant": UNTOUCHED,
        }
    )
    return dataclasses.replace(shipped, frameworks={**shipped.frameworks, "pytorch": pytorch})
