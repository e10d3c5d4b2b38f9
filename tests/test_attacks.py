"""Attacks make probes and nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.attacks import load
from ragtrace.attacks._targets import draw
from ragtrace.attacks.base import Access
from ragtrace.attacks.benign import BenignQueries
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.attacks.s2mia import INSTRUCTION, S2MIA, split
from ragtrace.canaries import plant_corpus
from ragtrace.corpora.synthetic_email import build
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Corpus, Document

CORPUS = plant_corpus(build(30, 4, 20), seed=4)


def test_all_are_found_and_seeded() -> None:
    attacks = load()
    assert {"benign", "canary", "s2mia"} <= set(attacks)
    for name in ("benign", "canary", "s2mia"):
        probes = list(attacks[name].probes(CORPUS, 1))
        assert probes == list(attacks[name].probes(CORPUS, 1)) != list(attacks[name].probes(CORPUS, 2))
        assert len({p.probe_id for p in probes}) == len({p.query for p in probes}) == len(probes)
        assert {(p.attack, p.corpus, p.seed) for p in probes} == {(name, "synthetic_email", 1)}


@pytest.mark.parametrize("attack", [CanaryAttack, BenignQueries])
def test_extraction_queries_hold_no_canary_and_no_domain(attack: type[CanaryAttack] | type[BenignQueries]) -> None:
    probes = list(attack(count=200).probes(CORPUS, 0))
    assert len(probes) == 200
    for canary in CORPUS.canaries:
        for secret in (canary.text, *canary.text.split("@")):
            assert not any(secret.casefold() in p.query.casefold() for p in probes)


def test_a_topic_that_holds_a_canary_is_left_out() -> None:
    canary = CORPUS.canaries[0]
    documents = (Document("x", "a", metadata={"topic": f"mail of {canary.text}"}), Document("harmless words", "b"))
    corpus = Corpus("c", 0, documents, canaries=(canary,))
    assert all("harmless words" in p.query for p in CanaryAttack(5).probes(corpus, 0))
    with pytest.raises(InputError, match="no topic"):
        list(CanaryAttack(5).probes(replace(corpus, members=documents[:1]), 0))


def test_wrong_counts() -> None:
    with pytest.raises(InputError, match="no canaries"):
        list(CanaryAttack().probes(build(3, 0), 0))
    with pytest.raises(UsageError, match="expected 1 to"):
        list(BenignQueries(count=10_000).probes(CORPUS, 0))
    with pytest.raises(UsageError, match="even number"):
        S2MIA(count=3)
    with pytest.raises(UsageError, match="between 0 and 1"):
        S2MIA(fraction=1.0)
    with pytest.raises(InputError, match="at least 25 of each"):
        list(S2MIA(count=50).probes(CORPUS, 0))
    with pytest.raises(InputError, match="0 non-members"):
        list(S2MIA().probes(build(3, 0), 0))


def test_s2mia_is_balanced_and_sends_the_beginning_only() -> None:
    probes = list(S2MIA(count=20).probes(CORPUS, 3))
    assert Counter(p.is_member for p in probes) == {True: 10, False: 10}
    assert [p.is_member for p in probes] != sorted((p.is_member for p in probes), reverse=True), "order is mixed"
    truth = {d.id: True for d in CORPUS.members} | {d.id: False for d in CORPUS.non_members}
    for probe in probes:
        assert probe.target_id is not None and probe.target_text is not None
        assert truth[probe.target_id] is probe.is_member
        sent, kept = split(probe.target_text)
        assert sent.strip() in probe.query and kept.strip() not in probe.query
    assert len(list(S2MIA().probes(CORPUS, 0))) == 40


QA = [
    Document(
        f"who wrote book {i}\nAda Ree wrote it", f"q{i}", metadata={"question": f"who wrote book {i}", "answer": "x"}
    )
    for i in range(8)
]
PLAIN = [Document(f"plain text number {i} of six words", f"p{i}") for i in range(8)]


@pytest.mark.parametrize("split, cut", [("auto", 16), ("question", 16), ("position", 17)])
def test_questions_are_sent_as_questions(split: Any, cut: int) -> None:
    text = QA[1].content
    assert S2MIA(split=split).parts(QA[1]) == (text[:cut], text[cut:])  # the line's end is part of the beginning
    (first, second) = S2MIA(split=split).probes(Corpus("c", 0, (QA[1],), (QA[2],)), 0)
    assert {first.query, second.query} == {INSTRUCTION.format(f"who wrote book {i}") for i in (1, 2)}
    assert S2MIA(split=split, fraction=0.3).parts(QA[1])[0] == ("who wrote " if split == "position" else text[:cut])


def test_a_target_that_cannot_be_split_is_named() -> None:
    def ask(document: Document, **options: Any) -> None:
        list(S2MIA(**options).probes(Corpus("c", 0, (document,), (QA[0],)), 0))

    for text, words in (("", "0 words"), ("  \n", "0 words"), ("one", "1 word;")):
        with pytest.raises(InputError, match=rf"target 'odd\\x1b' has {words}.*leave this document out"):
            ask(Document(text, "odd\x1b"))
    question = {"question": "who?", "answer": "Ada"}
    for document in (PLAIN[0], Document("Ada wrote it", "a", metadata=question)):
        with pytest.raises(InputError, match=f"target '{document.id}' has no question to send"):
            ask(document, split="question")
        assert S2MIA().parts(document)[1].strip()  # by position
    with pytest.raises(InputError, match="no question"):
        ask(Document("who?\n ", "empty", metadata=question), split="question")
    with pytest.raises(UsageError, match="auto, question, position"):
        S2MIA(split="words")  # type: ignore[arg-type]


def test_s2mia_asks_about_the_targets_of_the_other_attacks() -> None:
    asked = [(p.target_id, p.is_member) for p in S2MIA(10).probes(CORPUS, 3)]
    assert asked == [(d.id, m) for d, m in draw(CORPUS, 3, 10)]


def test_every_attack_says_what_it_is() -> None:
    for name, attack in load().items():
        card = attack.card
        assert all(str(part).strip() for part in (card.paper, card.prompt, card.queries, card.deviations)), name
        assert card.access in get_args(Access), name


@given(st.text(), st.floats(0.01, 0.99))
@settings(max_examples=100, deadline=None)
def test_split_loses_nothing(text: str, fraction: float) -> None:
    sent, kept = split(text, fraction)
    assert sent + kept == text  # x = query part ⊕ remaining part, section 3.1
    if len(text.split()) > 1:
        assert sent.split() and kept.split()
        assert sent.split() + kept.split() == text.split()


def test_attacks_and_corpora_import_nothing_heavy() -> None:
    code = (
        "import sys; from ragtrace import attacks, corpora, canaries; attacks.load(); corpora.load(); "
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'sacrebleu', 'duckdb', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
