"""Shares, thresholds, ε bounds. Expected numbers: scipy, scikit-learn, or the published value named beside each."""

from __future__ import annotations

from itertools import combinations
from math import comb, exp, log, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom, boschloo_exact
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_curve

from ragtrace import stats
from ragtrace.errors import UsageError


def test_fisher_of_the_papers_canaries() -> None:
    # Mind the Hook: 53/150 against 0/150, "p < 1e-14"; papers.md gives 4.1e-19
    assert stats.fisher_greater(53, 150, 0, 150) == pytest.approx(4.1e-19, rel=0.02)


def test_boschloo_of_scipys_example() -> None:
    # scipy's documentation of boschloo_exact, job satisfaction of professors (74 of 117) and scientists (31 of 63):
    # p = 0.0355, and Fisher's, its statistic, 0.0483
    assert stats.boschloo_greater(74, 117, 31, 63) == pytest.approx(0.0355, abs=1e-4)
    assert stats.fisher_greater(74, 117, 31, 63) == pytest.approx(0.0483, abs=5e-5)
    assert stats.boschloo_greater(31, 63, 74, 117) == pytest.approx(
        boschloo_exact([[31, 74], [32, 43]], alternative="greater").pvalue
    )


@given(st.integers(0, 8), st.integers(0, 8))
@settings(max_examples=25, deadline=None)
def test_boschloo_never_says_less_than_fisher(here: int, there: int) -> None:
    assert stats.boschloo_greater(here, 8, there, 8) <= stats.fisher_greater(here, 8, there, 8) + 1e-9


def test_clopper_pearson_against_published_bounds() -> None:
    # papers.md: 0/150 has a one-sided 95 % upper bound of 1.98 %
    upper = stats.clopper_pearson(0, 150, side="upper")
    assert (upper.low, upper.high) == (0, pytest.approx(0.0198, abs=5e-5))
    # Mind the Hook: 10/10 has a one-sided lower bound of about 0.74
    assert stats.clopper_pearson(10, 10, side="lower").low == pytest.approx(0.74, abs=2e-3)
    # closed form of the exact interval at k = 0: 1 - (a/2)^(1/n)
    assert stats.clopper_pearson(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))
    # Newcombe 1998 (single proportion), table I: 81/263 has [0.2527, 0.3676]
    assert stats.clopper_pearson(81, 263)[:2] == pytest.approx((0.2527, 0.3676), abs=5e-5)


def test_mean_of_two_shares_against_newcombe() -> None:
    # Newcombe 1998 (difference of proportions), table II, method 10: 56/70 - 48/80 has [0.0524, 0.3339]
    # and 9/10 - 3/10 [0.1705, 0.8090]; p - q is 2 · mean(p, 1 - q) - 1
    for (a, m), (b, n), expected in (((56, 70), (48, 80), (0.0524, 0.3339)), ((9, 10), (3, 10), (0.1705, 0.8090))):
        mean = stats.mean_share((a, m), (n - b, n))
        assert mean.low is not None and mean.high is not None
        assert (2 * mean.low - 1, 2 * mean.high - 1) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("counts", [(0, 0), (-1, 5), (6, 5)])
def test_counts_that_cannot_be(counts: tuple[int, int]) -> None:
    for call in (
        lambda: stats.clopper_pearson(*counts),
        lambda: stats.fisher_greater(*counts, 1, 5),
        lambda: stats.boschloo_greater(1, 5, *counts),
        lambda: stats.mean_share((1, 2), counts),
        lambda: stats.epsilon_lower_bound(*counts, 0, 5),
        lambda: stats.epsilon_lower_bound(1, 5, *counts),
        lambda: stats.one_run_epsilon(*counts),
    ):
        with pytest.raises(UsageError, match="expected 0 to"):
            call()
    with pytest.raises(UsageError, match="confidence 95"):
        stats.clopper_pearson(1, 5, confidence=95)


def test_three_seeds_against_three() -> None:
    # papers.md: canaries recovered without a defense and with LPRAG, seeds 101 to 103; p = .05 at best
    test = stats.seed_permutation([21, 16, 16], [0, 0, 0])
    assert test.p == pytest.approx(1 / 20) and test.value == pytest.approx(53 / 3)
    assert test.reason == "3 against 3 seeds give p = 0.05 at best"
    five = stats.seed_permutation([21, 16, 16, 18, 20], [0, 1, 0, 0, 2])
    assert five.p == pytest.approx(1 / comb(10, 5)) and five.reason is None
    assert stats.seed_permutation([5], [1, 2]).value is None
    assert stats.seed_permutation([5, float("nan")], [1, 2]).value is None


@given(st.lists(st.integers(0, 4), min_size=2, max_size=4), st.lists(st.integers(0, 4), min_size=2, max_size=4))
@settings(max_examples=40, deadline=None)
def test_seed_permutation_is_the_count_of_all_exchanges(here: list[int], there: list[int]) -> None:
    pooled, k = np.array(here + there), len(here)
    sums = [pooled[list(chosen)].sum() for chosen in combinations(range(len(pooled)), k)]
    expected = sum(s >= sum(here) for s in sums) / len(sums)
    assert stats.seed_permutation(here, there).p == pytest.approx(expected)


