"""What the catalog's YAML files hold, as types. The data is beside this file, not in it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from matrix.catalog.operator_rules import OperatorRule
from matrix_adapters.protocol import ModelSpec

# A part of file names in the cache, and typed on command lines.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$", max_length=100)]
Precision = Literal["fp32", "bf16", "fp16"]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0)]
File = Annotated[Path, Field(strict=False)]  # YAML has text where a path is meant


DEFAULT_SEQUENCE = 128  # where neither the sweep nor the model says how long


class Entry(BaseModel):
    """Base of all catalog types: strict, frozen, no NaN, an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, arbitrary_types_allowed=True
    )


# --- hardware -----------------------------------------------------------------------------


class HardwareProbe(Entry):
    """How the host finds a device without any framework: a node that exists, a library that loads."""

    device_nodes: list[str] = []  # any of them
    library: str = ""  # the driver's, must load too


class DeviceRequest(Entry):
    """What the engine is asked for where a vendor's toolkit hands devices out (Docker's device requests)."""

    driver: str = ""  # "" lets the engine find who offers the capabilities
    capabilities: list[str] = Field(min_length=1)
    device_ids: list[str] = []  # none: all of them


class ContainerFacts(Entry):
    """What a container needs to reach the devices of a profile: all that a vendor demands, as data."""

    device_request: DeviceRequest | None = None
    device_nodes: list[str] = []  # handed in as they are; patterns such as /dev/dri/renderD* are expanded
    optional_nodes: list[str] = []  # those of them that some machines lack
    groups_of_nodes: bool = False  # the worker joins the groups that own the nodes (their numbers vary)
    mounts: list[str] = []  # the driver's own files on the engine's host, read-only
    environment: dict[str, str] = {}
    shm_bytes: Count | None = None  # /dev/shm; an engine's default is 64 MiB


class Hardware(Entry):
    """A hardware profile: what `--hardware` names and environments are built for."""

    name: Name
    title: str
    always: bool = False  # present on every machine
    probe: HardwareProbe = HardwareProbe()
    container: ContainerFacts = ContainerFacts()
    driver: str = ""  # what the driver on the host must offer, for people
    run_on_hardware: bool = False  # whether this profile was ever tried on a real device


# --- frameworks ---------------------------------------------------------------------------


class InstallStep(Entry):
    """One `pip install`. `{version}` in a requirement is the framework version asked for."""

    install: list[str] = Field(min_length=1)
    no_deps: bool = False
    index: str | None = None  # used for this step alone, and only when it answers
    links: str | None = None  # a page that lists wheels, beside the index (pip's --find-links)

    def requirements(self, version: str) -> tuple[str, ...]:
        return tuple(r.replace("{version}", version) for r in self.install)


class BuildCost(Entry):
    """What planning estimates with: measured once on 2 cores, wheels from a near index."""

    build_s: Amount = 60
    disk_mb: Amount = 1000
    launch_s: Amount = 5  # import, load and exit of one worker


class Build(Entry):
    """How one environment is made: the same steps for every version."""

    versions: list[str] = Field(min_length=1)  # known to work, the preferred one first
    steps: list[InstallStep] = Field(min_length=1)
    constraints: str | None = None  # file name in `constraints/`, `{version}` filled in
    #: versions, as a specifier -> pins for those of them that have no constraints file: what they fail with
    limits: dict[str, list[str]] = {}
    import_package: str | None = None  # where this build's package has another name
    needs_index: bool = False  # an image of it cannot be built from wheels chosen beforehand
    cost: BuildCost = BuildCost()

    @field_validator("limits")
    @classmethod
    def _specifiers(cls, limits: dict[str, list[str]]) -> dict[str, list[str]]:
        for specifier in limits:
            SpecifierSet(specifier)  # InvalidSpecifier is a ValueError
        return limits


class HardwareSupport(Entry):
    """A framework on one hardware profile: which build, its own word for the device, precisions."""

    build: str
    device: str
    precisions: list[Precision] = Field(min_length=1)


