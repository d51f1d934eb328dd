"""What `matrix/catalog/operators/*.yaml` hold, as types; see `expand` for what is made of them.

A file is a mapping from an operator's name to its entry. `load` reads the files and checks
what a type alone cannot, such as a case that names an input the operator does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, field_validator, model_validator

from matrix.catalog.types import Entry
from matrix.operators.dtypes import Dtype

#: a row of the tolerance table
Kind = Literal[
    "exact",
    "elementwise",
    "division",
    "transcendental",
    "power",
    "saturating",
    "activation",
    "reduction",
    "matmul",
    "convolution",
    "normalisation",
    "softmax",
    "attention",
    "recurrent",
    "resize",
    "quantise",
    "loss",
    "composite",
]
#: templates that make further cases of an element-wise operator by themselves
Edge = Literal["special", "nan_at_each", "empty", "size_one", "strided", "broadcast"]
Layout = Literal["contiguous", "transposed", "strided", "broadcast"]
Generator = Literal[
    "normal",
    "uniform",
    "wide",
    "positive",
    "integers",
    "bools",
    "permutation",
    "sorted",
    "zeros",
    "ones",
    "arange",
    "values",
    "special",
    "nan_at",
    "onehot",
    "indices",
]
GENERATORS: tuple[str, ...] = get_args(Generator)
#: the options of those that take any; `matrix_adapters.operators.generators` says what they mean
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "normal": ("mean", "std"),
    "uniform": ("low", "high"),
    "wide": ("low", "high"),
    "positive": ("low", "high"),
    "integers": ("low", "high"),
    "bools": ("probability",),
    "permutation": ("start", "step"),
    "sorted": ("descending",),
    "arange": ("start", "step"),
    "values": ("values",),
    "nan_at": ("index",),
    "indices": ("size", "negative", "unique", "unique_axis"),
}
Dimension = Annotated[int, Field(ge=0)]
Opset = Annotated[int, Field(ge=1, le=30)]
Positive = Annotated[int, Field(ge=1)]
#: `Gelu/tanh` is typed in sweeps and selections, and is a part of file names
CaseName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$", max_length=60)]


class TensorEntry(Entry):
    """One tensor of a case: its shape and how its values are made; a bare list is the shape alone.

    `values` (nested lists; `.nan` and `.inf` may be written) give the shape too; where there is a
    `shape` as well, they may be flat, or one for all.
    `dtype` other than the case's own; `constant`: part of the model file in place of an input.
    """

    model_config = ConfigDict(allow_inf_nan=True)  # bounds and values may be anything a float can be

    shape: list[Dimension] = Field(default=[])
    dtype: Dtype | None = None
    generator: Generator | None = None
    values: Any = None
    layout: Layout = "contiguous"
    constant: bool = False
    low: int | float | None = None
    high: int | float | None = None
    mean: int | float | None = None
    std: int | float | None = None
    start: int | float | None = None
    step: int | float | None = None
    probability: Annotated[float, Field(ge=0, le=1)] | None = None
    descending: bool | None = None
    index: int | list[int] | None = None
    size: Positive | list[Positive] | None = None
    negative: bool | None = None
    unique: bool | None = None
    unique_axis: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare_shape(cls, given: Any) -> Any:
        return {"shape": given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _consistent(self) -> TensorEntry:
        way = "values" if self.values is not None else self.generator
        given = [name for name in _OPTIONS if getattr(self, name) is not None]
        strange = [name for name in given if name not in OPTIONS.get(way or "normal", ())]
        if self.values is not None and self.generator not in (None, "values"):
            raise ValueError(f"`values` are the values: the generator {self.generator} has nothing to do")
        if self.generator == "values" and self.values is None:
            raise ValueError("the generator values needs `values`")
        if "shape" not in self.model_fields_set and self.values is None:
            raise ValueError("`shape` is missing")
        if strange:
            raise ValueError(f"the generator {way or 'normal'} takes no `{strange[0]}`")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.values is not None:
            found = _shape_of(self.values)
            if "shape" in self.model_fields_set and not _fits(found, self.shape):
                raise ValueError(f"the values have the shape {list(found)}, not {self.shape}")
        return self

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The tensor's shape, wherever it was given."""
        return tuple(self.shape) if "shape" in self.model_fields_set else _shape_of(self.values)

    def options(self) -> dict[str, Any]:
        """The generator's own options, as JSON can hold them: NaN and infinities are words."""
        return {n: _written(value) for n in _OPTIONS if (value := getattr(self, n)) is not None}


