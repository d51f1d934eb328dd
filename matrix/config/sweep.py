"""A sweep's configuration: the file as types, then as names that exist.

`SweepFile` is the shape of the YAML file (its JSON Schema is shipped for editors);
`SweepConfig` is what the rest of the program works with: every name looked up in the
catalog, every path absolute, every expression compiled. All mistakes of a file are
reported at once, each at its line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag

from matrix.catalog.types import DEFAULT_SEQUENCE, Catalog, Count, Entry, ModelEntry, Precision, Tolerance
from matrix.config.candidates import CandidateChoice
from matrix.config.names import check_names
from matrix.config.user_model import UserModel, resolve
from matrix.errors import UsageError
from matrix.paths import given
from matrix.select import Selector, selector
from matrix.strict_yaml.located import Checker, did_you_mean
from matrix.strict_yaml.source import Document, Loc, from_data, read
from matrix_adapters.protocol import Measure

if TYPE_CHECKING:
    from matrix.operators.expand import CatalogCase

__all__ = [
    "FrameworkChoice",
    "ImagesChoice",
    "MeasureChoice",
    "Rule",
    "SweepConfig",
    "SweepFile",
    "Tolerance",
    "UserModel",
    "load_sweep",
    "sweep_from_data",
]

_T = TypeVar("_T")

AUTO = "auto"  # hardware: the cpu, and every accelerator found
ALL: Literal["all"] = "all"  # threads: as many as the machine lets us use
_WORKER = Measure()
_Samples = Annotated[int, Field(ge=1, le=1_000_000)]  # each takes 32 bytes of the worker's memory
_Seconds = Annotated[float, Field(gt=0, le=1_000_000)]


class FrameworkChoice(Entry):
    """One framework in a sweep; its own `hardware` stands instead of the sweep's."""

    name: str
    versions: list[str] = Field(default=[], description='in quotes: "2.13.0"; none: the default version')
    variants: list[str] = Field(default=[], description="none: the framework's default variant")
    hardware: list[str] = Field(default=[], description="none: the sweep's hardware")


class MeasureChoice(Entry):
    """How much is measured. Times in seconds; the defaults are the worker's own."""

    launches: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="fresh processes per cell, one in each block"
    )
    samples: _Samples = Field(default=_WORKER.samples, description="timed samples in each launch")
    max_steady_s: _Seconds = _WORKER.max_steady_s
    min_samples: _Samples = _WORKER.min_samples
    warmup_calls: _Samples = _WORKER.warmup_calls
    max_warmup_s: _Seconds = _WORKER.max_warmup_s
    min_sample_s: _Seconds = _WORKER.min_sample_s
    cache: Literal["warm", "rotating"] = Field(
        default="warm",
        description="the same inputs in every call, or copies, together twice what the last cache holds",
    )

    def worker(self) -> Measure:
        """The part that goes to a worker."""
        return Measure(**self.model_dump(exclude={"launches"}))


class ImagesChoice(Entry):
    """How container images are made; nothing here changes what is measured in them."""

    base: dict[str, str] = Field(
        default={}, description="hardware: the image to build from, instead of the official one"
    )
    packages: Literal["offline", "index"] = Field(
        default="offline",
        description="wheels downloaded here and copied in, or an index asked while building",
    )


class RuleChoice(Entry):
    """What is demanded of the cells that `select` chooses."""

    select: str = Field(description='an expression over the cell\'s fields: framework == "pytorch"')
    required: bool = Field(default=False, description="anything but ok fails the run")
    xfail: str = Field(default="", description="the reason why these cells are expected to fail")


def _form(value: Any) -> str:
    return "name" if isinstance(value, str) else "mapping"


_NameOrFramework = Annotated[
    Annotated[str, Tag("name")] | Annotated[FrameworkChoice, Tag("mapping")], Discriminator(_form)
]
_NameOrModel = Annotated[
    Annotated[str, Tag("name")] | Annotated[UserModel, Tag("mapping")], Discriminator(_form)
]
_Threads = Annotated[Annotated[str, Tag("name")] | Annotated[Count, Tag("mapping")], Discriminator(_form)]


