"""SARIF 2.1.0, as code hosts take it: each finding at the line of the hook it speaks of."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ragtrace
from ragtrace.gate.outcomes import Finding, Gate, Outcome
from ragtrace.report.terminal import harmless

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LONGEST = 1_000
_LONGEST_PATH = 4_096


def render(gate: Gate, root: Path | None = None) -> str:
    """The log, as JSON text.

    :param root: files below it are named relative to it, as code hosts want them; by default the current folder.
    """
    base = (root or Path.cwd()).resolve()
    names = list(dict.fromkeys(o.rule for o in gate.outcomes))
    abouts = {o.rule: o.about for o in gate.outcomes}
    driver = {
        "name": "ragtrace",
        "version": ragtrace.__version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": _text(abouts[name])},
                "help": {"text": f"{_text(abouts[name])} See the comments of `ragtrace check --init`."},
                "defaultConfiguration": {"level": "error"},
            }
            for name in names
        ],
    }
    results = [_result(gate, o, f, names.index(o.rule), base) for o in gate.outcomes for f in o.findings]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(gate: Gate, outcome: Outcome, finding: Finding, index: int, base: Path) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ruleId": outcome.rule,
        "ruleIndex": index,
        "level": "error" if outcome.stops(finding) or finding.kind == "excused" else "note",
        "message": {"text": f"{_text(finding.subject)}: {_text(finding.message)}"},
        "locations": [
            {
                "physicalLocation": _place(gate, outcome, finding, base),
                "logicalLocations": [{"fullyQualifiedName": _text(finding.subject)}],
            }
        ],
        "partialFingerprints": {"ragtrace/v1": _fingerprint(outcome, finding)},
    }
    if finding.kind == "excused":
        told["suppressions"] = [{"kind": "external", "status": "accepted", "justification": _text(finding.reason)}]
    return told


def _fingerprint(outcome: Outcome, finding: Finding) -> str:
    """By which a code host knows a finding again, whatever its counts and its line."""
    return sha256(f"{outcome.rule}\0{finding.subject}".encode(errors="replace")).hexdigest()


def _place(gate: Gate, outcome: Outcome, finding: Finding, base: Path) -> dict[str, Any]:
    """Where the hook is written; else where the policy asks for it; else the database: code hosts want a place."""
    if finding.file is not None and len(finding.file) <= _LONGEST_PATH:
        file, line = finding.file, finding.line
    elif gate.policy is not None:
        file, line = gate.policy, outcome.line
    else:
        file, line = gate.database, None
    path = Path(file.replace("\0", "")).expanduser().absolute()
    if path.is_relative_to(base):
        place: dict[str, Any] = {"uri": quote(os.fsencode(path.relative_to(base).as_posix())), "uriBaseId": "%SRCROOT%"}
    else:
        place = {"uri": path.as_uri()}
    return {"artifactLocation": place, "region": {"startLine": line if line is not None and line > 0 else 1}}


def _text(value: str | None) -> str:
    return harmless(value or "", _LONGEST)