def test_holm_of_his_steps() -> None:
    # by hand: sorted .005 .01 .03 .04 times 4 3 2 1 = .02 .03 .06 .04, made monotone
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.01, None, 0.9]) == [pytest.approx(0.02), None, pytest.approx(0.9)]
    assert stats.holm([0.6, 0.6]) == [1.0, 1.0] and stats.holm([]) == [] and stats.holm([None]) == [None]
    for odd in (1.1, -0.1, float("nan")):
        with pytest.raises(UsageError, match="p-value"):
            stats.holm([0.5, odd])


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=30),
    st.lists(st.integers(0, 9), min_size=4, max_size=30),
    st.sampled_from([0.25, 0.29, 0.3, 0.5, 0.9]),
)
@settings(max_examples=100, deadline=None)
def test_tpr_is_the_highest_step_not_above_the_fpr(members: list[int], others: list[int], fpr: float) -> None:
    labels, scores = [True] * len(members) + [False] * len(others), members + others
    if len(set(scores)) == 1:
        return
    estimate = stats.tpr_at_fpr(labels, scores, fpr)
    alarms, hits, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert estimate.value == pytest.approx(hits[alarms <= fpr + 1e-9].max())
    threshold = stats.threshold_at_fpr(others, fpr)
    assert (np.array(members) >= threshold).mean() == estimate.value
    assert (np.array(others) >= threshold).mean() <= fpr + 1e-9
    exact = stats.clopper_pearson(round((estimate.value or 0) * len(members)), len(members))
    assert estimate[1:4] == tuple(exact)


def test_float_steps_are_not_lost() -> None:
    # 0.29 · 100 is 28.999999999999996: 29 false positives are allowed
    assert stats.threshold_at_fpr(range(100), 0.29) == pytest.approx(70) and 0.29 * 100 < 29


@pytest.mark.parametrize(("fpr", "needed", "named"), [(0.01, 100, "1.00%"), (0.001, 1000, "0.10%")])
def test_refusal_where_non_members_are_too_few(fpr: float, needed: int, named: str) -> None:
    def asked(n: int) -> stats.Estimate:
        return stats.tpr_at_fpr(np.arange(50 + n) < 50, np.concatenate([np.arange(50) + n / 2, np.arange(n)]), fpr)

    refused = asked(needed - 1)
    assert refused[:3] == (None, None, None)
    assert (
        refused.reason
        == f"refused: {needed - 1} non-members cannot show an FPR of {named}, at least {needed} are needed"
    )
    assert asked(needed).value is not None


@pytest.mark.parametrize("fpr", [0, 1, -0.1, 1.5, float("nan")])
def test_false_positive_rates_that_cannot_be(fpr: float) -> None:
    with pytest.raises(UsageError, match="FPR"):
        stats.tpr_at_fpr([True, False], [1, 2], fpr)
    if fpr != 0:
        with pytest.raises(UsageError, match="FPR"):
            stats.threshold_at_fpr([1, 2], fpr)
    for scores in ([], [1, float("nan")], [[1, 2]]):
        with pytest.raises(UsageError, match="non-members' scores"):
            stats.threshold_at_fpr(scores, 0.1)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=4, max_size=40))
@settings(max_examples=80, deadline=None)
def test_fitted_threshold_is_the_best_of_all(rows: list[tuple[bool, int]]) -> None:
    labels, scores = np.array([m for m, _ in rows]), np.array([s for _, s in rows])
    if labels.all() or not labels.any():
        with pytest.raises(UsageError, match="nothing can be fitted"):
            stats.fit_threshold(labels, scores)
        return
    for criterion, measure in (("balanced_accuracy", balanced_accuracy_score), ("accuracy", accuracy_score)):
        fitted = stats.fit_threshold(labels, scores, criterion)
        reached = {t: measure(labels, scores >= t) for t in np.unique(scores)}
        best = max(reached.values())
        assert fitted == min(t for t, gain in reached.items() if gain > best - 1e-12)
        point = stats.operating_point(labels, scores, fitted)
        assert getattr(point, criterion).value == pytest.approx(best)
    told = scores >= point.threshold
    assert point.tpr.value == pytest.approx(told[labels].mean()) and point.fpr.value == pytest.approx(
        told[~labels].mean()
    )
    for share in point[1:]:
        assert 0 <= share.low <= share.value + 1e-12 and share.value - 1e-12 <= share.high <= 1
    assert point.fpr[1:3] == stats.clopper_pearson(int(told[~labels].sum()), int((~labels).sum()))[:2]


