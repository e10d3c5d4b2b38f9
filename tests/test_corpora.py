"""The synthetic corpus and the split into members and non-members."""

from __future__ import annotations

import random
import re
import types
from email import message_from_string
from email.utils import parseaddr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace import corpora, plugins
from ragtrace.corpora.base import near_duplicates, shingles, split
from ragtrace.corpora.synthetic_email import MAX_CHARS, MIN_CHARS, SyntheticEmail, build
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Document


@given(st.integers(1, 30), st.integers(0, 20), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_every_document_is_an_email_with_its_ground_truth(n: int, non_members: int, seed: int) -> None:
    corpus = build(n, seed, non_members)
    everything = (*corpus.members, *corpus.non_members)
    assert (len(corpus.members), len(corpus.non_members)) == (n, non_members)
    assert len({d.content for d in everything}) == len({d.id for d in everything}) == n + non_members
    for document in everything:
        assert MIN_CHARS <= len(document.content) <= MAX_CHARS
        assert re.fullmatch(r"email-\d{4,}", document.id)
        message = message_from_string(document.content)  # the standard library's parser as the reference
        assert message["Date"] and message["Subject"] == document.metadata["subject"]
        planted = {e["text"] for e in document.metadata["entities"]}
        for header in ("From", "To"):
            assert set(parseaddr(message[header])) <= planted
        assert all(text in document.content for text in planted)
        assert "{" not in document.content


def test_the_scorer_sees_what_was_planted() -> None:
    ner = pytest.importorskip("ragtrace.ner")
    for document in build(30, 5).members:
        found = {(e.type, e.text) for e in ner.entities(document.content)}
        assert {(e["type"], e["text"]) for e in document.metadata["entities"]} <= found


def test_the_seed_decides() -> None:
    assert build(20, 1, 20) == build(20, 1, 20)
    assert build(20, 1, 20).members != build(20, 2, 20).members


def test_membership_is_a_coin_flip() -> None:
    corpora_ = [build(5, seed, 5) for seed in range(200)]
    first = sum("email-0001" in {d.id for d in c.members} for c in corpora_)
    # binomial(200, 1/2): five standard deviations are 35
    assert abs(first - 100) < 36


@pytest.mark.parametrize(("n", "non_members"), [(0, 0), (-3, 5), (4, -1)])
def test_impossible_sizes(n: int, non_members: int) -> None:
    with pytest.raises(InputError, match="expected"):
        build(n, 0, non_members)


def test_near_duplicates_are_replaced_and_counted() -> None:
    base = "the quick brown fox jumps over the lazy dog near the old river bank at noon"
    texts = iter(
        [base, base + " today", "something else that has nothing to do with it", base, "a third text of its own"]
    )

    def draw(count: int) -> list[Document]:
        return [Document(t, t[:60]) for _, t in zip(range(count), texts, strict=False)]

    corpus = split("x", 0, draw, 2, 1)
    assert corpus.near_duplicates_removed == 2
    assert {d.content for d in (*corpus.members, *corpus.non_members)} == {
        base,
        "something else that has nothing to do with it",
        "a third text of its own",
    }
    with pytest.raises(InputError, match="lower n"):
        split("x", 0, lambda count: [], 2, 1)


def all_pairs(texts: list[str], threshold: float) -> set[int]:
    """The definition, pair by pair."""
    kept: list[int] = []
    for i, text in enumerate(texts):
        own = shingles(text)
        jaccards = [len(own & s) / len(own | s) for s in (shingles(texts[j]) for j in kept)]
        if not any(j >= threshold for j in jaccards):
            kept.append(i)
    return set(range(len(texts))) - set(kept)


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=9).map(" ".join), max_size=8), st.floats(0.1, 1))
@settings(max_examples=150, deadline=None)
def test_near_duplicates_equal_all_pairs(texts: list[str], threshold: float) -> None:
    assert near_duplicates(texts, threshold=threshold) == all_pairs(texts, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.6, 0.8, 0.95])
def test_near_duplicates_of_texts_from_templates(threshold: float) -> None:
    """Long texts that share some sentences with all and most with a few."""
    rng = random.Random(5)
    sentences = [" ".join(f"{rng.choice('abcdefgh')}{rng.randint(0, 9)}" for _ in range(8)) for _ in range(14)]
    texts = [" ".join(s for s in sentences if rng.random() < 0.7) + f" {i} {i}x" for i in range(150)]
    expected = all_pairs(texts, threshold)
    assert near_duplicates(texts, threshold=threshold) == expected
    assert 0 < len(expected) < 149


def test_folder_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "synthetic_email" in corpora.load()

    class Point:
        name, value = "theirs", "pkg:THING"

        def __init__(self, thing: object) -> None:
            self.thing = thing

        def load(self) -> object:
            if isinstance(self.thing, Exception):
                raise self.thing
            return self.thing

    def offer(thing: object) -> dict[str, object]:
        monkeypatch.setattr(plugins, "entry_points", lambda group: [Point(thing)])
        return plugins.scan("ragtrace.corpora", "CORPUS", "ragtrace.corpora")

    ours = set(offer(()))
    assert ours >= {"nq", "pubmedqa", "synthetic_email", "triviaqa"}
    assert set(offer(types.SimpleNamespace(name="new"))) == {*ours, "new"}
    for broken in (ImportError("no such module"), types.SimpleNamespace(name="synthetic_email"), object()):
        with pytest.warns(UserWarning, match="left out"):
            assert set(offer(broken)) == ours
    with pytest.raises(UsageError, match="has no NOTHING"):
        plugins.scan("ragtrace.corpora", "NOTHING", "ragtrace.corpora")


def test_short_notes_keep_their_ground_truth() -> None:
    """``longest`` below 400: no line of date, company and telephone, and every entity named is in the text."""
    for document in SyntheticEmail(longest=240).build(30, seed=5).members:
        assert len(document.content) < 400
        assert "Date:" not in document.content
        assert all(e["text"] in document.content for e in document.metadata["entities"])
