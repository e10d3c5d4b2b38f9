"""From an audit's traces to stored likelihoods: what is scored, once, and what is not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from runs import Run
from store_fixtures import Bench, Row

from ragtrace.attacks._likelihood import prefix_of, prefix_texts
from ragtrace.attacks.loss import ATTACK
from ragtrace.errors import UsageError
from ragtrace.likelihood import Passage, TokenLikelihoods, fill
from ragtrace.likelihood.filling import ALL, DEFAULT
from ragtrace.likelihood.neighbours import neighbours, shape, vocabulary
from ragtrace.record import attributes as a
from ragtrace.types import Corpus, Document

TARGETS = {
    "likelihood-1-0001": "Ann Lee signed 20 papers in the old mill near Oak Hill",
    "likelihood-1-0002": "Bob Ray sold 31 horses to a man whom nobody knew there",
    "likelihood-1-0003": "Sue Fox wrote 47 letters about the corn and its price",
}
NON_MEMBERS = ["Somebody else slept.", "A third one sang."]


class Words:
    """One token a word; remembers what it was asked."""

    def __init__(self, name: str = "words", fails_at: int | None = None) -> None:
        self.name, self.asked, self.fails_at = name, list[Passage](), fails_at
        self.calls = 0

    def score(self, passages: Sequence[Passage]) -> list[TokenLikelihoods]:
        self.calls += 1
        if self.calls == self.fails_at:
            raise KeyboardInterrupt
        self.asked += passages
        return [self.one(p) for p in passages]

    def one(self, p: Passage) -> TokenLikelihoods:
        words = p.text.split()
        logprobs = tuple(-0.5 if w in p.prefix else -float(len(w)) for w in words)
        moments = (tuple(-2.0 for _ in words), tuple(1.5 for _ in words)) if p.moments else ((), ())
        return TokenLikelihoods(logprobs, *moments, note="cut" if "cut me" in p.prefix else None)


def audit(bench: Bench, prompts: dict[str, dict[str, str | None]], texts: dict[str, str] = TARGETS) -> Run:
    """``prompts``: arm → probe → what the model was given; ``None`` where it was not recorded."""
    run = Run(bench, {arm: [] for arm in prompts})
    for arm, given in prompts.items():
        for i, (probe, prompt) in enumerate(given.items()):
            detail = {"prefix": NON_MEMBERS} if i == 0 else None
            asked = {"attack": "likelihood", "corpus": "c", "seed": 1, "query": "q", "target_id": probe[-4:],
                     "target_text": texts[probe], "is_member": i % 2 == 0, "detail": detail}  # fmt: skip
            who = {a.RUN_ID: "r", a.PROBE_ID: probe, a.ARM: arm, a.CAPTURE: "full"}
            with bench.request(**who, **{a.PROBE: asked}):
                stage: Row = {} if prompt is None else {
                    a.INPUT_MESSAGES: [{"role": "user", "parts": [{"content": prompt}]}]
                }  # fmt: skip
                with bench.stage("generation", **who, **stage):
                    pass
    return run


def both_arms(bench: Bench) -> Run:
    first, second, third = TARGETS
    return audit(
        bench,
        {
            "none": {first: f"doc: {TARGETS[first]}", second: "doc: other", third: "cut me"},
            "mask": {first: "doc: ***", second: "doc: other", third: None},
        },
    )


def test_what_is_scored_and_stored(bench: Bench) -> None:
    words = Words()
    with both_arms(bench).open() as db:
        done = fill(db, "r", words, kinds=ALL)
        stored = db.execute(
            "SELECT probe_id, arm, kind, count(*), min(variant), max(variant) FROM likelihoods GROUP BY ALL"
        ).fetchall()
        row = db.execute(
            "SELECT * FROM likelihoods WHERE kind = 'context' AND arm = 'none' AND probe_id LIKE '%1'"
        ).fetchone()
        schema = {n: t for n, t, *_ in db.execute("DESCRIBE likelihood_data").fetchall()}
        notes = db.execute("SELECT DISTINCT kind, note FROM likelihoods WHERE note IS NOT NULL ORDER BY ALL").fetchall()
        kept = " ".join(map(str, db.execute("SELECT * EXCLUDE (logprobs, mu, sigma) FROM likelihood_data").fetchall()))
    first, second, third = TARGETS
    held = [(probe, arm) for probe in (first, second) for arm in ("mask", "none")] + [(third, "none")]
    expected = [
        (probe, arm, kind, n, 0, n - 1)
        for probe, arm in held
        for kind, n in (("context", 1), ("neighbour", 25), ("prefixed", 1))
    ]
    expected += [
        (probe, None, kind, n, 0, n - 1)
        for probe in TARGETS
        for kind, n in (("alone", 1), ("neighbour_alone", 25), ("prefixed_alone", 1))
    ]
    assert sorted(stored, key=str) == sorted(expected, key=str)
    # the second target's prompts are equal in both arms, and so may neighbours be: asked once
    assert done.scored == len(words.asked) == len(set(words.asked)) < 27 * (3 + 4)
    assert {p.prefix for p in words.asked} == {"", f"doc: {TARGETS[first]}", "doc: ***", "doc: other", "cut me"}
    assert (done.model, done.present, done.unreadable) == ("words", 0, 1)
    assert done.notes == sum(p.prefix == "cut me" for p in words.asked)
    text = TARGETS[first]
    n = len(text.split())
    assert row == (
        "r",
        first,
        "none",
        "context",
        0,
        "words",
        len(text),
        n,
        -0.5,
        [-0.5] * n,
        [-2.0] * n,
        [1.5] * n,
        None,
    )
    assert notes == [("context", "cut"), ("neighbour", "cut"), ("prefixed", "cut")]
    assert schema["logprobs"] == "FLOAT[]" and not any(w in kept for t in TARGETS.values() for w in t.split()[:2])
    assert Passage(f"doc: {text}", text) in words.asked and Passage("", text) in words.asked
    assert Passage("", text, "\n\n".join(NON_MEMBERS), moments=False) in words.asked


def test_neighbours_are_not_asked_alone_unless_named(bench: Bench) -> None:
    with both_arms(bench).open() as db:
        fill(db, "r", Words())
        kinds = db.execute("SELECT DISTINCT kind FROM likelihoods ORDER BY 1").fetchall()
    assert [k for (k,) in kinds] == sorted(DEFAULT) and set(ALL) - set(DEFAULT) == {"neighbour_alone"}


def test_interrupted_and_made_again(bench: Bench) -> None:
    told: list[tuple[int, int]] = []
    broken, rest, again = Words(fails_at=3), Words(), Words()
    with both_arms(bench).open() as db:
        with pytest.raises(KeyboardInterrupt):
            fill(db, "r", broken, chunk=2, progress=lambda *at: told.append(at))
        assert told == [(2, 7), (4, 7)]
        before = db.execute("FROM likelihood_data ORDER BY ALL").fetchall()
        assert len(before) and {r[2] for r in before} == {None, "mask"}
        assert fill(db, "r", rest, chunk=2).present == 4
        assert not set(rest.asked) & set(broken.asked)
        after = db.execute("FROM likelihood_data ORDER BY ALL").fetchall()
        assert set(map(str, before)) < set(map(str, after))
        done = fill(db, "r", again)
        assert (again.calls, done.scored, done.present) == (0, 0, 7)
        # another model's numbers stand beside these
        assert fill(db, "r", Words("others"), kinds=["alone"], arms=[]).scored == 3
        assert db.execute("SELECT count(*) FROM likelihood_data WHERE model = 'words'").fetchone() == (len(after),)


def test_nothing_of_a_lot_is_kept_or_lost_when_storing_fails(bench: Bench) -> None:
    class Full:
        """A database whose disk is full when something is to be put in."""

        def __init__(self, db: Any) -> None:
            self.db = db

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

        def execute(self, sql: str, *given: Any) -> Any:
            if sql.startswith("INSERT"):
                raise OSError("disk full")
            return self.db.execute(sql, *given)

    with both_arms(bench).open() as db:
        fill(db, "r", Words(), kinds=["context"], arms=["none"])
        before = db.execute("FROM likelihood_data ORDER BY ALL").fetchall()
        broken: Any = Full(db)
        with pytest.raises(OSError, match="disk full"):
            fill(broken, "r", Words(), kinds=["context"])  # the second target's prompt is that of both arms
        assert db.execute("FROM likelihood_data ORDER BY ALL").fetchall() == before and len(before) == 3
        assert fill(db, "r", Words(), kinds=["context"]).scored == 2


def test_one_arm_only(bench: Bench) -> None:
    with both_arms(bench).open() as db:
        done = fill(db, "r", Words(), kinds=["context"], arms=["mask"])
        assert (done.scored, done.unreadable) == (2, 1)
        assert db.execute("SELECT DISTINCT arm FROM likelihoods").fetchall() == [("mask",)]


def test_wrong_use(bench: Bench) -> None:
    with both_arms(bench).open() as db:
        with pytest.raises(
            UsageError, match=re.escape("no likelihoods are called ['contxt']; expected some of context")
        ):
            fill(db, "r", Words(), kinds=["contxt"])
        with pytest.raises(UsageError, match="chunk is 0"):
            fill(db, "r", Words(), chunk=0)
        with pytest.raises(UsageError, match="arms is the text 'none'; expected a list"):
            fill(db, "r", Words(), arms="none")
        with pytest.raises(UsageError, match="run 'x' has no 'likelihood' probes; expected a run of one of"):
            fill(db, "x", Words())


# --- neighbours -------------------------------------------------------------------------------------------------------


def test_neighbours_differ_in_five_percent_of_the_words() -> None:
    other = "Zoe Kay bought 88 goats from the king who lived by Red Lake in 1984 and slept well"
    long = " ".join(f"word{chr(97 + i % 26)}{'abcd'[i // 26]}" for i in range(100)) + "."
    for text, changed in ((TARGETS["likelihood-1-0001"], 1), (f"The {long}", 5)):
        found = neighbours(text, vocabulary([text, other]))
        assert len(found) == 25 and len(set(found)) > 1 and text not in found
        assert found == neighbours(text, vocabulary([text, other]))
        for version in found:
            pairs = [(x, y) for x, y in zip(text.split(), version.split(), strict=True) if x != y]
            assert len(pairs) == changed
            for old, new in pairs:
                assert shape(old.strip(".")) == shape(new.strip(".")) and new.strip(".") in other.split()


@pytest.mark.parametrize("text", ["", "... --", "42"])
def test_texts_without_neighbours(text: str) -> None:
    assert neighbours(text, vocabulary([text, "no such shape here"])) == []
    assert neighbours("alone in the run", vocabulary(["alone in the run"])) == []


def test_shapes() -> None:
    assert [shape(w) for w in ("a", "A", "Ab", "AB", "a1", "1984", "é")] == ["a", "Aa", "Aa", "A", "92", "94", "a"]


# --- the prefix of ReCaLL ---------------------------------------------------------------------------------------------


def corpus(non_members: Sequence[str], members: int = 4) -> Corpus:
    return Corpus(
        "c", 0, tuple(Document(f"member {i} text", f"m{i}") for i in range(members)),
        tuple(Document(t, f"n{i}") for i, t in enumerate(non_members)),
    )  # fmt: skip


def test_the_prefix_is_of_non_members_that_are_no_targets() -> None:
    texts = [f"outsider {i} said this" for i in range(12)]
    attack: Any = type(ATTACK)(count=4)
    probes = list(attack.probes(corpus(texts), 1))
    chosen = probes[0].detail["prefix"]
    targets = {p.target_text for p in probes}
    assert len(chosen) == 5 == len(set(chosen)) and set(chosen) <= set(texts) - targets
    assert [p.detail for p in probes[1:]] == [None] * 3
    assert probes == list(attack.probes(corpus(texts), 1))
    assert chosen != next(iter(attack.probes(corpus(texts), 2))).detail["prefix"]
    assert next(iter(type(ATTACK)().probes(corpus(texts[:4]), 1))).detail == {"prefix": []}


def test_a_prefix_has_at_most_400_words() -> None:
    long = [" ".join([f"w{i}"] * 150) for i in range(4)]
    assert [len(t.split()) for t in prefix_texts(corpus(long), 0, set())] == [150, 150]
    (cut,) = prefix_texts(corpus(["x " * 900]), 0, set())
    assert len(cut.split()) == 400
    assert prefix_of([None, "{}", '{"prefix": []}', '{"prefix": ["a", "b"]}']) == "a\n\nb"
    assert prefix_of([None]) == ""
