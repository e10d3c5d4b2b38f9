"""Before and after, compared: tables by hand, and properties against a naive reference."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.record import effects
from ragtrace.record.effects import Effect, Seen

A, B, C = Seen("a", "text a", 0.1), Seen("b", "text b", 0.2), Seen("c", "text c", None)
NAN = float("nan")


@pytest.mark.parametrize(
    ("before", "after", "flags"),
    [
        ([A, B], [A, B], ""),
        ([], [], ""),
        ([A, B], [B, A], "order"),
        ([A, B], [A], "ids"),
        ([A], [A, B], "ids text"),
        ([A, B], [], "ids"),
        ([A, B], [A, B._replace(content="x")], "text"),
        ([A, B], [A, B._replace(score=0.3)], "scores"),
        ([A, C], [A, C._replace(score=0.3)], "scores"),
        ([A, B], [B._replace(score=9.0), A._replace(content="")], "order scores text"),
        ([A], [A._replace(id="z")], "ids"),
        ([A], [A._replace(id="z", content="new")], "ids text"),
        ([A._replace(score=NAN)], [A._replace(score=float("nan"))], ""),
        ([A, A], [A], "ids"),
        ([A, A._replace(content="x")], [A, A._replace(content="x")], ""),
        ([A, B, C], [A, C], "ids"),
        ([A, B, C], [C, A], "ids order"),
    ],
)
def test_documents(before: list[Seen], after: list[Seen], flags: str) -> None:
    effect = effects.documents_effect("d", "retrieval", before, after)
    assert " ".join(f for f in ("ids", "order", "scores", "text") if getattr(effect, f"{f}_changed")) == flags
    assert effect.status == ("changed" if flags else "unchanged")
    assert (effect.documents_before, effect.documents_after) == (len(before), len(after))
    assert effect.chars_after == sum(len(d.content) for d in after)


documents = st.lists(
    st.builds(
        Seen,
        st.sampled_from("abc"),
        st.sampled_from(["", "x", "yy"]),
        st.sampled_from([None, 0.5, NAN]),
        st.sampled_from([{}, {"author": "Ann"}, {"author": "Bo"}]),
    ),
    max_size=4,
)


def reference(before: list[Seen], after: list[Seen]) -> dict[str, bool]:
    """The definition, written out naively: a document is its id and its turn among equal ids."""

    def turn(docs: list[Seen], i: int) -> tuple[str, int]:
        return docs[i].id, sum(d.id == docs[i].id for d in docs[:i])

    def place(docs: list[Seen], key: tuple[str, int]) -> int:
        return next(i for i in range(len(docs)) if turn(docs, i) == key)

    old, new = ([turn(d, i) for i in range(len(d))] for d in (before, after))
    both = [(before[place(before, k)], after[place(after, k)]) for k in old if k in new]
    added = [after[place(after, k)] for k in new if k not in old]
    places = [place(after, k) for k in old if k in new]
    return {
        "ids": Counter(old) != Counter(new),
        "order": any(x > y for i, x in enumerate(places) for y in places[i:]),
        "scores": any(repr(x.score) != repr(y.score) for x, y in both),
        "text": any(x.content != y.content for x, y in both)
        or any(all(d.content != b.content for b in before) for d in added),
        "metadata": any(x.metadata != y.metadata for x, y in both),
    }


@settings(max_examples=300, deadline=None)
@given(documents, documents)
def test_against_a_naive_reference(before: list[Seen], after: list[Seen]) -> None:
    effect = effects.documents_effect("d", "content", before, after)
    wanted = reference(before, after)
    assert {f: getattr(effect, f"{f}_changed") for f in wanted} == wanted
    assert (effect.status == "changed") == any(wanted.values())


def test_texts_and_messages() -> None:
    same, other = (effects.text_effect("d", "query", "abc", t) for t in ("abc", "abcd"))
    assert (same.status, same.text_changed, other.status, other.text_changed) == ("unchanged", False, "changed", True)
    assert (other.chars_before, other.chars_after, other.documents_before) == (3, 4, None)
    role = effects.messages_effect("d", "prompt", [("user", "a")], [("system", "a")])
    assert role.status == "changed" and role.chars_before == role.chars_after == 1


def test_only_what_is_said_is_stored() -> None:
    made: dict[str, Any] = Effect(
        "d", "content", "changed", text_changed=True, documents_before=0, chars_after=0
    ).to_json()
    assert made == {
        "defense": "d", "hook": "content", "status": "changed", "text_changed": True,
        "documents_before": 0, "chars_after": 0,
    }  # fmt: skip
