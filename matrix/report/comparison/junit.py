"""A comparison as JUnit XML: one test case for each finding.

What regressed, is missing or is named by `--fail-on` is a failure; what could not be decided or
compared is skipped, with the reason: it has not passed, and it has not failed.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from matrix.catalog.types import Catalog
from matrix.compare import fail_on
from matrix.compare.comparison import Comparison
from matrix.compare.findings import Finding
from matrix.judge.rows import Word
from matrix.report.comparison import Options, words

_UNDECIDED = (Word.INCONCLUSIVE, Word.NOT_COMPARABLE)
# XML 1.0 has no way to write these, not even as references
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBERS = ("effect", "low", "high", "margin", "mde", "n", "clock")


def render(comparison: Comparison, catalog: Catalog, options: Options) -> str:
    """One suite, worst first."""
    del catalog, options
    failed = {id(finding) for finding in comparison.findings if _fails(finding, comparison)}
    skipped = {id(f) for f in comparison.findings if f.verdict in _UNDECIDED} - failed
    counts = {
        "tests": str(len(comparison.findings)),
        "failures": str(len(failed)),
        "skipped": str(len(skipped)),
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": _clean(comparison.title), **counts})
    for finding in comparison.findings:
        name = {"classname": _clean(finding.workload), "name": _clean(finding.metric)}
        case = ET.SubElement(suite, "testcase", name)
        _properties(case, finding)
        message = _clean(words.sentence(finding))
        if id(finding) in failed:
            kind = "missing" if finding.missing else finding.verdict.value
            ET.SubElement(case, "failure", {"message": message, "type": kind})
        elif id(finding) in skipped:
            ET.SubElement(case, "skipped", {"message": message})
        else:
            ET.SubElement(case, "system-out").text = message
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _fails(finding: Finding, comparison: Comparison) -> bool:
    if finding.missing or (finding.verdict is Word.REGRESSED and not finding.derived):
        return True
    return bool(fail_on.occurring([finding], comparison.fail_on))


def _properties(case: ET.Element, finding: Finding) -> None:
    found: dict[str, object] = {"verdict": finding.verdict.value, "unit": finding.unit}
    found |= {"base": finding.base, "candidate": finding.candidate}
    for name in _NUMBERS:
        found[name] = getattr(finding.judged, name, None)
    properties = ET.SubElement(case, "properties")
    for name, value in found.items():
        if value not in (None, ""):
            ET.SubElement(properties, "property", {"name": name, "value": _clean(str(value))})


def _clean(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)
