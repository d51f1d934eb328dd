"""The run as JUnit XML, for whatever shows test results: one test case per cell.

A cell that ended badly, or a required one that is not ok, is a failure; what cannot be here,
was expected to fail or was not reached is skipped, with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree as ET

from matrix.records import Record
from matrix.report.header import run_view
from matrix.report.placing import row_key
from matrix_adapters.protocol import State

_FAILURES = {State.INCORRECT, State.BUILD_FAILED, State.FAILED, State.OOM, State.TIMEOUT}
# XML 1.0 has no way to write these, not even as references
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(records: Sequence[Record], header: Mapping[str, Any]) -> str:
    """One suite, in plan order."""
    failed = [r for r in records if _fails(r)]
    skipped = [r for r in records if r.state is not State.OK and not _fails(r)]
    counts = {"tests": str(len(records)), "failures": str(len(failed)), "skipped": str(len(skipped))}
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": _clean(run_view(header).title), **counts})
    for record in records:
        _case(suite, record)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ET.Element, record: Record) -> None:
    variant = f" [{record.workload.variant}]" if record.workload.variant else ""
    name = {
        "classname": _clean(record.environment.name + variant + (f"@{record.arm}" if record.arm else "")),
        "name": _clean(row_key(record.workload).label()),
    }
    case = ET.SubElement(suite, "testcase", name)
    if record.metrics or record.flags:
        properties = ET.SubElement(case, "properties")
        for metric, value in record.metrics.items():
            pair = {"name": _clean(metric), "value": f"{value.value!r} {value.unit}"}
            ET.SubElement(properties, "property", pair)
        for flag in record.flags:
            pair = {"name": f"flag:{_clean(flag.code)}", "value": _clean(flag.text)}
            ET.SubElement(properties, "property", pair)
    if record.state is State.OK:
        return
    text = _clean(record.reason.text if record.reason else "no reason was stored")
    kind = "failure" if _fails(record) else "skipped"
    details = {"message": f"{record.state.value}: {text}"}
    if kind == "failure":
        details["type"] = _clean(record.reason.code if record.reason else record.state.value)
    ET.SubElement(case, kind, details)


def _fails(record: Record) -> bool:
    if record.state is State.OK or record.xfail:
        return False
    return record.required or record.state in _FAILURES


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
