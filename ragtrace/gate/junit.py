"""JUnit XML, as build servers read it: one case for each finding, and one for each rule that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ragtrace.report.terminal import harmless

if TYPE_CHECKING:
    from ragtrace.gate.outcomes import Finding, Gate, Outcome

_LONGEST = 1_000


def render(gate: Gate) -> str:
    """The report, as XML text. What cannot be judged and may pass, or is excused, is a skipped case."""
    suite = Element("testsuite", name="ragtrace check")
    for outcome in gate.outcomes:
        if not outcome.findings:
            _case(suite, outcome, None)
        for finding in outcome.findings:
            case = _case(suite, outcome, finding)
            if outcome.stops(finding):
                failure = SubElement(case, "failure", message=_text(finding.message), type=finding.kind)
                failure.text = "\n".join(filter(None, (_text(finding.message), _text(finding.where))))
            else:
                SubElement(case, "skipped", message=_text(finding.reason or finding.message))
    counts = {
        "tests": len(suite),
        "failures": len(suite.findall("*/failure")),
        "skipped": len(suite.findall("*/skipped")),
    }
    root = Element("testsuites", name="ragtrace check")
    for element in (root, suite):
        element.attrib |= {name: str(n) for name, n in counts.items()} | {"errors": "0", "time": "0"}
    root.append(suite)
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="utf-8"?>\n', "\n")
    )


def _case(suite: Element, outcome: Outcome, finding: Finding | None) -> Element:
    name = outcome.about if finding is None else f"{outcome.about} {finding.subject}"
    case = SubElement(suite, "testcase", classname=f"ragtrace.{_text(outcome.rule)}", name=_text(name), time="0")
    if finding is not None and finding.file is not None:
        case.set("file", _text(finding.file))
        if finding.line is not None:
            case.set("line", str(finding.line))
    return case


def _text(value: str | None) -> str:
    return harmless(value or "", _LONGEST)
