"""What the membership attacks are made of: readers of answers, masks, facts, swaps, and what they refuse."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from membership_audit import corpus

from ragtrace.attacks import load
from ragtrace.attacks._entail import Pair, embedded, lexical
from ragtrace.attacks._facts import facts, subject
from ragtrace.attacks._numbered import numbered, same
from ragtrace.attacks._words import Strangers, document_frequency, shape, swap, tells, words
from ragtrace.attacks._yes_no import probabilities, recognise
from ragtrace.attacks.dcmi import DCMI, perturbed
from ragtrace.attacks.difficulty_calibrated import WITH, WITHOUT, DifficultyCalibrated, ratio
from ragtrace.attacks.interrogation import Interrogation
from ragtrace.attacks.mba import MBA, mask_words
from ragtrace.attacks.menta import MEntA
from ragtrace.attacks.rag_mia import RAGMIA
from ragtrace.controls import REFERENCE
from ragtrace.errors import UsageError
from ragtrace.metrics._read import Reply, Target
from ragtrace.types import Corpus, Document

CORPUS = corpus()
TARGET = CORPUS.members[0]

SAID = {
    "yes": [
        "Yes", "yes.", "Yes, the text appears in the context.", "**Yes**", "A: yes", '{"answer": "yes"}', "[Yes]",
        "The text appears in the context.", "It does.", "Based on the context, the answer is: Yes.", "That is correct",
        "The passage is included in the context", "I would say yes.", "True.", "Notably, the text is present", "- Yes",
        "No doubt it is in the context",
        "Certainly, the text appears.", "The context contains the text", "Yes, although I cannot say where.",
        '[{"part_of_context": true}]',
    ],
    "no": [
        "No", "NO, it does not.", "Answer: No", '{"answer": false}', '```json\n{"answer": "No", "why": "yes it"}\n```',
        "The text does not appear in the context.", "It does not.", "Not found in the context.", "False", "(no)",
        "No such text appears.", "The answer is no.", "There is no mention of it.", "This is not true.", '"No"',
        "The passage isn't included", "After reading it, no.", "The text you quoted cannot be found in the context.",
        "The text never appears in the context", "there is no evidence that the text is present", "Final answer: no",
        "The context doesn’t contain the text", "No, I cannot find it.",
        "Certainly! It does not appear there.",
    ],
    "unknown": [
        "", "I cannot answer that.", "I don't know", "I’m sorry, I can't help with that.", "Yes or no?", "Yes and no.",
        "No information is given about it.", "It is unclear whether the text appears.", "Unknown", "Nothing", "1",
        "Absolutely not.",
        "North is the answer", "Yesterday it rained", "I'm not sure, but yes", "I am unable to determine", "Yes/No",
        "I don't see it in the context", '{"yes": "no", "no": "yes"', '{"a": "yes", "b": "no"}', "The moon is far.",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("verdict", "text"), [(v, t) for v, texts in SAID.items() for t in texts])
def test_what_answers_mean(verdict: str, text: str) -> None:
    assert recognise(text) == verdict
    assert recognise(f"\n  {text} \n") == verdict
    assert recognise(json.dumps({"answer": text})) == verdict


def test_no_answer_means_nothing() -> None:
    assert recognise(None) == "unknown"
    assert recognise("[" * 100_000) == "unknown"


@given(st.text(), st.sampled_from(("yes", "no")), st.sampled_from((str.upper, str.title, str.lower)))
@settings(max_examples=200, deadline=None)
def test_the_first_word_decides_however_it_is_dressed(rest: str, word: str, case: Any) -> None:
    assert recognise(rest) in ("yes", "no", "unknown")
    for dressed in (f"**{case(word)}**", f'"{case(word)}."', f"Answer: {case(word)}", f"```\n{case(word)}\n```"):
        assert recognise(dressed) == word
    assert recognise(f"{case(word)}, {rest.replace(word, '')}") in (word, "unknown")


@given(st.text(max_size=3_000, alphabet="yesno {}[]\"':,.cant'\n"))
@settings(max_examples=100, deadline=500)
def test_reading_takes_no_time(text: str) -> None:
    recognise(text * 10)
    numbered(text * 10, 5)


def test_probabilities_are_summed_over_case_and_space() -> None:
    told = [
        ("Yes", 0.4),
        (" yes", 0.1),
        ("▁YES", 0.05),
        ("ĠNo", 0.2),
        ("no,", 0.05),
        ("Yesterday", 0.1),
        ("nothing", 0.1),
    ]
    yes, no = probabilities((token, math.log(p)) for token, p in told)
    assert (yes, no) == pytest.approx((0.55, 0.25))
    assert probabilities([("Maybe", -0.1)]) == (0.0, 0.0) and probabilities([]) == (0.0, 0.0)
    assert probabilities([("yes", 0.5), ("Yes", 0.5)]) == (1.0, 0.0)  # of a server that gives no logarithms


FORMATS = [
    lambda ws: "\n".join(f"[Mask_{i}]: {w}" for i, w in ws),
    lambda ws: "\n".join(f"Mask {i} - {w}" for i, w in ws),
    lambda ws: "\n".join(f"{i}. {w}" for i, w in ws),
    lambda ws: "Here they are:\n" + "\n".join(f"{i}) {w}." for i, w in ws),
    lambda ws: "\n".join(f'- **[MASK_{i}]**: "{w}"' for i, w in ws),
    lambda ws: ", ".join(f"[Mask_{i}]: {w}" for i, w in ws),
    lambda ws: " ".join(f"The [Mask_{i}] is {w}." for i, w in ws),
    lambda ws: "\n".join(f"| Mask_{i} | {w} |" for i, w in ws),
    lambda ws: "| # | word |\n|---|---|\n" + "\n".join(f"| {i} | {w} |" for i, w in ws),
    lambda ws: json.dumps({f"Mask_{i}": w for i, w in ws}),
    lambda ws: "```json\n" + json.dumps({"masks": {str(i): w for i, w in ws}}) + "\n```",
    lambda ws: json.dumps([w for _, w in ws]),
    lambda ws: json.dumps([{"mask": i, "answer": w} for i, w in ws]),
    lambda ws: "\n".join(w for _, w in ws),
    lambda ws: "\n".join(f"[{i}]: {w}" for i, w in ws),
    lambda ws: "\n".join(f"Mask_{i}:\n{w}" for i, w in ws),
    lambda ws: "Of [Mask_1] and [Mask_2]:\n" + "\n".join(f"[Mask_{i}]: {w} (a guess)" for i, w in ws),
]


@given(
    st.lists(st.from_regex(r"[A-Za-z]{2,9}|[0-9]{2,6}", fullmatch=True), min_size=2, max_size=10),
    st.sampled_from(FORMATS),
)
@settings(max_examples=300, deadline=None)
def test_numbered_answers_are_read_in_the_formats_of_models(given_words: list[str], written: Any) -> None:
    avoid = {"is", "was", "mask", "masked"}
    hidden = [f"{w}x" if w.casefold() in avoid else w for w in given_words]
    found = numbered(written(list(enumerate(hidden, 1))), len(hidden))
    assert [same(found.get(i, ""), w) for i, w in enumerate(hidden, 1)] == [True] * len(hidden)


def test_what_is_no_answer_is_not_read_as_one() -> None:
    for text in (
        "",
        "I don't know.",
        "[Mask_1] [Mask_2]",
        "[Mask_9]: foo",
        "{",
        "[1",
        '{"a": {"b": 1}}',
        "- 1.5 is a number",
    ):
        assert not any(same(v, "foo") for v in numbered(text, 2).values())
    assert not same("", "") and not same("...", "!") and same("“Foo”,", "foo") and not same("food", "foo")
    assert numbered("[Mask_1]: foo\n[Mask_1]: bar", 1) == {1: "foo"}


def test_masks_hide_the_hardest_words_of_as_many_parts() -> None:
    filler = tuple(Document(f"every {name} talks of the weather and the river", name) for name in ("a", "b", "c"))
    text = "every person talks of the weather and Zorblax talks of the river near Quuxville where it flows"
    frequency = document_frequency(Corpus("c", 0, (*filler, Document(text, "t"))))
    assert [w.text for w in mask_words(text, 2, frequency)] == ["Zorblax", "Quuxville"]
    assert [w.text for w in mask_words(text, 1, frequency)] == ["Quuxville"]
    assert mask_words("of the and it", 5, frequency) == [] == mask_words("", 3, frequency)
    [probe, *_] = MBA(2, masks=4).probes(CORPUS, 0)
    assert probe.detail is not None and len(probe.detail["hidden"]) == 4
    restored = probe.query
    for i, word in enumerate(probe.detail["hidden"], 1):
        assert restored.count(f"[Mask_{i}]") == (3, 2, 1, 1)[i - 1]  # the instruction names the first two
        restored = restored.replace(f"[Mask_{i}]", word)
    assert str(probe.target_text) in restored
    assert not any(word in probe.query for word in probe.detail["hidden"] if len(word) > 6)


@given(st.text(alphabet="ab cé'-.1\n", max_size=200), st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_masks_are_in_order_and_never_side_by_side(text: str, count: int) -> None:
    own = Corpus("c", 0, (Document(text, "t"),))
    chosen = mask_words(text, count, document_frequency(own))
    places = [words(text).index(w) for w in chosen]
    assert all(b - a > 1 for a, b in pairwise(places)) and len(chosen) <= count
    assert all(tells(w) and text[w.start : w.end] == w.text for w in chosen)
    assert swap(text, [(w, w.text) for w in reversed(chosen)]) == text


def test_rarity_counts_both_sides_alike_and_each_corpus_anew() -> None:
    members, others = CORPUS.members[:6], CORPUS.non_members[:6]
    assert document_frequency(Corpus("a", 0, members, others)) == document_frequency(Corpus("b", 0, others, members))
    assert document_frequency(Corpus("a", 0, members))["report"] == 6
    assert document_frequency(CORPUS)["report"] == 24


def test_interrogation_is_balanced_and_its_truths_are_true() -> None:
    for probe_count in (2, 8, 30):
        asked = Interrogation(questions=probe_count).queries(TARGET, random.Random(1), CORPUS)
        expected = [q.detail["expected"] for q in asked]  # type: ignore[index]
        assert (len(asked), expected.count("yes")) == (probe_count, probe_count // 2)
        assert len({q.text for q in asked}) == len(asked)
        for query in asked:
            said = query.text.split("\n")[1].split('"')[1]
            assert query.text.startswith(f"This is about: {subject(TARGET)}\n")
            assert (said in TARGET.content) is (query.detail["expected"] == "yes")  # type: ignore[index]
    shown = [q.detail["expected"] for q in Interrogation().queries(TARGET, random.Random(1), CORPUS)]  # type: ignore[index]
    assert shown != sorted(shown, reverse=True), "the order tells nothing"


def _target(replies: list[tuple[str | None, dict[str, Any]]], text: str = "t", arm: str = "none") -> Target:
    return Target("x", arm, text, tuple(Reply("q?", detail, None, said, None, ()) for said, detail in replies))


def test_interrogation_scores_by_hand() -> None:
    yes, no = {"expected": "yes"}, {"expected": "no"}
    said: list[tuple[str | None, dict[str, Any]]] = [
        ("Yes", yes),
        ("Yes", no),
        ("I do not know", no),
        ("No", no),
        (None, yes),
    ]
    assert Interrogation().score(_target(said), {}) == (2 - 5) / 4
    assert Interrogation(penalty=0).score(_target(said), {}) == 2 / 4
    assert Interrogation().score(_target([(None, yes)]), {}) is None
    assert Interrogation().score(_target([("Yes", {})]), {}) is None


def test_a_text_without_facts_is_asked_about_and_gets_no_score() -> None:
    bare = Document("It is what it is.", "bare")
    own = Corpus("c", 0, (bare,), (Document("so was it", "o"),))
    for attack in (Interrogation(), MBA(), MEntA(), DCMI(), RAGMIA()):
        asked = list(attack.probes(own, 0))
        assert len(asked) == 2 and all(p.query.strip() for p in asked), attack.name
    assert MBA().score(_target([("[Mask_1]: is", {"hidden": []})]), {}) is None
    assert DCMI().score(_target([("Yes", {})]), {}) is None
    assert RAGMIA().score(_target([(None, {})]), {}) is None
    assert list(Interrogation().probes(Corpus("c", 0, (Document("", "e"),), (Document("", "f"),)), 0))


def test_facts_stand_in_their_sentence_and_not_in_the_subject() -> None:
    text = "Ada Lovelace lived in London. She wrote notes on Babbage and his engine in 1843."
    target = Document(text, "a")
    own = Corpus("c", 0, (target,))
    assert subject(target) == "Ada Lovelace lived"
    pieces = {fact.word.text: fact.piece() for fact in facts(target, own)}
    assert set(pieces) == {"London", "wrote", "notes", "Babbage", "engine", "1843"}
    assert pieces["London"] == "Ada Lovelace lived in London."
    assert pieces["wrote"] == "She wrote notes on Babbage and"
    assert {f.word.text: f.piece("X") for f in facts(target, own)}["1843"] == "and his engine in X"
    titled = Document(text, "a", metadata={"title": " The first  programmer "})
    assert subject(titled) == "The first programmer"
    assert "Lovelace" in {f.word.text for f in facts(titled, own)}


def test_a_language_model_writes_where_one_is_given() -> None:
    prompts = []

    def write(prompt: str) -> str:
        prompts.append(prompt)
        if "ten words" in prompt:
            return "A report\nmore"
        return "1. yes: Did they meet?\n2) No: Was it **late**?\nnonsense\nmaybe: Who?\nQ3: yes - Is it so?"

    asked = Interrogation(questions=5, write=write).queries(TARGET, random.Random(0), CORPUS)
    assert len(asked) == 5 and all(q.text.startswith("This is about: A report\n") for q in asked)
    truths = {q.text.split("\n")[1].removesuffix(" Answer with yes, no or unknown."): q.detail for q in asked}
    assert truths["Did they meet?"] == {"expected": "yes"} and truths["Was it **late**?"] == {"expected": "no"}
    assert truths["Is it so?"] == {"expected": "yes"}
    assert all(TARGET.content in p for p in prompts) and len(prompts) == 2
    natural = MEntA(questions=2, write=lambda p: "Here are some:\n- Who met?\n- When was it?\n- Why?")
    assert natural.queries(TARGET, random.Random(0), CORPUS) == ["Who met?", "When was it?"]
    with pytest.raises(UsageError, match=r"write returned int, expected a str"):
        MEntA(write=lambda p: 3).queries(TARGET, random.Random(0), CORPUS)  # type: ignore[arg-type, return-value]


def test_natural_questions_name_particulars() -> None:
    asked = MEntA().queries(TARGET, random.Random(0), CORPUS)
    assert len(set(asked)) == 5 and all(q.endswith("?") and subject(TARGET) in q for q in asked)
    hard = {fact.word.text for fact in facts(TARGET, CORPUS)}
    assert all(any(h in q for h in hard) for q in asked)
    own = Document(TARGET.content, "q", metadata={"question": "who was it? "})
    assert MEntA(questions=1).queries(own, random.Random(0), CORPUS) == ["who was it?"]


def test_containment_by_hand() -> None:
    text = "Ada Lovelace wrote notes on the engine in 1843."

    def of(answer: str, question: str = "Who wrote notes?") -> float:
        return lexical([Pair(text, question, answer)])[0]

    assert of("Ada Lovelace wrote them in 1843") == 1.0
    assert of("Ada Byron, in 1843") == pytest.approx(2 / 3)
    assert of("Who wrote notes? Notes!") == 0.0, "the question's own words are no answer"
    assert of("Ada and Lovelace? I do not know.") == pytest.approx(2 / 3)  # "know"
    assert of("I do not know of Ada Lovelace.") == 0.0 == of("")
    assert lexical([]) == []
    given = MEntA(entails=lambda target, answer: float(len(answer)))
    assert given.score(_target([("abc", {}), ("a", {}), (None, {})]), {}) == 2.0
    assert given.score(_target([(None, {})]), {}) is None


def test_the_cosine_of_sentence_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from ragtrace.metrics import _embed

    made = {"t": [3.0, 0.0], "same": [5.0, 0.0], "half": [1.0, math.sqrt(3.0)]}
    monkeypatch.setattr(_embed, "embed", lambda texts: np.array([made[text] for text in texts]))
    pairs = [Pair("t", "q", "same"), Pair("t", "q", "I don't know"), Pair("t", "q", "half"), Pair("t", "q", " ")]
    assert embedded(pairs) == pytest.approx([1.0, 0.0, 0.5, 0.0])
    assert embedded([Pair("t", "q", "")]) == [0.0]


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100))
@settings(max_examples=200, deadline=None)
def test_the_calibrated_ratio(observed: float, high: float, low: float) -> None:
    value = ratio(observed, high, low)
    assert 0 < value < 1
    assert ratio(observed, low, high) == pytest.approx(1 - value)
    assert ratio(observed, high, high) == 0.5
    if low <= observed <= high and high > low:
        assert value == pytest.approx((observed - low + 1) / (high - low + 2))


def test_calibration_needs_all_three_answers() -> None:
    attack = DifficultyCalibrated()
    text = "the quick brown fox jumps over the lazy dog"
    arms = {arm: _target([(said, {})], text, arm) for arm, said in (("none", text), (WITH, text), (WITHOUT, "no idea"))}
    assert attack.score(arms["none"], arms) == pytest.approx(101 / 102)
    assert attack.score(arms[WITH], arms) is None is attack.score(arms[WITHOUT], arms)
    assert attack.score(arms["none"], {k: v for k, v in arms.items() if k != WITH}) is None
    assert attack.score(arms["none"], arms | {WITHOUT: _target([(None, {})], text, WITHOUT)}) is None
    assert [arm.name for arm in REFERENCE] == [WITH, WITHOUT]


def test_a_copy_differs_in_the_hardest_words_everywhere() -> None:
    twice = Document("Zorblax met Quux and left. Zorblax was late for a long day of work in the city.", "z")
    own = Corpus("c", 0, (twice,), CORPUS.non_members)
    for fraction, changed in ((0.03, 2), (1.0, 7)):
        copy = perturbed(twice, fraction, random.Random(1), own)
        old, new = words(twice.content), words(copy)
        differ = [(a.text, b.text) for a, b in zip(old, new, strict=True) if a.text != b.text]
        assert len(differ) >= changed and {b for a, b in differ if a == "Zorblax"} == {differ[0][1]}
        assert all(shape(a) == shape(b) for a, b in zip(old, new, strict=True))
    assert perturbed(twice, 0.5, random.Random(1), Corpus("c", 0, (twice,))) == twice.content
    asked = DCMI(perturb=str.upper).queries(twice, random.Random(0), own)
    assert [q.detail for q in asked] == [None, {"perturbed": True}]
    assert twice.content in asked[0].text and twice.content.upper() in asked[1].text
    with pytest.raises(UsageError, match="perturb returned int"):
        DCMI(perturb=len).queries(twice, random.Random(0), own)  # type: ignore[arg-type]


def test_strangers_are_of_the_shape_given_once_and_never_the_targets_own() -> None:
    strangers = Strangers(TARGET, CORPUS, random.Random(2))
    [number] = [w for w in words(TARGET.content) if w.text.isdigit() and len(w.text) == 4][:1]
    got = []
    while (other := strangers.like(number)) is not None:
        got.append(other)
    assert len(set(got)) == len(got) > 10 and all(w.isdigit() for w in got)
    assert not {w.text for w in words(TARGET.content)} & set(got)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: MBA(masks=0), "masks is 0"),
        (lambda: Interrogation(questions=1), "questions is 1"),
        (lambda: Interrogation(penalty=-1), "penalty is -1"),
        (lambda: Interrogation(penalty=math.nan), "penalty is nan"),
        (lambda: Interrogation(write="gpt"), "write='gpt'"),
        (lambda: MEntA(questions=0), "questions is 0"),
        (lambda: MEntA(entails=0.5), "entails=0.5"),
        (lambda: DCMI(fraction=0.0), "fraction is 0.0"),
        (lambda: DCMI(fraction=1.5), "fraction is 1.5"),
        (lambda: DCMI(perturb="x"), "perturb='x'"),
        (lambda: DifficultyCalibrated(fraction=1.0), "fraction is 1.0"),
        (lambda: RAGMIA(count=3), "count is 3"),
    ],
)
def test_wrong_parameters(make: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


def test_every_card_says_what_a_reader_must_know() -> None:
    for name in ("rag_mia", "rag_mia_prob", "mba", "interrogation", "menta", "menta_embedding", "dcmi", "dcmi_prob"):
        card = load()[name].card
        assert "arXiv" in card.paper and card.prompt and card.queries and len(card.deviations) > 40
    assert {n: a.card.access for n, a in load().items() if "prob" in n} == dict.fromkeys(
        ("dcmi_prob", "rag_mia_prob"), "log-probabilities"
    )
    assert load()["difficulty_calibrated"].card.access == "own index"


def test_the_same_seed_gives_the_same_probes() -> None:
    for name in ("rag_mia", "mba", "interrogation", "menta", "dcmi", "difficulty_calibrated"):
        attack = load()[name]
        assert list(attack.probes(CORPUS, 1)) == list(attack.probes(CORPUS, 1)) != list(attack.probes(CORPUS, 2))


def test_what_an_attack_of_ones_own_is_made_from_is_public() -> None:
    from ragtrace import attacks

    assert {name: getattr(attacks, name).__module__ for name in attacks.__all__ if name != "load"} == {
        "AdaptiveAttack": "ragtrace.attacks.base", "Attack": "ragtrace.attacks.base", "Card": "ragtrace.attacks.base",
        "MembershipAttack": "ragtrace.attacks._membership", "Query": "ragtrace.attacks._membership",
    }  # fmt: skip
    with pytest.raises(AttributeError, match="no attribute 'Atack'"):
        _ = attacks.Atack
