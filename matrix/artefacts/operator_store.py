"""Prepared operator cases: model file, inputs and expected outputs, made once and found by content.

The oracle is a worker task of the environment that makes all artefacts (it holds `onnx`): many
cases a task, so that its start is paid for once. A case that kills it costs itself only, and one
that the oracle cannot compute is kept as such, with the reason: asking again would not help.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import matrix_adapters
from matrix.artefacts.content_cache import ContentCache, read_contents
from matrix.operators.dtypes import precision_of
from matrix_adapters.protocol import (
    OperatorCase,
    Reason,
    Result,
    State,
    Task,
    TaskKind,
    content_hash,
    file_hash,
    plain,
)

RunTask = Callable[[Task, Path], Result]
Key = tuple[str, str]  # a case's name, and its type as workloads call it

#: cases in one task, and tasks at once
BATCH, MAKERS = 100, 2
#: files of a prepared case
MODEL_FILE, INPUTS_FILE, EXPECTED_FILE, ORACLE_FILE = (
    "model.onnx",
    "inputs.npz",
    "expected.npz",
    "oracle.json",
)
_KIND = "operators"
#: whose source decides what the files hold, below `matrix_adapters`
_MAKERS = (
    "onnx_promote.py",
    "onnx_reference.py",
    "operators/case_folder.py",
    "operators/elements.py",
    "operators/generators.py",
    "operators/model_file.py",
    "operators/oracle*.py",
)
_HASHED = {INPUTS_FILE: "inputs", EXPECTED_FILE: "reference", MODEL_FILE: "onnx"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedCase:
    """Where a case lies, SHA-256 of its `inputs`, `reference` and `onnx`, and what the oracle said."""

    folder: Path
    hashes: Mapping[str, str]
    oracle: Mapping[str, Any]

    @property
    def dtypes(self) -> dict[str, str]:
        """Output -> its type by the standard, "bfloat16"."""
        return {name: str(facts["dtype"]) for name, facts in self.oracle["outputs"].items()}

    @property
    def source(self) -> str:
        """What the outputs are held against, in words."""
        return f"onnx {self.oracle.get('onnx', '')} reference evaluator".replace("  ", " ")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotPrepared:
    """A case without files: the state its cells end in, and the reason."""

    state: State
    reason: Reason


Outcome = PreparedCase | NotPrepared


class Stoppable(Protocol):
    """A stop request, as `matrix.execution.cancel.Cancel` is one."""

    def is_set(self) -> bool: ...
    def set(self) -> None: ...


class OperatorStore:
    """The prepared cases of one cache. `environment_key` names the environment that makes them."""

    def __init__(self, cache: ContentCache, environment_key: str = "") -> None:
        self._cache = cache
        self._made_by = [environment_key, _code_hash()]

    def prepare(
        self, cases: Sequence[OperatorCase], run: RunTask, *, ended: Callable[[int], None], cancel: Stoppable
    ) -> dict[Key, Outcome]:
        """Find or make each; what was not come to when `cancel` was set is missing in the answer.

        `run(task, out)` runs one worker task; `ended(n)` hears of n more cases, from any thread.
        Raises StorageError for a full disk.
        """
        found = {_key(case): self._found(case) for case in cases}
        missing = [case for case in cases if found[_key(case)] is None]
        known = {key: outcome for key, outcome in found.items() if outcome is not None}
        ended(len(known))
        batches = [missing[i : i + BATCH] for i in range(0, len(missing), BATCH)]
        with concurrent.futures.ThreadPoolExecutor(MAKERS, thread_name_prefix="operators") as pool:
            futures = [pool.submit(self._make, batch, run, ended, cancel) for batch in batches]
            try:
                for future in concurrent.futures.as_completed(futures):
                    known |= future.result()
            except BaseException:
                cancel.set()  # ends running workers, so that leaving the pool does not wait for them
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return known

    def _make(
        self,
        cases: Sequence[OperatorCase],
        run: RunTask,
        ended: Callable[[int], None],
        cancel: Stoppable,
    ) -> dict[Key, Outcome]:
        """One batch, in as many tasks as it takes: each restart leaves at least one case behind."""
        known: dict[Key, Outcome] = {}
        left = list(cases)
        while left and not cancel.is_set():
            with self._cache.workspace(_KIND) as out:
                result = run(_task(left), out)
                done = {n for n in range(len(left)) if (out / str(n) / ORACLE_FILE).is_file()}
                begun = {n for n in range(len(left)) if (out / str(n)).is_dir()}
                for n in sorted(done):
                    known[_key(left[n])] = self._kept(left[n], out / str(n))
            if cancel.is_set():
                break
            charged = _charged(len(left), done, begun, result)
            for n in charged:
                known[_key(left[n])] = _not_made(result)
            ended(len(done) + len(charged))
            left = [case for n, case in enumerate(left) if n not in done and n not in charged]
        return known

    def _found(self, case: OperatorCase) -> Outcome | None:
        folder = self._cache.find(_KIND, _name(case), self._content_key(case))
        return None if folder is None else _read(folder)

    def _kept(self, case: OperatorCase, made: Path) -> Outcome:
        def take(folder: Path) -> tuple[int, Mapping[str, Any]]:
            for path in made.iterdir():
                path.rename(folder / path.name)
            return 0, {}

        return _read(self._cache.get_or_make(_KIND, _name(case), [self._content_key(case)], take))

    def _content_key(self, case: OperatorCase) -> str:
        return content_hash([plain(case), *self._made_by])


def _charged(count: int, done: set[int], begun: set[int], result: Result) -> set[int]:
    """Which of the cases without files a task's end is charged to; the others are tried again."""
    missing = set(range(count)) - done
    if result.state is State.OK or not (done or begun):  # it will not come to them another time either
        return missing
    return {min(missing & begun)} if missing & begun else set()