_OPTIONS = tuple(dict.fromkeys(option for options in OPTIONS.values() for option in options))


class NodeEntry(Entry):
    """One node of a composite case, as ONNX has it."""

    op: Annotated[str, Field(min_length=1)]
    inputs: list[str]
    outputs: list[str] = Field(min_length=1)
    attributes: dict[str, Any] = Field(default={})
    domain: str = ""


class CaseEntry(Entry):
    """One case; what it does not say, its operator's entry does.

    `open`: why the standard leaves the answer open, or frameworks are known to differ: the cell
    then says `differs by definition` in place of `incorrect`. `depth`: terms of a sum, where the
    tolerance scales with them and shapes do not tell. `terms`: the size of the terms whose difference
    the answer is, where they are larger than it: the tolerance of a sum then scales with them, as its
    rounding errors do (the file says where the size comes from). `flops` and `bytes` of one call,
    declared.
    """

    model_config = ConfigDict(populate_by_name=True)

    feed: dict[str, TensorEntry] = Field(default={}, alias="in")
    attributes: dict[str, Any] = Field(default={})
    dtypes: list[Dtype] = Field(default=[], description="none: the operator's")
    opset: Opset | None = None
    inputs: list[str] | None = None
    outputs: list[str] | None = None
    kind: Kind | None = None
    depth: Positive | None = None
    terms: Annotated[float, Field(gt=0)] | None = None
    oracle: Literal["float64", "as-is"] | None = None
    open: str = ""
    flops: Positive | None = None
    bytes: Positive | None = None

    @field_validator("attributes")
    @classmethod
    def _finite(cls, attributes: dict[str, Any]) -> dict[str, Any]:
        return _stored(attributes)


class OperatorEntry(Entry):
    """An ONNX operator, or a few nodes under a name of their own, and the cases that test it."""

    kind: Kind
    opset: Opset = 21
    opsets: dict[Dtype, Opset] = Field(default={}, description="of types that need another one")
    domain: str = ""
    dtypes: list[Dtype] = Field(default=["float32"], min_length=1)
    inputs: list[str] = Field(default=[], description='in the operator\'s order; "" leaves one out')
    outputs: list[str] = Field(default=[])
    nodes: list[NodeEntry] = Field(default=[])
    attributes: dict[str, Any] = Field(default={})
    in_defaults: dict[str, TensorEntry] = Field(default={})
    depth: Positive | None = None
    oracle: Literal["float64", "as-is"] | None = None
    open: str = ""
    edges: list[Edge] = Field(default=[])
    cases: dict[CaseName, CaseEntry] = Field(min_length=1)

    @field_validator("attributes")
    @classmethod
    def _finite(cls, attributes: dict[str, Any]) -> dict[str, Any]:
        return _stored(attributes)

    @model_validator(mode="after")
    def _form(self) -> OperatorEntry:
        if self.nodes and self.attributes:
            raise ValueError("attributes belong to the nodes where there are `nodes`")
        types = {*self.dtypes, *(dtype for case in self.cases.values() for dtype in case.dtypes)}
        for dtype in self.opsets:
            if dtype not in types:
                raise ValueError(f"opsets: no case has the type {dtype}")
        return self


def _shape_of(values: Any) -> tuple[int, ...]:
    """The shape of nested lists. Raises ValueError for ragged ones, and for what is no number."""
    if isinstance(values, list):
        shapes = {_shape_of(value) for value in values}
        if len(shapes) > 1:
            raise ValueError("the rows of `values` have different lengths")
        return (len(values), *(shapes.pop() if shapes else ()))
    if isinstance(values, (bool, int, float)) or values in _WORDS:
        return ()
    raise ValueError(f"`values` are numbers, true or false, got {values!r}")


def _fits(found: tuple[int, ...], shape: list[int]) -> bool:
    """Whether values nested like `found` can fill `shape`: as they lie, flat, or one for all."""
    return found == tuple(shape) or (len(found) <= 1 and math.prod(found) in (1, math.prod(shape)))


_WORDS = ("nan", "inf", "-inf")


def _written(value: Any) -> Any:
    if isinstance(value, list):
        return [_written(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def _stored(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes as they go into the task: infinities as words there too; null is a mistake."""
    for name, value in attributes.items():
        if value is None:
            raise ValueError(f"{name}: nothing is given")
    return {name: _written(value) for name, value in attributes.items()}
