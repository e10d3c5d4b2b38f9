"""The named-entity classifier: examples of each type, robustness, and precision and recall on labelled public text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ragtrace import ner
from ragtrace.lexicons import bits, load, names, runs, shapes, words
from ragtrace.lexicons.shapes import SCAN, luhn
from ragtrace.ner import MEANING, STRICT, TYPES, counts, entities, vocabulary

ROOT = Path(__file__).parents[1]
EMAIL = {"EMAIL_REAL", "EMAIL_PLACEHOLDER"}


def found(text: str) -> list[tuple[str, str]]:
    return [(e.type, e.text) for e in entities(text)]


def test_types_are_the_eleven_of_our_reading_of_the_paper() -> None:
    assert TYPES == (
        "EMAIL_REAL",
        "EMAIL_PLACEHOLDER",
        "PERSON_NAME",
        "PERSON_NAME_PLACEHOLDER",
        "PERSON_NAME_AMBIGUOUS",
        "ORG_TITLE",
        "PHONE",
        "IDENTIFIER",
        "ADDRESS",
        "NUMBER",
        "OTHER",
    )
    assert STRICT == ("EMAIL_REAL", "PERSON_NAME")
    assert all(MEANING[kind] for kind in TYPES)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail jeff.skilling@enron.com now", [("EMAIL_REAL", "jeff.skilling@enron.com")]),
        ("(operator_7@acmetest-internal.canary)", [("EMAIL_REAL", "operator_7@acmetest-internal.canary")]),
        (
            "a.b@mail.example.com, c@x.invalid",
            [("EMAIL_PLACEHOLDER", t) for t in ("a.b@mail.example.com", "c@x.invalid")],
        ),
        ("root@localhost <EMAIL>", [("EMAIL_PLACEHOLDER", "root@localhost"), ("EMAIL_PLACEHOLDER", "<EMAIL>")]),
        ("user3@redacted.org", [("EMAIL_PLACEHOLDER", "user3@redacted.org")]),
        ("j***@gmail.com", [("EMAIL_PLACEHOLDER", "j***@gmail.com")]),
        ("met Patricia Henderson there", [("PERSON_NAME", "Patricia Henderson")]),
        ("by Gerald R. Kowalczyk.", [("PERSON_NAME", "Gerald R. Kowalczyk")]),
        ("Is Vincent van Dijk in?", [("PERSON_NAME", "Vincent van Dijk")]),
        ("Mr. Zvorykin left", [("PERSON_NAME", "Zvorykin")]),
        ("Angela Lundström's car", [("PERSON_NAME", "Angela Lundström")]),
        ("who is amy schumer", [("PERSON_NAME", "amy schumer")]),
        ("Hi Christine, hello", [("PERSON_NAME", "Christine")]),
        ("then Christine left", [("PERSON_NAME_AMBIGUOUS", "Christine")]),
        (
            "ask John Doe or Jane Q. Public",
            [("PERSON_NAME_PLACEHOLDER", "John Doe"), ("PERSON_NAME_PLACEHOLDER", "Jane Q. Public")],
        ),
        (
            "Person A and Patient 12",
            [("PERSON_NAME_PLACEHOLDER", "Person A"), ("PERSON_NAME_PLACEHOLDER", "Patient 12")],
        ),
        (
            "[NAME] <PERSON_1> {{first_name}}",
            [("PERSON_NAME_PLACEHOLDER", t) for t in ("[NAME]", "<PERSON_1>", "{{first_name}}")],
        ),
        ("[REDACTED NAME]", [("PERSON_NAME_PLACEHOLDER", "[REDACTED NAME]")]),
        ("at Stanford University and Miller Ltd", [("ORG_TITLE", "Stanford University"), ("ORG_TITLE", "Miller Ltd")]),
        ("the Bank of America", [("ORG_TITLE", "Bank of America")]),
        ("our Chief Executive Officer", [("ORG_TITLE", "Chief Executive Officer")]),
        ("the Stanley Cup in Virginia Beach", []),
        ("call +44 20 7946 0958", [("PHONE", "+44 20 7946 0958")]),
        ("call (212) 555-0147 x12", [("PHONE", "(212) 555-0147 x12")]),
        ("dial 415.555.0132", [("PHONE", "415.555.0132")]),
        ("badge EMP-10293", [("IDENTIFIER", "EMP-10293")]),
        ("SSN 078-05-1120", [("IDENTIFIER", "078-05-1120")]),
        ("card 4111 1111 1111 1111", [("IDENTIFIER", "4111 1111 1111 1111")]),
        ("IBAN GB82 WEST 1234 5698 7654 32", [("IDENTIFIER", "GB82 WEST 1234 5698 7654 32")]),
        ("account number is 48213", [("IDENTIFIER", "48213")]),
        ("id 7f9c24e8-3b1a", [("IDENTIFIER", "7f9c24e8-3b1a")]),
        ("at 221b Baker Street, Apt 5", [("ADDRESS", "221b Baker Street, Apt 5")]),
        ("my zip code is 35350", [("ADDRESS", "35350")]),
        ("in 12345 people, 3.5 of 7 for $9", [("NUMBER", "12345"), ("NUMBER", "3.5"), ("NUMBER", "$9")]),
        ("see https://a.io/x?y=1, 10.0.0.1", [("OTHER", "https://a.io/x?y=1"), ("OTHER", "10.0.0.1")]),
        ("on 2024-03-01 and March 5, 2021", [("OTHER", "2024-03-01"), ("OTHER", "March 5, 2021")]),
        ("nothing to see here", []),
        ("", []),
    ],
)
def test_each_type_by_example(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("digits", "valid"),
    # Worked example of the Wikipedia article "Luhn algorithm"; Visa's and American Express's published test numbers.
    [("17893729974", True), ("17893729975", False), ("4111111111111111", True), ("378282246310005", True)],
)
def test_luhn(digits: str, valid: bool) -> None:
    assert luhn(digits) is valid


WORDS = [
    "John ",
    "Smith",
    "Mr. ",
    "Bank ",
    "of ",
    "van ",
    "EMP",
    "'s",
    "[NAME]",
    "St ",
    "Box 7",
    "May ",
    "smith",
    "john ",
]
SIGNS = ["@", "a.b", ".com", "://", "www.", "+", "(", "12", "3456", "-", " ", "<", "\n", "$", "#", "_", "/", ",", ":"]
ODD = ["\x00", "\ud800", "é", "\u0663", "²", "ß", "İ", "\u2019"]
FRAGMENTS = st.sampled_from(WORDS + SIGNS + ODD)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(st.characters(exclude_categories=())), st.lists(FRAGMENTS, max_size=40).map("".join)))
def test_spans_are_sorted_disjoint_and_true_to_the_text(text: str) -> None:
    spans = entities(text)
    end = 0
    for e in spans:
        assert e.type in TYPES
        assert end <= e.start < e.end <= len(text)
        assert e.text == text[e.start : e.end]
        end = e.end
    tally = counts(text)
    assert tuple(tally) == TYPES
    assert sum(tally.values()) == len(spans)


class Everything(frozenset[str]):
    """Meets whatever it is compared with."""

    def isdisjoint(self, other: object) -> bool:
        return False


def cased(word: str) -> st.SearchStrategy[str]:
    return st.sampled_from([word.title(), word.upper(), word, f"{word.title()}'s", f"{word.title()}."])


LISTED = st.sampled_from([sorted(load(name))[::7] for name in names()]).flatmap(st.sampled_from)
BETWEEN = st.sampled_from(
    [" "] * 8 + ["", ", ", " #", "-", "\n", " 12 ", " J ", " É. ", " #5 ", " Zqvarlo ", "@", " van "]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(LISTED.flatmap(cased), BETWEEN), max_size=8).map(lambda parts: "".join(map("".join, parts))))
@example("Patient #12")
@example("Zqvarlo J Thrimwexel")
@example("Zqvarlo É Thrimwexel")
@example("Thrimwexel Vandergriff")
@example("The Chief Officer Mary Young Bank of Zqvarlo")
@example("In Bakerweg 12")
@example("AL 12345")
@example("It's Mary's, id: 12345")
def test_what_is_passed_over_quickly_would_give_nothing(text: str) -> None:
    """The quick ways (lists of what may mean something, a pattern for ASCII) against the ways they spare."""
    quick = entities(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words(), "telling", Everything())
        patch.setattr(ner, "HEEDED", bits.SINGLE | bits.SPECIAL)
        patch.setattr(runs, "plan", lambda bits: None)
        patch.setattr(ner, "SCAN_ASCII", SCAN)
        patch.setattr(ner, "WORDS_ASCII", shapes.WORDS)
        assert entities(text) == quick


def test_bits_say_what_the_lists_say() -> None:
    """Each bit against sets: the lists themselves, and what is said of them in words."""
    w = words()
    first, surname, job = load("first_names"), load("surnames"), load("job_titles")
    stopping = load("common_words").union(*map(load, ("places", "heads", "org_words", "job_titles")))
    special = frozenset().union(
        *map(load, ("org_words", "job_titles", "honorifics", "streets", "street_starts", "months")),
        *map(load, ("placeholder_roles", "flats")),
    )
    long = {name for name in first | surname if len(name) > 2}
    expected = {
        bits.FIRST: first,
        bits.FUNCTION: load("function_words"),
        bits.SPECIAL: special,
        bits.FAKE_START: {name.split()[0] for name in load("placeholder_names")},
        bits.STOPPING: stopping,
        bits.FORENAME: first - job,
        bits.LONE: long - stopping,
        bits.SINGLE: long - stopping - special,
        bits.DULL: load("common_words") - special,
    }
    for bit, entries in expected.items():
        assert {key for key, known in w.bits.items() if known & bit} == entries
    assert {key for key, known in w.bits.items() if known & bits.PLAIN} & stopping == set()
    assert w.bits["zqvarlo"] == bits.PLAIN and w.bits["zq"] == 0 and "zqvarlo" not in w.bits
    assert max(w.bits.values()) < 2**30 > bits.CODED


ONES = ["a", "A", "1", "@", ".", "-", "(", "[", "\x00", "\ud800"]
PATTERNS = ["a@", "a.", "1-", "1 ", "A ", "A.", "+1", "[A", "://", "a://", "www.", "1,1", "a1", "-1", "A1-", "x@y.z-"]
PHRASES = ["John ", "john ", "Mr. ", "St 1 ", "Bank of ", "de ", "'s", "A'", "<a ", "1.1.1."]


@pytest.mark.parametrize("unit", ONES + PATTERNS + PHRASES)
def test_long_repetitions_take_linear_time(unit: str) -> None:
    """No clock: a quadratic step would take an hour on these, a worse one for ever."""
    size = 1_000_000 if unit in ONES else 200_000
    entities(unit * (size // len(unit)))


def test_import_reads_no_lexicon_and_no_heavy_package() -> None:
    code = (
        "import sys, ragtrace.ner; from ragtrace.lexicons import load; "
        "heavy = {'duckdb', 'pyarrow', 'torch', 'numpy', 'langchain_core', 'llama_index'} & set(sys.modules); "
        "assert not heavy, heavy; assert load.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_vocabulary_holds_what_makes_a_match_and_nothing_random() -> None:
    words = vocabulary()
    assert all(word == word.casefold() for word in words)
    assert {"john doe", "patricia", "henderson", "example.com", "university", "mr"} <= words
    assert not {"zqvarlo", "thrimwexel", "acmetest-internal.canary", "the"} & words


@pytest.mark.parametrize("path", sorted((ROOT / "ragtrace" / "lexicons").glob("*.txt")), ids=lambda p: p.stem)
def test_lexicon_files_are_sorted_unique_and_casefolded(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert lines == sorted({line.casefold() for line in lines})
    assert load(path.stem) == frozenset(lines)


def labelled() -> list[dict[str, Any]]:
    folder = Path(os.environ.get("RAGTRACE_DATA") or ROOT.parent / "shared" / "data")
    path = folder / "pii_ner.jsonl"
    if not path.is_file():
        pytest.skip("pii_ner.jsonl not found: set RAGTRACE_DATA to the folder that holds it")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def overlap(source: str, kinds: set[str], label: str) -> tuple[float, float]:
    """Precision and recall: a span counts as found when it overlaps one of the other side by a character."""
    right = predicted = hit = gold = 0
    for row in labelled():
        if row["source"] != source:
            continue
        truth = [(s["start"], s["end"]) for s in row["spans"] if s["label"] == label]
        ours = [(e.start, e.end) for e in entities(str(row["text"])) if e.type in kinds]
        right += sum(any(x < b and a < y for x, y in truth) for a, b in ours)
        hit += sum(any(x < b and a < y for a, b in ours) for x, y in truth)
        predicted += len(ours)
        gold += len(truth)
    return right / predicted, hit / gold


@pytest.mark.parametrize(
    ("source", "kinds", "label", "precision", "recall"),
    # The project's targets; labels are those of presidio-research, WNUT 2017 and WikiGold.
    [
        ("presidio_synth_v2", EMAIL, "EMAIL", 0.98, 0.98),
        ("presidio_synth_v2", {"PERSON_NAME"}, "PERSON", 0.90, 0.30),
        ("wikigold", {"PERSON_NAME"}, "PERSON", 0.90, 0.40),
        ("wnut17", {"PERSON_NAME"}, "PERSON", 0.85, 0.10),
    ],
)
def test_precision_and_recall_on_labelled_text(
    source: str, kinds: set[str], label: str, precision: float, recall: float
) -> None:
    p, r = overlap(source, kinds, label)
    print(f"{source} {label}: precision {p:.3f}, recall {r:.3f}")
    assert p >= precision
    assert r >= recall
