"""docs/operators.md and docs/operator-failures.md are made of the catalog: tables, counts and the example."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT, blocks, table

from matrix import catalog
from matrix.catalog.operator_rules import OperatorLimit, OperatorRule
from matrix.operators.known import WHOSE, KnownFailure, load_known
from matrix.operators.load import Operators, load_operators
from matrix.operators.suites import SUITES
from matrix.operators.types import GENERATORS

PAGE = ROOT / "docs" / "operators.md"
FAILURES = ROOT / "docs" / "operator-failures.md"
FOLDER = catalog.folder() / "operators"


@pytest.fixture(scope="module")
def shipped() -> Operators:
    return load_operators(FOLDER)


def as_lines(rows: list[list[str]]) -> str:
    """Rows as the page should have them, to be copied from a failure."""
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)


def families(operators: Operators) -> list[list[str]]:
    counted: dict[str, list[int]] = {}
    for name, path in operators.files.items():
        count = counted.setdefault(path.stem, [0, 0])
        count[0] += 1
        count[1] += len(operators.cases[name])
    rows = [[family.replace("_", " "), f"{n:,}", f"{cases:,}"] for family, (n, cases) in counted.items()]
    totals = [f"{sum(one[i] for one in counted.values()):,}" for i in (0, 1)]
    return [*rows, ["**all**", *totals]]


def limit_words(rule: OperatorRule, dtype: str) -> str:
    """ "1 ulp + 4 sqrt(K) u max|y|" """
    limit = rule.limit(dtype)
    if limit is None:
        return ""
    if rule.formula == "exact":
        return "exact"
    parts = [f"{limit.ulps:g} ulp"]
    if limit.absolute:
        parts.append(f"{limit.absolute:g}")
    if limit.scaled:
        parts.append(f"{limit.scaled:g} {_growth(limit)}u max|y|")
    return " + ".join(parts)


def _growth(limit: OperatorLimit) -> str:
    return {"one": "", "log2": "log2(K) ", "sqrt": "sqrt(K) ", "linear": "K "}[limit.growth]


def tolerances() -> list[list[str]]:
    rows = []
    for kind, rule in catalog.load().tolerances.operators.items():
        words = [limit_words(rule, dtype) for dtype in ("float32", "float16", "bfloat16")]
        rows.append([kind, *words, rule.source])
    return rows


def failure_row(known: KnownFailure) -> list[str]:
    return [
        ", ".join(known.cases),
        ", ".join(known.dtypes) or "all",
        known.ends,
        known.fault,
        known.because,
        ", ".join(known.seen),
    ]


def test_the_table_of_families_counts_what_is_there(shipped: Operators) -> None:
    wanted = families(shipped)
    assert table(PAGE, "What a case is") == wanted, f"the table should be\n{as_lines(wanted)}"


def test_the_table_of_tolerances_is_the_catalogs() -> None:
    wanted = tolerances()
    assert table(PAGE, "How an answer is judged") == wanted, f"the table should be\n{as_lines(wanted)}"


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "onnxruntime"])
def test_every_known_failure_is_on_the_page_and_no_other(shipped: Operators, framework: str) -> None:
    known = load_known(FOLDER, shipped)
    title = catalog.load().frameworks[framework].title
    wanted = [failure_row(one) for one in known.of(framework)]
    shown = table(FAILURES, title)
    assert shown == wanted, f"the table of {title} should be\n{as_lines(wanted)}"


def test_the_page_of_failures_explains_its_words() -> None:
    text = FAILURES.read_text(encoding="utf-8")
    assert [fault for fault in WHOSE if f"**{fault}**" not in text] == []


def test_the_number_of_operators_that_we_define_ourselves_is_right() -> None:
    pytest.importorskip("onnx")
    from matrix_adapters.operators import oracle_ops

    assert f"({len(oracle_ops.NAMES)} operators)" in PAGE.read_text(encoding="utf-8")


def test_every_generator_and_suite_is_named() -> None:
    text = PAGE.read_text(encoding="utf-8") + (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert [word for word in (*GENERATORS, *SUITES) if f"`{word}`" not in text] == []


def test_the_operator_that_the_page_adds_is_one(tmp_path: Path) -> None:
    (block,) = [b for b in blocks(PAGE) if b.file.startswith("matrix/catalog/operators/")]
    (tmp_path / Path(block.file).name).write_text(block.text, encoding="utf-8")
    added = load_operators(tmp_path)
    (name,) = added.cases
    made = [(case.case.name, case.precision) for case in added]
    assert made == [
        *((f"{name}/{case}", precision) for case in ("plain", "steep") for precision in ("fp32", "fp16")),
        (f"{name}/one_nan", "fp32"),
    ]
    for case in added:
        assert [node.op for node in case.case.nodes] == ["Tanh", "Mul"]
        assert case.case.outputs == ("Y",)
        assert case.kind in catalog.load().tolerances.operators
