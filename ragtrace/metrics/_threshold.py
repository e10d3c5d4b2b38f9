"""S²MIA's rule with two thresholds: member iff BLEU ≥ θ_sem and perplexity ≤ θ_gen (section 3.2).

The paper fits the pair on a reference set by a greedy search that moves one threshold while the other stands
still; it does not say how a rule with two thresholds has an ROC. Our reading (papers.md, bullet T): from the
reference set comes the upper envelope of all threshold pairs, a sequence of rules from strict to lenient; on
the evaluation set a target's score is the strictest of these rules that accepts it, and the ROC is that of this
score. Nothing is fitted on the evaluation set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

STEPS = 2_048
"""Most thresholds tried on one feature: all observed values in a reference set as large as the paper's (2,000), and
pairs of them still fit into memory."""


class Rule(NamedTuple):
    """Accepts as a member what has BLEU ≥ ``sem`` and perplexity ≤ ``gen``."""

    sem: float
    gen: float

    def accepts(self, bleu: Floats, perplexity: Floats) -> Bools:
        return np.asarray((bleu >= self.sem) & (perplexity <= self.gen))


def halves(labels: Bools, seed: int = 0, documents: Sequence[str] | None = None) -> tuple[Bools, Bools]:
    """(reference, evaluation) masks: half of the members and half of the non-members each, drawn by ``seed``.

    Rows must come in the same order in every arm, so that arms are fitted and evaluated on the same targets.

    :param documents: (n,) each row's document, whose rows stay in one half; ``None``: each row is a document.
    """
    rng = np.random.default_rng(seed)
    codes = {document: i for i, document in enumerate(dict.fromkeys(documents or ()))}
    at = np.arange(len(labels)) if documents is None else np.array([codes[d] for d in documents], dtype=np.intp)
    _, first = np.unique(at, return_index=True)
    reference = np.zeros(len(first), dtype=bool)
    for label in (True, False):
        drawn = rng.permutation(np.flatnonzero(labels[first] == label))
        reference[drawn[: len(drawn) // 2]] = True
    return reference[at], ~reference[at]


def greedy(labels: Bools, bleu: Floats, perplexity: Floats) -> Rule:
    """The rule found on the reference set, starting from the one that accepts everything.

    It maximises TPR - FPR, which with as many members as non-members orders rules as accuracy does. Candidates are
    the observed values; of equally good ones the most lenient is kept. Ends when a whole turn gains nothing: a local
    optimum, as the paper's search.
    """
    rule, best = Rule(float(bleu.min()), float(perplexity.max())), 0
    while True:
        before = best
        gain, lowest = _lowest(labels, bleu, perplexity <= rule.gen)
        if gain > best:
            rule, best = Rule(lowest, rule.gen), gain
        gain, lowest = _lowest(labels, -perplexity, bleu >= rule.sem)
        if gain > best:
            rule, best = Rule(rule.sem, -lowest), gain
        if best <= before:
            return rule


def _lowest(labels: Bools, values: Floats, others: Bools) -> tuple[int, float]:
    """(gain, threshold) of the best rule "value ≥ threshold" where ``others`` holds; of equals the lowest.

    The gain is (TPR - FPR) times members times non-members: a whole number, so that equally good is equal.
    """
    members = int(labels.sum())
    worth = np.where(labels, len(labels) - members, -members) * others
    order = np.argsort(values, kind="stable")
    candidates, first = np.unique(values[order], return_index=True)
    gains = np.cumsum(worth[order][::-1])[::-1][first]
    best = int(np.argmax(gains))
    return int(gains[best]), float(candidates[best])


def _steps(values: Floats) -> Floats:
    """The candidates for a threshold on ``values``: those observed, or ``STEPS`` of them at equal ranks."""
    found = np.unique(values)
    if len(found) <= STEPS:
        return found
    return np.unique(np.sort(values)[np.linspace(0, len(values) - 1, STEPS).astype(np.intp)])


def envelope(labels: Bools, bleu: Floats, perplexity: Floats) -> list[Rule]:
    """The rules that no other rule beats in both TPR and FPR on the reference set, from strict to lenient."""
    sems, gens = _steps(bleu)[::-1], _steps(perplexity)
    # the strictest of the candidates that accept each row
    at = np.searchsorted(-sems, -bleu), np.searchsorted(gens, perplexity)

    def accepted(mask: Bools) -> NDArray[np.intp]:
        # how many of the masked rows each pair of thresholds accepts
        grid = np.zeros((len(sems), len(gens)), dtype=np.intp)
        np.add.at(grid, (at[0][mask], at[1][mask]), 1)
        return grid.cumsum(axis=0).cumsum(axis=1).ravel()

    hits, alarms = accepted(labels), accepted(~labels)
    # of the rules with equally many false alarms the one with the most hits, and of those the first
    best = np.zeros(int(alarms.max()) + 1, dtype=np.intp)
    np.maximum.at(best, alarms, hits * len(hits) + len(hits) - 1 - np.arange(len(hits)))
    most, rest = np.divmod(best, len(hits))
    # a rule is on the envelope if it hits more than all with fewer alarms
    before = np.maximum.accumulate(np.concatenate([[0], most[:-1]]))
    chosen = (len(hits) - 1 - rest)[most > before]
    rows, columns = np.unravel_index(chosen, (len(sems), len(gens)))
    return [Rule(float(sems[i]), float(gens[j])) for i, j in zip(rows, columns, strict=True)]


def staircase(rules: list[Rule], bleu: Floats, perplexity: Floats) -> Floats:
    """Each target's score: how many rules from the strictest that accepts it to the most lenient; 0 for none."""
    scores = np.zeros(len(bleu))
    for worth, rule in enumerate(reversed(rules), 1):
        scores[rule.accepts(bleu, perplexity)] = worth
    return scores
