"""What has no number gets none, with the reason; what is no sample at all is an error that names the fix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ragtrace import stats
from ragtrace.errors import UsageError

TIED = [3, 1, 2, 2, 5, 0, 2, 1, 1, 3]
HALF = [True] * 5 + [False] * 5


@pytest.mark.parametrize(
    ("labels", "scores", "said"),
    [
        ([True] * 6, range(6), "6 members and 0 non-members"),
        ([False] * 6, range(6), "0 members and 6 non-members"),
        ([True] + [False] * 5, range(6), "1 members and 5 non-members, at least 2"),
        ([True, False] * 3, [2.5] * 6, "all 6 scores are tied"),
        ([True, False] * 3, [1, 2, None, 4, float("nan"), 6], "2 of 6 scores are missing"),
        ([True, False] * 3, [1, 2, 3, 4, 5, float("inf")], "1 of 6 scores are missing, NaN or infinite"),
        ([], [], "0 members and 0 non-members"),
    ],
)
def test_no_number_where_there_is_none(labels: Any, scores: Any, said: str) -> None:
    for curve in ("roc", "pr"):
        for estimate in (
            stats.auc(labels, scores, curve),
            stats.auc_difference(labels, range(len(labels)), scores, curve),
        ):
            assert estimate[:4] == (None, None, None, None) and estimate.p is None
            assert estimate.reason is not None and estimate.reason.startswith("no data: ") and said in estimate.reason
    tpr = stats.tpr_at_fpr(labels, scores, 0.5)
    assert tpr.value is None and said in (tpr.reason or "")


def test_too_few_documents_behind_many_rows() -> None:
    estimate = stats.auc([True] * 4 + [False] * 4, range(8), clusters=[0, 0, 0, 0, 1, 1, 2, 2])
    assert estimate.value is None and "1 documents with members" in (estimate.reason or "")


def test_arms_that_do_not_differ_have_no_interval() -> None:
    for method in ("logit", "delong", "bca"):
        estimate = stats.auc_difference(HALF, TIED, [10 * s for s in TIED], method=method)
        assert estimate[:3] == (0, None, None) and estimate.p == 1
        assert (estimate.reason or "").startswith("no interval")


@pytest.mark.parametrize(
    "labels",
    [
        ["True", "False"] * 5,
        [0.5, 1.0] * 5,
        [1.0, 0.0] * 5,
        [1, 2] * 5,
        [True, None] * 5,
        [True, float("nan")] * 5,
        [[True, False]] * 5,
        "member",
    ],
)
def test_labels_that_are_not_boolean(labels: Any) -> None:
    for call in (stats.auc, stats.roc_auc, stats.pr_auc, stats.by_class, stats.tpr_at_fpr, stats.fit_threshold):
        with pytest.raises(UsageError, match="labels"):
            call(labels, TIED)


@pytest.mark.parametrize("labels", [[1, 0] * 5, np.array([1, 0] * 5, np.uint8), np.array([True, False] * 5, object)])
def test_labels_that_are(labels: Any) -> None:
    assert stats.auc(labels, TIED) == stats.auc([True, False] * 5, TIED)


MIXED = np.array(["1", *TIED[1:]], object)


@pytest.mark.parametrize(
    "scores", [["1"] * 10, MIXED, list("abcdefghij"), TIED[:9], [[1]] * 10, [1j] * 10, [object()] * 10]
)
def test_scores_that_are_not_numbers(scores: Any) -> None:
    with pytest.raises(UsageError, match="scores"):
        stats.auc(HALF, scores)
    with pytest.raises(UsageError, match="scores"):
        stats.auc_difference(HALF, TIED, scores)


@pytest.mark.parametrize(
    "options",
    [
        {"clusters": [1, 2]},
        {"clusters": ["a"] * 9 + [None]},
        {"clusters": [1.0] * 9 + [float("nan")]},
        {"method": "wald"},
        {"curve": "det"},
        {"curve": "pr", "method": "delong"},
        {"confidence": 1.0},
        {"confidence": 95},
        {"method": "bca", "resamples": 1},
    ],
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"expected|use method"):
        stats.auc(HALF, TIED, **options)


def test_one_class_is_an_error_where_only_a_number_can_be_given() -> None:
    for area in (stats.roc_auc, stats.pr_auc):
        with pytest.raises(UsageError, match="3 members and 0 non-members"):
            area([True] * 3, [1, 2, 3])
        with pytest.raises(UsageError, match="1 of 2 scores"):
            area([True, False], [1, float("nan")])
