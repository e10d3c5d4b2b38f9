"""Canaries: outside everything they are checked against, and where they are planted."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace import ner
from ragtrace.canaries import FAMILIES, mint, plant, plant_corpus, scan
from ragtrace.corpora.synthetic_email import build
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Document

# the HTML standard's pattern for a valid e-mail address, shortened: what an ordinary mask looks for
EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
ALL = tuple(FAMILIES)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{2,}", text.casefold())) - {"com", "net", "org"}


LEXICON = {w for entry in ner.vocabulary() for w in words(entry)}


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_canaries_are_outside_lexicon_constants_and_corpus(seed: int) -> None:
    corpus = build(3, seed)
    avoid = {"[EMAIL]", "john.roe@example.com", "Jane Doe"}
    minted = mint(4, seed, ALL, avoid, [d.content for d in corpus.members])
    assert minted == mint(4, seed, ALL, avoid, [d.content for d in corpus.members])
    assert len(set(minted)) == 4 * len(ALL)
    outside = LEXICON | {w for text in (*avoid, *(d.content for d in corpus.members)) for w in words(text)}
    for text in minted:
        assert words(text).isdisjoint(outside)
        assert not re.search("example|test|acme|canary", text.casefold())
    for email in minted[:4]:
        assert EMAIL.fullmatch(email)
        assert [e.type for e in ner.entities(f"Write to {email}.")] == ["EMAIL_REAL"]
    for person in minted[4:8]:
        assert re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", person)


def test_what_a_defense_writes_is_never_minted() -> None:
    first = mint(2, 7)
    again = mint(2, 7, avoid=frozenset(first))
    assert set(first).isdisjoint(again)
    assert not any(words(a) & words(b) for a in first for b in again)
    phone = mint(1, 7, ("phone",))[0]
    assert mint(1, 7, ("phone",), avoid={"+" + re.sub(r"\D", "", phone)}) != [phone]


def test_nothing_left_to_mint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "email", (lambda rng: "one@two.org", "{}"))
    with pytest.raises(InputError, match="fewer"):
        mint(2, 0, ("email",))


@pytest.mark.parametrize("families", [(), ("email", "email"), ("e-mail",)])
def test_wrong_families(families: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="expected"):
        mint(1, 0, families)


def test_wrong_counts_and_documents() -> None:
    with pytest.raises(UsageError, match="n ≥ 1"):
        mint(0, 0)
    with pytest.raises(InputError, match="at least one"):
        plant([])
    with pytest.raises(InputError, match="'a'"):
        plant([Document("x", "a"), Document("y", "a")])


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_planting_adds_one_of_each_family_and_changes_nothing_else(texts: list[str], seed: int) -> None:
    documents = [Document(t, f"d{i}", metadata={"k": i}) for i, t in enumerate(texts)]
    planted, found = plant(documents, ALL, seed)
    assert [d.content for d in documents] == texts, "the originals are not touched"
    for before, after in zip(documents, planted, strict=True):
        own = [c for c in found if c.document_id == before.id]
        assert [c.family for c in own] == list(ALL)
        assert scan(after.content, found) == own
        content = after.content
        for canary in own:
            assert content.count(canary.text) == 1
            content = content.replace(FAMILIES[canary.family][1].format(canary.text), "")
        assert content.split() == before.content.split()


def test_headers_and_first_sentence_stay_whole() -> None:
    for before, after in zip(build(20, 3).members, plant(build(20, 3).members, seed=3)[0], strict=True):
        head = re.match(r"(?s).*?\n\n.*?[.!?] ", before.content)
        assert head and after.content.startswith(head[0])


def test_members_and_non_members_look_alike() -> None:
    corpus = plant_corpus(build(10, 1, 10), seed=1)
    assert len(corpus.canaries) == 20
    assert {c.document_id for c in corpus.canaries} == {d.id for d in corpus.members}
    for document in (*corpus.members, *corpus.non_members):
        assert "For follow-up write to " in document.content
        assert "The contact person for this is " in document.content
    assert not any(scan(d.content, corpus.canaries) for d in corpus.non_members)
