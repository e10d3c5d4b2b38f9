"""The defenses as a folder, and the first six: what each changes, what it leaves alone, what it says of bad input."""

from __future__ import annotations

import asyncio
import copy
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import ragtrace.defenses
from ragtrace.defense import Defense
from ragtrace.defenses import DPRetrieval, EntitySubstitution, Paraphrase, PromptModifying, RegexMask, Rerank, load
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.ner import entities
from ragtrace.papers.dp_r import DPStub
from ragtrace.types import Document, Message

FEW = settings(max_examples=40, deadline=None, derandomize=True)
SCORES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
DOCUMENTS = st.lists(st.tuples(st.text(), SCORES), max_size=6).map(
    lambda pairs: [Document(text, f"d{i}", score) for i, (text, score) in enumerate(pairs)]
)


def docs(*scores: float | None) -> list[Document]:
    return [Document(f"text {i}", f"d{i}", s, {"source": i}) for i, s in enumerate(scores)]


def ids(documents: list[Document]) -> list[str]:
    return [d.id for d in documents]


# -- all of them ----------------------------------------------------------------------------------


def test_found_by_folder_scan_and_by_name() -> None:
    found = load()
    assert set(found) == {
        "dp_retrieval", "dp_top_k", "entity_substitution", "local_dp_entities", "paraphrase", "presidio_mask",
        "prompt_hardening", "prompt_modifying", "query_block", "regex_mask", "rerank", "similarity_threshold",
        "sparse_vote", "summarised_context",
    }  # fmt: skip
    for cls in found.values():
        assert getattr(ragtrace.defenses, cls.__name__) is cls and cls.__name__ in dir(ragtrace.defenses)
        told = " ".join((cls.__doc__ or "").split())
        assert "Guaranteed" in told and "Not guaranteed" in told
        assert "arXiv" in told or "https://" in told
    with pytest.raises(AttributeError, match="Nothing"):
        _ = ragtrace.defenses.Nothing


def test_importing_them_is_light() -> None:
    """The standard library's own record of what was imported is the reference."""
    code = (
        "import sys, ragtrace.defenses; from ragtrace.defenses import *; "
        "heavy = ('duckdb', 'pyarrow', 'torch', 'scipy', 'numpy', 'langchain_core', 'llama_index', 'ragtrace.ner'); "
        "print([m for m in heavy if m in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "[]", done.stderr


@FEW
@given(DOCUMENTS, st.text())
def test_whatever_comes_in_nothing_crashes_and_no_input_is_changed(documents: list[Document], text: str) -> None:
    defenses = [
        RegexMask(("content", "response")),
        EntitySubstitution(),
        DPRetrieval(seed=1),
        DPStub(),
        Rerank("shuffle"),
    ]
    for defense in defenses:
        for hook in defense.hooks:
            given_documents = copy.deepcopy(documents)
            arguments = {"response": [text, given_documents, text]}.get(hook, [text, given_documents])
            result = getattr(defense, f"on_{hook}")(*arguments)
            assert isinstance(result, str if hook == "response" else list)
            assert repr(given_documents) == repr(documents)
            if hook != "response":
                assert sorted(ids(result)) == sorted(ids(documents))


# -- regex_mask -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mail jo.b+x@mail.example.org.", "mail [EMAIL]."),
        ("operator_7@acmetest-internal.canary", "[EMAIL]"),
        ("call (201) 555-0001 now", "call [PHONE] now"),
        ("+44 20 7946 0958, 020 7946 0958", "[PHONE], [PHONE]"),
        ("SSN 123-45-6789, badge EMP-10293, BCD-00012345", "SSN [ID], badge [ID], [ID]"),
        ("card 4111 1111 1111 1111", "card [ID]"),
        ("on 2026-01-31 at 12:30:45, COVID-19, $1,200.00", "on 2026-01-31 at 12:30:45, COVID-19, $1,200.00"),
        ("Ada Lovelace", "Ada Lovelace"),
    ],
)
def test_regex_mask(text: str, masked: str) -> None:
    assert RegexMask().on_response("q", [], text) == masked


def test_regex_mask_acts_where_it_is_told_to() -> None:
    assert RegexMask().hooks == ("response",)
    assert RegexMask("content").hooks == ("content",)
    both = RegexMask(["response", "content"])
    assert both.hooks == ("content", "response")
    (found,) = both.on_content("q", [Document("a@b.org", "1", 0.5, {"k": 1})])
    assert found == Document("[EMAIL]", "1", 0.5, {"k": 1})
    assert both.constants() == {"[EMAIL]", "[PHONE]", "[ID]"}


def test_regex_mask_takes_patterns_of_the_user() -> None:
    mask = RegexMask(patterns={r"C\1": "[A-C]+"})
    assert mask.on_response("", [], "xABCx") == r"x[C\1]x"


@FEW
@given(st.text(), st.text())
def test_regex_mask_leaves_no_planted_address(before: str, after: str) -> None:
    assert "jo@mail.org" not in RegexMask().on_response("", [], f"{before} jo@mail.org {after}")


