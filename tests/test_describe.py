"""Which documents stand in the prompt, and what is written of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.record.capture import Capture
from ragtrace.record.describe import after_defense, in_prompt, messages, retrieved
from ragtrace.record.effects import Seen
from ragtrace.types import Document, Message

ONE = "Dear Ann, the quarterly report of the northern branch is due on Friday; please send your figures to me."
TWO = "Please note that the canteen will be closed for two weeks in August while the kitchen is being rebuilt."


def found(prompt: str, *contents: str) -> list[tuple[int, int, int, bool]]:
    documents = [Document(c, f"d{i}") for i, c in enumerate(contents)]
    return [(r["of"], r["start"], r["run"], r["whole"]) for r in in_prompt(documents, prompt, [])]


@pytest.mark.parametrize(
    ("prompt", "rows"),
    [
        (f"Context: {ONE}\n\n{TWO}\nQ", [(0, 0, len(ONE), True), (1, 0, len(TWO), True)]),
        (f"Context: {TWO}\n\n{ONE}\nQ", [(1, 0, len(TWO), True), (0, 0, len(ONE), True)]),
        (f"Context: {ONE}\nQ", [(0, 0, len(ONE), True)]),
        (f"Context: {ONE[:40]}…\nQ", [(0, 0, 40, False)]),
        (f"Context: …{ONE[-40:]}\nQ", [(0, len(ONE) - 40, 40, False)]),
        (f"Context: …{ONE[21:70]}…\nQ", [(0, 21, 49, False)]),
        (f"Context: {ONE[:20]}…\nQ", []),
        (f"Context: {ONE[:34]}… {ONE[50:100]} …\nQ", [(0, 50, 50, False)]),
        ("Nothing of it here, only words about something else, and many of them.", []),
        ("", []),
    ],
)
def test_whole_cut_reordered_absent(prompt: str, rows: list[Any]) -> None:
    assert found(prompt, ONE, TWO) == rows


def test_duplicates_are_found_as_often_as_they_are_there() -> None:
    assert found(f"{ONE}\n{ONE}\n", ONE, ONE) == [(0, 0, len(ONE), True), (1, 0, len(ONE), True)]
    assert found(f"{ONE}\n", ONE, ONE) == [(0, 0, len(ONE), True)]


def test_a_phrase_inside_another_documents_text_is_no_finding() -> None:
    shared = "This message is confidential and for the addressee only. "
    assert found(f"Context: {shared}{ONE}", shared + TWO, shared + ONE) == [(1, 0, len(shared + ONE), True)]


def test_empty_documents_are_nowhere() -> None:
    assert found("any prompt", "", "  ") == []


words = st.text(st.sampled_from("ab \né"), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(st.lists(words, min_size=1, max_size=4), st.data())
def test_every_reported_run_is_really_there(contents: list[str], data: Any) -> None:
    pieces = []
    for content in contents:
        start = data.draw(st.integers(0, len(content)))
        pieces.append(content[start : data.draw(st.integers(start, len(content)))])
    prompt = data.draw(words) + "|".join(pieces)
    rows = in_prompt([Document(c, str(i)) for i, c in enumerate(contents)], prompt, [])
    assert [r["at"] for r in rows] == sorted(r["at"] for r in rows)
    for row in rows:
        content = contents[row["of"]]
        assert content[row["start"] : row["start"] + row["run"]] == prompt[row["at"] : row["at"] + row["run"]]
        assert row["whole"] == (row["run"] == len(content))
        assert row["whole"] or row["run"] >= 32
    assert len({r["of"] for r in rows}) == len(rows)
    for i, content in enumerate(contents):
        if content.strip() and content in prompt and contents.index(content) == i:
            assert any(r["of"] == i and r["whole"] for r in rows)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(32, 60), st.text(st.sampled_from("xyz"), max_size=40))
def test_any_run_long_enough_is_found(start: int, length: int, around: str) -> None:
    piece = ONE[start : start + length]
    if len(piece) >= 32:
        [(_, found_at, run, _)] = found(f"{around}#{piece}#{around}", ONE)
        assert (found_at, run) == (start, len(piece))


def test_long_repetitive_texts_take_no_time() -> None:
    assert found("ab" * 20_000, "ab" * 15_000 + "c", "ba" * 15_000 + "c") != []


def test_rows_of_documents() -> None:
    losses: list[str] = []
    documents = [Document("a b", "1", 0.5, {"k": {1, 2}, "b": b"x"}), Document("c\ud800", "\udcff", float("nan"))]
    full = retrieved(documents, Capture("full"), losses)
    assert full[0]["metadata"] == {"k": [1, 2]} and full[0]["score"] == 0.5 and full[0]["chars"] == 3
    assert (full[1]["content"], full[1]["id"], full[1]["score"]) == ("c?", "?", None)
    assert losses == [
        "documents[0].metadata.b: bytes left out",
        "documents[1].score: nan is not a number JSON can hold",
    ]
    for mode, keys in (("digest", {"id", "score", "chars", "hash"}), ("none", {"id", "score", "chars"})):
        assert set(retrieved(documents, Capture(mode), [])[0]) == keys  # type: ignore[arg-type]


def test_masking_reaches_metadata() -> None:
    document = Document("mail bob@corp.com", "1", None, {"from": "bob@corp.com", "to": ["bob@corp.com"]})
    assert "bob@corp.com" not in repr(retrieved([document], Capture("masked"), []))


def test_after_defense_points_at_unchanged_texts() -> None:
    before = [Seen("1", "one", 1.0), Seen("2", "two", 0.5), Seen("3", "one", 0.1)]
    after = [Document("two", "2", 0.9), Document("new", "1", None), Document("one", "3", 0.1)]
    rows = after_defense(before, after, Capture("full"), [])
    assert [r.get("of") for r in rows] == [1, None, 0]
    assert rows[1]["content"] == "new" and "content" not in rows[0]


def test_messages() -> None:
    assert messages([Message("user", "hi")], Capture("full")) == [
        {"role": "user", "parts": [{"type": "text", "chars": 2, "content": "hi"}]}
    ]
    assert messages([Message("user", "hi")], Capture("digest")) == [
        {"role": "user", "parts": [{"type": "text", "chars": 2}]}
    ]
