"""A correctness sweep in miniature: real worker processes, a toy framework, cases that the test writes.

Every case is y = 2x on four numbers; what a case does in the framework is its name: "Good", "Wrong",
"Crash", ... The oracle is NumPy, here. `python toy_operators.py FOLDER` runs (or resumes) the sweep
that a test described in FOLDER/toy.json, so that a test can kill the orchestrator itself.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from toy_sweep import ToySweep

from matrix.artefacts.operator_store import NotPrepared, PreparedCase
from matrix.catalog.types import Catalog
from matrix.consolidate.stored import records_of
from matrix.operators.dtypes import precision_of
from matrix.operators.expand import CatalogCase
from matrix.plan import make_plan
from matrix.records import OPERATOR, Record
from matrix.sweep.outcome import SweepOutcome
from matrix_adapters.protocol import Node, OperatorCase, Reason, State, TensorSpec, to_json

ADAPTER = """
import json, os, signal, time
import numpy as np
from matrix_adapters.adapter import Unavailable, Unsupported

WHERE = os.path.dirname(os.path.abspath(__file__))

def note(text):
    with open(os.path.join(WHERE, "started.txt"), "a") as journal:
        journal.write(text + "\\n")

class Adapter:
    name = "toy"
    environment = {}
    def __init__(self, task):
        self.task = task
        self.healed = os.path.exists(os.path.join(WHERE, "healed"))
        note(f"{task.framework} batch {len(task.options['cases'])}")
    def start(self):
        if self.task.variant == "nodevice":
            raise Unavailable("cuda asked, only cpu is seen")
        if self.task.variant == "deadborn":
            os.kill(os.getpid(), signal.SIGSEGV)
    def probe(self): return {"version": "1.0"}
    def load(self, model, artefacts):
        does = model.name.split("/")[0]
        note(f"{self.task.framework} {model.name}")
        if does == "Unsupported":
            raise Unsupported("toy has no mapping for it")
        if does == "Raise":
            raise RuntimeError("planted")
        if does == "Crash" and not self.healed:
            os.kill(os.getpid(), signal.SIGSEGV)
        if does == "Killed" and not self.healed:
            os.kill(os.getpid(), signal.SIGKILL)
        if does == "Spin" and not self.healed:
            while True: pass
        if does == "Hang" and not self.healed:
            open(os.path.join(WHERE, "hanging"), "w").close()
            time.sleep(600)
        return Runner(self.task, does)

class Runner:
    def __init__(self, task, does): self.task, self.does = task, does
    def prepare(self, feed): return dict(feed)
    def compile(self, feed): return False
    def run(self, feed):
        y = feed["X"] * feed["X"].dtype.type(2)
        if self.does in ("Wrong", "Open"): y = y + y.dtype.type(1)
        if self.does == "Swallow": y = np.nan_to_num(y)
        return y
    def sync(self): pass
    def fetch(self, outputs): return {"Y": outputs}
    def effective(self):
        return {"device": "cpu", "threads": self.task.threads, "output_dtypes": {}}
    def close(self):
        if self.does == "Late" : os._exit(9)
"""


class ToyOracle:
    """Files of y = 2x; cases of "Unmade" have none. Counts what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []

    def prepare(self, *_: Any) -> Any:
        raise AssertionError("no model is asked for")

    def prepare_operators(
        self, cases: Sequence[OperatorCase], run: Any, *, ended: Callable[[int], None], cancel: Any
    ) -> Mapping[tuple[str, str], PreparedCase | NotPrepared]:
        found: dict[tuple[str, str], PreparedCase | NotPrepared] = {}
        for case in cases:
            self.asked.append(case.name)
            key = (case.name, precision_of(case.dtype))
            if case.name.startswith("Unmade"):
                reason = Reason(code="no_oracle", text="the oracle has no answer: planted")
                found[key] = NotPrepared(state=State.FAILED, reason=reason)
            else:
                found[key] = self._made(case)
            ended(1)
        return found

    def _made(self, case: OperatorCase) -> PreparedCase:
        folder = self.folder / f"{case.name.replace('/', '-')}-{case.dtype}"
        if not folder.exists():
            folder.mkdir(parents=True)
            x = np.array([1, 2, np.nan, 4] if case.name.startswith("Swallow") else [1, 2, 3, 4])
            x = x.astype(case.dtype)
            (folder / "case.json").write_text(to_json(case))
            np.savez(folder / "inputs.npz", X=x)
            wide = x.astype(np.float64) if x.dtype.kind == "f" else x
            np.savez(folder / "expected.npz", Y=wide + wide)
        oracle = {"onnx": "1.0", "outputs": {"Y": {"dtype": case.dtype, "shape": [4]}}, "notes": []}
        return PreparedCase(folder=folder, hashes={"inputs": "i" * 64, "onnx": "o" * 64}, oracle=oracle)


