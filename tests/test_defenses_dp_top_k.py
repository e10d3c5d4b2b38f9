"""DPTopK in an app: budgets that run out, what leaves it, what it warns of, and what it says of bad input."""

from __future__ import annotations

import logging
import pickle

import pytest

import ragtrace
from ragtrace.defense import defend
from ragtrace.defenses import DPTopK, RegexMask
from ragtrace.defenses._budget import BudgetExhaustedError
from ragtrace.defenses.dp_top_k import WITHHELD
from ragtrace.errors import UsageError
from ragtrace.inventory.battery import battery
from ragtrace.types import Document


def docs(*scores: float | None) -> list[Document]:
    return [Document(f"text {i}", f"d{i}", s, {"source": i, "score": s}) for i, s in enumerate(scores)]


def ids(documents: list[Document]) -> list[str]:
    return [d.id for d in documents]


def test_what_leaves_tells_of_scores_nothing_but_the_place() -> None:
    documents = docs(0.9, 0.61, 0.2)
    found = DPTopK(epsilon=100, budget=None, k=2, seed=1).on_retrieval("q", documents)
    assert found == [Document("text 0", "d0", 1.0, {"source": 0}), Document("text 1", "d1", 0.5, {"source": 1})]
    assert documents == docs(0.9, 0.61, 0.2)
    distances = DPTopK(epsilon=100, budget=None, k=2, worst=2.0, best=0.0, seed=1).on_retrieval("q", docs(0.1, 1.2))
    assert [(d.id, d.score) for d in distances] == [("d0", 0.0), ("d1", 1.0)]


def test_of_fixed_candidates_only_those_and_of_those_only_what_the_store_returned() -> None:
    defense = DPTopK(epsilon=100, budget=None, k=3, candidates=["d2", "d1", "elsewhere"], seed=1)
    assert ids(defense.on_retrieval("q", docs(0.9, 0.5, 0.1))) == ["d1", "d2"]
    assert defense.on_retrieval("q", []) == []


def test_chunks_of_one_document_count_once_by_the_best() -> None:
    chunks = [Document("low", "a", 0.1), Document("high", "a", 0.9), Document("other", "b", 0.2)]
    found = DPTopK(epsilon=100, budget=None, k=2, candidates=["a", "b"], seed=1).on_retrieval("q", chunks)
    assert [d.content for d in found] == ["high", "other"]


def test_a_seed_repeats_and_none_does_not() -> None:
    documents = docs(*[0.5] * 30)
    again = [ids(DPTopK(seed=1, budget=None).on_retrieval("q", documents)) for _ in range(2)]
    assert again[0] == again[1] != ids(DPTopK(seed=2, budget=None).on_retrieval("q", documents))
    free = DPTopK(budget=None)
    assert ids(free.on_retrieval("q", documents)) != ids(free.on_retrieval("q", documents))  # 1 in 17 million


# -- the budget -----------------------------------------------------------------------------------


@pytest.mark.parametrize("composition", ["basic", "advanced", "rdp", "optimal"])
def test_it_counts_what_it_spends(composition: str) -> None:
    defense = DPTopK(epsilon=0.1, budget=1.0, composition=composition, k=1)  # type: ignore[arg-type]
    assert defense.requests == 10 and defense.spent == 0
    for _ in range(3):
        defense.on_retrieval("q", docs(0.5, 0.4))
    assert defense.spent == pytest.approx(0.3, abs=0.01)
    for _ in range(20):
        defense.on_retrieval("q", docs(0.5, 0.4))
    assert 0.99 < defense.spent <= 1.0 + 1e-12


def test_empty_goes_on_without_documents_in_that_conversation_alone() -> None:
    defense = DPTopK(epsilon=1, budget=2, k=1)
    assert defense.hooks == ("retrieval",)
    with ragtrace.conversation("a"):
        assert [len(defense.on_retrieval("q", docs(0.5))) for _ in range(3)] == [1, 1, 0]
        assert defense.on_response("q", [], "answer") == "answer"
    with ragtrace.conversation("b"):
        assert len(defense.on_retrieval("q", docs(0.5))) == 1


def test_block_withholds_the_answer_of_what_went_beyond_and_not_of_the_last_that_was_paid() -> None:
    defense = DPTopK(epsilon=1, budget=1, k=1, on_exhausted="block")
    assert defense.hooks == ("retrieval", "response") and defense.constants() == {WITHHELD}
    with ragtrace.conversation("a"):
        assert len(defense.on_retrieval("q", docs(0.5))) == 1
        assert defense.on_response("q", [], "answer") == "answer"
        assert defense.on_retrieval("q", docs(0.5)) == []
        assert defense.on_response("q", [], "answer") == WITHHELD
    assert defense.on_response("q", [], "answer") == "answer"


