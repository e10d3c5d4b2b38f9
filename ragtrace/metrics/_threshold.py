"""S²MIA's rule with two thresholds: member iff BLEU ≥ θ_sem and perplexity ≤ θ_gen (section 3.2).

The paper fits the pair on a reference set by a greedy search that moves one threshold while the other stands
still; it does not say how a rule with two thresholds has an ROC. Our reading (papers.md, bullet T): from the
reference set comes the upper envelope of all threshold pairs, a sequence of rules from strict to lenient; on
the evaluation set a target's score is the strictest of these rules that accepts it, and the ROC is that of this
score. Nothing is fitted on the evaluation set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Rule(NamedTuple):
    """Accepts as a member what has BLEU ≥ ``sem`` and perplexity ≤ ``gen``."""

    sem: float
    gen: float

    def accepts(self, bleu: Floats, perplexity: Floats) -> Bools:
        return np.asarray((bleu >= self.sem) & (perplexity <= self.gen))


def halves(labels: Bools, seed: int = 0) -> tuple[Bools, Bools]:
    """(reference, evaluation) masks: half of the members and half of the non-members each, drawn by ``seed``.

    Rows must come in the same order in every arm, so that arms are fitted and evaluated on the same targets.
    """
    rng = np.random.default_rng(seed)
    reference = np.zeros(len(labels), dtype=bool)
    for label in (True, False):
        rows = rng.permutation(np.flatnonzero(labels == label))
        reference[rows[: len(rows) // 2]] = True
    return reference, ~reference


def _gain(accepted: Bools, labels: Bools) -> float:
    """TPR - FPR: what the search maximises. With as many members as non-members it orders rules as accuracy does."""
    return float(accepted[labels].mean() - accepted[~labels].mean())


def greedy(labels: Bools, bleu: Floats, perplexity: Floats) -> Rule:
    """The rule found on the reference set, starting from the one that accepts everything.

    Candidates are the observed values; of equally good ones the most lenient is kept. Ends when a whole turn
    gains nothing: a local optimum, as the paper's search.
    """
    rule = Rule(float(bleu.min()), float(perplexity.max()))
    best = _gain(rule.accepts(bleu, perplexity), labels)
    while True:
        before = best
        for candidate in (Rule(float(sem), rule.gen) for sem in np.unique(bleu)):
            if (gain := _gain(candidate.accepts(bleu, perplexity), labels)) > best + 1e-12:
                rule, best = candidate, gain
        for candidate in (Rule(rule.sem, float(gen)) for gen in np.unique(perplexity)[::-1]):
            if (gain := _gain(candidate.accepts(bleu, perplexity), labels)) > best + 1e-12:
                rule, best = candidate, gain
        if best <= before:
            return rule


def envelope(labels: Bools, bleu: Floats, perplexity: Floats) -> list[Rule]:
    """The rules that no other rule beats in both TPR and FPR on the reference set, from strict to lenient."""
    sems, gens = np.unique(bleu)[::-1], np.unique(perplexity)
    at = np.searchsorted(-sems, -bleu), np.searchsorted(gens, perplexity)

    def accepted(mask: Bools) -> NDArray[np.intp]:
        # how many of the masked rows each pair of thresholds accepts
        grid = np.zeros((len(sems), len(gens)), dtype=np.intp)
        np.add.at(grid, (at[0][mask], at[1][mask]), 1)
        return np.asarray(grid.cumsum(axis=0).cumsum(axis=1))

    hits, alarms = accepted(labels), accepted(~labels)
    # by false alarms, then by hits downwards: a rule is on the envelope if it hits more than all before it
    order = np.lexsort((-hits.ravel(), alarms.ravel()))
    sorted_hits = hits.ravel()[order]
    most_before = np.maximum.accumulate(np.concatenate([[0], sorted_hits[:-1]]))
    rows, columns = np.unravel_index(order[sorted_hits > most_before], hits.shape)
    return [Rule(float(sems[i]), float(gens[j])) for i, j in zip(rows, columns, strict=True)]


def staircase(rules: list[Rule], bleu: Floats, perplexity: Floats) -> Floats:
    """Each target's score: how many rules from the strictest that accepts it to the most lenient; 0 for none."""
    scores = np.zeros(len(bleu))
    for worth, rule in enumerate(reversed(rules), 1):
        scores[rule.accepts(bleu, perplexity)] = worth
    return scores
