"""What many releases cost: composition against tables worked by hand and by enumeration, budgets of conversations."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from dp_mechanisms import loss, peeled, randomised_delta
from hypothesis import given, settings
from hypothesis import strategies as st

import ragtrace
from ragtrace.defenses._accounting import affordable, composed, exact_delta
from ragtrace.defenses._budget import Meter, Recent
from ragtrace.defenses._mechanisms import peeling_cost, peeling_rate

FEW = settings(max_examples=60, deadline=None, derandomize=True)

BY_HAND = [  # ε of one release, releases, δ, rule, ε of all
    (0.1, 10, 1e-6, "basic", 1.0),  # 10 · 0.1
    (0.5, 3, 1e-6, "basic", 1.5),
    # 100 · 0.1 · tanh(0.05) + 0.1 · √(200 · ln 10⁶) = 10 · 0.0499584 + 0.1 · √(200 · 13.8155106) = 0.499584 + 5.256522
    (0.1, 100, 1e-6, "advanced", 5.756106),
    # 1000 · 0.01 · tanh(0.005) + 0.01 · √(2000 · ln 10⁵) = 10 · 0.00499996 + 0.01 · √(2000 · 11.5129255)
    #   = 0.0499996 + 0.01 · 151.742712
    (0.01, 1000, 1e-5, "advanced", 1.567427),
    # 4 · 1 · tanh(½) + √(8 · ln 10⁶) = 1.848469 + 10.513 is more than 4 · 1
    (1.0, 4, 1e-6, "advanced", 4.0),
    # one release: δ = (e^ε₀ - e^ε) ÷ (1 + e^ε₀), so e^ε = e - 0.2 · (1 + e) = 1.9746255 for ε₀ = 1, δ = 0.2
    (1.0, 1, 0.2, "optimal", 0.680379),
    # two: δ = (e² - e^ε) ÷ (1 + e)² for ε ≥ 0, so e^ε = 7.3890561 - 0.1 · 13.8256197 = 6.0064941 for ε₀ = 1, δ = 0.1
    (1.0, 2, 0.1, "optimal", 1.792841),
]


@pytest.mark.parametrize(("epsilon", "times", "delta", "rule", "total"), BY_HAND)
def test_composition_by_hand(epsilon: float, times: int, delta: float, rule: str, total: float) -> None:
    assert composed(epsilon, times, delta, rule) == pytest.approx(total, abs=2e-6)  # type: ignore[arg-type]


def test_nothing_released_costs_nothing() -> None:
    assert [composed(1.0, 0, 1e-6, rule) for rule in ("basic", "advanced", "rdp", "optimal")] == [0.0] * 4  # type: ignore[arg-type]


@pytest.mark.parametrize("times", [1, 2, 5, 9])
@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_the_exact_trade_off(times: int, epsilon: float, share: float) -> None:
    """Reference: the hockey-stick divergence over all answers of randomised response, enumerated."""
    total = share * times * epsilon
    assert exact_delta(total, epsilon, times) == pytest.approx(randomised_delta(total, epsilon, times), abs=1e-12)


@FEW
@given(st.floats(1e-3, 3), st.integers(1, 300), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_no_rule_promises_more_than_is_true_and_none_costs_more_than_basic(e: float, times: int, delta: float) -> None:
    optimal, basic = composed(e, times, delta, "optimal"), composed(e, times)
    for rule in ("advanced", "rdp"):
        assert optimal <= composed(e, times, delta, rule) * (1 + 1e-9) <= basic * (1 + 2e-9)  # type: ignore[arg-type]


def test_rdp_of_many_releases() -> None:
    """By hand: order 16, the divergence of each at most α ε² ÷ 2 (Bun & Steinke 1605.02065), converted at δ = 10⁻⁶.

    1000 · 16 · 0.0001 ÷ 2 = 0.8, + ln(15 ÷ 16) = -0.064539, + (13.815511 - 2.772589) ÷ 15 = 0.736195: 1.471656.
    """
    assert 1.465 < composed(0.01, 1000, 1e-6, "rdp") <= 1.471656


@pytest.mark.parametrize("rule", ["basic", "advanced", "rdp", "optimal"])
@pytest.mark.parametrize(("budget", "epsilon"), [(1.0, 0.1), (0.3, 0.1), (10.0, 1.0), (2.0, 0.03), (0.05, 0.1)])
def test_a_budget_pays_for_as_many_as_it_can_and_no_more(rule: str, budget: float, epsilon: float) -> None:
    n = affordable(budget, epsilon, 1e-6, rule)  # type: ignore[arg-type]
    assert composed(epsilon, n, 1e-6, rule) <= budget * (1 + 1e-9)  # type: ignore[arg-type]
    assert composed(epsilon, n + 1, 1e-6, rule) > budget  # type: ignore[arg-type]
    if rule == "basic":
        assert n == {(1.0, 0.1): 10, (0.3, 0.1): 3, (10.0, 1.0): 10, (2.0, 0.03): 66, (0.05, 0.1): 0}[budget, epsilon]


# -- what choosing k of n costs -------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (4, 1), (4, 2), (4, 3), (4, 4), (5, 3), (6, 2)])
@pytest.mark.parametrize("rate", [0.2, 1.0, 4.0])
def test_the_cost_of_peeling_is_exact(n: int, k: int, rate: float) -> None:
    """Reference: the largest loss over all pairs of neighbours whose utilities are 0 or 1, and all choices."""
    corners = [tuple(float(bits >> i & 1) for i in range(n - 1)) for bits in range(2 ** (n - 1))]
    worst = max(loss(peeled((0.0, *u), rate, k), peeled((1.0, *u), rate, k)) for u in corners)
    assert peeling_cost(rate, n, k) == pytest.approx(worst, rel=1e-12)


UTILITY = st.floats(0, 1)


@FEW
@given(st.lists(UTILITY, min_size=1, max_size=4), UTILITY, UTILITY, st.integers(1, 3), st.floats(0.05, 6))
def test_one_score_moves_the_choice_by_no_more_than_epsilon(
    others: list[float], one: float, other: float, k: int, epsilon: float
) -> None:
    k = min(k, len(others) + 1)
    rate = peeling_rate(epsilon, len(others) + 1, k)
    assert loss(peeled([one, *others], rate, k), peeled([other, *others], rate, k)) <= epsilon + 1e-9
    assert rate >= epsilon / k * (1 - 1e-12)  # never worse than basic composition


@pytest.mark.parametrize(("epsilon", "n", "k"), [(1.0, 20, 5), (0.01, 3, 3), (50.0, 100, 10), (100.0, 2, 1)])
def test_the_rate_spends_all_of_epsilon(epsilon: float, n: int, k: int) -> None:
    assert peeling_cost(peeling_rate(epsilon, n, k), n, k) == pytest.approx(epsilon, rel=1e-9)


# -- budgets of conversations ---------------------------------------------------------------------


def test_each_conversation_has_its_own_count_and_what_is_outside_shares_one() -> None:
    meter = Meter(2, "conversation", 10)
    for id in ("a", "b", ""):
        with ragtrace.conversation(id):
            assert [meter.spend() for _ in range(3)] == [True, True, False]
            assert (meter.used, meter.refused) == (2, True)
    assert (meter.spend(), meter.used, meter.refused) == (True, 1, False)


def test_one_count_for_the_process() -> None:
    meter = Meter(2, "process", 10)
    with ragtrace.conversation("a"):
        assert meter.spend()
    with ragtrace.conversation("b"):
        assert meter.spend() and not meter.spend()


def test_threads_of_one_conversation_spend_no_more_than_there_is() -> None:
    meter = Meter(500, "conversation", 10)

    def spend(_: int) -> int:
        with ragtrace.conversation("a"):
            return sum(meter.spend() for _ in range(100))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(8))) == 500


def test_memory_is_bounded_and_the_one_idle_longest_is_forgotten() -> None:
    recent: Recent[int] = Recent(3)
    for key in ("a", "b", "c", "a", "d"):
        recent.update(key, lambda n: (n or 0) + 1)
    assert len(recent) == 3
    assert [recent.get(k) for k in "abcd"] == [2, None, 1, 1]
    recent.update("\ud800" * 1_000_000, lambda _: 1)
    assert len(pickle.dumps(recent)) < 1_000


def test_a_count_survives_pickling() -> None:
    meter = Meter(2, "process", 10)
    meter.spend()
    copy = pickle.loads(pickle.dumps(meter))
    assert copy.spend() and not copy.spend() and meter.used == 1


def test_no_limit() -> None:
    meter = Meter(None, "process", 1)
    assert all(meter.spend() for _ in range(1_000)) and not meter.refused and math.isfinite(meter.used)
