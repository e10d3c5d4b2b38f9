"""Whether the mechanisms are what they claim: exact probabilities, sensitivity, audits that try to prove them wrong."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from dp_mechanisms import peeled
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import ragtrace
from ragtrace.defenses import DPTopK, dp_top_k
from ragtrace.defenses._mechanisms import laplace, noisy_max, peeling_rate, piecewise, randomised_response
from ragtrace.defenses._voting import AgreementTest, TokenVote
from ragtrace.stats import epsilon_lower_bound
from ragtrace.types import Document

FEW = settings(max_examples=60, deadline=None, derandomize=True)
N = 4_000


def docs(*scores: float | None) -> list[Document]:
    return [Document(f"text {i}", f"d{i}", s) for i, s in enumerate(scores)]


def choose(defense: DPTopK, scores: tuple[float, ...], query: str) -> tuple[int, ...]:
    return tuple(int(d.id[1:]) for d in defense.on_retrieval(query, docs(*scores)))


# -- exact probabilities --------------------------------------------------------------------------


@pytest.mark.parametrize("fixed", [True, False])
def test_choices_have_the_probabilities_of_the_exponential_mechanism(fixed: bool) -> None:
    """Reference: enumeration; a chi-square test over all 12 ordered pairs of 4."""
    scores, epsilon = (0.9, 0.2, 0.6, 0.0), 2.0
    candidates = [f"d{i}" for i in range(4)] if fixed else None
    defense = DPTopK(epsilon, budget=None, k=2, candidates=candidates, seed=5)
    exact = peeled(scores, peeling_rate(epsilon, 4, 2), 2)
    found = Counter(choose(defense, scores, f"q{i}") for i in range(N))
    assert stats.chisquare([found[o] for o in exact], [N * p for p in exact.values()]).pvalue > 0.01


def test_distances_and_clipping() -> None:
    """Scores far beyond both ends count as the ends: the best of two wins with probability e^rate ÷ (1 + e^rate)."""
    defense = DPTopK(1.0, budget=None, k=1, worst=2.0, best=0.5, seed=1)
    wins = sum(choose(defense, (-1e300, math.inf), f"q{i}") == (0,) for i in range(N))
    rate = peeling_rate(1.0, 2, 1)
    assert stats.binomtest(wins, N, 1 / (1 + math.exp(-rate))).pvalue > 0.01


def test_noisy_max_of_two() -> None:
    """Reference: the difference of two Laplace variables exceeds -d with 1 - e^(-rd) (½ + rd ÷ 4)."""
    rate, d, chance = 1.7, 0.8, random.Random(3)
    wins = sum(noisy_max([d, 0.0], rate, 1, chance) == [0] for _ in range(N))
    assert stats.binomtest(wins, N, 1 - math.exp(-rate * d) * (0.5 + rate * d / 4)).pvalue > 0.01
    defense = DPTopK(2 * rate, budget=None, k=2, mechanism="laplace", seed=2)
    wins = sum(choose(defense, (d, 0.0), f"q{i}") == (0, 1) for i in range(N))
    assert stats.binomtest(wins, N, 1 - math.exp(-rate * d) * (0.5 + rate * d / 4)).pvalue > 0.01


def test_laplace() -> None:
    chance = random.Random(1)
    assert stats.kstest([laplace(2.5, chance) for _ in range(N)], stats.laplace(scale=2.5).cdf).pvalue > 0.01


@pytest.mark.parametrize(("size", "epsilon"), [(2, 0.5), (7, 1.0), (256, 4.0)])
def test_randomised_response(size: int, epsilon: float) -> None:
    chance, true = random.Random(4), size // 3
    found = Counter(randomised_response(true, size, epsilon, chance) for _ in range(N))
    keep = math.exp(epsilon) / (math.exp(epsilon) + size - 1)
    assert stats.binomtest(found[true], N, keep).pvalue > 0.01
    others = [found[i] for i in range(size) if i != true]
    assert sum(others) == N - found[true] and (size == 2 or stats.chisquare(others).pvalue > 0.01)


def piecewise_density(x: float, value: float, epsilon: float) -> float:
    """Definition 3 of 1907.00782, written down anew."""
    half = math.exp(epsilon / 2)
    c = (half + 1) / (half - 1)
    left = (c + 1) / 2 * value - (c - 1) / 2
    p = (math.exp(epsilon) - half) / (2 * half + 2)
    return p if left <= x <= left + c - 1 else p / math.exp(epsilon) if abs(x) <= c else 0.0


@pytest.mark.parametrize(("value", "epsilon"), [(-1.0, 1.0), (0.3, 0.5), (1.0, 4.0), (0.0, 2.0)])
def test_piecewise(value: float, epsilon: float) -> None:
    chance = random.Random(6)
    drawn = [piecewise(value, epsilon, chance) for _ in range(N)]
    half = math.exp(epsilon / 2)
    c = (half + 1) / (half - 1)
    ends = [-c, (c + 1) / 2 * value - (c - 1) / 2, (c + 1) / 2 * value + (c - 1) / 2, c]

    def cdf(x: float) -> float:
        return sum(max(0.0, min(x, b) - a) * piecewise_density((a + b) / 2, value, epsilon) for a, b in pairwise(ends))

    assert cdf(c) == pytest.approx(1)
    assert stats.kstest(drawn, np.vectorize(cdf)).pvalue > 0.01
    assert stats.ttest_1samp(drawn, value).pvalue > 0.01  # unbiased


def test_piecewise_at_the_ends_of_floats() -> None:
    assert piecewise(0.5, 5_000, random.Random(1)) == 0.5
    assert abs(piecewise(0.5, 1e-9, random.Random(1))) < 1e10


# -- the votes ------------------------------------------------------------------------------------


def token_law(vote: TokenVote, votes: dict[str, int]) -> dict[str | None, float]:
    weights: dict[str | None, float] = {t: math.exp(vote.rate * n) for t, n in votes.items() if n}
    weights[None] = math.exp(vote.rate * vote.least)
    return {t: w / sum(weights.values()) for t, w in weights.items()}


def test_the_private_token_has_the_stated_law() -> None:
    vote, chance = TokenVote(4.0, 0.05, 1), random.Random(8)
    votes = ["a"] * 4 + ["b"] * 2 + ["c"]
    law = token_law(vote, Counter(votes))
    found = Counter(vote.choose(votes, chance) for _ in range(N))
    assert min(law.values()) * N > 5 and law["a"] > 0.1
    assert stats.chisquare([found[t] for t in law], [N * p for p in law.values()]).pvalue > 0.01


def test_a_lone_vote_is_as_rare_as_it_has_to_be() -> None:
    """By hand, for ε = 2, δ = 0.01 and one voter: a = 1, d = 0.01 ÷ (1 + e) = 0.00268941, and *none* stands at 6.91844.

    Then a token with a single vote has e ÷ (e + e^6.91844) = 0.0026822 < d.
    """
    vote = TokenVote(2.0, 0.01, 1)
    assert (vote.rate, vote.least) == (1.0, pytest.approx(6.918441, abs=1e-5))
    assert token_law(vote, {"a": 1})["a"] == pytest.approx(0.0026822, abs=1e-6)


@FEW
@given(
    st.lists(st.sampled_from("abc"), min_size=2, max_size=9),
    st.lists(st.sampled_from("abcd"), min_size=2, max_size=2),
    st.sampled_from([1, 2]),
    st.floats(0.5, 8),
    st.sampled_from([1e-6, 1e-3]),
)
def test_the_private_token_is_epsilon_delta_private(
    votes: list[str], instead: list[str], influence: int, epsilon: float, delta: float
) -> None:
    """Reference: the hockey-stick divergence of the two laws, in both directions."""
    vote = TokenVote(epsilon, delta, influence)
    one = token_law(vote, Counter(votes))
    other = token_law(vote, Counter(instead[:influence] + votes[influence:]))
    for p, q in ((one, other), (other, one)):
        assert sum(max(0.0, p[t] - math.exp(epsilon) * q.get(t, 0.0)) for t in p) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("influence", [1, 2])
@pytest.mark.parametrize("votes", [3, 6, 9])
def test_the_agreement_test(votes: int, influence: int) -> None:
    """Reference: s + Lap(4g/ε) ≥ θ + Lap(2g/ε), by numerical integration."""
    epsilon, threshold, chance = 3.0, 6.0, random.Random(9)
    test, query = stats.laplace(scale=2 * influence / epsilon), stats.laplace(scale=4 * influence / epsilon)
    exact, _ = integrate.quad(lambda x: test.pdf(x) * query.sf(threshold + x - votes), -60, 60, points=[0], limit=200)
    hits = sum(AgreementTest(threshold, epsilon, influence, chance).agrees(votes) for _ in range(N))
    assert stats.binomtest(hits, N, exact).pvalue > 0.01


# -- audits: the strongest distinguisher against the claim ----------------------------------------

RUNS, TRIALS = 20, 1_500
OTHERS = (1.0, 1.0, 1.0)  # where peeling costs most for a choice of one: all others are as good as can be


def strongest(rate: float) -> Callable[[tuple[int, ...]], bool]:
    """The outcomes with the largest likelihood ratio between the worlds, told before anything is drawn."""
    with_it, without = peeled((1.0, *OTHERS), rate, 1), peeled((0.0, *OTHERS), rate, 1)
    ratio = {o: with_it[o] / without[o] for o in with_it}
    return lambda outcome: ratio[outcome] >= max(ratio.values()) * (1 - 1e-9)


def audited(epsilon: float, run: int) -> tuple[float, float]:
    """The lower bound of ε that one audit finds for the choice of 1 in 4, and the ceiling of what it could find."""
    accuse = strongest(peeling_rate(epsilon, 4, 1))
    defense = DPTopK(epsilon, budget=None, k=1, candidates=["d0", "d1", "d2", "d3"], seed=run)
    hits = [
        sum(accuse(choose(defense, (score, *OTHERS), f"{score} {i}")) for i in range(TRIALS)) for score in (1.0, 0.0)
    ]
    bound = epsilon_lower_bound(hits[0], TRIALS, hits[1], TRIALS)
    return bound.value, bound.ceiling


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_audit_finds_more_than_the_claimed_epsilon(epsilon: float) -> None:
    found = [audited(epsilon, run) for run in range(RUNS)]
    assert max(value for value, _ in found) <= epsilon
    assert min(ceiling for _, ceiling in found) > 2 * epsilon  # it could have
    assert sorted(value for value, _ in found)[RUNS // 2] > 0.4 * epsilon  # and it is no weak attacker


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_same_audit_catches_noise_that_is_too_small(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = strongest(peeling_rate(epsilon, 4, 1))
    monkeypatch.setattr(dp_top_k, "peeling_rate", lambda e, n, k: 2 * peeling_rate(e, n, k))
    monkeypatch.setitem(globals(), "strongest", lambda rate: honest)
    found = [audited(epsilon, run)[0] for run in range(RUNS)]
    assert min(found) > epsilon


def test_no_audit_finds_more_than_the_budget_of_a_conversation() -> None:
    """Four requests of ε = 0.5 within a budget of 1.5: three are answered, the fourth tells nothing."""
    epsilon, budget, target = 0.5, 1.5, 0
    ids = ["d0", "d1", "d2", "d3"]

    def talks(score: float, run: int) -> int:
        defense = DPTopK(epsilon, budget, k=1, candidates=ids, seed=run, on_exhausted="chance")
        accused = 0
        for i in range(TRIALS):
            with ragtrace.conversation(f"{score} {i}"):
                seen = [choose(defense, (score, *OTHERS), f"{score} {i} {turn}") for turn in range(4)]
            accused += sum(s == (target,) for s in seen) >= 2
        return accused

    for run in range(5):
        bound = epsilon_lower_bound(talks(1.0, run), TRIALS, talks(0.0, run), TRIALS)
        assert 0 < bound.value <= budget < bound.ceiling


def test_the_agreement_test_is_private_and_a_broken_one_is_caught() -> None:
    """Five agreements, then none: in one world each is likely, in its neighbour every s differs by 1, against it."""

    def happens(votes: list[int], real: float, chance: random.Random) -> bool:
        test = AgreementTest(8, real, 1, chance)
        return all(test.agrees(s) for s in votes[:-1]) and not test.agrees(votes[-1])

    def bound(real: float, run: int) -> float:
        chance = random.Random(run)
        hits = [sum(happens(v, real, chance) for _ in range(TRIALS)) for v in ([9] * 5 + [7], [8] * 6)]
        return epsilon_lower_bound(hits[0], TRIALS, hits[1], TRIALS).value

    assert max(bound(1.0, run) for run in range(RUNS)) <= 1.0
    assert min(bound(12.0, run) for run in range(RUNS)) > 1.0


# -- sensitivity ----------------------------------------------------------------------------------

SCORE = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)).filter(lambda e: abs(e[0] - e[1]) > 1e-3)


@FEW
@given(st.lists(SCORE, min_size=1, max_size=6), st.integers(0, 5), SCORE, ENDS, st.booleans())
def test_another_text_in_one_document_moves_one_utility_by_at_most_1(
    scores: list[float | None], place: int, other: float | None, ends: tuple[float, float], fixed: bool
) -> None:
    place %= len(scores)
    neighbour = [*scores[:place], other, *scores[place + 1 :]]
    candidates = [f"d{i}" for i in range(8)] if fixed else None
    defense = DPTopK(k=1, worst=ends[0], best=ends[1], candidates=candidates)
    one, two = (defense._utilities(docs(*s))[1] for s in (scores, neighbour))
    assert all(0 <= u <= 1 for u in one + two)
    assert [i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b] in ([], [place])


@FEW
@given(st.permutations(range(4)), st.integers(0, 3))
def test_with_candidates_neither_the_order_nor_what_is_missing_moves_another(order: list[int], missing: int) -> None:
    defense = DPTopK(k=1, candidates=["d0", "d1", "d2", "d3"])
    given_documents = docs(0.1, 0.4, 0.7, 1.0)
    _, whole = defense._utilities(given_documents)
    _, part = defense._utilities([given_documents[i] for i in order if i != missing])
    assert part == [0.0 if i == missing else u for i, u in enumerate(whole)]
