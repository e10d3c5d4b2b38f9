"""DeLong's variance of the ROC AUC (DeLong, DeLong & Clarke-Pearson 1988), also for clusters (Obuchowski 1997)."""

from __future__ import annotations

import numpy as np

from ragtrace.stats.results import Bools, Floats, Indices


def placements(labels: Bools, scores: Floats) -> Floats:
    """(n,) share of the other class that each row beats (members) or that beats it (non-members), ties ½.

    The mean over either class is the ROC AUC.
    """
    members, others = scores[labels], scores[~labels]
    result = np.empty(len(scores))
    result[labels] = _below(members, np.sort(others))
    result[~labels] = 1 - _below(others, np.sort(members))
    return result


def _below(values: Floats, others: Floats) -> Floats:
    left, right = (np.searchsorted(others, values, side=side) for side in ("left", "right"))
    return np.asarray((left + right) / (2 * len(others)), dtype=np.float64)


def covariance(labels: Bools, *arms: Floats, clusters: Indices | None = None) -> Floats:
    """(a, a) covariance of the AUCs of arms whose :func:`placements` over the same rows are given.

    With clusters the placements of a document are added up before they are squared, and documents with rows in
    both classes add a cross term: Obuchowski's estimator, which is DeLong's where each row is a document.
    """
    placed = np.array(arms)
    sides = []
    for mask in (labels, ~labels):
        centred = (placed[:, mask] - placed[:, mask].mean(axis=1, keepdims=True)) / mask.sum()
        if clusters is None:
            k = centred.shape[1]
            sides.append((centred, k))
        else:
            sums = np.array([np.bincount(clusters[mask], row, minlength=int(clusters.max()) + 1) for row in centred])
            sides.append((sums, len(np.unique(clusters[mask]))))
    (members, k1), (others, k0) = sides
    result = k1 / (k1 - 1) * members @ members.T + k0 / (k0 - 1) * others @ others.T
    if clusters is not None:
        k = int(clusters.max()) + 1
        cross = members @ others.T
        result = result + k / (k - 1) * (cross + cross.T)
    return np.asarray(result, dtype=np.float64)