def test_operating_point_of_what_cannot_be_told() -> None:
    for labels, scores, said in (
        ([True, True], [1, 2], "0 non-members"),
        ([True, False], [1, None], "1 of 2 scores are missing"),
    ):
        point = stats.operating_point(labels, scores, 1.5)
        assert all(share.value is None and said in (share.reason or "") for share in point[1:])
    with pytest.raises(UsageError, match="threshold is NaN"):
        stats.operating_point([True, False], [1, 2], float("nan"))
    # an infinite perplexity is below or above a threshold all the same
    assert stats.operating_point([True, False], [float("inf"), 2], 3).accuracy.value == 1


def test_epsilon_ceilings_of_the_sample_sizes() -> None:
    # papers.md: 100/100: 3.28; 1000/1000: 5.60
    for n, ceiling in ((100, 3.28), (1000, 5.60)):
        bound = stats.epsilon_lower_bound(n, n, 0, n)
        assert bound.value == bound.ceiling == pytest.approx(ceiling, abs=5e-3) and bound.reason is None
    # Clopper-Pearson by its beta quantiles, each end at α/2
    lower, upper = beta.ppf(0.025, 60, 41), beta.ppf(0.975, 6, 95)
    bound = stats.epsilon_lower_bound(60, 100, 5, 100, delta=1e-3)
    assert bound.value == pytest.approx(log((lower - 1e-3) / upper))
    assert bound.ceiling == pytest.approx(log((0.025 ** (1 / 100) - 1e-3) / (1 - 0.025 ** (1 / 100))))


def test_no_evidence_is_a_bound_of_zero_and_says_so() -> None:
    for counts in ((10, 100, 10, 100), (0, 100, 0, 100), (0, 100, 100, 100)):
        bound = stats.epsilon_lower_bound(*counts)
        assert bound.value == 0 and "ε = 0" in (bound.reason or "") and bound.ceiling > 3
    assert stats.epsilon_lower_bound(5, 100, 0, 100, delta=0.5).value == 0
    with pytest.raises(UsageError, match="delta"):
        stats.epsilon_lower_bound(5, 10, 0, 10, delta=1.0)
    assert stats.one_run_epsilon(50, 100).value == 0 == stats.one_run_epsilon(0, 100).value


@given(st.integers(1, 200).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r))))
@settings(max_examples=60, deadline=None)
def test_one_run_epsilon_is_where_the_theorem_stops_rejecting(counts: tuple[int, int]) -> None:
    guesses, correct = counts
    bound = stats.one_run_epsilon(correct, guesses)
    if bound.value > 0:
        # the main theorem with δ = 0: a binomial tail at e^ε / (1 + e^ε)
        assert binom.sf(correct - 1, guesses, exp(bound.value) / (1 + exp(bound.value))) == pytest.approx(0.05)
        assert stats.one_run_p(correct, guesses, bound.value) == pytest.approx(0.05)
    else:
        assert stats.one_run_p(correct, guesses, 0) >= 0.05 - 1e-9
    q = 0.05 ** (1 / guesses)
    assert bound.value <= bound.ceiling == pytest.approx(max(0, log(q / (1 - q))))


def test_one_run_guesses_the_ends_and_never_the_order_of_the_rows() -> None:
    labels, scores = [True, False, True, False, True, False], [9, 1, 8, 2, 3, 7]
    assert stats.one_run_guesses(labels, scores, 2, 2) == (4, 4)
    assert stats.one_run_guesses(labels, scores, 3, 0) == (2, 3)
    assert stats.one_run_guesses(labels, scores, 0, 3) == (2, 3)
    # all tied, members first or last: about half are right
    for order in (slice(None), slice(None, None, -1)):
        sorted_labels = (np.arange(2000) < 1000)[order]
        correct, guesses = stats.one_run_guesses(sorted_labels, np.zeros(2000), 500, 500)
        assert guesses == 1000 and 400 < correct < 600
    wrong: list[tuple[Any, ...]] = [(4, 4), (0, 0), (-1, 2)]
    for positive, negative in wrong:
        with pytest.raises(UsageError, match="guesses for 6 targets"):
            stats.one_run_guesses(labels, scores, positive, negative)
    with pytest.raises(UsageError, match="1 of 2 scores"):
        stats.one_run_guesses([True, False], [1, float("nan")], 1, 1)
    with pytest.raises(UsageError, match="epsilon"):
        stats.one_run_p(5, 10, -1)


def test_exposure() -> None:
    # Carlini et al. 1802.08232: first of 10^9 candidates has log2(10^9), about 30; the last has 0
    assert stats.exposure(1, 10**9) == pytest.approx(29.897, abs=1e-3)
    assert stats.exposure(1000, 1000) == 0 and stats.exposure(4, 64) == pytest.approx(log2(16))
    assert stats.canary_rank(5, [1, 2, 9]) == 2 and stats.canary_rank(9, [9, 9, 1]) == 3
    for rank, candidates in ((0, 5), (6, 5)):
        with pytest.raises(UsageError, match="rank"):
            stats.exposure(rank, candidates)
    with pytest.raises(UsageError, match="finite"):
        stats.canary_rank(1, [2, float("nan")])