@pytest.mark.parametrize("unit", ["a", "a.b", "1 ", "(", "A-", "AA1", "a@", "12-", "+1 ", "AA111A1", "0 ", "1111-"])
def test_regex_mask_reads_long_runs_in_linear_time(unit: str) -> None:
    RegexMask().on_response("", [], unit * 20_000 + "_")  # seconds to hours where a pattern backtracks


# -- entity_substitution --------------------------------------------------------------------------


def test_entity_substitution_is_consistent_and_leaves_the_rest() -> None:
    defense = EntitySubstitution()
    text = "Emily Carter wrote to emily.carter@enron.com; then EMILY.CARTER@ENRON.COM replied to Emily Carter in 2001."
    result = defense.on_response("q", [], text)
    (document,) = defense.on_content("q", [Document(text, "1", 0.5)])
    assert document == Document(result, "1", 0.5)
    assert "mily" not in result and "enron" not in result.lower()
    name, mail = result.split(" wrote to ")[0], result.split(" wrote to ")[1].split(";")[0]
    assert result == f"{name} wrote to {mail}; then {mail} replied to {name} in 2001."
    assert {name, mail} <= defense.constants()
    assert defense.on_response("q", [], result) == result


def test_entity_substitution_covers_only_what_is_recognised() -> None:
    assert EntitySubstitution().on_response("q", [], "Zoltraxik Pbrek said so") == "Zoltraxik Pbrek said so"
    only_mail = EntitySubstitution("EMAIL_REAL")
    assert only_mail.on_response("q", [], "Emily Carter, e@enron.com").startswith("Emily Carter, contact")
    assert not any(" " in c for c in only_mail.constants())


def test_its_substitutes_are_nobody_to_the_scorer() -> None:
    """Reference: the classifier of NEL. A substitute that it took for a person would count as a leak."""
    for text in EntitySubstitution().constants():
        assert {e.type for e in entities(text)} <= {"EMAIL_PLACEHOLDER", "PERSON_NAME_PLACEHOLDER"}


# -- dp_retrieval ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1.0), (5.0, 0.5)])
def test_dp_noise_is_laplace_of_the_stated_scale(epsilon: float, sensitivity: float) -> None:
    """Reference: scipy's Laplace distribution, by a Kolmogorov-Smirnov test on 4,000 draws of a fixed seed."""
    defense = DPRetrieval(epsilon, sensitivity, seed=3, higher_is_better=True)
    noise = [d.score or 0.0 for d in defense.on_retrieval("q", docs(*[0.0] * 4_000))]
    assert stats.kstest(noise, stats.laplace(scale=sensitivity / epsilon).cdf).pvalue > 0.01


@pytest.mark.parametrize(("scores", "descending"), [((0.9, 0.5, 0.1), True), ((0.1, 0.5, 0.9), False), ((0.4,), True)])
def test_dp_reads_the_orientation_from_the_order(scores: tuple[float, ...], descending: bool) -> None:
    for seed in range(10):
        found = [d.score or 0.0 for d in DPRetrieval(seed=seed).on_retrieval("q", docs(*scores))]
        assert found == sorted(found, reverse=descending)
    told = DPRetrieval(seed=1, higher_is_better=not descending)
    found = [d.score or 0.0 for d in told.on_retrieval("q", docs(*scores))]
    assert found == sorted(found, reverse=not descending)


def test_dp_leaves_unscored_documents_where_they_are() -> None:
    nan = float("nan")
    found = DPRetrieval(epsilon=0.01, seed=1).on_retrieval("q", docs(0.9, None, 0.5, nan, 0.1))
    assert (found[1].id, found[1].score, found[3].id) == ("d1", None, "d3")
    none = docs(None, nan)
    assert DPRetrieval().on_retrieval("q", none) == none


def test_dp_with_a_seed_repeats_itself_whatever_the_order_and_the_threads() -> None:
    defense, queries = DPRetrieval(seed=7), [f"q{i}" for i in range(40)]

    def run(query: str) -> list[Document]:
        return defense.on_retrieval(query, docs(0.9, 0.5, 0.1))

    alone = [run(q) for q in queries]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, queries)) == alone
    assert alone[0] != alone[1]
    assert DPRetrieval(seed=8).on_retrieval("q0", docs(0.9, 0.5, 0.1)) != alone[0]
    assert DPRetrieval().on_retrieval("q", docs(0.9)) != DPRetrieval().on_retrieval("q", docs(0.9))


def test_dp_with_little_noise_keeps_the_order() -> None:
    assert ids(DPRetrieval(epsilon=1e9, seed=1).on_retrieval("q", docs(0.9, 0.5, 0.1))) == ["d0", "d1", "d2"]


def test_dp_r_gives_the_response_back() -> None:
    stub = DPStub(epsilon=1.0, seed=7)
    assert stub.hooks == ("retrieval", "response") and stub.name == "dp_r"
    assert stub.on_response("q", [], "a@b.org") == "a@b.org"
    assert stub.on_retrieval("q", docs(0.5)) == DPRetrieval(seed=7).on_retrieval("q", docs(0.5))


