"""Others' tests as operator cases: collected once by a worker, found by content, judged by their own limits.

A collection (`onnx-tests`: the ONNX project's node tests; `opinfo`: PyTorch's samples) is made in
the environment that makes all artefacts. Its key holds what decides the data: the release of the
package that has the tests, NumPy's, and our own code; not the rest of the environment.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matrix_adapters
from matrix.artefacts.content_cache import ContentCache, read_contents
from matrix.artefacts.operator_store import NotPrepared, Outcome, PreparedCase, Stoppable
from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.catalog.types import Catalog
from matrix.errors import MatrixError, StorageError
from matrix.operators.expand import CatalogCase
from matrix_adapters.protocol import (
    HEARTBEAT_FILE,
    LOG_FILE,
    RESULT_FILE,
    TASK_FILE,
    OperatorCase,
    ProtocolError,
    Reason,
    Result,
    State,
    Task,
    TaskKind,
    content_hash,
    file_hash,
    from_plain,
)

RunTask = Callable[[Task, Path], Result]

INDEX_FILE = "index.json"
_KIND = "foreign-tests"
_BOOKKEEPING = (TASK_FILE, RESULT_FILE, HEARTBEAT_FILE, LOG_FILE)
_HASHED = {"inputs.npz": "inputs", "expected.npz": "reference", "model.onnx": "onnx"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suite:
    """A collection of tests by its name on the command line."""

    name: str
    title: str
    option: str  # the worker's word for it
    package: str  # whose release decides what the tests are
    code: tuple[str, ...]  # our files that do, below `matrix_adapters/operators`
    consumes: str  # which frameworks can run them: those that load "onnx", or "checkpoint"


ONNX_TESTS = Suite(
    name="onnx-tests",
    title="the ONNX project's backend node tests",
    option="onnx",
    package="onnx",
    code=("foreign.py", "node_tests.py", "case_folder.py", "elements.py"),
    consumes="onnx",
)
OPINFO = Suite(
    name="opinfo",
    title="PyTorch's OpInfo samples",
    option="opinfo",
    package="torch",
    code=("foreign.py", "opinfo*.py", "case_folder.py", "elements.py"),
    consumes="checkpoint",
)
COLLECTIONS: Mapping[str, Suite] = {one.name: one for one in (ONNX_TESTS, OPINFO)}


class NotCollected(MatrixError):
    """The tests could not be had: nothing was run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForeignCase:
    """One test. `folder` is None where it cannot be run from one, and `refused` says why."""

    catalog_case: CatalogCase
    test: str  # as its own project calls it
    rtol: float
    atol: float
    folder: Path | None
    refused: Reason | None

    @property
    def key(self) -> tuple[str, str]:
        return self.catalog_case.key