class SweepFile(Entry):
    """A sweep: frameworks x hardware x models or operators x parameters, and how each cell is measured."""

    name: Annotated[str, Field(min_length=1)]
    frameworks: list[_NameOrFramework] = Field(min_length=1)
    models: list[_NameOrModel] = Field(default=[], min_length=1)
    operators: list[Annotated[str, Field(min_length=1)]] = Field(
        default=[],
        min_length=1,
        description="suites (standard, edges, speed, from-model:NAME), operators (Gelu) or cases (Gelu/tanh)",
    )
    candidates: list[CandidateChoice] = Field(
        default=[],
        description="implementations of one's own, each one more column over all cases of its operator",
    )
    hardware: list[str] = Field(default=[AUTO], min_length=1)
    precisions: list[Precision] = Field(default=["fp32"], min_length=1)
    batch: list[Count] = Field(default=[1], min_length=1)
    sequence: list[Count] = Field(default=[], description="none: each model's own, or 128")
    threads: list[_Threads] = Field(default=[1], min_length=1, description="numbers, or `all`")
    measure: MeasureChoice = MeasureChoice()
    timeout: _Seconds = Field(default=600, description="seconds for one launch")
    seed: Annotated[int, Field(ge=0)] = Field(
        default=0, description="the random order of launches is made from it"
    )
    rules: list[RuleChoice] = Field(default=[], description="later ones are added to earlier ones")
    images: ImagesChoice = ImagesChoice()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule with its expression compiled."""

    select: Selector
    required: bool
    xfail: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A checked sweep. `data` is the file's content with absolute paths: what a run stores."""

    name: str
    frameworks: tuple[FrameworkChoice, ...]
    models: tuple[ModelEntry, ...] = ()
    operators: tuple[CatalogCase, ...] = ()
    left_out: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )  # by model: why, how many nodes
    candidates: tuple[CandidateChoice, ...] = ()
    hardware: tuple[str, ...] = (AUTO,)
    precisions: tuple[str, ...] = ("fp32",)
    batch: tuple[int, ...] = (1,)
    sequence: tuple[int, ...] = ()
    threads: tuple[int | Literal["all"], ...] = (1,)
    measure: MeasureChoice = dataclasses.field(default_factory=MeasureChoice)
    timeout_s: float = 600
    seed: int = 0
    rules: tuple[Rule, ...] = ()
    images: ImagesChoice = dataclasses.field(default_factory=ImagesChoice)
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def load_sweep(name_or_path: str | Path, catalog: Catalog) -> SweepConfig:
    """The sweep of that name in the catalog, or the one in that file.

    Raises ConfigError with every mistake in the file, UsageError when there is no such sweep.
    """
    text = str(name_or_path)
    if text in catalog.sweeps:
        path = catalog.sweeps[text]
    else:
        path = given(text, "-c")
        if not path.exists() and path.suffix not in (".yaml", ".yml"):
            names = ", ".join(catalog.sweeps)
            hint = did_you_mean(text, catalog.sweeps)
            raise UsageError(f"no sweep {text!r}{hint}: name one of {names}, or a YAML file")
    return _resolve(read(path, text if path != catalog.sweeps.get(text) else str(path)), path.parent, catalog)


def sweep_from_data(data: Mapping[str, Any], catalog: Catalog, name: str) -> SweepConfig:
    """A sweep from plain data (what a run stored of it); `name` is what messages call it."""
    return _resolve(from_data(dict(data), name), Path.cwd(), catalog)