class Framework(Entry):
    """One framework. `consumes` says which artefact it loads: the checkpoint, or its ONNX export."""

    name: Name
    title: str
    adapter: str  # module that defines `Adapter`
    import_package: str
    provided_by: list[str] = Field(min_length=1)  # distributions that bring the import package
    consumes: Literal["checkpoint", "onnx"]
    levels: list[str] = ["inference"]
    default_version: str
    default_variant: str = ""
    variants: dict[str, str] = {}  # the adapter's own word -> what it means
    hardware: dict[str, HardwareSupport] = Field(min_length=1)
    builds: dict[str, Build] = Field(min_length=1)
    #: folder of a third party's package (holds `framework.yaml` and the adapter); None: shipped here
    source_dir: File | None = None
    #: where `constraints/` is
    data_dir: File = Path()

    def version_for(self, hardware: str) -> str:
        """The version taken when none is asked: the default, unless that build never had it."""
        versions = self.build_for(hardware).versions
        return self.default_version if self.default_version in versions else versions[0]

    def build_for(self, hardware: str) -> Build:
        """Raises KeyError for hardware the framework has no build for."""
        return self.builds[self.hardware[hardware].build]

    def constraints(self, build: str, version: str) -> Path | None:
        """The pinned set of one listed version; None for a version the catalog does not know."""
        entry = self.builds[build]
        if entry.constraints is None or version not in entry.versions:
            return None
        return self.data_dir / "constraints" / entry.constraints.replace("{version}", version)

    def distributions(self) -> frozenset[str]:
        """Normal names of all that this framework's environments are known to hold."""
        lines = list(self.provided_by)
        for name, build in self.builds.items():
            lines += [line for step in build.steps for line in step.install]
            for version in build.versions:
                path = self.constraints(name, version)
                if path is not None and path.is_file():
                    lines += path.read_text(encoding="utf-8").splitlines()
        found = (re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line) for line in lines)
        return frozenset(canonicalize_name(match[0]) for match in found if match)

    @model_validator(mode="after")
    def _references(self) -> Framework:
        wrong = []
        for hardware, support in self.hardware.items():
            if support.build not in self.builds:
                wrong.append(f"hardware.{hardware}.build: no build {support.build!r}")
        if self.default_variant and self.default_variant not in self.variants:
            wrong.append(f"default_variant: {self.default_variant!r} is not one of variants")
        if self.variants and not self.default_variant:
            wrong.append("default_variant: needed where there are variants")
        if not any(self.default_version in b.versions for b in self.builds.values()):
            wrong.append(f"default_version: {self.default_version} is in no build's versions")
        cpu = self.hardware.get("cpu")
        if cpu and cpu.build in self.builds and self.default_version not in self.builds[cpu.build].versions:
            wrong.append(f"default_version: {self.default_version} is not listed in the cpu build")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self


# --- models -------------------------------------------------------------------------------


class InputEntry(Entry):
    """One input: dtype, shape (`batch`, `sequence` or a number) and how its values are made.

    `integers` are low <= x < high, `uniform` low <= x < high, `normal` has mean 0 and
    deviation 1, `mask` is ones with the last `padded` positions zero, `constant` is `low`.
    """

    dtype: str = "float32"
    shape: list[Count | str] | None = None  # None: as the model file says
    distribution: Literal["normal", "uniform", "integers", "mask", "constant"] = "normal"
    low: int | float | None = None
    high: int | float | None = None
    padded: Annotated[int, Field(ge=0)] = 0
    file: File | None = None  # .npy; then nothing is generated

    @model_validator(mode="after")
    def _consistent(self) -> InputEntry:
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.distribution == "integers" and self.high is None and self.file is None:
            raise ValueError("integers need `high` (values are below it)")
        return self


class ModelCost(Entry):
    """What planning estimates with: fp32, batch 1, one thread."""

    parameters_m: Amount = 0
    disk_mb: Amount = 500  # checkpoint, ONNX and reference together
    make_s: Amount = 15
    call_ms: Amount = 100


class Tolerance(Entry):
    """A user's own limit on max|d| / max|ref|; the report shows the reason."""

    limit: Annotated[float, Field(gt=0)]
    reason: Annotated[str, Field(min_length=1)]


