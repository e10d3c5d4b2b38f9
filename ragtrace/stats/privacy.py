"""What counts say about differential privacy and memorisation: lower bounds of ε, and exposure.

A lower bound says that no smaller ε holds for the audited pipeline; it never says that one holds. ``ceiling`` is
the largest bound this sample could have given: a bound near it speaks of the sample, not of the pipeline.
"""

from __future__ import annotations

from math import log, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from ragtrace.errors import UsageError
from ragtrace.stats.areas import by_class
from ragtrace.stats.proportions import clopper_pearson
from ragtrace.stats.results import numbers, truth


class EpsilonBound(NamedTuple):
    """ε is at least ``value`` (≥ 0) with the given confidence; ``ceiling`` is the most this sample size can show."""

    value: float
    ceiling: float
    reason: str | None = None


def epsilon_lower_bound(
    true_positives: int,
    members: int,
    false_positives: int,
    non_members: int,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> EpsilonBound:
    """ln((TPR_lower - δ) ÷ FPR_upper), each end Clopper-Pearson one-sided at α/2 (Jagielski et al. 2006.07709).

    All perfect, 100 + 100 targets give 3.28 and 1,000 + 1,000 give 5.60: the ceilings. The threshold must have been
    fixed without these rows. Rows must be independent, one a document.

    :param delta: δ of the claimed (ε, δ), in [0, 1). :raises UsageError: counts that cannot be, δ outside [0, 1).
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta {delta!r}, expected a share from 0 to below 1")
    each = (1 + confidence) / 2

    def bound(hits: int, alarms: int) -> float:
        tpr = clopper_pearson(hits, members, each, "lower").low or 0.0
        fpr = clopper_pearson(alarms, non_members, each, "upper").high or 1.0
        return log((tpr - delta) / fpr) if tpr > delta else 0.0

    return _bound(bound(true_positives, false_positives), bound(members, 0))


def one_run_guesses(
    labels: ArrayLike, scores: ArrayLike, positive: int, negative: int, seed: int = 0
) -> tuple[int, int]:
    """(correct, guesses) where the ``positive`` highest scores are guessed members and the ``negative`` lowest not.

    Equal scores are ordered by chance, never by the order of the rows, which may tell the truth.

    :param positive: and ``negative``: how many of each to guess, fixed before the scores are seen.
    """
    mask = truth(labels)
    values = numbers(scores, len(mask))
    if not np.isfinite(values).all():
        raise UsageError(f"{int((~np.isfinite(values)).sum())} of {len(values)} scores are not finite numbers")
    if min(positive, negative) < 0 or not 0 < positive + negative <= len(mask):
        raise UsageError(f"{positive} + {negative} guesses for {len(mask)} targets, expected 1 to {len(mask)} in all")
    order = np.lexsort((np.random.default_rng(seed).random(len(mask)), values))
    right = (~mask[order[:negative]]).sum() + mask[order[len(mask) - positive :]].sum()
    return int(right), positive + negative


def one_run_p(correct: int, guesses: int, epsilon: float) -> float:
    """p-value of "the pipeline is ε-DP": P(Binomial(guesses, e^ε ÷ (1 + e^ε)) ≥ correct).

    Steinke, Nasr & Jagielski 2305.08846, the main theorem in its pure form (δ = 0): the membership of each target was
    drawn by a fair coin of its own, all in one run, and any number of targets may be left unguessed.
    """
    _guesses(correct, guesses)
    if not epsilon >= 0:
        raise UsageError(f"epsilon {epsilon!r}, expected a number of at least 0")
    return float(stats.binom.sf(correct - 1, guesses, 1 / (1 + np.exp(-epsilon))))


def one_run_epsilon(correct: int, guesses: int, confidence: float = 0.95) -> EpsilonBound:
    """The largest ε that :func:`one_run_p` rejects at 1 - ``confidence``: the log-odds of a Clopper-Pearson bound.

    :param correct: guesses that were right, out of ``guesses`` (:func:`one_run_guesses`).
    """
    _guesses(correct, guesses)

    def bound(hits: int) -> float:
        accuracy = clopper_pearson(hits, guesses, confidence, "lower").low or 0.0
        return log(accuracy / (1 - accuracy)) if accuracy > 0 else 0.0

    return _bound(bound(correct), bound(guesses))


def canary_rank(score: float, candidates: ArrayLike) -> int:
    """1 + how many of the other candidates score at least as high: of tied ones the canary is the last."""
    others, _ = by_class(np.ones(np.size(candidates), dtype=bool), candidates)
    if not (np.isfinite(score) and np.isfinite(others).all()):
        raise UsageError("a candidate's score is not a finite number; score every candidate, or leave the canary out")
    return 1 + int((others >= score).sum())


def exposure(rank: int, candidates: int) -> float:
    """log₂ N - log₂ rank of one canary among N candidates, in bits from 0 to log₂ N (Carlini et al. 1802.08232).

    :param rank: of the canary among all candidates, 1 for the likeliest. :param candidates: N, the canary included.
    """
    if not 1 <= rank <= candidates:
        raise UsageError(f"rank {rank!r} of {candidates!r} candidates, expected 1 to the number of candidates")
    return log2(candidates) - log2(rank)


def _guesses(correct: int, guesses: int) -> None:
    if not 0 <= correct <= guesses or guesses < 1:
        raise UsageError(f"{correct} of {guesses} guesses correct, expected 0 to all of at least one guess")


def _bound(value: float, ceiling: float) -> EpsilonBound:
    ceiling = max(0.0, ceiling)
    if value > 0:
        return EpsilonBound(value, ceiling)
    return EpsilonBound(0.0, ceiling, "the counts are what a pipeline with ε = 0 may give")
