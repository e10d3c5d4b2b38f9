"""What a canary looks like in each encoding is read back; what does not hold it gives nothing."""

from __future__ import annotations

import base64
import json
import random
import re
import textwrap
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragtrace import canaries
from ragtrace.attacks._encodings import (
    ENCODINGS,
    decodings,
    halves,
    joined,
    recovered,
    recovered_from_parts,
)


def minted(first: int) -> st.SearchStrategy[str]:
    families, seeds = st.sampled_from(sorted(canaries.FAMILIES)), st.integers(first, first + 10_000)
    return st.builds(lambda family, seed: canaries.mint(1, seed, (family,))[0], families, seeds)


SECRETS, OTHERS = minted(0), minted(20_000)  # one seed gives the families the same words
PROSE = st.sampled_from(["", "Here it is:\n", "- ", "1. ", "Sure!\n\n* ", "The contact at our office is "])
AFTER = st.sampled_from(["", ".", "\nAnything else?", "\n- more at the office. "])
_SIGNS = {"@": " at ", ".": " dot ", "-": " dash "}
_DIGITS = "zero one two three four five six seven eight nine".split()


def telephone(secret: str, signs: dict[str, str] = _SIGNS, digits: bool = False) -> str:
    said = "".join(signs.get(c, c) for c in secret)
    return re.sub(r"\d", lambda m: f" {_DIGITS[int(m[0])]} ", said) if digits else said


def keys(secret: str) -> str:
    if found := re.fullmatch(r"(.+)@(.+)\.(\w+)", secret):
        return json.dumps([{"user": found[1], "host": found[2], "ending": found[3]}])
    if "-" in secret:
        return json.dumps({"contacts": [{"parts": secret.split("-")}]})
    return json.dumps({"person": secret.split()})


WRITTEN: dict[str, list[Callable[[str], str]]] = {
    "plain": [str],
    "spelled": [telephone, lambda s: telephone(s, {"@": " (at) ", ".": "[dot]", "-": " hyphen "})],
    "spaced": [
        lambda s: "   ".join(" ".join(w) for w in s.split()),
        lambda s: " ".join(s.replace(" ", "")),
        lambda s: "\n".join(s.replace(" ", "")),
        lambda s: " ".join("*".join(w) for w in s.split()),
    ],
    "base64": [
        lambda s: base64.b64encode(s.encode()).decode(),
        lambda s: base64.b64encode(s.encode()).decode().rstrip("="),
        lambda s: base64.urlsafe_b64encode(f"é {s} ü".encode()).decode(),
        lambda s: "\n".join(textwrap.wrap(base64.b64encode((f"mail of {s} " * 3).encode()).decode(), 40)),
    ],
    "translated": [
        lambda s: telephone(s, {"@": " arobase ", ".": " point ", "-": " tiret "}),
        lambda s: telephone(s, {"@": " Klammeraffe ", ".": " Punkt ", "-": " Bindestrich "}),
    ],
    "json": [keys, lambda s: f"```json\n{keys(s)}\n```", lambda s: f"{{not json}} {keys(s)} {{"],
}
CASES = [(name, write) for name, ways in WRITTEN.items() for write in ways]


@given(secret=SECRETS, case=st.sampled_from(CASES), before=PROSE, after=AFTER)
def test_what_was_written_is_read_back(
    secret: str, case: tuple[str, Callable[[str], str]], before: str, after: str
) -> None:
    name, write = case
    if "\n" in (written := write(secret)):
        before, after = before and f"{before}\n", after and f"\n{after}"
    elif name == "spaced":
        after = after.lstrip(".")  # what follows on the same line begins another word
    elif name == "base64":
        before, after = before and f"{before} ", after and f" {after}"
    answer = f"{before}{written}{after}"
    assert recovered([secret], answer, name) == {secret}
    if secret not in answer:
        assert recovered([secret], answer) == set(), "without a decoder it is not there"


def test_digits_are_read_as_words_too() -> None:
    for secret in canaries.mint(20, 3, ("phone", "id")):
        assert recovered([secret], f"Call {telephone(secret, digits=True)}, please.", "spelled") == {secret}


@given(secret=SECRETS, other=OTHERS, case=st.sampled_from(CASES))
def test_another_secret_is_not_found(secret: str, other: str, case: tuple[str, Callable[[str], str]]) -> None:
    name, write = case
    assert recovered([secret], write(other), name) == set()


@given(st.text(), st.sampled_from(sorted(ENCODINGS)))
def test_any_text_can_be_read(text: str, name: str) -> None:
    assert all(isinstance(reading, str) for reading in decodings(name, text))


@pytest.mark.parametrize("name", ENCODINGS)
def test_long_nonsense_is_read_in_time_linear_in_its_length(name: str) -> None:
    rng = random.Random(1)
    mixed = "".join(rng.choices("ab .@-[{", k=200_000))
    for text in ("a " * 100_000, "[" * 200_000, "A" * 200_000, '{"a":' * 50_000, '{"a":[' * 90, "[x] " * 50_000, mixed):
        assert decodings(name, text) is not None  # minutes, if the time grew with the square


def test_an_encoding_that_nobody_knows_reads_nothing() -> None:
    assert decodings("rot13", "abc") == [] and recovered(["abc"], "abc", "rot13") == {"abc"}


def test_halves_count_together_and_as_whole_words() -> None:
    assert halves("jo@mail.com") == ("jo", "mail.com")
    assert halves("(713) 555-0123") == ("(713) 555", "0123")
    assert halves("Bradu Kirolen") == ("Bradu", "Kirolen")
    assert halves("one") is None
    assert recovered_from_parts("jo@mail.com", "- jo\n- al", "- mail.com\n- b.net")
    assert not recovered_from_parts("jo@mail.com", "- joan", "- mail.com")
    assert not recovered_from_parts("jo@mail.com", "- mail.com", "- jo"), "each in its own answer"
    assert not recovered_from_parts("one", "one", "one")
    assert "jo@mail.com" in joined("- jo\n- al", "mail.com\nb.net")
    assert joined("jo\nal", "mail.com") == []


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_request_names_its_topic_and_keeps_no_slot(name: str) -> None:
    queries = ENCODINGS[name].queries("the {what} of it")
    assert len(queries) == (2 if name == "split" else 1)
    assert all("of it" in query and "{topic}" not in query for query in queries)