def test_raise_and_chance() -> None:
    defense = DPTopK(epsilon=1, budget=1, k=1, on_exhausted="raise")
    assert defense.on_error == "raise" and DPTopK().on_error == "block"
    defense.on_retrieval("q", docs(0.5))
    with pytest.raises(BudgetExhaustedError, match=r"ε = 1.0 is spent after 1 requests .*conversation"):
        defense.on_retrieval("q", docs(0.5))
    chance = DPTopK(epsilon=100, budget=100, k=1, on_exhausted="chance", seed=3)
    found = [ids(chance.on_retrieval(f"q{i}", docs(1.0, 0.0))) for i in range(40)]
    assert found[0] == ["d0"] and 5 < found[1:].count(["d1"]) < 35


def test_the_exception_reaches_the_app_through_a_stage() -> None:
    def ask() -> list[Document]:
        with ragtrace.retrieval("q") as stage:
            return list(stage.documents(docs(0.5)))

    with defend(DPTopK(epsilon=1, budget=1, k=1, on_exhausted="raise"), RegexMask()):
        assert len(ask()) == 1
        with pytest.raises(BudgetExhaustedError):
            ask()


def test_it_is_pickled_with_what_it_has_spent() -> None:
    defense = DPTopK(epsilon=1, budget=2, k=1)
    defense.on_retrieval("q", docs(0.5))
    assert pickle.loads(pickle.dumps(defense)).spent == 1.0


# -- what it warns of -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("defense", "scores", "said"),
    [
        (DPTopK(k=1), (0.1, 0.4), "are these distances?"),
        (DPTopK(k=1, worst=0.5), (0.4, 0.3), "no document has a score better than worst=0.5"),
        (DPTopK(k=1), (None, None), "no document has a score better"),
        (DPTopK(k=1, candidates=["d0", "d1", "d2"]), (0.9, 0.4), "its ε does not hold"),
    ],
)
def test_warnings_come_once(
    defense: DPTopK, scores: tuple[float | None, ...], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ragtrace"):
        for _ in range(3):
            defense.on_retrieval("q", docs(*scores))
    assert [said in r.getMessage() for r in caplog.records] == [True]


def test_no_warning_without_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    complete = DPTopK(k=1, candidates=["d0", "d1", "d2"], worst=0.4)
    for defense in (complete, DPTopK(k=1), DPTopK(k=1, worst=2.0, best=0.0)):
        defense.on_retrieval("q", [])
    complete.on_retrieval("q", docs(0.9, 0.4))
    DPTopK(k=1, worst=2.0, best=0.0).on_retrieval("q", docs(0.2, 0.9))
    assert not caplog.records


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DPTopK(epsilon=0), "epsilon=0; expected a finite number > 0"),
        (lambda: DPTopK(epsilon=101, budget=200), "at most 100"),
        (lambda: DPTopK(epsilon=2, budget=1), "pays for no request of epsilon=2"),
        (lambda: DPTopK(budget=-1), "budget=-1"),
        (lambda: DPTopK(k=0), "k=0; expected an int ≥ 1"),
        (lambda: DPTopK(worst=1.0), "expected two different numbers"),
        (lambda: DPTopK(best=float("nan")), "best=nan; expected a finite number"),
        (lambda: DPTopK(worst=-1e308, best=1e308), "a finite range apart"),
        (lambda: DPTopK(candidates=["a", "a"], k=2), "1 candidates, expected at least k=2"),
        (lambda: DPTopK(candidates="abcdefgh"), "expected a collection of document ids"),
        (lambda: DPTopK(on_exhausted="pass"), "expected one of empty, block, raise, chance"),
        (lambda: DPTopK(composition="best"), "expected one of basic, advanced, rdp, optimal"),
        (lambda: DPTopK(delta=0), "delta=0; expected a number above 0"),
        (lambda: DPTopK(mechanism="gauss"), "expected 'exponential' or 'laplace'"),
        (lambda: DPTopK(per="user"), "expected one of conversation, process"),
        (lambda: DPTopK(remember=0), "remember=0"),
        (lambda: DPTopK(seed="x"), "seed='x'"),
    ],
)
def test_bad_arguments(make: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)


def test_the_battery_can_feed_it() -> None:
    plain, blocks = battery(DPTopK(seed=1, budget=None), DPTopK(on_exhausted="block", budget=1))
    scored = plain.capability("retrieval", "scored")
    assert (scored.status, scored.deterministic, scored.errors, scored.mutates) == ("changes", True, 0, False)
    assert blocks.hooks == ("retrieval", "response") and blocks.capability("retrieval", "scored").status == "changes"
