"""Canaries: outside everything they are checked against, and where they are planted."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace import canaries, defenses, ner
from ragtrace.attacks._anchors import anchors
from ragtrace.attacks.canary import FAMILY_POOL, POOL, CanaryAttack
from ragtrace.canaries import FAMILIES, mint, plant, plant_corpus, resembling, scan
from ragtrace.corpora.synthetic_email import build
from ragtrace.defense import Defense
from ragtrace.defenses import EntitySubstitution, PromptModifying, RegexMask
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Document

# the HTML standard's pattern for a valid e-mail address, shortened: what an ordinary mask looks for
EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
ALL = tuple(FAMILIES)


def words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]{2,}", text.casefold())) - {"com", "net", "org"}


LEXICON = {w for entry in ner.vocabulary() for w in words(entry)}
LISTS = {
    w for path in files("ragtrace.lexicons").iterdir() if path.name.endswith(".txt") for w in words(path.read_text())
}
CONSTANTS = {w for d in (EntitySubstitution(), RegexMask(), PromptModifying()) for t in d.constants() for w in words(t)}


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_canaries_are_outside_lexicon_constants_and_corpus(seed: int) -> None:
    corpus = build(3, seed)
    avoid = {"[EMAIL]", "john.roe@example.com", "Jane Doe"}
    minted = mint(4, seed, ALL, avoid, [d.content for d in corpus.members])
    assert minted == mint(4, seed, ALL, avoid, [d.content for d in corpus.members])
    assert len(set(minted)) == 4 * len(ALL)
    outside = (
        LEXICON
        | LISTS
        | CONSTANTS
        | {w for text in (*avoid, *(d.content for d in corpus.members)) for w in words(text)}
    )
    for text in minted:
        assert words(text).isdisjoint(outside)
        assert not re.search("example|test|acme|canary", text.casefold())
    for email in minted[:4]:
        assert EMAIL.fullmatch(email)
        assert [e.type for e in ner.entities(f"Write to {email}.")] == ["EMAIL_REAL"]
    for person in minted[4:8]:
        assert re.fullmatch(r"[A-Z][a-z]+ [A-Z][a-z]+", person)
        assert ner.entities(f"The contact is {person}.") == [], "in no list, by first or last name"
    for phone in minted[8:12]:
        assert [e.type for e in ner.entities(f"Call {phone} now.")] == ["PHONE"]
        assert RegexMask().on_response("", [], phone) == "[PHONE]"
    for code in minted[12:16]:
        assert [e.type for e in ner.entities(f"It is filed under {code}.")] == ["IDENTIFIER"]
        assert RegexMask().on_response("", [], code) == "[ID]"
    for phrase in minted[16:]:
        assert len(phrase.split()) == 4 and phrase.islower()


def test_what_a_defense_writes_is_never_minted() -> None:
    first = mint(2, 7)
    again = mint(2, 7, avoid=frozenset(first))
    assert set(first).isdisjoint(again)
    assert not any(words(a) & words(b) for a in first for b in again)
    phone = mint(1, 7, ("phone",))[0]
    assert mint(1, 7, ("phone",), avoid={"+" + re.sub(r"\D", "", phone)}) != [phone]


def test_a_person_is_drawn_until_neither_name_is_in_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter(["Linda Brodrazok", "Brodrazok Carter", "Tomato Narukan", "Brodrazok Narukan"])
    monkeypatch.setitem(FAMILIES, "person", (lambda rng: next(draws), "{}"))
    assert mint(1, 0, ("person",)) == ["Brodrazok Narukan"]  # tomato: no name, but a word that stops one


def test_words_of_every_installed_defense_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pseudonyms(Defense):
        def constants(self) -> frozenset[str]:
            return frozenset({"Brodrazok"})

    class Choosy(Defense):
        def __init__(self, names: list[str]) -> None:
            raise AssertionError("made without its arguments")

    monkeypatch.setattr(defenses, "load", lambda: {"p": Pseudonyms, "c": Choosy})
    canaries._constants.cache_clear()
    draws = iter(["Brodrazok Tasonem", "Kunetik Narukan"])
    monkeypatch.setitem(FAMILIES, "person", (lambda rng: next(draws), "{}"))
    try:
        assert mint(1, 0, ("person",)) == ["Kunetik Narukan"]
    finally:
        canaries._constants.cache_clear()


def test_digits_of_the_corpus_are_never_minted() -> None:
    phone, code = mint(1, 7, ("phone", "id"))
    corpus = ["call " + re.sub(r"\D", "", phone) + " or " + re.sub(r"(\d{4})$", r" \1", code)]
    again = mint(1, 7, ("phone", "id"), texts=corpus)
    assert phone not in again and code not in again


@pytest.mark.parametrize("texts, avoid, found", [
    (["bremaplul@zuvokarim.net"], [], []),
    (["bremaplul@zuvokarim.net"], ["Write to Zuvokarim."], ["zuvokarim"]),
    (["Linda Narukan"], [], ["linda"]),
    (["(930) 555-0680"], ["9305550680"], ["9305550680"]),
    (["operator_7@acmetest-internal.canary"], ["John Doe", "contact01@example.com"], []),  # the paper's
])  # fmt: skip
def test_what_a_canary_of_anybody_shares_is_named(texts: list[str], avoid: list[str], found: list[str]) -> None:
    assert resembling(texts, avoid) == found


def test_requests_for_each_family_that_is_planted() -> None:
    """The pool for e-mail addresses and persons stays as it was stated; each other family adds its own requests."""

    def templates(*families: str) -> set[str]:
        corpus = plant_corpus(build(30, 1), families)
        topics = anchors(corpus)
        queries = {p.query for p in CanaryAttack(count=len(POOL) * len(topics)).probes(corpus, 0)}
        return {q.replace(topic, "{}") for q in queries for topic in topics if topic in q}

    assert templates("email", "person") == set(POOL)
    for family, requests in FAMILY_POOL.items():
        assert set(requests) <= templates(family) and not set(requests) & set(POOL)
    assert set(FAMILY_POOL) | {"email", "person"} == set(ALL)


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
