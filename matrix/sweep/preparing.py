"""What has to be there before anything is timed: environments, then models, inputs and references.

One that cannot be had is recorded with its reason, and only its own cells suffer.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from matrix.artefacts.operator_store import NotPrepared, PreparedCase
from matrix.catalog.types import Catalog, ModelEntry
from matrix.consolidate.evidence import operator_artefact
from matrix.environments.base import Backend, BuildFailed, BuiltEnvironment, build_all
from matrix.errors import MatrixError, StorageError
from matrix.execution.cancel import Cancel
from matrix.operators.expand import CatalogCase
from matrix.operators.work import shapes_in_words, work_of
from matrix.records import Environment, EnvironmentRecord, ReasonRecord, Workload, dataclasses_dict
from matrix.store.formats import ArtefactAttempt, EnvironmentAttempt, utc_now
from matrix.store.runs import RunStore
from matrix.sweep.interrupts import Interrupts
from matrix.sweep.launching import ArtefactKey, Artefacts
from matrix.sweep.observer import Observer, Progress
from matrix_adapters.protocol import Flag, OperatorCase, Reason, Result, State, Task

#: models made at the same time; they are limited by one core each
MAKERS = 2

RunTaskThere = Callable[[Task, Path], Result]


class Preparer(Protocol):
    """`matrix.artefacts.store.ArtefactStore`: finds or makes what a row of cells shares."""

    def prepare(
        self, model: ModelEntry, workload: Workload, needs: set[str], run: RunTaskThere
    ) -> Artefacts: ...

    def prepare_operators(
        self,
        cases: Sequence[OperatorCase],
        run: RunTaskThere,
        *,
        ended: Callable[[int], None],
        cancel: Cancel,
    ) -> Mapping[tuple[str, str], PreparedCase | NotPrepared]: ...


def build_environments(
    backend: Backend,
    environments: Sequence[Environment],
    *,
    store: RunStore,
    catalog: Catalog,
    observer: Observer,
    interrupts: Interrupts,
) -> dict[Environment, BuiltEnvironment | BuildFailed]:
    """Build side by side and record each.

    Raises KeyboardInterrupt when asked to stop, StorageError when a build found the disk
    full: nothing that comes after would have room.
    """

    def tell(environment: Environment, text: str) -> None:
        observer.say(f"{environment.name}: {text}")

    observer.show(Progress(stage="environments", label="", done=0, total=len(environments)))
    with interrupts.raising():
        built = build_all(backend, environments, progress=tell)
    for ended, (environment, outcome) in enumerate(built.items(), start=1):
        attempt = _environment_attempt(environment, outcome, backend.name, catalog)
        store.append(attempt)
        observer.show(
            Progress(
                stage="environments",
                label=environment.name,
                done=ended,
                total=len(environments),
                state=attempt.state,
                reason=attempt.reason.text if attempt.reason else "",
            )
        )
    for outcome in built.values():
        if isinstance(outcome, BuildFailed) and outcome.reason.code == "disk_full":
            raise StorageError(outcome.reason.text)
    return built


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """One set of artefacts to be had."""

    model: ModelEntry
    workload: Workload
    consumes: str

    @property
    def key(self) -> ArtefactKey:
        return (self.model.name, self.workload.batch, self.workload.sequence, self.consumes)


def prepare_artefacts(
    preparer: Preparer,
    wanted: Iterable[Wanted],
    *,
    run: RunTaskThere,
    store: RunStore,
    observer: Observer,
    cancel: Cancel,
) -> dict[ArtefactKey, Artefacts]:
    """Make or find them, two models at once; what failed is recorded and missing in the answer."""
    by_model: dict[str, list[Wanted]] = {}  # one model at a time: its weights are made once
    for one in wanted:
        by_model.setdefault(one.model.name, []).append(one)
    found: dict[ArtefactKey, Artefacts] = {}
    pool = concurrent.futures.ThreadPoolExecutor(MAKERS, thread_name_prefix="models")
    with pool:
        futures = {
            pool.submit(_prepare_model, preparer, group, run, cancel): name
            for name, group in by_model.items()
        }
        try:
            for done, future in enumerate(concurrent.futures.as_completed(futures)):
                worst = None
                for attempt, artefacts in future.result():
                    store.append(attempt)
                    if artefacts is not None:
                        found[attempt.key] = artefacts
                    elif worst is None:
                        worst = attempt
                observer.show(
                    Progress(
                        stage="models",
                        label=futures[future],
                        done=done + 1,
                        total=len(futures),
                        state=worst.state if worst else State.OK,
                        reason=worst.reason.text if worst and worst.reason else "",
                    )
                )
        except BaseException:
            cancel.set()  # ends running workers, so that leaving the pool does not wait for them
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def prepare_operators(
    preparer: Preparer,
    cases: Sequence[CatalogCase],
    *,
    run: RunTaskThere,
    store: RunStore,
    observer: Observer,
    cancel: Cancel,
) -> dict[tuple[str, str], PreparedCase]:
    """Make or find the files of operator cases; what failed is recorded and missing in the answer."""
    done = 0

    def ended(count: int) -> None:
        nonlocal done
        done += count
        observer.show(Progress(stage="operators", label="", done=done, total=len(cases)))

    began = time.monotonic()
    outcomes = preparer.prepare_operators([case.case for case in cases], run, ended=ended, cancel=cancel)
    each_s = round((time.monotonic() - began) / max(1, len(outcomes)), 4)
    of = {case.key: case for case in cases}
    store.append_all([_operator_attempt(of[key], outcome, each_s) for key, outcome in outcomes.items()])
    return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, PreparedCase)}


def _operator_attempt(
    case: CatalogCase, outcome: PreparedCase | NotPrepared, seconds: float
) -> ArtefactAttempt:
    subject, batch, sequence, consumes = operator_artefact(*case.key)
    ended: dict[str, Any]
    if isinstance(outcome, NotPrepared):
        reason = ReasonRecord(code=outcome.reason.code, text=outcome.reason.text)
        ended = {"state": outcome.state, "reason": reason}
    else:
        facts: dict[str, Any] = {"oracle": outcome.oracle}
        if case.timed:
            work = dataclasses.asdict(work_of(case, outcome.oracle["outputs"]))
            facts["work"] = {
                **work,
                "model": case.model,
                "count": case.count,
                "shapes": shapes_in_words(case.case),
            }
        ended = {"state": State.OK, "hashes": outcome.hashes, "facts": facts}
    return ArtefactAttempt(
        subject=subject,
        batch=batch,
        sequence=sequence,
        consumes=consumes,
        seconds=seconds,
        at=utc_now(),
        **ended,
    )


def _prepare_model(
    preparer: Preparer, group: Sequence[Wanted], run: RunTaskThere, cancel: Cancel
) -> list[tuple[ArtefactAttempt, Artefacts | None]]:
    made: list[tuple[ArtefactAttempt, Artefacts | None]] = []
    for one in group:
        if cancel.is_set():
            break
        began = time.monotonic()
        outcome: Artefacts | None = None
        try:
            outcome = preparer.prepare(one.model, one.workload, {one.consumes}, run)
            ended = _artefact_attempt(one, began, hashes=dict(outcome.hashes), facts=dict(outcome.facts))
        except MatrixError:
            raise
        except Exception as error:
            if cancel.is_set():  # it failed because it was stopped: nothing is known of it
                break
            ended = _artefact_attempt(one, began, failure=error)
        made.append((ended, outcome))
    return made


def _artefact_attempt(
    one: Wanted,
    began: float,
    *,
    hashes: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    failure: Exception | None = None,
) -> ArtefactAttempt:
    reason = state = None
    if failure is not None:
        given = getattr(failure, "reason", None)  # ArtefactFailed has one; anything else is a defect
        code, text = (given.code, given.text) if isinstance(given, Reason) else ("defect", repr(failure))
        reason = ReasonRecord(code=code, text=f"{one.model.name} could not be prepared: {text}")
        state = getattr(failure, "state", None)
    return ArtefactAttempt(
        subject=one.model.name,
        batch=one.workload.batch,
        sequence=one.workload.sequence,
        consumes=one.consumes,
        state=State.OK if failure is None else state if isinstance(state, State) else State.FAILED,
        reason=reason,
        hashes=hashes or {},
        facts=facts or {},
        seconds=round(time.monotonic() - began, 3),
        at=utc_now(),
    )


def _environment_attempt(
    environment: Environment, outcome: BuiltEnvironment | BuildFailed, backend: str, catalog: Catalog
) -> EnvironmentAttempt:
    framework = catalog.frameworks.get(environment.framework)
    identity = {"name": environment.name, **dataclasses_dict(environment), "backend": backend}
    consumes = framework.consumes if framework else ""
    if isinstance(outcome, BuildFailed):
        return EnvironmentAttempt(
            environment=EnvironmentRecord(**identity),
            consumes=consumes,
            state=State.BUILD_FAILED,
            reason=ReasonRecord(code=outcome.reason.code, text=outcome.reason.text),
            log=str(outcome.log) if outcome.log else None,
            at=utc_now(),
        )
    return EnvironmentAttempt(
        environment=EnvironmentRecord(
            **identity,
            key=outcome.key,
            python=outcome.python_version,
            lock=outcome.lock,
            size_bytes=outcome.size_bytes,
        ),
        consumes=consumes,
        state=State.OK,
        flags=tuple(_flag(flag) for flag in outcome.flags),
        seconds=outcome.seconds,
        reused=outcome.reused,
        notes=outcome.notes,
        log=str(outcome.log) if outcome.log else None,
        at=utc_now(),
    )


def _flag(flag: Flag) -> ReasonRecord:
    return ReasonRecord(code=flag.code, text=flag.text)
