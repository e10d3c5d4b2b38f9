"""A summary for pull requests. What comes from traces is text there: no markup, no link, nobody is mentioned."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragtrace.report.terminal import harmless

if TYPE_CHECKING:
    from ragtrace.gate.outcomes import Finding, Gate, Outcome

_MOST = 50  # findings of a rule; a pull request's comment has a limit
_LONGEST = 500
_SIGNS = {"pass": "✅", "breach": "❌", "no data": "❔"}
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#!|~&@$:]|(?<=www)\.)", re.IGNORECASE)  # that and what becomes a link by itself
_JOINER = "\u2060"  # after these signs a code host would look for a person or an issue


def render(gate: Gate) -> str:
    """The summary, as GitHub's Markdown."""
    lines = [f"## ragtrace check: {gate.summary}", ""]
    for outcome in sorted(gate.outcomes, key=lambda o: o.status != "breach"):
        lines.append(f"- {_SIGNS[outcome.status]} **{_text(outcome.rule)}**: {_text(outcome.about)}")
        lines += [_finding(outcome, finding) for finding in outcome.findings[:_MOST]]
        if (more := len(outcome.findings) - _MOST) > 0:
            lines.append(f"  - and {more} more")
        lines += [f"  - note: {_text(note)}" for note in outcome.notes]
    return "\n".join([*lines, "", f"Database {_text(gate.database)}, policy {_text(gate.policy or 'default')}."]) + "\n"


def _finding(outcome: Outcome, finding: Finding) -> str:
    place = f" ({_text(finding.where)})" if finding.where else ""
    excuse = f" Excused: {_text(finding.reason)}" if finding.kind == "excused" else ""
    sign = "❌" if outcome.stops(finding) else "➖" if finding.kind == "excused" else "❔"
    return f"  - {sign} **{_text(finding.subject)}**: {_text(finding.message)}{place}{excuse}"


def _text(value: str | None) -> str:
    shown = harmless(value or "", _LONGEST).strip()
    return re.sub(r"(@|#)", rf"\1{_JOINER}", _MARKUP.sub(r"\\\1", shown))
