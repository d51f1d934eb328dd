"""A candidate in ONNX Runtime: a library of custom operators, one of them in the place of the case's nodes.

Such a library exports `RegisterCustomOps` (docs of ONNX Runtime, "Custom operators"), and is loaded by
`SessionOptions.register_custom_ops_library`. Its operator is given the inputs of the node that it
stands for, in order, with the node's attributes; for a composite case all inputs of the case, and none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import candidate as candidates
from matrix_adapters.operators import case_folder
from matrix_adapters.operators.candidate import Candidate, CandidateError
from matrix_adapters.operators.model_bytes import replaced
from matrix_adapters.protocol import OperatorCase, Task

KIND = "ort_custom_ops"

#: what ONNX Runtime says of an operator that no library registered, and of a type that one does not take
_UNKNOWN = re.compile(r"is not a registered function/op|No Op registered for|is unknown to ONNX Runtime")
_OTHER_TYPE = re.compile(r"Type '([^']+)' of (?:input|output) parameter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CustomOperator:
    """An operator of a library that is there."""

    candidate: str
    library: Path
    domain: str
    operator: str

    @property
    def name(self) -> str:
        return f"{self.domain}::{self.operator}"


def of(task: Task) -> CustomOperator | None:
    """The task's candidate, or None. Raises CandidateError, Unsupported for one of another framework."""
    given = candidates.of(task)
    if given is None:
        return None
    if given.kind != KIND:
        raise Unsupported(f"candidates of the kind {given.kind} are not for ONNX Runtime: it takes {KIND}")
    return _found(given)


def _found(given: Candidate) -> CustomOperator:
    where, name = candidates.split(given.callable)
    library = Path(given.folder, where)
    domain, _, operator = name.partition("::")
    if not domain or not operator:
        raise CandidateError(f"{name!r} is not written domain::Operator")
    if not library.is_file():
        raise CandidateError(f"there is no file {library}")
    return CustomOperator(candidate=given.name, library=library, domain=domain, operator=operator)


def model(folder: Path, custom: CustomOperator) -> bytes:
    """The case's model with the custom operator in it."""
    case = case_folder.read_case(folder)
    return replaced(
        (folder / case_folder.MODEL_FILE).read_bytes(),
        operator=custom.operator,
        domain=custom.domain,
        inputs=_inputs(case),
        outputs=case.nodes[0].outputs if len(case.nodes) == 1 else case.outputs,
    )


def _inputs(case: OperatorCase) -> tuple[str, ...]:
    if len(case.nodes) == 1:
        return case.nodes[0].inputs
    return tuple(spec.name for spec in case.inputs)


@contextlib.contextmanager
def refusals(custom: CustomOperator) -> Iterator[None]:
    """What ONNX Runtime says of the operator, as what it means for a candidate."""
    try:
        yield
    except Exception as error:
        text = str(error)
        if _UNKNOWN.search(text):
            raise CandidateError(f"{custom.library.name} registers no operator {custom.name}") from error
        if found := _OTHER_TYPE.search(text):
            raise Unsupported(f"{custom.name} takes no {found[1]}") from error
        raise