@dataclasses.dataclass(frozen=True, kw_only=True)
class Collected:
    """All tests of a collection, in its own order."""

    folder: Path
    source: str  # "onnx 1.23.2 node test"
    cases: tuple[ForeignCase, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Prepared(PreparedCase):
    @property
    def source(self) -> str:
        """The test itself says what comes out."""
        return str(self.oracle.get("source", ""))


def collect(cache: ContentCache, tests: Suite, lock: Sequence[str], run: RunTask) -> Collected:
    """Find or make a collection. `lock`: what is installed where `run` runs tasks, "name==version".

    Raises NotCollected with the reason, StorageError for a full disk.
    """
    versions = dict(line.split("==", 1) for line in lock if "==" in line)
    version = versions.get(tests.package, "")
    if not version:
        raise NotCollected(f"{tests.title}: the environment that makes models has no {tests.package}")
    key = content_hash([tests.option, version, versions.get("numpy", ""), _code_hash(tests)])

    def make(folder: Path) -> tuple[int, Mapping[str, Any]]:
        # One thread: the order of float sums must not depend on the cores of the machine.
        task = Task(
            kind=TaskKind.FOREIGN,
            framework="pytorch",
            adapter="matrix_adapters.pytorch",
            threads=1,
            options={"tests": tests.option},
        )
        result = run(task, folder)
        if result.state is not State.OK or not (folder / INDEX_FILE).is_file():
            why = result.reason.text if result.reason else f"its worker ended as {result.state.value}"
            error = StorageError if result.reason and result.reason.code == "disk_full" else NotCollected
            raise error(f"{tests.title} could not be collected: {why}")
        for name in _BOOKKEEPING:
            (folder / name).unlink(missing_ok=True)
        return 0, {"source": result.artefacts.get("source", ""), "versions": dict(result.versions)}

    return read(cache.get_or_make(_KIND, f"{tests.name}-{version}", [key], make))


def read(folder: Path) -> Collected:
    """A collection as it lies. Raises NotCollected for one that is damaged."""
    try:
        index = json.loads((folder / INDEX_FILE).read_text(encoding="utf-8"))
        cases = tuple(_case(folder, entry) for entry in index["cases"])
        return Collected(folder=folder, source=str(index["source"]), cases=cases)
    except (OSError, ValueError, KeyError, TypeError, ProtocolError) as error:
        raise NotCollected(f"{folder / INDEX_FILE} cannot be read: {error!r}; remove its folder") from None


def with_rules(catalog: Catalog, cases: Sequence[ForeignCase]) -> Catalog:
    """The catalog, with a row of tolerances for each pair of limits that the tests have."""
    rows = {case.catalog_case.kind: _rule(case.rtol, case.atol) for case in cases}
    tolerances = catalog.tolerances
    known = tolerances.model_copy(update={"operators": {**tolerances.operators, **rows}})
    return dataclasses.replace(catalog, tolerances=known)


class ForeignPreparer:
    """What stands for the artefact store in a run of others' tests: all files are there already."""

    def __init__(self, collected: Collected) -> None:
        contents = read_contents(collected.folder)
        self._files: Mapping[str, Any] = contents["files"] if contents else {}
        self._root = collected.folder
        self._folders = {case.key: case.folder for case in collected.cases if case.folder}

    def prepare(self, *_: Any) -> Any:
        """There are no models in such a run."""
        raise AssertionError("a run of operator tests asked for a model")

    def prepare_operators(
        self, cases: Sequence[OperatorCase], run: RunTask, *, ended: Callable[[int], None], cancel: Stoppable
    ) -> dict[tuple[str, str], Outcome]:
        """As `matrix.artefacts.store.ArtefactStore.prepare_operators`; nothing is made."""
        from matrix.operators.dtypes import precision_of

        keys = [(case.name, precision_of(case.dtype)) for case in cases]
        found = {key: self._prepared(self._folders[key]) for key in keys if key in self._folders}
        ended(len(found))
        return found

    def _prepared(self, folder: Path) -> Outcome:
        try:
            oracle = json.loads((folder / "oracle.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            text = f"{folder / 'oracle.json'} cannot be read: {error}"
            return NotPrepared(state=State.FAILED, reason=Reason(code="bad_oracle", text=text))
        inside = folder.relative_to(self._root).as_posix()
        hashes = {
            word: str(self._files[f"{inside}/{name}"]["sha256"])
            for name, word in _HASHED.items()
            if f"{inside}/{name}" in self._files
        }
        return _Prepared(folder=folder, hashes=hashes, oracle=oracle)


def _case(folder: Path, entry: Mapping[str, Any]) -> ForeignCase:
    case = from_plain(OperatorCase, entry["case"])
    rtol, atol = float(entry["rtol"]), float(entry["atol"])
    refused = entry.get("refused")
    return ForeignCase(
        catalog_case=CatalogCase(
            operator=case.name.partition("/")[0],
            case=case,
            kind=f"allclose {rtol:g} {atol:g}",
            open=str(entry.get("open", "")),
        ),
        test=str(entry["test"]),
        rtol=rtol,
        atol=atol,
        folder=None if refused else folder / str(entry["folder"]),
        refused=from_plain(Reason, refused) if refused else None,
    )


def _rule(rtol: float, atol: float) -> OperatorRule:
    limit = OperatorLimit(absolute=atol, relative=rtol)
    dtypes = ("float32", "float64", "float16", "bfloat16")
    return OperatorRule(
        formula="allclose",
        dtypes=dict.fromkeys(dtypes, limit),
        flush=False,
        source="the test's own rtol and atol",
    )


def _code_hash(tests: Suite) -> str:
    folder = Path(matrix_adapters.__path__[0]) / "operators"
    paths = sorted({path for pattern in tests.code for path in folder.glob(pattern)})
    return content_hash([[path.name, file_hash(path)] for path in paths])
