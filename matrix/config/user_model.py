"""A user's own model in a sweep: a checkpoint folder, an ONNX file, or a hub id.

What the user wrote stands; what is missing is taken from the model's own files. The
result is a `ModelEntry` like any of the catalog's, so nothing later knows the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from matrix.artefacts import checkpoint_folder
from matrix.catalog.types import Count, Entry, File, InputEntry, ModelCost, ModelEntry, Name, Tolerance
from matrix.errors import ConfigError
from matrix.paths import given
from matrix.strict_yaml.located import Checker, did_you_mean
from matrix.strict_yaml.source import Loc

Distribution = Literal["normal", "uniform", "integers", "mask", "constant"]


class UserInput(Entry):
    """How one input is made: a `.npy` file, or a generator. What is left out comes from the model."""

    dtype: str | None = Field(default=None, description="float32, int64, bool, string, bfloat16, ...")
    shape: list[Count | str] | None = Field(default=None, description="`batch`, `sequence` or numbers")
    distribution: Distribution | None = Field(
        default=None, description="none: integers for whole numbers, uniform with `low`/`high`, else normal"
    )
    low: int | float | None = None
    high: int | float | None = Field(default=None, description="values stay below it")
    padded: Annotated[int, Field(ge=0)] = Field(default=0, description="mask: zeros at the end of a row")
    file: File | None = Field(default=None, description="a .npy file, relative to this one")


class UserModel(Entry):
    """A model that is not in the catalog. Give `path` (a folder or an .onnx file) or `hub`."""

    name: Name
    title: str = ""
    path: File | None = Field(
        default=None, description="checkpoint folder or .onnx file, relative to this file"
    )
    hub: str | None = Field(default=None, description="id on a model hub, where one is reachable")
    format: Literal["transformers", "timm", "declarative", "onnx"] | None = None
    task: Literal["image-classification", "backbone", "causal-lm", "lstm", "dlrm", "onnx"] | None = None
    inputs: dict[str, UserInput] = Field(default={}, description="how each input is made")
    outputs: list[str] = Field(default=[], description="compared and timed; none: as the model says")
    expected: File | None = Field(
        default=None, description=".npz of outputs, in place of the float64 reference"
    )
    tolerance: Tolerance | None = None
    seed: Annotated[int, Field(ge=0)] = 0
    sequence: Count | None = None
    max_sequence: Count | None = None
    max_batch: Count | None = None

    @model_validator(mode="after")
    def _one_source(self) -> UserModel:
        if (self.path is None) == (self.hub is None):
            raise ValueError("give either `path` or `hub`")
        return self

    def absolute(self, folder: Path) -> UserModel:
        """The same with every path made absolute, relative to `folder`."""
        changed: dict[str, Any] = {
            field: absolute(value, folder)
            for field, value in (("path", self.path), ("expected", self.expected))
            if value is not None
        }
        if any(entry.file for entry in self.inputs.values()):
            changed["inputs"] = {
                name: entry.model_copy(update={"file": absolute(entry.file, folder)}) if entry.file else entry
                for name, entry in self.inputs.items()
            }
        return self.model_copy(update=changed)


def absolute(path: Path, folder: Path) -> Path:
    """`path` as the user meant it: relative to the file that names it, `~` is the home folder.

    Raises UsageError for what no system call takes.
    """
    from_home = str(path).startswith("~")
    return given(path if from_home else folder / path, "this").resolve()


def resolve(
    model: UserModel, checker: Checker, loc: Loc, batches: Sequence[int], sequences: Sequence[int]
) -> ModelEntry | None:
    """The catalog form of `model` (paths absolute), or None with the problems recorded at `loc`.

    `batches` and `sequences` are those of the sweep: what an ONNX file is asked to take.
    """
    try:
        if model.path is None:
            known = _hub(model)
        elif model.path.is_dir():
            known = checkpoint_folder.describe(checkpoint_folder.read_config(model.path))
        else:
            known = _onnx(model, checker, loc, batches, sequences)
    except ConfigError as error:
        checker.add((*loc, "path"), "; ".join(error.problems))
        return None
    if model.format is not None and model.format != known["format"]:
        checker.add((*loc, "format"), f"the model's format is {known['format']}")
    inputs = known.pop("entries", None) or _inputs(model, known["inputs"], checker, loc)
    if checker.has_problem(loc):
        return None
    return ModelEntry(
        name=model.name,
        title=model.title or model.name,
        format=known["format"],
        task=model.task or known["task"],
        inputs=inputs,
        outputs=model.outputs or known["outputs"],
        cost=ModelCost(disk_mb=3 * _size_mb(model.path), make_s=15),
        seed=model.seed,
        sequence=model.sequence,
        max_sequence=model.max_sequence or known.get("max_sequence"),
        max_batch=model.max_batch,
        batch=known.get("batch"),
        path=model.path,
        hub=model.hub,
        expected=model.expected,
        tolerance=model.tolerance,
    )


def _hub(model: UserModel) -> dict[str, Any]:
    if model.task is None or not model.inputs or not model.outputs:
        raise ConfigError(["a hub model needs `task`, `inputs` and `outputs`"])
    return {"format": model.format or "transformers", "task": model.task, "inputs": {}, "outputs": []}


def _onnx(
    model: UserModel, checker: Checker, loc: Loc, batches: Sequence[int], sequences: Sequence[int]
) -> dict[str, Any]:
    from matrix.config import user_onnx

    facts = user_onnx.look_at(model.path or Path())
    known: dict[str, Any] = {"format": "onnx", "task": "onnx", "inputs": {}, "outputs": []}
    try:
        known["outputs"] = user_onnx.outputs(facts, model.outputs)
    except ConfigError as error:
        checker.add((*loc, "outputs"), "; ".join(error.problems))
    given = {name: entry.model_dump(exclude_unset=True) for name, entry in model.inputs.items()}
    lengths = [model.sequence] if model.sequence and not sequences else sequences
    try:
        known["entries"], known["batch"] = user_onnx.inputs(facts, given, batches, lengths)
    except ConfigError as error:
        for problem in error.problems:
            checker.also((*loc, "inputs"), problem)
    return known


def _inputs(
    model: UserModel, facts: Mapping[str, Mapping[str, Any]], checker: Checker, loc: Loc
) -> dict[str, InputEntry]:
    for name in model.inputs:
        if facts and name not in facts:
            hint = did_you_mean(name, facts)
            text = f"the model has no such input{hint}: {', '.join(facts)}"
            checker.add((*loc, "inputs", name), text, key=True)
    inputs: dict[str, InputEntry] = {}
    for name in [*facts, *(n for n in model.inputs if n not in facts)]:
        where = (*loc, "inputs", name)
        given = model.inputs.get(name, UserInput())
        entry = _input(given, facts.get(name, {}), checker, where)
        if entry is not None:
            inputs[name] = entry
    return inputs


def _input(given: UserInput, fact: Mapping[str, Any], checker: Checker, loc: Loc) -> InputEntry | None:
    """What the user wrote over what the model says; None with the problem recorded."""
    if given.dtype and fact.get("dtype") and given.dtype != fact["dtype"]:
        checker.add((*loc, "dtype"), f"the model takes {fact['dtype']}")
        return None
    if given.shape and fact.get("shape") and not _fits(given.shape, fact["shape"]):
        shape = ", ".join(str(axis) for axis in fact["shape"])
        checker.add((*loc, "shape"), f"the model takes [{shape}]")
        return None
    merged: dict[str, Any] = {
        "dtype": "float32",
        **fact,
        **given.model_dump(exclude_none=True, exclude_unset=True),
    }
    if given.file is None:
        merged.setdefault("distribution", _distribution(merged))
        missing = _missing(merged)
        if missing:
            checker.add(loc, f"input {loc[-1]}: {missing}")
            return None
    try:
        return InputEntry.model_validate(merged)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            checker.add((*loc, *details["loc"]), str(details.get("ctx", {}).get("error", details["msg"])))
        return None


def _distribution(merged: Mapping[str, Any]) -> str:
    if str(merged["dtype"]).lstrip("u").startswith("int"):
        return "integers"
    return "uniform" if "low" in merged or "high" in merged else "normal"


def _missing(merged: Mapping[str, Any]) -> str:
    """What a generator cannot do without, in words; empty when nothing is missing."""
    shape = merged.get("shape")
    if shape is None:
        return "give its `shape`"
    unknown = [axis for axis in shape if isinstance(axis, str) and axis not in ("batch", "sequence")]
    if unknown:
        return f"the axis {unknown[0]!r} has no size: give `shape` (`batch`, `sequence` or numbers)"
    if merged["distribution"] == "integers" and "high" not in merged:
        return "it takes whole numbers, so give `high` (values stay below it)"
    return ""


def _fits(given: list[int | str], shape: list[int | str]) -> bool:
    """Whether a shape in a sweep can be one that the model takes: same rank, fixed sizes equal."""
    return len(given) == len(shape) and all(
        isinstance(axis, str) or axis == asked for asked, axis in zip(given, shape, strict=True)
    )


def _size_mb(path: Path | None) -> float:
    if path is None:
        return 500
    files = [path] if path.is_file() else [p for p in path.glob("*") if p.is_file()]
    return sum(p.stat().st_size for p in files) / 1e6
