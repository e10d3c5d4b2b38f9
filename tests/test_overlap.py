"""The overlap of an answer with a document, against difflib and against plain definitions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace import overlap
from ragtrace.overlap import LIMIT, Answer, N, Overlap, words


def reference(answer: str, document: str) -> Overlap:
    """By difflib and sets of tuples."""
    ours, theirs = (re.findall(r"\w+", text.lower()) for text in (answer, document))
    if not ours:
        return Overlap(0, None)
    run = SequenceMatcher(None, ours, theirs, autojunk=False).find_longest_match().size
    n = min(N, len(ours))
    grams, met = ({tuple(side[i : i + n]) for i in range(len(side) - n + 1)} for side in (ours, theirs))
    return Overlap(run, len(grams & met) / len(grams))


def pairs(n: int) -> Iterator[tuple[str, str]]:
    """Few words and many, copied passages, repetitions, near repetitions, subsets, empty texts."""
    rng = random.Random(20)
    for i in range(n):
        vocabulary = [f"w{k}" for k in range(rng.choice((1, 2, 3, 10, 60, 500)))]
        ours, theirs = (rng.choices(vocabulary, k=rng.randrange(rng.choice((2, 12, 90)))) for _ in range(2))
        if i % 3 == 0 and ours:
            start = rng.randrange(len(ours))
            place = rng.randrange(len(theirs) + 1)
            theirs[place:place] = ours[start : start + rng.randrange(60)]
        if i % 7 == 0:
            ours, theirs = ours * 3, [*theirs, "odd"] * 4
        if i % 11 == 0:
            theirs = [*ours[:-1], "x", *ours[1:]]
        yield " ".join(ours), rng.choice((" ", ", ", "\n")).join(theirs).title()


def test_ten_thousand_pairs_are_as_difflib_says() -> None:
    longest = set()
    for answer, document in pairs(10_000):
        found = Answer(answer).against(document)
        assert found == reference(answer, document), (answer, document)
        longest.add(found.longest_run)
    assert len(longest) > 60  # pairs of all kinds


def test_the_automaton_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "_SMALL", -1)
    for answer, document in pairs(3_000):
        assert Answer(answer).against(document) == reference(answer, document), (answer, document)


text = st.lists(st.sampled_from("a b c aa Ab é ñandú _x 1 2nd".split()), max_size=30).map(" ".join) | st.text()


@settings(max_examples=300, deadline=None)
@given(text, text)
def test_any_texts(answer: str, document: str) -> None:
    """Of Latin texts as difflib says; of any, what holds of every pair."""
    index = Answer(answer)
    run, share = index.against(document)
    if not re.search(f"[{overlap._ALONE}]", (answer + document).lower()):
        assert (run, share) == reference(answer, document)
    assert (share is None) == (words(answer) == [])
    assert run <= min(len(words(answer)), len(words(document)))
    assert Answer(document).against(answer).longest_run == run
    if share is not None:
        assert index.against(answer) == (len(words(answer)), 1.0)
        assert (share > 0) == (run >= min(N, len(words(answer))))


def test_words() -> None:
    assert words("Don't STOP_at 3.5%, naïve!") == ["don", "t", "stop_at", "3", "5", "naïve"]
    assert words("東京都 ist 3-mal น้ำ") == ["東", "京", "都", "ist", "3", "mal", "น", "้", "ำ"]
    ascii_ = "".join(map(chr, range(128))) * 2
    assert words(ascii_) == re.findall(r"\w+", ascii_.lower())
    assert words("a" * LIMIT + " b") == ["a" * LIMIT]


def test_by_hand() -> None:
    document = "The board meets on Monday at nine. Bring the signed papers to room four."
    answer = Answer("Please bring the signed papers, to room five on Monday.")
    # six of its six-word prefix "bring the signed papers to room"; 2 of 6 five-word n-grams
    assert answer.against(document) == (6, 2 / 6)
    assert answer.against("") == (0, 0.0)
    assert Answer("room four").against(document) == (2, 1.0)
    assert Answer("four room").against(document) == (1, 0.0)
    assert Answer("...").against(document) == (0, None)


@pytest.mark.parametrize("shape", ["a ", "a b ", "a " * 50 + "b ", "a b a c "])
def test_long_repetitions_take_linear_time(shape: str) -> None:
    """Counted in steps of the interpreter, not in seconds: each text twice as long takes about twice as many."""
    import sys

    def steps(size: int) -> int:
        answer, document = (shape * size)[:size], (shape[2:] + shape * size)[:size]
        count = 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal count
            count += 1
            return trace

        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]
        try:
            Answer(answer).against(document)
        finally:
            sys.settrace(before)
        return count

    assert steps(8_000) < 2.5 * steps(4_000) and steps(4_000) < 150_000
