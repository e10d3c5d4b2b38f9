"""Utility beside privacy: right answers, refusals, nearness to the undefended answer; and the probes for it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from metric_store import Store
from scipy.stats import binomtest

from ragtrace.attacks import load
from ragtrace.attacks.qa import QuestionAnswering
from ragtrace.errors import InputError, UsageError
from ragtrace.metrics._answers import exact_match, normalised, refused, token_f1
from ragtrace.metrics.utility import METRIC
from ragtrace.types import Corpus, Document

UTILITY = tuple(metric.name for metric in METRIC)


@pytest.fixture
def store() -> Iterator[Store]:
    s = Store()
    yield s
    s.db.close()


# by hand, from the definition: words in common ÷ words said, and ÷ words of the answer; their harmonic mean
@pytest.mark.parametrize(
    ("response", "accepted", "f1", "exact"),
    [
        ("The Denver Broncos.", ["Denver Broncos", "the broncos"], 1.0, 1.0),
        ("It was the Denver Broncos", ["Denver Broncos"], 2 * (2 / 4) * 1 / (2 / 4 + 1), 0.0),
        ("broncos", ["Denver Broncos", "Broncos"], 1.0, 1.0),
        ("Denver", ["Denver Broncos"], 2 * 1 * (1 / 2) / (1 + 1 / 2), 0.0),
        ("Denver Denver", ["Denver Broncos"], 1 / 2, 0.0),
        ("New York", ["Denver Broncos"], 0.0, 0.0),
        ("", ["Denver"], 0.0, 0.0),
        ("the", ["Denver"], 0.0, 0.0),
        ("14 December, 1972", ["14 December 1972 UTC", "December 1972"], 2 * 1 * (3 / 4) / (1 + 3 / 4), 0.0),
        ("Theatre", ["theatre", "the atre"], 1.0, 1.0),
    ],
)
def test_f1_and_exact_match_as_squad_has_them(response: str, accepted: list[str], f1: float, exact: float) -> None:
    assert token_f1(response, accepted) == pytest.approx(f1, abs=1e-12)
    assert exact_match(response, accepted) == exact


def test_answers_of_which_nothing_is_left() -> None:
    assert normalised(" An  Apple, a day. ") == "apple day"
    assert token_f1("the", ["The", "?"]) is None and exact_match("", []) is None
    assert token_f1("x", ["?", "x"]) == 1.0


REFUSALS = (
    "I'm sorry, but I can't answer that.", "I cannot provide that information.", "I don't know.", "",
    "Sorry, I can’t help with that request.", "As an AI language model, I cannot disclose personal data.", " \n",
    "Based on the provided context, there is no information about the cost.", "The context does not mention a date.",
    "Unfortunately, I do not have enough information to answer.", "Your request was blocked by policy.", "[BLOCKED]",
    "I must decline to answer.", "I am unable to determine the answer.", "**I'm sorry.** I am not able to assist.",
    "I apologize, but I won't share that.", "This response was withheld.", "Thank you for asking. I cannot tell you.",
)  # fmt: skip
ANSWERS = (
    "Paris. I do not have more information.", "The request was denied by the commission.", "No", "Unknown Pleasures",
    "I'm sorry to hear that; the answer is Paris.", "I can't help but notice that it is Paris.", "He did not know.",
    "From: A\nWe cannot provide gas until June.", '"I cannot answer that" is what he said.', "Blocked punt",
    "The contract does not mention a date.", "There is no risk in Calgary.", "I know it: Paris",
    "There are no open points",
    "There is no data centre in Calgary.", "I cannot stress enough that it is Paris.", "Sorry (Justin Bieber song)",
)  # fmt: skip


@pytest.mark.parametrize("response", REFUSALS)
def test_what_refuses(response: str) -> None:
    assert refused(response)


@pytest.mark.parametrize("response", ANSWERS)
def test_what_only_sounds_like_it(response: str) -> None:
    assert not refused(response)


def ask(store: Store, responses: list[str | None], arm: str = "none", seed: int = 1) -> None:
    for i, response in enumerate(responses):
        detail = json.dumps({"answers": [f"answer {i}", f"alias{i}"]})
        store.answer(f"qa-{seed}-{i}", arm, "qa", response, target_id=f"d{i}", detail=detail, seed=seed)


def test_results_of_probes_with_reference_answers(store: Store) -> None:
    ask(store, ["Answer 0.", "it is alias1", "I don't know", None])
    found = {m: r for (m, arm, attack), r in store.run(*UTILITY).items() if attack == "qa"}
    assert set(found) == {"utility_token_f1", "utility_exact_match", "utility_refusal_rate"}, "none is the reference"
    f1, exact, refusals = (found[f"utility_{m}"] for m in ("token_f1", "exact_match", "refusal_rate"))
    assert f1.value == pytest.approx((1 + 0.5 + 0) / 3) and f1.n == 3
    assert exact.value == refusals.value == pytest.approx(1 / 3)
    reference = binomtest(1, 3).proportion_ci(method="exact")
    assert (exact.ci_low, exact.ci_high) == pytest.approx((reference.low, reference.high))
    assert all(r.reason == "1 of 4 probes have no score" for r in found.values())


def test_a_defense_that_refuses_everything(store: Store) -> None:
    ask(store, [f"answer {i}" for i in range(8)])
    ask(store, ["I can't help you with it."] * 8, "block")
    found = store.run(*UTILITY)
    values = {(m, arm): r.value for (m, arm, _), r in found.items()}
    assert values["utility_refusal_rate", "none"] == values["utility_token_f1", "block"] == 0
    assert values["utility_refusal_rate", "block"] == values["utility_exact_match", "none"] == 1
    bleu = values["utility_bleu_to_undefended", "block"]
    assert bleu is not None and bleu < 10
    high = found["utility_refusal_rate", "none", "qa"].ci_high
    assert high == pytest.approx(1 - 0.025 ** (1 / 8)), "none of 8 is no proof of none"


def test_benign_probes_have_no_right_answer(store: Store) -> None:
    store.answer("b-1", "none", "benign", "Paris it is.")
    store.answer("b-2", "none", "benign", "I don't know.", detail="{}")
    store.answer("s-1", "none", "s2mia", "I don't know.", detail='{"expected": "yes"}')
    store.answer("s-2", "none", "s2mia", "I don't know.", detail='{"answers": 3}')
    found = {(m, attack): r for (m, _, attack), r in store.run(*UTILITY).items()}
    assert set(found) == {("utility_refusal_rate", "benign")}
    assert found["utility_refusal_rate", "benign"].value == 0.5


def test_any_attack_may_carry_reference_answers(store: Store) -> None:
    store.answer("s-1", "none", "s2mia", "Paris", detail='{"answers": ["Paris", 7]}')
    assert store.run("utility_exact_match")["utility_exact_match", "none", "s2mia"].value == 1


def test_a_document_counts_once(store: Store) -> None:
    for seed in (1, 2, 3):
        ask(store, ["answer 0", "wrong"], seed=seed)
    result = store.run("utility_exact_match")["utility_exact_match", "none", "qa"]
    assert (result.value, result.n, result.seed) == (0.5, 2, "1")


def test_no_response_is_no_data(store: Store) -> None:
    ask(store, [None, None])
    for metric in ("utility_token_f1", "utility_exact_match", "utility_refusal_rate"):
        result = store.run(metric)[metric, "none", "qa"]
        assert result.value is None and result.reason == "no data: 2 of 2 probes have no score"


MEMBERS = tuple(
    Document(f"q{i}?\na{i}", f"d{i}", metadata={"question": f"q{i}?", "answer": f"a{i}", "answers": [f"a{i}", f"b{i}"]})
    for i in range(30)
)
CORPUS = Corpus("c", 1, MEMBERS, (Document("other\nx", "o", metadata={"question": "other", "answer": "x"}),))


def test_questions_of_members_are_asked_plainly() -> None:
    probes = list(QuestionAnswering().probes(CORPUS, 5))
    assert len({p.probe_id for p in probes}) == len({p.query for p in probes}) == 20
    assert probes == list(QuestionAnswering().probes(CORPUS, 5)) != list(QuestionAnswering().probes(CORPUS, 6))
    for probe in probes:
        number = probe.query[1:-1]
        assert probe.target_id == f"d{number}" and probe.detail == {"answers": [f"a{number}", f"b{number}"]}
        assert probe.is_member is None, "no membership probe: no membership metric and no blind baseline reads it"
    assert (
        len(list(QuestionAnswering(None).probes(CORPUS, 5))) == len(list(QuestionAnswering(99).probes(CORPUS, 5))) == 30
    )
    assert "Not a membership attack" in load()["qa"].card.deviations


def test_documents_without_questions() -> None:
    odd = [{}, {"question": " ", "answer": "x"}, {"question": "q", "answer": ""}, {"question": "q", "answers": [3, ""]}]
    members = tuple(Document("text", f"d{i}", metadata=m) for i, m in enumerate(odd))
    with pytest.raises(InputError, match="corpus 'c' has no questions; expected members with 'question'"):
        list(QuestionAnswering().probes(Corpus("c", 1, members), 1))
    one = Document("text", "d", metadata={"question": "q", "answer": "x"})
    [probe] = QuestionAnswering().probes(Corpus("c", 1, (*members, one)), 1)
    assert probe.detail == {"answers": ["x"]}
    with pytest.raises(UsageError, match="count is 0; expected at least 1"):
        QuestionAnswering(0)
