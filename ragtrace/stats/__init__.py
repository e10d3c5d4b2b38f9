"""Intervals and tests. Scores are "higher means member"; every share and area is in [0, 1].

scipy and scikit-learn define the numbers. Written again is only what a bootstrap needs thousands of (areas of
reweighted samples), and what neither has (DeLong, BCa over clusters, Holm, ε bounds); the tests hold the former equal
and check the latter against published values. Where the data give no number the result is ``value=None`` with a
``reason``; an argument of the wrong kind raises ``UsageError``.

Areas: :func:`auc`, :func:`auc_difference`. Thresholds: :func:`tpr_at_fpr`, :func:`fit_threshold`,
:func:`operating_point`. Counts: :func:`clopper_pearson`, :func:`fisher_greater`, :func:`boschloo_greater`,
:func:`seed_permutation`, :func:`holm`. Arms: :func:`paired_change`. Privacy: :func:`epsilon_lower_bound`,
:func:`one_run_epsilon`, :func:`exposure`.
"""

from ragtrace.stats.areas import by_class, mean_statistic, pr_auc, roc_auc
from ragtrace.stats.estimates import auc, auc_difference, auc_interval
from ragtrace.stats.paired import LEAST_DIFFERING, Change, paired_change
from ragtrace.stats.privacy import (
    EpsilonBound,
    canary_rank,
    epsilon_lower_bound,
    exposure,
    one_run_epsilon,
    one_run_guesses,
    one_run_p,
)
from ragtrace.stats.proportions import (
    boschloo_greater,
    clopper_pearson,
    fisher_greater,
    holm,
    mean_share,
    seed_permutation,
)
from ragtrace.stats.resample import RESAMPLES, bootstrap, bootstrap_mean
from ragtrace.stats.results import Estimate, Interval
from ragtrace.stats.thresholds import (
    OperatingPoint,
    fit_threshold,
    operating_point,
    threshold_at_fpr,
    tpr_at_fpr,
)

__all__ = [
    "LEAST_DIFFERING",
    "RESAMPLES",
    "Change",
    "EpsilonBound",
    "Estimate",
    "Interval",
    "OperatingPoint",
    "auc",
    "auc_difference",
    "auc_interval",
    "boschloo_greater",
    "bootstrap",
    "bootstrap_mean",
    "by_class",
    "canary_rank",
    "clopper_pearson",
    "epsilon_lower_bound",
    "exposure",
    "fisher_greater",
    "fit_threshold",
    "holm",
    "mean_share",
    "mean_statistic",
    "one_run_epsilon",
    "one_run_guesses",
    "one_run_p",
    "operating_point",
    "paired_change",
    "pr_auc",
    "roc_auc",
    "seed_permutation",
    "threshold_at_fpr",
    "tpr_at_fpr",
]
