"""The two private tests of voting at generation: do the voters agree, and if not, what do they say?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

from ragtrace.defenses._mechanisms import laplace, weighted


class AgreementTest:
    """The sparse-vector test: ε for any number of agreements and the first disagreement, after which it is spent.

    Koga et al. 2412.04697: s + Lap(4/ε) against θ + Lap(2/ε), the threshold's noise drawn once (AboveThreshold, Dwork
    & Roth 2014, algorithm 1, with the signs turned round). Both scales are times ``influence``, as one document may
    move s by so much.
    """

    def __init__(self, threshold: float, epsilon: float, influence: int, chance: Random) -> None:
        self._scale = influence / epsilon
        self._chance = chance
        self._threshold = threshold + laplace(2 * self._scale, chance)

    def agrees(self, votes: int) -> bool:
        """Whether so many votes, with noise, reach the noisy threshold."""
        return votes + laplace(4 * self._scale, self._chance) >= self._threshold


class TokenVote:
    """The private token: (ε, δ)-DP for votes of which ``influence`` may be others.

    A token that somebody voted for wins with a probability ∝ e^(a · votes), and *none* with one ∝ e^(a · h) where
    h = 1 + ln(1/d) ÷ a. One vote less moves one count by 1, which is a-DP as in the exponential mechanism; where the
    last vote for a token goes, its probability was at most d. So one vote given or taken is (a, d)-DP, another vote in
    the place of one is two such steps, and g = 2 · ``influence`` steps are (g·a, d (e^(g·a) - 1) ÷ (e^a - 1))-DP: a and
    d are what makes these ε and δ. It is the limited-domain mechanism of Durfee & Rogers 1905.04273 for one token.

    :raises ValueError: where δ is not small beside ε.
    """

    def __init__(self, epsilon: float, delta: float, influence: int) -> None:
        self.rate = epsilon / (2 * influence)
        rare = math.log(delta) + _log_expm1(self.rate) - _log_expm1(epsilon)  # of d, the logarithm
        if math.log1p(math.exp(rare)) > self.rate:
            raise ValueError(f"delta {delta} is not small beside epsilon {epsilon}")
        self.least = 1 - rare / self.rate
        """So many votes a token needs to be as likely as *none*."""

    def choose(self, votes: Sequence[str], chance: Random) -> str | None:
        """The token, or ``None``."""
        counts: list[tuple[str | None, float]] = [*sorted(Counter(votes).items()), (None, self.least)]
        most = max(n for _, n in counts)
        return counts[weighted([math.exp(self.rate * (n - most)) for _, n in counts], chance)][0]


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))
