"""Every expected number comes from scikit-learn, scipy or a published table, named where it is used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from ragtrace import stats

# small integers, so that ties are common
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=20)


def test_fisher_of_the_papers_canaries() -> None:
    # Mind the Hook: 53/150 against 0/150, "p < 1e-14"; papers.md gives 4.1e-19
    assert stats.fisher_greater(53, 150, 0, 150) == pytest.approx(4.1e-19, rel=0.02)


def test_clopper_pearson_against_published_bounds() -> None:
    # papers.md: 0/150 has a one-sided 95 % upper bound of 1.98 %
    upper = stats.clopper_pearson(0, 150, side="upper")
    assert (upper.low, upper.high) == (0, pytest.approx(0.0198, abs=5e-5))
    # Mind the Hook: 10/10 has a one-sided lower bound of about 0.74
    assert stats.clopper_pearson(10, 10, side="lower").low == pytest.approx(0.74, abs=2e-3)
    # closed form of the exact interval at k = 0: 1 - (a/2)^(1/n)
    assert stats.clopper_pearson(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))


@given(SCORES, SCORES)
@settings(max_examples=60, deadline=None)
def test_batched_areas_equal_scikit_learn(members: list[int], others: list[int]) -> None:
    labels, scores = [1] * len(members) + [0] * len(others), members + others
    x, y = np.array([members, members], float), np.array([others, others], float)
    assert stats.auc_statistic(x, y) == pytest.approx([roc_auc_score(labels, scores)] * 2)
    assert stats.ap_statistic(x, y) == pytest.approx([average_precision_score(labels, scores)] * 2)
    assert stats.roc_auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))
    assert stats.pr_auc(labels, scores) == pytest.approx(average_precision_score(labels, scores))


def test_document_interval_is_as_wide_as_hanley_mcneil_says() -> None:
    # papers.md: AUC .705 at 10 members and 100 non-members has about [.52, .89] (Hanley-McNeil). Their formula
    # holds for exponential scores, of which these are the quantiles: means 1 and A / (1 - A).
    def quantiles(n: int) -> np.ndarray:
        return -np.log(1 - (np.arange(n) + 0.5) / n)

    members, others = 0.705 / 0.295 * quantiles(10), quantiles(100)
    assert stats.auc_statistic(members, others) == pytest.approx(0.705, abs=0.01)
    interval = stats.auc_interval(members, others)
    assert interval.method == "BCa"
    assert interval.low is not None and interval.high is not None
    assert interval.high - interval.low == pytest.approx(0.89 - 0.52, rel=0.2)
    assert interval.low == pytest.approx(0.52, abs=0.05)


def test_complete_separation_is_not_certainty() -> None:
    interval = stats.auc_interval([5, 6, 7, 8], [1, 2, 3, 4])
    # closed form at k = n: (a/2)^(1/n)
    assert (interval.low, interval.high) == (pytest.approx(0.025 ** (1 / 4)), 1)
    reverse = stats.auc_interval([1, 2, 3, 4], [5, 6, 7, 8])
    assert (reverse.low, reverse.high) == (0, pytest.approx(1 - 0.025 ** (1 / 4)))


def test_no_interval_where_nothing_varies() -> None:
    assert stats.bootstrap(stats.mean_statistic, [0.0] * 9) == (None, None, "degenerate")
    assert stats.bootstrap(stats.mean_statistic, [4.0]) == (None, None, "degenerate")
    assert stats.auc_interval([1, 1, 1], [1, 1]) == (None, None, "degenerate")


def test_bootstrap_is_seeded_and_covers_the_estimate() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 1, 40), rng.normal(0, 1, 40)
    first, again = stats.auc_interval(x, y, seed=3), stats.auc_interval(x, y, seed=3)
    assert first == again != stats.auc_interval(x, y, seed=4)
    assert first.low is not None and first.high is not None
    # Hanley-McNeil's standard error at this AUC and these sizes, as an independent width
    a = stats.auc_statistic(x, y).item()
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    se = ((a * (1 - a) + 39 * (q1 - a * a) + 39 * (q2 - a * a)) / 1600) ** 0.5
    assert first.low < a < first.high
    assert first.high - first.low == pytest.approx(2 * 1.96 * se, rel=0.25)


def test_by_class() -> None:
    members, others = stats.by_class([True, False, True], [1, 2, 3])
    assert members.tolist() == [1, 3] and others.tolist() == [2]
