"""Areas under curves and their intervals. Every expected number comes from scikit-learn, scipy, a published table or a
slow implementation of the definition, named where it is used."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap, norm, t
from sklearn.metrics import average_precision_score, roc_auc_score

from ragtrace import stats
from ragtrace.stats.areas import Ranking
from ragtrace.stats.delong import covariance, placements
from ragtrace.stats.resample import Documents, Resampled

# small integers, so that ties are common
SCORES = st.lists(st.integers(0, 6), min_size=2, max_size=20)
FINITE = st.lists(st.integers(-1000, 1000).map(lambda i: i / 7), min_size=2, max_size=20)


def sample(n: int = 40, shift: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and the correlated scores of two arms."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(2 * n) < n)
    first = rng.normal(size=2 * n) + shift * labels
    return labels, first, np.round(first / 2 + rng.normal(size=2 * n), 1)


def slow_delong(labels: np.ndarray, *arms: np.ndarray) -> np.ndarray:
    """DeLong et al. 1988, equations 4 to 7, as they are written: a double loop over pairs."""

    def psi(x: float, y: float) -> float:
        return 1.0 if y < x else 0.5 if y == x else 0.0

    v10, v01, theta = [], [], []
    for scores in arms:
        xs, ys = scores[labels], scores[~labels]
        v10.append([sum(psi(x, y) for y in ys) / len(ys) for x in xs])
        v01.append([sum(psi(x, y) for x in xs) / len(xs) for y in ys])
        theta.append(sum(v10[-1]) / len(xs))
    result = np.zeros((len(arms), len(arms)))
    for r in range(len(arms)):
        for s in range(len(arms)):
            for v in (v10, v01):
                m = len(v[r])
                product = sum((a - theta[r]) * (b - theta[s]) for a, b in zip(v[r], v[s], strict=True))
                result[r, s] += product / (m - 1) / m
    return result


@given(SCORES, SCORES)
@settings(max_examples=60, deadline=None)
def test_areas_equal_scikit_learn(members: list[int], others: list[int]) -> None:
    labels, scores = [True] * len(members) + [False] * len(others), members + others
    assert stats.roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert stats.pr_auc(labels, scores) == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    if len(set(scores)) > 1:
        assert stats.auc(labels, scores).value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
        assert stats.auc(labels, scores, "pr").value == pytest.approx(
            average_precision_score(labels, scores), abs=1e-12
        )


def test_areas_equal_scikit_learn_at_size() -> None:
    labels, plain, tied = sample(1000)
    for scores in (plain, tied):
        assert stats.auc(labels, scores).value == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
        assert stats.auc(labels, scores, "pr").value == pytest.approx(
            average_precision_score(labels, scores), abs=1e-12
        )


@given(SCORES, SCORES, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_weighted_areas_are_those_of_the_repeated_rows(members: list[int], others: list[int], random: Any) -> None:
    labels = np.array([True] * len(members) + [False] * len(others))
    scores = np.array(members + others, float)
    ranking = Ranking(labels, scores)
    counts = np.array([random.choices(range(3), k=len(labels)) for _ in range(3)])
    for curve, reference in (("roc", roc_auc_score), ("pr", average_precision_score)):
        for times, area in zip(counts, ranking.area(curve, counts.astype(float)), strict=True):
            repeated = np.repeat(labels, times)
            if repeated.any() and not repeated.all():
                assert area == pytest.approx(reference(repeated, np.repeat(scores, times)), abs=1e-12)
            else:
                assert np.isnan(area)
        left_out = [reference(np.delete(labels, i), np.delete(scores, i)) for i in range(len(labels))]
        assert ranking.without_each(curve) == pytest.approx(left_out, abs=1e-12)


@given(FINITE, FINITE)
@settings(max_examples=60, deadline=None)
def test_symmetries(members: list[float], others: list[float]) -> None:
    labels, scores = [True] * len(members) + [False] * len(others), np.array(members + others)
    estimate = stats.auc(labels, scores)
    if estimate.value is None:
        assert len(set(scores)) == 1
        return
    mirror, monotone = stats.auc(labels, -scores), stats.auc(labels, np.exp(scores / 100))
    assert mirror.value == pytest.approx(1 - estimate.value, abs=1e-12)
    assert estimate.low is not None and estimate.high is not None
    assert (mirror.low, mirror.high) == pytest.approx((1 - estimate.high, 1 - estimate.low), abs=1e-9)
    assert monotone == estimate
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    # swapping the classes swaps the sides
    assert stats.auc(np.invert(labels), scores).value == pytest.approx(1 - estimate.value, abs=1e-12)


@given(SCORES, SCORES, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_delong_is_its_definition(members: list[int], others: list[int], random: Any) -> None:
    labels = np.array([True] * len(members) + [False] * len(others))
    arms = np.array(members + others, float), np.array(random.choices(range(5), k=len(labels)), float)
    fast = covariance(labels, *(placements(labels, scores) for scores in arms))
    assert fast == pytest.approx(slow_delong(labels, *arms), abs=1e-12)


def test_delong_intervals_and_paired_test_from_the_slow_variance() -> None:
    labels, first, second = sample()
    c = slow_delong(labels, first, second)
    area, other = roc_auc_score(labels, first), roc_auc_score(labels, second)
    plain = stats.auc(labels, first, method="delong")
    assert (plain.low, plain.high) == pytest.approx(norm.interval(0.95, area, c[0, 0] ** 0.5))
    odds = np.log(area / (1 - area))
    low, high = norm.interval(0.95, odds, c[0, 0] ** 0.5 / (area * (1 - area)))
    logit = stats.auc(labels, first)
    assert (logit.low, logit.high) == pytest.approx((1 / (1 + np.exp(-low)), 1 / (1 + np.exp(-high))))
    paired = stats.auc_difference(labels, first, second, method="delong")
    se = (c[0, 0] + c[1, 1] - 2 * c[0, 1]) ** 0.5
    assert paired.value == pytest.approx(area - other)
    assert (paired.low, paired.high) == pytest.approx(norm.interval(0.95, area - other, se))
    assert paired.p == pytest.approx(2 * norm.sf(abs(area - other) / se), rel=1e-6)


def test_precision_recall_interval_from_the_slow_jackknife() -> None:
    labels, _, scores = sample(20)
    area = average_precision_score(labels, scores)
    variance = 0.0
    for mask in (labels, ~labels):
        left_out = [average_precision_score(np.delete(labels, i), np.delete(scores, i)) for i in np.flatnonzero(mask)]
        variance += 19 / 20 * sum((v - np.mean(left_out)) ** 2 for v in left_out)
    odds = np.log(area / (1 - area))
    ends = t.interval(0.95, 19, odds, variance**0.5 / (area * (1 - area)))
    estimate = stats.auc(labels, scores, "pr")
    assert (estimate.low, estimate.high) == pytest.approx(tuple(1 / (1 + np.exp(-e)) for e in ends), abs=1e-9)
    # the same from the clusters' way of leaving out, by weights
    twice = np.tile(labels, 2), np.tile(scores, 2), "pr"
    clustered = stats.auc(*twice, clusters=np.tile(np.arange(40), 2))
    variance = 0.0
    for mask in (labels, ~labels):
        left_out = [
            average_precision_score(*(np.delete(a, [i, i + 40]) for a in twice[:2])) for i in np.flatnonzero(mask)
        ]
        variance += 19 / 20 * sum((v - np.mean(left_out)) ** 2 for v in left_out)
    ends = t.interval(0.95, 19, odds, variance**0.5 / (area * (1 - area)))
    assert (clustered.low, clustered.high) == pytest.approx(tuple(1 / (1 + np.exp(-e)) for e in ends), abs=1e-9)


def test_paired_interval_and_p_agree_and_turn_with_the_arms() -> None:
    labels, first, second = sample()
    for curve in ("roc", "pr"):
        there, back = (stats.auc_difference(labels, *arms, curve) for arms in ((first, second), (second, first)))
        assert there.value is not None and there.low is not None and there.high is not None and there.p is not None
        assert (back.value, back.low, back.high) == pytest.approx((-there.value, -there.high, -there.low))
        assert back.p == pytest.approx(there.p, rel=1e-6)
        edge = stats.auc_difference(labels, first, second, curve, confidence=1 - there.p)
        assert min(abs(edge.low or 0), abs(edge.high or 0)) < 1e-6
        bca = stats.auc_difference(labels, first, second, curve, method="bca")
        assert (bca.low, bca.high) == pytest.approx((there.low, there.high), abs=0.04)
        assert bca.p == pytest.approx(there.p, abs=0.02)


def test_bca_is_scipys_on_the_same_resamples() -> None:
    labels, _, scores = sample(25)
    ranking, documents = Ranking(labels, scores), Documents(labels)

    class Given:  # what scipy.stats.bootstrap takes over from an earlier call
        bootstrap_distribution = np.concatenate([ranking.area("roc", w) for w in documents.resamples(500, 1)])

    ours = Resampled(
        float(roc_auc_score(labels, scores)),
        Given.bootstrap_distribution,
        documents.influences(lambda w: ranking.area("roc", w), lambda: ranking.without_each("roc")),
    )

    def statistic(x: np.ndarray, y: np.ndarray) -> float:
        return float(roc_auc_score([1] * len(x) + [0] * len(y), np.concatenate([x, y])))

    by_class = scores[labels], scores[~labels]
    outcome = bootstrap(by_class, statistic, n_resamples=0, bootstrap_result=Given, method="BCa", vectorized=False)
    scipys = outcome.confidence_interval
    assert ours.interval()[:2] == pytest.approx((scipys.low, scipys.high), abs=1e-12)


def test_bootstrap_p_inverts_the_interval() -> None:
    skewed = np.random.default_rng(0).exponential(size=50_000)
    for acceleration in (0.0, 0.15):
        resampled = Resampled(1.0, skewed, [np.array([1.0, -1.0])])
        resampled.acceleration = acceleration
        for null in (0.1, 3.5):
            low, high, _ = resampled.interval(1 - resampled.p(null))
            assert low is not None and high is not None
            assert min(abs(low - null), abs(high - null)) < 1e-3
    # no resample reached it: no smaller p than the resamples can show
    assert resampled.p(-1) == 2 / 50_000
    labels, scores, _ = sample(40, 2.0)
    assert stats.auc_difference(labels, scores, -scores, method="bca", resamples=400).p == 2 / 400


def test_resamples_keep_the_classes_and_the_documents_together() -> None:
    labels = np.array([True, True, True, False, False, False, True, False])
    clusters = np.array([0, 0, 1, 2, 2, 3, 4, 5])
    weights = np.concatenate(list(Documents(labels, clusters).resamples(200, 0)))
    assert (weights[:, 0] == weights[:, 1]).all() and (weights[:, 3] == weights[:, 4]).all()
    assert (weights[:, [0, 2, 6]].sum(axis=1) == 3).all() and (weights[:, [3, 5, 7]].sum(axis=1) == 3).all()
    assert len(np.unique(weights, axis=0)) > 50


def test_a_document_alone_in_its_stratum_is_left_to_chance_too() -> None:
    # the only document in both classes; were it in every resample, it would seem certain
    documents = Documents(np.array([True, True, True, False, False, False]), np.array([0, 1, 2, 2, 3, 4]))
    weights = np.concatenate(list(documents.resamples(100, 0)))
    assert (weights[:, 2] == weights[:, 3]).all() and len(np.unique(weights[:, 2])) > 2


def test_many_documents_share_blocks_of_the_jackknife(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, scores, _ = sample(300)
    repeated = np.tile(labels, 2), np.tile(scores, 2), "pr"
    clusters = np.tile(np.arange(600), 2)
    exact = stats.auc(*repeated, clusters=clusters)
    monkeypatch.setattr("ragtrace.stats.resample.BLOCKS", 150)
    shared = stats.auc(*repeated, clusters=clusters)
    assert shared != exact
    assert shared.high - shared.low == pytest.approx(exact.high - exact.low, rel=0.15)


@pytest.mark.parametrize("curve", ["roc", "pr"])
def test_repeating_every_row_adds_no_information(curve: Any) -> None:
    labels, scores, second = sample(30)
    documents = np.arange(len(labels))
    repeated = {"clusters": np.tile(documents, 5)}
    for method in ("logit", "bca"):
        once = stats.auc(labels, scores, curve, method=method)
        five = stats.auc(np.tile(labels, 5), np.tile(scores, 5), curve, method=method, **repeated)
        naive = stats.auc(np.tile(labels, 5), np.tile(scores, 5), curve, method=method)
        assert five.value == pytest.approx(once.value, abs=0.02)  # ties move average precision a little
        width, once_width, naive_width = (e.high - e.low for e in (five, once, naive))
        assert width == pytest.approx(once_width, rel=0.12)
        assert naive_width < 0.6 * once_width
    both = stats.auc_difference(*(np.tile(a, 5) for a in (labels, scores, second)), curve, **repeated)
    assert both.p == pytest.approx(stats.auc_difference(labels, scores, second, curve).p, rel=0.5)


def test_a_document_may_be_member_in_one_seed_and_not_in_another() -> None:
    # what a document adds to both classes cancels: with it in both, the area depends less on which documents were drawn
    rng = np.random.default_rng(0)
    document = rng.normal(0, 3, 40)
    scores = np.concatenate([document + 1 + rng.normal(size=40), document + rng.normal(size=40)])
    labels, clusters = np.arange(80) < 40, np.tile(np.arange(40), 2)
    for method in ("logit", "bca"):
        mixed, apart = (stats.auc(labels, scores, clusters=c, method=method) for c in (clusters, None))
        assert mixed.value == apart.value
        assert mixed.high - mixed.low < 0.6 * (apart.high - apart.low)


def test_document_interval_is_as_wide_as_hanley_mcneil_says() -> None:
    # papers.md: AUC .705 at 10 members and 100 non-members has about [.52, .89] (Hanley-McNeil). Their formula
    # holds for exponential scores, of which these are the quantiles: means 1 and A / (1 - A).
    def quantiles(n: int) -> np.ndarray:
        return -np.log(1 - (np.arange(n) + 0.5) / n)

    members, others = 0.705 / 0.295 * quantiles(10), quantiles(100)
    for method in ("logit", "delong", "bca"):
        estimate = stats.auc(np.arange(110) < 10, np.concatenate([members, others]), method=method)
        assert estimate.value == pytest.approx(0.705, abs=0.01)
        assert estimate.low is not None and estimate.high is not None
        assert estimate.high - estimate.low == pytest.approx(0.89 - 0.52, rel=0.2)
        assert estimate.low == pytest.approx(0.52, abs=0.05)
    assert stats.auc_interval(members, others)[:2] == stats.auc(np.arange(110) < 10, [*members, *others])[1:3]


@pytest.mark.parametrize("method", ["logit", "delong", "bca"])
def test_complete_separation_is_not_certainty(method: Any) -> None:
    labels = [True] * 4 + [False] * 4
    up = stats.auc(labels, [5, 6, 7, 8, 1, 2, 3, 4], method=method)
    # closed form at k = n: (a/2)^(1/n)
    assert up[:3] == (1, pytest.approx(0.025 ** (1 / 4)), 1) and up.method == "Clopper-Pearson of disjoint pairs"
    down = stats.auc(labels, [1, 2, 3, 4, 5, 6, 7, 8], method=method)
    assert down[:3] == (0, 0, pytest.approx(1 - 0.025 ** (1 / 4)))
    assert down.reversal is None  # 4 + 4 do not show it
    both = stats.auc_difference(labels, [5, 6, 7, 8, 1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7, 8], method=method)
    assert both.value == 1 and both.low is not None and both.low < 0.5 and both.p is not None and both.p > 0.001


def test_complete_separation_of_the_precision_recall_curve() -> None:
    labels, scores = np.arange(300) < 60, np.arange(300, 0, -1)
    estimate = stats.auc(labels, scores, "pr")
    # by quadrature of the lowest curve that the two exact bounds allow, each at 1.25 %
    tpr, fpr, share = 0.0125 ** (1 / 60), 1 - 0.0125 ** (1 / 240), 0.2
    recall = (np.arange(100_000) + 0.5) / 100_000 * tpr
    lowest = tpr * (share * recall / (share * recall + (1 - share) * fpr)).mean()
    assert estimate[:3] == (pytest.approx(1), pytest.approx(lowest, abs=1e-6), 1)
    down = stats.auc(labels, -scores, "pr")
    assert (down.low, down.high) == (None, None) and (down.reason or "").startswith("no interval")
    assert down.reversal is not None and "1.000" in down.reversal


def test_complete_separation_within_documents_counts_documents() -> None:
    labels = [True] * 8 + [False] * 8
    estimate = stats.auc(labels, range(16, 0, -1), clusters=[i // 2 for i in range(16)])
    assert estimate.low == pytest.approx(0.025 ** (1 / 4))
    # a document in both classes can be in one pair only: 8 documents, 4 pairs
    mixed = stats.auc(labels, range(16, 0, -1), clusters=[i % 8 for i in range(16)])
    assert mixed.low == pytest.approx(0.025 ** (1 / 4))


def test_a_reversal_is_named() -> None:
    labels, scores, _ = sample(40, -1.0)
    for curve in ("roc", "pr"):
        estimate = stats.auc(labels, scores, curve)
        flipped = roc_auc_score(labels, -scores)
        assert estimate.reversal is not None and f"{flipped:.3f}" in estimate.reversal
        assert stats.auc(labels, -scores, curve).reversal is None
    rng = np.random.default_rng(1)
    assert stats.auc(labels, rng.normal(size=80)).reversal is None


def test_bootstrap_of_any_statistic() -> None:
    assert stats.bootstrap(stats.mean_statistic, [0.0] * 9) == (None, None, "degenerate")
    assert stats.bootstrap(stats.mean_statistic, [4.0]) == (None, None, "degenerate")
    assert stats.auc_interval([1, 1, 1], [1, 1]) == (None, None, "degenerate")
    values = np.random.default_rng(0).exponential(size=60)
    first, again = (
        stats.bootstrap(stats.mean_statistic, values, seed=3),
        stats.bootstrap(stats.mean_statistic, values, seed=3),
    )
    assert first == again != stats.bootstrap(stats.mean_statistic, values, seed=4)
    reference = bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(3), n_resamples=2000)
    assert first[:2] == pytest.approx(reference.confidence_interval, rel=0.02)


def test_bootstrap_of_the_mean_is_that_of_scipy_without_its_copies() -> None:
    assert stats.bootstrap_mean([0.0] * 9) == stats.bootstrap_mean([4.0]) == (None, None, "degenerate")
    values = np.random.default_rng(0).exponential(size=60)
    found = stats.bootstrap_mean(values, seed=3)
    assert found == stats.bootstrap_mean(values, seed=3) != stats.bootstrap_mean(values, seed=4)
    reference = bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(5), n_resamples=20_000)
    assert found.method == "BCa" and found[:2] == pytest.approx(reference.confidence_interval, rel=0.03)
    labels, scores, _ = sample()
    one, same = (stats.auc(labels, scores, method="bca", seed=3) for _ in range(2))
    assert one == same != stats.auc(labels, scores, method="bca", seed=4)


def test_two_thousand_resamples_of_two_thousand_documents_take_under_half_a_second() -> None:
    labels, scores, _ = sample(1000)
    taken = []
    for _ in range(3):
        start = time.process_time()  # what it costs, whoever else uses the machine
        assert stats.auc(labels, scores, method="bca", resamples=2000).method == "BCa"
        taken.append(time.process_time() - start)
    assert min(taken) < 0.5


def test_by_class() -> None:
    members, others = stats.by_class([True, False, True], [1, 2, 3])
    assert members.tolist() == [1, 3] and others.tolist() == [2]
