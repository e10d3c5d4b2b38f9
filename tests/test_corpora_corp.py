"""Synthetic-Corp, and canaries planted and removed again."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace import corpora, ner
from ragtrace.canaries import FAMILIES, plant, plant_corpus, scan, unplant, unplant_corpus
from ragtrace.corpora import _corp_words, synthetic_corp, synthetic_email
from ragtrace.corpora.base import SHINGLE
from ragtrace.errors import InputError
from ragtrace.types import Document

REQUIRED = Counter(PERSON_NAME=2, EMAIL_REAL=2, PHONE=1, IDENTIFIER=2, ADDRESS=1, ORG_TITLE=2)


@given(st.integers(1, 30), st.integers(0, 20), st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_every_document_has_its_ground_truth(n: int, non_members: int, seed: int) -> None:
    corpus = synthetic_corp.build(n, seed, non_members)
    everything = (*corpus.members, *corpus.non_members)
    assert (len(corpus.members), len(corpus.non_members)) == (n, non_members)
    assert len({d.content for d in everything}) == len({d.id for d in everything}) == n + non_members
    for document in everything:
        assert 400 < len(document.content) < 1_600 and "{" not in document.content
        assert re.fullmatch(r"corp-\d{4,}", document.id)
        assert document.content.startswith(f"Title: {document.metadata['subject']}\n")
        planted = document.metadata["entities"]
        assert all(e["text"] in document.content for e in planted)
        assert Counter(e["type"] for e in planted) == REQUIRED
        # nothing else that looks like an address or a telephone number: the truth is complete for these
        told = {e["text"] for e in planted}
        assert set(re.findall(r"[\w.]+@[\w.-]+\w", document.content)) <= told
        assert set(re.findall(r"\(\d{3}\) \d{3}-\d{4}", document.content)) <= told
        assert set(re.findall(r"\b[A-Z]{2,4}-\d{5}\b", document.content)) <= told


def test_the_scorer_sees_what_was_planted_and_no_other_person_or_address() -> None:
    for document in synthetic_corp.build(60, 5).members:
        found = {(e.type, e.text) for e in ner.entities(document.content)}
        planted = {(e["type"], e["text"]) for e in document.metadata["entities"]}
        assert planted <= found
        strict = {pair for pair in found if pair[0] in ner.STRICT}
        assert strict == {pair for pair in planted if pair[0] in ner.STRICT}


def test_documents_are_no_near_duplicates() -> None:
    """By hand: Jaccard similarity of the word triples of every two documents."""
    for seed in (101, 102, 103, 104, 105):
        texts = [d.content for d in synthetic_corp.build(50, seed, 50).members]
        assert len(texts) == 50
        split = [re.findall(r"\w+", text.casefold()) for text in texts]
        sets = [{tuple(w[i : i + SHINGLE]) for i in range(len(w) - SHINGLE + 1)} for w in split]
        most = max(len(a & b) / len(a | b) for i, a in enumerate(sets) for b in sets[:i])
        assert most < 0.5


def test_the_seed_decides_and_all_kinds_come() -> None:
    first = synthetic_corp.build(100, 1, 20)
    assert first == synthetic_corp.build(100, 1, 20)
    assert first.members != synthetic_corp.build(100, 2, 20).members
    assert {d.metadata["topic"] for d in first.members} == {kind.topic for kind in _corp_words.KINDS}
    assert corpora.load()["synthetic_corp"] is synthetic_corp.CORPUS


@pytest.mark.parametrize(("n", "non_members"), [(0, 0), (-3, 5), (4, -1)])
def test_impossible_sizes(n: int, non_members: int) -> None:
    with pytest.raises(InputError, match="expected"):
        synthetic_corp.build(n, 0, non_members)


@given(
    st.sampled_from([synthetic_corp, synthetic_email]),
    st.integers(0, 10_000),
    st.lists(st.sampled_from(sorted(FAMILIES)), min_size=1, unique=True),
)
@settings(max_examples=30, deadline=None)
def test_canaries_are_planted_and_removed(source: object, seed: int, families: list[str]) -> None:
    corpus = source.build(6, seed, 4)  # type: ignore[attr-defined]
    planted = plant_corpus(corpus, families, seed)
    assert len(planted.canaries) == 6 * len(families)
    for document in planted.members:
        held = scan(document.content, planted.canaries)
        assert {c.document_id for c in held} == {document.id} and len(held) == len(families)
    assert unplant_corpus(planted) == corpus
    # also from non-members, whose canaries the corpus does not list
    assert unplant(planted.non_members) == corpus.non_members != planted.non_members


def test_removal_takes_nothing_else() -> None:
    own = Document(
        "The contact person for this is Mary Jones. For follow-up write to mary@jones.com. The agreed wording is "
        '"as is". The case is filed under ABC-123.',
        "own",
    )
    assert unplant([own]) == (own,)
    planted, _ = plant([own], tuple(FAMILIES), 3)
    assert unplant(planted) == (own,)
    one = Document("No second sentence  \n", "one")
    assert unplant(plant([one], ("email",), 1)[0]) == (replace(one, content="No second sentence"),)
