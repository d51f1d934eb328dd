"""The table of the PyTorch mapping can be read where there is no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from matrix_adapters.adapter import Unsupported
from matrix_adapters.operators import torch_table


def test_reading_the_table_and_planning_a_program_import_no_framework() -> None:
    code = (
        "import sys\n"
        "from matrix_adapters.operators import torch_bound, torch_program, torch_resize_axis, torch_table\n"
        "from matrix_adapters import pytorch\n"
        "assert len(torch_table.names()) > 150\n"
        "print([name for name in ('torch', 'onnx', 'tensorflow') if name in sys.modules])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_operator_stands_in_two_families() -> None:
    names = [name for family in torch_table.FAMILIES.values() for name in family.split()]
    assert sorted(names) == torch_table.names()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("operator", "domain", "title"),
    [
        ("NonMaxSuppression", "", "NonMaxSuppression"),
        ("Relu", "com.microsoft", "com.microsoft.Relu"),
        ("relu", "", "relu"),
    ],
)
def test_an_operator_that_is_not_mapped_is_named(operator: str, domain: str, title: str) -> None:
    with pytest.raises(Unsupported, match=rf"has no operator {title}$"):
        torch_table.find(operator, domain)