def _not_made(result: Result) -> NotPrepared:
    state = State.FAILED if result.state is State.OK else result.state
    reason = result.reason or Reason(code="no_oracle", text="the task ended without a word on it")
    text = f"what it should give could not be computed: {reason.text}"
    return NotPrepared(state=state, reason=Reason(code=reason.code, text=text))


def _read(folder: Path) -> Outcome:
    try:
        oracle = json.loads((folder / ORACLE_FILE).read_text(encoding="utf-8"))
        failed = oracle.get("failed")
        outputs = {name: facts["dtype"] for name, facts in oracle.get("outputs", {}).items()}
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        text = f"{folder / ORACLE_FILE} cannot be read: {error}"
        return NotPrepared(state=State.FAILED, reason=Reason(code="bad_oracle", text=text))
    if failed or not outputs:
        why = failed or {"code": "no_outputs", "text": "it names no outputs"}
        text = f"the oracle has no answer: {why.get('text', '')}"
        return NotPrepared(state=State.FAILED, reason=Reason(code="no_oracle", text=text))
    files = (read_contents(folder) or {"files": {}})["files"]
    hashes = {word: files[name]["sha256"] for name, word in _HASHED.items() if name in files}
    return PreparedCase(folder=folder, hashes=hashes, oracle=oracle)


def _task(cases: Sequence[OperatorCase]) -> Task:
    # One thread: the order of float sums must not depend on the cores of the machine.
    options = {"cases": [plain(case) for case in cases], "folders": [str(n) for n in range(len(cases))]}
    return Task(
        kind=TaskKind.ORACLE,
        framework="pytorch",
        adapter="matrix_adapters.pytorch",
        threads=1,
        options=options,
    )


def _key(case: OperatorCase) -> Key:
    return (case.name, precision_of(case.dtype))


def _name(case: OperatorCase) -> str:
    """A part of a folder's name."""
    return f"{case.name.replace('/', '-')}-{case.dtype}"


def _code_hash() -> str:
    folder = Path(matrix_adapters.__path__[0])
    paths = sorted({path for pattern in _MAKERS for path in folder.glob(pattern)})
    return content_hash([[path.name, file_hash(path)] for path in paths])