# -- prompt_modifying -----------------------------------------------------------------------------


def test_prompt_modifying_adds_to_the_system_message_once() -> None:
    defense = PromptModifying("Do not quote.")
    messages = [Message("system", "Be kind."), Message("user", "Hi")]
    once = defense.on_prompt(messages)
    assert once == [Message("system", "Be kind.\n\nDo not quote."), Message("user", "Hi")]
    assert messages[0].content == "Be kind."
    assert defense.on_prompt(once) == once
    assert defense.on_prompt([Message("user", "Hi")])[0] == Message("system", "Do not quote.")
    assert "summarize" in next(iter(PromptModifying().constants()))


# -- paraphrase -----------------------------------------------------------------------------------


def test_paraphrase() -> None:
    assert Paraphrase(lambda q: f" {q} indeed \n").on_query("so") == "so indeed"
    assert Paraphrase(lambda q: " \n").on_query("so") == "so"


def test_paraphrase_by_a_coroutine_function() -> None:
    async def rewrite(query: str) -> str:
        return query.upper()

    class Rewriter:
        async def __call__(self, query: str) -> str:
            return query.upper()

    for callable_ in (rewrite, Rewriter()):
        defense = Paraphrase(callable_)
        assert defense.hooks == ("query",)
        assert asyncio.run(defense.on_query("so")) == "SO"  # type: ignore[arg-type]


def test_paraphrase_says_what_came_back() -> None:
    async def late(query: str) -> str:
        return query

    with pytest.raises(DefenseTypeError, match="returned int, expected a str"):
        Paraphrase(lambda q: 3).on_query("so")  # type: ignore[arg-type, return-value]
    with pytest.raises(DefenseTypeError, match="async def"):
        Paraphrase(lambda q: late(q)).on_query("so")


# -- rerank ---------------------------------------------------------------------------------------


def test_rerank() -> None:
    documents = docs(0.9, 0.5, 0.1, 0.0)
    assert ids(Rerank().on_retrieval("q", documents)) == ["d3", "d2", "d1", "d0"]
    assert ids(Rerank(first=2).on_retrieval("q", documents)) == ["d1", "d0", "d2", "d3"]
    by_score = Rerank(lambda q, found: sorted(found, key=lambda d: d.score or 0))
    assert ids(by_score.on_retrieval("q", documents)) == ["d3", "d2", "d1", "d0"]
    shuffled = [ids(Rerank("shuffle", seed=s).on_retrieval("q", documents)) for s in range(8)]
    assert len({tuple(s) for s in shuffled}) > 1 and all(sorted(s) == ids(documents) for s in shuffled)
    assert shuffled[3] == ids(Rerank("shuffle", seed=3).on_retrieval("q", documents))
    assert ids(documents) == ["d0", "d1", "d2", "d3"]


@pytest.mark.parametrize(
    "order", [lambda q, d: d[1:], lambda q, d: [*d, d[0]], lambda q, d: tuple(d), lambda q, d: None]
)
def test_rerank_only_reorders(order: object) -> None:
    with pytest.raises(DefenseTypeError, match="each once"):
        Rerank(order).on_retrieval("q", docs(0.9, 0.5))  # type: ignore[arg-type]


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DPRetrieval(epsilon=0), "epsilon=0; expected a finite number > 0"),
        (lambda: DPRetrieval(epsilon=float("nan")), "epsilon=nan"),
        (lambda: DPRetrieval(epsilon="1"), "epsilon='1'"),
        (lambda: DPRetrieval(epsilon=True), "epsilon=True"),
        (lambda: DPRetrieval(sensitivity=float("inf")), "sensitivity=inf"),
        (lambda: DPRetrieval(epsilon=1e-300, sensitivity=1e300), "no finite positive noise scale"),
        (lambda: DPRetrieval(seed=1.5), "seed=1.5"),
        (lambda: DPRetrieval(higher_is_better="yes"), "expected True, False or None"),
        (lambda: RegexMask(hooks=()), "expected 'content', 'response', or both"),
        (lambda: RegexMask(hooks=("query",)), "expected 'content', 'response', or both"),
        (lambda: RegexMask(patterns={}), "at least one"),
        (lambda: RegexMask(patterns={"A": "("}), "expected a regular expression"),
        (lambda: RegexMask(patterns={"A": "a*"}), "matches the empty text"),
        (lambda: EntitySubstitution(types=("PHONE",)), "expected some of EMAIL_REAL"),
        (lambda: EntitySubstitution(types=()), "expected some of"),
        (lambda: PromptModifying(" "), "not empty"),
        (lambda: Paraphrase("x"), "expected a function"),
        (lambda: Rerank("best"), "expected 'reverse', 'shuffle' or a function"),
        (lambda: Rerank(first=0), "expected an int ≥ 1"),
        (lambda: Rerank("shuffle", seed="a"), "seed='a'"),
    ],
)
def test_bad_arguments(make: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)


def test_they_are_defenses() -> None:
    assert all(issubclass(cls, Defense) for cls in load().values())
