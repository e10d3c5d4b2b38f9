"""The audit of the named-entity classifier: matching, bounds, strata, bad input, and the project's own figures."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta
from typer.testing import CliRunner, Result

from ragtrace import ner_audit
from ragtrace.cli import app
from ragtrace.errors import InputError, UsageError
from ragtrace.ner import TYPES
from ragtrace.ner_audit import Cell, Row, Share

ROOT = Path(__file__).parents[1]
SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda s: (s[0], s[0] + s[1])), max_size=8)


def run(*words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, ["entities", *words], input=given)


def refused(error: type[Exception], *words: str) -> str:
    result = run(*words)
    assert isinstance(result.exception, error), result.output
    return str(result.exception)


def written(path: Path, *rows: Any) -> str:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def by_name(cells: list[Cell]) -> dict[tuple[str, str], Cell]:
    return {(cell.source, cell.type): cell for cell in cells}


@settings(deadline=None)
@given(SPANS, SPANS)
def test_overlap_is_a_shared_character(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    brute = sum(any(set(range(*span)) & set(range(*other)) for other in others) for span in spans)
    assert ner_audit.overlapping(spans, others) == brute


MAIL = "ask jo@enron.com now"
"""An e-mail address from 4 to 16."""


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_bounds_are_the_quantiles_of_beta(right: int, wrong: int, missed: int) -> None:
    rows = [Row(MAIL, "s", [(4, 16, "EMAIL_REAL")])] * right + [Row(MAIL, "s", [])] * wrong
    rows += [Row("no mail", "s", [(0, 2, "EMAIL_REAL")])] * missed
    cells = by_name(ner_audit.audit(rows))
    if not right + missed:
        assert not rows or (cells["s", "EMAIL_REAL"].precision, cells["s", "EMAIL_REAL"].recall) == (None, None)
        return
    for share, others in ((cells["s", "EMAIL_REAL"].precision, wrong), (cells["s", "EMAIL_REAL"].recall, missed)):
        assert share is not None
        if not right + others:
            assert share == Share(0, 0, None, None, None)
            continue
        low = beta.ppf(0.025, right, others + 1) if right else 0.0
        high = beta.ppf(0.975, right + 1, others) if others else 1.0
        assert share[:3] == (right, right + others, right / (right + others))
        assert share.low == pytest.approx(low, abs=1e-9)
        assert share.high == pytest.approx(high, abs=1e-9)


def test_strict_and_loose_are_told_apart_and_pooling_leaves_out_what_is_not_labelled() -> None:
    person = "met Patricia Henderson, then Christine left"
    rows = [
        Row(person, "a", [(4, 22, "PERSON_NAME"), (29, 38, "PERSON_NAME")]),
        Row("met Patricia Henderson", "b", [(0, 3, "ORG_TITLE")]),
        Row("met Patricia Henderson", "c", [(0, 3, "PERSON_NAME")]),
    ]
    cells = by_name(ner_audit.audit(rows))
    strict, loose = cells["a", "PERSON_NAME"], cells["a", "PERSON_NAME, loose"]
    assert strict.precision is not None and strict.recall is not None and loose.recall is not None
    assert (strict.precision[:2], strict.recall[:2], loose.recall[:2]) == ((1, 1), (1, 2), (2, 2))
    assert cells["b", "PERSON_NAME"] == Cell("b", "PERSON_NAME", None, None)
    pooled = cells["all", "PERSON_NAME"]
    assert pooled.precision is not None and pooled.precision[:2] == (1, 2)  # the name in b counts for nothing
    assert pooled.recall is not None and pooled.recall[:2] == (1, 3)
    assert cells["all", "ORG_TITLE"].precision == Share(0, 0, None, None, None)
    assert {kind for _, kind in cells} >= set(TYPES)
    assert not any(source == "all" for source, _ in by_name(ner_audit.audit(rows[:1])))


def test_printed_as_table_markdown_and_json(tmp_path: Path) -> None:
    row = {
        "text": MAIL,
        "source": "a|\x1b[31m",
        "spans": [{"start": 4, "end": 16, "label": "email", "text": MAIL[4:16]}],
    }
    file = written(tmp_path / "l.jsonl", row, "", {"text": "nothing", "spans": []})
    table, markdown = run("audit", file).stdout, run("audit", file, "--md").stdout
    assert "\x1b" not in table + markdown
    assert "1.000 [0.025, 1.000]" in table and "no labels" in table
    line = next(line for line in markdown.splitlines() if "EMAIL_REAL" in line)
    assert line == "| a\\|�\\[31m | EMAIL_REAL | 1.000 [0.025, 1.000] | 1/1 | 1.000 [0.025, 1.000] | 1/1 |"
    found = {(r["source"], r["type"]): r for r in json.loads(run("audit", file, "--json").stdout)}
    share = {"hits": 1, "n": 1, "value": 1.0, "low": pytest.approx(0.025), "high": 1.0}
    assert found[row["source"], "EMAIL_REAL"] == {
        "source": row["source"], "type": "EMAIL_REAL", "precision": share, "recall": share,
    }  # fmt: skip
    assert found["unnamed", "EMAIL_REAL"]["precision"] is None
    assert "expected one" in refused(UsageError, "audit", file, "--json", "--md")


def test_labels_are_what_the_user_says(tmp_path: Path) -> None:
    spans = [{"start": 4, "end": 16, "label": "Mailbox"}, {"start": 0, "end": 3, "label": "Verb"}]
    file = written(tmp_path / "l.jsonl", {"text": MAIL, "spans": spans})
    assert "Mailbox" in refused(InputError, "audit", file)
    told = run("audit", file, "--label", "EMAIL_REAL=MAILBOX", "--label", "NONE=verb", "--json")
    cells = {row["type"]: row for row in json.loads(told.stdout)}
    assert cells["EMAIL_REAL"]["recall"]["n"] == 1
    for odd in ("EMAIL=MAILBOX", "MAILBOX", "EMAIL_REAL="):
        assert "OURS=THEIRS" in refused(UsageError, "audit", file, "--label", odd)


GOOD = {"text": "a b", "spans": []}


def labelled_as(**span: Any) -> dict[str, Any]:
    return {"text": "a b", "spans": [{"start": 0, "end": 1, "label": "PERSON"} | span]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "one object a line"),
        ({"spans": []}, '"text"'),
        ({"text": 3, "spans": []}, '"text"'),
        ({"text": "a", "spans": {}}, '"spans"'),
        ({"text": "a", "spans": [], "source": 1}, '"source"'),
        ({"text": "a", "spans": [3]}, "label"),
        (labelled_as(label=None), "label"),
        (labelled_as(label="KLINGON"), "KLINGON"),
        (labelled_as(end=4), "from 0 to 4"),
        (labelled_as(start=-1), "from -1 to 1"),
        (labelled_as(start=1), "from 1 to 1"),
        (labelled_as(start=True), "from True to 1"),
        (labelled_as(start=None), "from None to 1"),
        (labelled_as(text="b"), "said to be 'b'"),
    ],
)
def test_bad_rows_are_told_with_their_line(tmp_path: Path, row: Any, said: str) -> None:
    message = refused(InputError, "audit", written(tmp_path / "l.jsonl", GOOD, row))
    assert "line 2" in message
    assert said in message


def test_a_place_label_is_checked_although_it_is_left_out(tmp_path: Path) -> None:
    assert "from 0 to 9" in refused(InputError, "audit", written(tmp_path / "l.jsonl", labelled_as(label="LOC", end=9)))


def test_files_that_are_not_there_or_empty(tmp_path: Path) -> None:
    assert "nowhere.jsonl" in refused(InputError, "audit", str(tmp_path / "nowhere.jsonl"))
    assert "no rows" in refused(InputError, "audit", written(tmp_path / "empty.jsonl"))


def test_find_takes_an_argument_or_a_pipe() -> None:
    assert json.loads(run("find", MAIL, "--json").stdout) == [
        {"type": "EMAIL_REAL", "start": 4, "end": 16, "text": "jo@enron.com"}
    ]
    piped = run("find", given="Mr. Zvo\x1b[31m met Angela Lundström [\x1bNAME]\x9b").stdout
    assert "Angela Lundström" in piped
    assert not set("\x1b\x9b") & set(piped)
    assert "No entity" in run("find", "nothing to see").stdout


def test_find_shows_no_escape_of_a_span() -> None:
    text = "see https://a.io/\x1b]0;x\x07y now"
    assert "\x1b" in json.loads(run("find", text, "--json").stdout)[0]["text"]
    assert not set("\x1b\x07") & set(run("find", text).stdout)


EMAIL = "EMAIL, loose"


def test_the_figures_of_the_project_hold_on_real_text() -> None:
    """Targets of the project: e-mail .98 and .98; strict names by source. A held-out part may be 3 points lower."""
    folder = Path(os.environ.get("RAGTRACE_DATA") or ROOT.parent / "shared" / "data")
    if not (folder / "pii_ner.jsonl").is_file():
        pytest.skip("pii_ner.jsonl not found: set RAGTRACE_DATA to the folder that holds it")
    cells = by_name(ner_audit.audit(ner_audit.read(folder / "pii_ner.jsonl")))
    for source, kind, precision, recall in (
        ("presidio_synth_v2", EMAIL, 0.98, 0.98),
        ("presidio_synth_v2", "PERSON_NAME", 0.90, 0.30),
        ("wikigold", "PERSON_NAME", 0.90, 0.40),
        ("wnut17", "PERSON_NAME", 0.85, 0.10),
    ):
        cell = cells[source, kind]
        assert cell.precision is not None and cell.precision.value is not None and cell.precision.low is not None
        assert cell.recall is not None and cell.recall.value is not None
        assert cell.precision.value >= precision, cell
        assert cell.recall.value >= recall, cell
        assert cell.precision.low < cell.precision.value
    assert cells["wnut17", EMAIL] == Cell("wnut17", EMAIL, None, None)