def toy_case(name: str, dtype: str = "float32") -> CatalogCase:
    """`Open...` declares that several answers are right."""
    return CatalogCase(
        operator=name.partition("/")[0],
        case=OperatorCase(
            name=name,
            dtype=dtype,
            nodes=(Node(op="Double", inputs=("X",), outputs=("Y",)),),
            inputs=(TensorSpec(name="X", dtype=dtype, shape=(4,)),),
            outputs=("Y",),
            opset=21,
        ),
        kind="elementwise",
        open="the standard says nothing" if name.startswith("Open") else "",
    )


class ToyChecks(ToySweep):
    """A sweep of toy frameworks x cases in `folder`."""

    def __init__(
        self,
        folder: Path,
        *,
        cases: Sequence[str],
        frameworks: Sequence[str] = ("toy",),
        variants: Sequence[str] = (),
        dtypes: Sequence[str] = ("float32",),
        timeout_s: float = 60,
        results: Path | None = None,
    ) -> None:
        super().__init__(folder, models=[], frameworks=frameworks, timeout_s=timeout_s, results=results)
        self.described = {
            "cases": list(cases),
            "frameworks": list(frameworks),
            "variants": list(variants),
            "dtypes": list(dtypes),
            "timeout_s": timeout_s,
            "results": str(self.results),
        }
        (folder / "toy.json").write_text(json.dumps(self.described))
        (self.bundle / "toy_adapter.py").write_text(ADAPTER)
        self.catalog = _with_operators(self.catalog, variants)
        self.config = dataclasses.replace(
            self.config,
            frameworks=tuple(
                f.model_copy(update={"variants": list(variants)}) for f in self.config.frameworks
            ),
            operators=tuple(toy_case(name, dtype) for name in cases for dtype in dtypes),
            hardware=("cpu",),
        )
        self.cells = make_plan(self.config, self.catalog, {}, usable_threads=2).cells
        self.oracle = ToyOracle(folder / "artefacts")

    def run(self, **options: Any) -> SweepOutcome:
        return super().run(preparer=options.pop("preparer", self.oracle), **options)

    def records(self) -> dict[str, Record]:
        """By case (for one framework and type)."""
        return {record.workload.subject: record for record in self.all_records()}

    def all_records(self) -> list[Record]:
        """Asserts that every planned cell is reported once."""
        records = records_of(self.stored())
        assert [record.id for record in records] == [cell.id for cell in self.cells]
        return records

    def checked(self) -> list[str]:
        """The cases that were begun, in order, once for each time; and how large each batch was."""
        return [line.partition(" ")[2] for line in self.started()]


def _with_operators(catalog: Catalog, variants: Sequence[str]) -> Catalog:
    words = dict.fromkeys(variants, "planted")
    return dataclasses.replace(
        catalog,
        frameworks={
            name: framework.model_copy(
                update={
                    "levels": ["inference", OPERATOR],
                    "variants": words,
                    "default_variant": next(iter(words), ""),
                }
            )
            for name, framework in catalog.frameworks.items()
        },
    )


def _main(folder: Path) -> int:
    data = json.loads((folder / "toy.json").read_text())
    sweep = ToyChecks(folder, **{**data, "results": Path(data["results"])})
    outcome = sweep.resume() if list(sweep.results.glob("*/run.json")) else sweep.run()
    return int(outcome.exit_code)


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
