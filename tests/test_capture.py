"""Foreign values become JSON, or a named loss; no object is ever printed; texts obey the capture mode."""

from __future__ import annotations

import json
import math
from datetime import date
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragtrace.errors import UsageError
from ragtrace.record.capture import Capture, digest, dumps, plain, well_formed


class Client:
    """An object as metadata holds them: printing it gives its secret away, and is a failure here."""

    def __repr__(self) -> str:
        raise AssertionError("printed")

    __str__ = __format__ = __hash__ = __repr__  # type: ignore[assignment]
    __hash__ = object.__hash__


class Loud(str):
    """A string that prints itself in its own way."""

    def __str__(self) -> str:
        raise AssertionError("printed")

    __repr__ = __str__


class Broken(dict):  # type: ignore[type-arg]
    """A mapping that cannot be read."""

    def items(self) -> Any:
        raise RuntimeError("closed")


CASES: list[tuple[Any, Any, str]] = [
    (None, None, ""),
    (True, True, ""),
    (3, 3, ""),
    (0.5, 0.5, ""),
    (math.nan, None, "x: nan is not a number"),
    (math.inf, None, "x: inf is not a number"),
    (10**5000, None, "x: an integer too long"),
    (Loud("hi"), "hi", ""),
    ("a\ud800b", "a?b", ""),
    (date(2020, 1, 2), "2020-01-02", ""),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001", ""),
    (PurePosixPath("a/b"), "a/b", ""),
    (b"raw", None, "x: bytes left out"),
    (Client(), None, "x: Client left out"),
    ([1, Client(), 2], [1, 2], "x[1]: Client left out"),
    ({"a": Client(), "b": [b""]}, {"b": []}, "x.a: Client left out"),
    ({1: "a", None: "b", Client(): "c", (1, 2): "d"}, {"1": "a", "None": "b"}, "x, a key: Client left out"),
    (Broken(a=1), None, "x: Broken cannot be read"),
    ({"\ud800": 1}, {"?": 1}, ""),
    (list(range(1500)), list(range(1000)), "x: only 1000 of 1500"),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_plain(case: int) -> None:
    value, made, loss = CASES[case]
    losses: list[str] = []
    assert plain(value, losses, "x") == made
    assert losses[0].startswith(loss) if loss else losses == []


def test_cycles_and_shared_parts_end() -> None:
    cycle: list[Any] = []
    cycle += [cycle] * 10
    shared: list[Any] = ["leaf"] * 100
    for _ in range(6):
        shared = [shared] * 100
    for value in (cycle, shared, {"a": cycle}):
        losses: list[str] = []
        assert len(dumps(plain(value, losses, "x"))) < 200_000
        assert any("cyclic" in loss for loss in losses)


foreign = (
    st.builds(Client) | st.binary(max_size=3) | st.builds(object) | st.complex_numbers() | st.builds(Loud, st.text())
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None), max_size=5) | foreign,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.builds(Client), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(values)
def test_plain_is_always_json_and_never_prints(value: Any) -> None:
    losses: list[str] = []
    made = plain(value, losses, "x")
    text = dumps(made)
    assert json.loads(text) == made
    text.encode()
    dumps(losses).encode()
    json.dumps(made, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_well_formed(text: str) -> None:
    made = well_formed(text)
    made.encode()
    assert len(made) == len(text)
    assert all(a == b or ("\ud800" <= a <= "\udfff" and b == "?") for a, b in zip(text, made, strict=True))


def test_digests_are_keyed_blake2b() -> None:
    """Reference: ``b2sum -l 128`` of the three bytes ``abc``."""
    assert digest("abc") == "cf4ab791c62b8d2b2109c90275287816"
    assert digest("abc", b"key") != digest("abc")
    assert digest("\ud800") == digest("?")


def test_modes() -> None:
    text = "Write to bob@corp.com"
    full, masked, digested, none = (Capture(m) for m in ("full", "masked", "digest", "none"))  # type: ignore[arg-type]
    assert full.text(text) == text
    assert masked.text(text) is not None and "bob@corp.com" not in masked.text(text)  # type: ignore[operator]
    assert digested.text(text) is None and digested.digest(text) == digest(text)
    assert none.text(text) is None and none.digest(text) is None
    with pytest.raises(UsageError, match="capture='all'; expected one of full, masked, digest, none"):
        Capture("all")  # type: ignore[arg-type]


def test_the_environment_s_key_is_everybody_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an instrumentor is used without ``ragtrace.setup``; where text is kept, a digest hides nothing."""
    monkeypatch.setenv("RAGTRACE_DIGEST_KEY", "k" * 70)
    keyed = blake2b(b"text", digest_size=16, key=b"k" * 64).hexdigest()
    assert Capture("digest").digest("text") == Capture("masked").digest("text") == keyed
    assert Capture("full").digest("text") == blake2b(b"text", digest_size=16).hexdigest()
    assert Capture("digest", b"own").digest("text") == blake2b(b"text", digest_size=16, key=b"own").hexdigest()
    monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", "true")
    assert Capture("full").side("inputs").digest("text") == keyed
    monkeypatch.delenv("RAGTRACE_DIGEST_KEY")
    assert Capture("digest").digest("text") == blake2b(b"text", digest_size=16).hexdigest()