def _resolve(document: Document, folder: Path, catalog: Catalog) -> SweepConfig:
    checker = Checker(document)
    check_names(checker, folder, catalog)
    sweep = checker.validate(SweepFile)
    if isinstance(document.data, Mapping) and not {"models", "operators", "candidates"} & set(document.data):
        checker.add(("models",), "`models` is missing (or `operators`, or both)")
    if sweep is None:
        checker.finish()
        raise AssertionError("a sweep that is not valid has problems")
    if sweep.models:
        own = [
            m.absolute(folder) if isinstance(m, UserModel) and not checker.has_problem(("models", i)) else m
            for i, m in enumerate(sweep.models)
        ]
        sweep = sweep.model_copy(update={"models": own})
    if sweep.candidates and not checker.problems:
        own_kernels = [candidate.resolved(folder) for candidate in sweep.candidates]
        sweep = sweep.model_copy(update={"candidates": own_kernels})
    models = _models(checker, sweep, catalog)
    checker.finish()
    frameworks = tuple(FrameworkChoice(name=f) if isinstance(f, str) else f for f in sweep.frameworks)
    return SweepConfig(
        name=sweep.name,
        frameworks=frameworks,
        models=models,
        operators=_cases(sweep.operators, [c.operator for c in sweep.candidates], catalog),
        candidates=tuple(sweep.candidates),
        hardware=_unique(sweep.hardware),
        precisions=_unique(sweep.precisions),
        batch=_unique(sweep.batch),
        sequence=_unique(sweep.sequence),
        threads=_unique([ALL if isinstance(t, str) else t for t in sweep.threads]),
        measure=sweep.measure,
        timeout_s=sweep.timeout,
        seed=sweep.seed,
        images=sweep.images,
        rules=tuple(Rule(select=selector(r.select), required=r.required, xfail=r.xfail) for r in sweep.rules),
        data=sweep.model_dump(mode="json", exclude_unset=True),
    )


def _models(checker: Checker, sweep: SweepFile, catalog: Catalog) -> tuple[ModelEntry, ...]:
    models: dict[str, ModelEntry] = {}
    for i, choice in enumerate(sweep.models):
        loc = ("models", i)
        if checker.has_problem(loc):
            continue
        if isinstance(choice, str):
            models[choice] = catalog.models[choice]
            continue
        entry = resolve(choice, checker, loc, sweep.batch, sweep.sequence)
        if entry is not None:
            models[entry.name] = entry
            _check_inputs(checker, (*loc, "inputs"), entry, sweep)
            _check_expected(checker, (*loc, "expected"), entry)
    return tuple(models.values())


def _cases(words: Sequence[str], whole: Sequence[str], catalog: Catalog) -> tuple[CatalogCase, ...]:
    """`whole`: operators of candidates, of which every case is wanted, the timed ones too."""
    if not words and not whole:
        return ()
    from matrix.operators import load, suites  # many entries: only for a sweep that names some

    known = load.load_operators(catalog.operators)
    found = {case.key: case for case in suites.chosen([*words, *whole], known)}
    for operator in whole:
        found.update({case.key: case for case in known.speed.get(operator, ())})
    return tuple(found.values())


def _check_inputs(checker: Checker, loc: Loc, model: ModelEntry, sweep: SweepFile) -> None:
    """Files that do not fit, indices out of range: found before anything is built."""
    from matrix.artefacts.inputs import problems  # NumPy: only for a user's own model

    longest = model.longest_sequence
    fitting = [s for s in sequences(model, sweep.sequence) if s is None or not longest or s <= longest]
    for batch in sweep.batch if model.batch is None else [model.batch]:
        for sequence in fitting:
            for text in problems(model, batch, sequence):
                checker.also(loc, text)


def _check_expected(checker: Checker, loc: Loc, model: ModelEntry) -> None:
    from matrix.artefacts import expected  # NumPy: only for a user's own model

    if model.expected is not None and (text := expected.problem(model.expected, model.outputs)):
        checker.add(loc, text)


def sequences(model: ModelEntry, asked: Iterable[int]) -> tuple[int | None, ...]:
    """The sequence lengths a model is planned at; (None,) where it has no such axis."""
    if not model.has_sequence:
        return (None,)
    return tuple(asked) or (model.sequence or DEFAULT_SEQUENCE,)


def _unique(values: Iterable[_T]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(values))
