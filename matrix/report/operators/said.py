"""Sentences that every view of operators says in the same words."""

from __future__ import annotations

from matrix.report.operators import explained
from matrix.report.operators.findings import Difference, Ended, Findings, WrongAnswer
from matrix.report.operators.pass_table import Entry, PassTable

#: operators that are named one by one, unless they are this share of all
_MOST_NAMED, _NEARLY_ALL = 10, 0.8


def headline(table: PassTable, found: Findings) -> list[str]:
    """How much was checked, and how each environment did; one sentence each."""
    cases = f"{table.cases:,} case{'' if table.cases == 1 else 's'}"
    operators = f"{table.operators} operator{'' if table.operators == 1 else 's'}"
    said = [f"{cases} of {operators}."]
    for column, entry in zip(table.columns, table.totals, strict=True):
        rest = ", ".join(f"{count:,} {word}" for count, word in entry.rest())
        said.append(f"{column.label}: {entry.passed:,} of {entry.total:,} pass{f'; {rest}' if rest else ''}.")
    if found.unread:
        said.append(f"No failure is explained: {found.unread}.")
    for one in found.explained:
        said += explained.sentences(one)
    if found.agreed:
        many = found.agreed != 1
        said.append(
            f"{found.agreed} case{'s' if many else ''} that the standard leaves open "
            f"{'have' if many else 'has'} the reference's answer everywhere."
        )
    return said


def entry_words(entry: Entry) -> str:
    """ "48/52, 3 unsupported, 1 incorrect" """
    return ", ".join([entry.text, *(f"{count} {word}" for count, word in entry.rest())])


def title(one: Difference) -> str:
    return f"{one.case} {one.dtype}"


def evidence(answer: WrongAnswer) -> list[tuple[str, str]]:
    """Everything known of one wrong answer, as labelled lines; what is not known is left out."""
    lines = [
        ("failed", answer.failure),
        ("error", answer.errors),
        ("rule", answer.rule),
        ("passes from", answer.passes_from),
        ("worst", "" if answer.worst and answer.worst in answer.failure else answer.worst),
        ("note", answer.note),
        ("whose fault", answer.why),
    ]
    return [(name, text) for name, text in lines if text]


def ended_reason(one: Ended) -> str:
    """The reason, and whose fault that is where it is known."""
    return f"{one.reason}; whose fault: {one.why}" if one.why else one.reason


def ended_operators(one: Ended) -> str:
    """ "Unique (5), Col2Im"; "all 189" where a list of names would say nothing (an absent device)."""
    if len(one.operators) > _MOST_NAMED and len(one.operators) > _NEARLY_ALL * one.of:
        return f"all {one.of}" if len(one.operators) == one.of else f"{len(one.operators)} of {one.of}"
    return ", ".join(name if count == 1 else f"{name} ({count})" for name, count in one.operators)