class Tiny(BaseModel):
    """How the twin for tests differs; keys that are not named here are merged into `build`."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    inputs: dict[str, dict[str, Any]] = {}
    sequence: Count | None = None
    max_sequence: Count | None = None
    max_batch: Count | None = None


class ModelEntry(Entry):
    """A model of the catalog, or a user's own (then `path` or `hub` says where it lies).

    `outputs` are compared and timed; for an ONNX file without them, all that the file has.
    """

    name: Name
    title: str = ""
    format: Literal["transformers", "timm", "declarative", "onnx"]
    task: str
    build: dict[str, Any] = {}  # how a checkpoint is made from the seed; the adapter's business
    tiny: Tiny | None = None
    inputs: dict[str, InputEntry] = {}
    outputs: list[str] = []
    cost: ModelCost = ModelCost()
    seed: int = 0
    sequence: Count | None = None  # where a sweep names none (128 where this names none either)
    max_sequence: Count | None = None
    max_batch: Count | None = None
    batch: Count | None = None  # the only batch a file with fixed dimensions takes
    path: File | None = None  # a local checkpoint folder or ONNX file
    hub: str | None = None
    expected: File | None = None  # .npz of outputs, instead of the float64 reference
    tolerance: Tolerance | None = None

    @property
    def has_sequence(self) -> bool:
        """Whether the sequence length is an axis of this model."""
        return any("sequence" in (entry.shape or ()) for entry in self.inputs.values())

    @property
    def longest_sequence(self) -> int | None:
        """The most positions it has room for, as its entry or its own config says; None: no limit known."""
        config = self.build.get("config") or {}
        found = self.max_sequence or config.get("max_position_embeddings") or config.get("n_positions")
        return found if isinstance(found, int) else None

    def spec(self) -> ModelSpec:
        """The part that a worker needs."""
        return ModelSpec(
            name=self.name,
            format=self.format,
            task=self.task,
            seed=self.seed,
            inputs=tuple(self.inputs),
            outputs=tuple(self.outputs),
            build=self.build,
        )

    def tiny_twin(self) -> ModelEntry | None:
        """`X_tiny`: the same code paths with few and small layers; None where none is described."""
        if self.tiny is None:
            return None
        inputs = _merge(
            {k: v.model_dump(exclude_unset=True) for k, v in self.inputs.items()}, self.tiny.inputs
        )
        return ModelEntry(
            name=f"{self.name}_tiny",
            title=f"{self.title or self.name}, tiny",
            format=self.format,
            task=self.task,
            build=_merge(self.build, self.tiny.model_extra or {}),
            inputs={k: InputEntry.model_validate(v) for k, v in inputs.items()},
            outputs=self.outputs,
            cost=ModelCost(disk_mb=5, make_s=6, call_ms=2),
            seed=self.seed,
            sequence=self.tiny.sequence or self.sequence,
            max_sequence=self.tiny.max_sequence or self.max_sequence,
            max_batch=self.tiny.max_batch or self.max_batch,
        )


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, mapping by mapping."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


# --- metrics, tolerances ------------------------------------------------------------------


class Metric(Entry):
    """One metric: its unit, which way is better, how samples and launches reduce."""

    id: str
    title: str
    unit: str
    better: Literal["lower", "higher"]
    across: Literal["mean", "max", "min", "pooled"]  # launches -> cell
    within: Literal["median"] | None = None  # samples -> launch
    quantile: Annotated[float, Field(gt=0, lt=1)] | None = None
    min_samples: Count = 1
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None  # smallest change that matters, a fraction
    least: Annotated[float, Field(gt=0)] | None = None  # the same in `unit`: less is always nothing
    ranked: bool = False  # the best of a row is marked across frameworks
    derived: str = ""  # from what, in words; empty where it was measured
    levels: list[str] = []  # where it exists; empty: everywhere
    of: str = ""  # of a percentile: the metric whose samples it is read from

    def exists_at(self, level: str) -> bool:
        """Whether a cell of this level can have it at all."""
        return not self.levels or level in self.levels

    @model_validator(mode="after")
    def _pooled(self) -> Metric:
        if len({self.across == "pooled", self.quantile is not None, bool(self.of)}) > 1:
            raise ValueError("`quantile`, `of` and `across: pooled` belong together")
        return self


class ToleranceRule(Entry):
    """limit = clamp(floor_factor x floor, least, most) on max|d| / max|ref|."""

    floor_factor: Amount
    least: Annotated[float, Field(gt=0)]
    most: Annotated[float, Field(gt=0)]
    top1: Annotated[float, Field(ge=0, le=1)]  # least share of rows with the same top-1
    source: str  # why these figures


class Tolerances(Entry):
    """Parity rules by precision, and when a model is too ill-conditioned to be judged.

    `operators` has one row per kind of operator.
    """

    inference: dict[str, ToleranceRule]
    operators: dict[str, OperatorRule] = {}
    ill_conditioned_floor: Annotated[float, Field(gt=0)]


# --- all of it ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Catalog:
    """Everything that is data. `models` holds the tiny twins too; `sweeps` name -> file.

    `broken` holds third-party frameworks that could not be read, with the reason: they
    are an error only for a sweep that names them.
    """

    frameworks: Mapping[str, Framework]
    hardware: Mapping[str, Hardware]
    models: Mapping[str, ModelEntry]
    metrics: Mapping[str, Metric]
    tolerances: Tolerances
    sweeps: Mapping[str, Path]
    #: folder of the operators' entries: many, and read only where one is named (`matrix.operators.load`)
    operators: Path = Path("operators")
    broken: Mapping[str, str] = dataclasses.field(default_factory=dict)
