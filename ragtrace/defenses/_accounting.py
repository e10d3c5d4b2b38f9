"""What many releases cost together: composition of ε-DP mechanisms, and how many fit into a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

from ragtrace.errors import UsageError

Rule = Literal["basic", "advanced", "rdp", "optimal"]
_MOST = 20_000  # releases that are counted; fewer than a budget would allow is on the safe side
_ORDERS = (1.01, 1.03, 1.1, 1.25, 1.5, 1.75, *(x / 2 for x in range(4, 41)), *range(21, 65), 80, 96, 128, 192, 256, 512)


def composed(epsilon: float, times: int, delta: float = 0.0, rule: Rule = "basic") -> float:
    """The ε of ``times`` adaptively chosen releases of ``epsilon`` each; (ε, ``delta``)-DP but for ``basic``.

    - ``basic``: times · ε, pure (Dwork & Roth 2014, theorem 3.14).
    - ``advanced``: times · ε tanh(ε ÷ 2) + ε √(2 times ln(1 ÷ δ)) (ibid., theorem 3.20, with the sharper expected loss
      of Kairouz, Oh & Viswanath 1311.0776), or ``basic`` where that is less.
    - ``rdp``: Rényi divergences of randomised response, which bound those of every ε-DP mechanism, added up and
      converted by Canonne, Kamath & Steinke 2004.00010, proposition 12; the best of many orders.
    - ``optimal``: the exact trade-off of ``times`` ε-DP mechanisms (Kairouz, Oh & Viswanath, theorem 3.3).

    Where 0 releases were made the answer is 0.
    """
    if not times:
        return 0.0
    basic = times * epsilon
    if rule == "basic":
        return basic
    if rule == "advanced":
        spread = epsilon * math.sqrt(2 * times * -math.log(delta))
        return min(basic, basic * math.tanh(epsilon / 2) + spread)
    if rule == "rdp":
        return min(basic, *(_converted(order, times * _renyi(order, epsilon), delta) for order in _ORDERS))
    low, high = 0.0, basic
    while low < (middle := (low + high) / 2) < high and high - low > 1e-12 * basic:
        low, high = (low, middle) if exact_delta(middle, epsilon, times) <= delta else (middle, high)
    return high


def exact_delta(total: float, epsilon: float, times: int) -> float:
    """The smallest δ for which ``times`` releases of ``epsilon`` are (``total``, δ)-DP."""
    norm = times * (epsilon + math.log1p(math.exp(-epsilon)))
    parts = []
    for lies in range(times + 1):  # randomised response: so many of its answers were lies
        if (loss := (times - 2 * lies) * epsilon) <= total:
            break
        ways = math.lgamma(times + 1) - math.lgamma(lies + 1) - math.lgamma(times - lies + 1)
        parts.append(math.exp(ways + (times - lies) * epsilon - norm) * -math.expm1(total - loss))
    return math.fsum(parts)


def affordable(budget: float, epsilon: float, delta: float, rule: Rule) -> int:
    """How many releases of ``epsilon`` each cost no more than (``budget``, ``delta``) together.

    At most 20,000 but for ``basic``.
    """
    if rule == "basic":
        return int(budget / epsilon * (1 + 1e-12))
    fits: Callable[[int], bool] = lambda times: composed(epsilon, times, delta, rule) <= budget * (1 + 1e-12)  # noqa: E731
    if rule == "optimal":
        fits = lambda times: exact_delta(budget, epsilon, times) <= delta  # noqa: E731
    low, high = 0, 1
    while high < _MOST and fits(high):
        low, high = high, min(2 * high, _MOST)
    if low < high and fits(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def check_rule(rule: str, delta: float) -> None:
    """Raises a :class:`UsageError` for another rule, or a δ that is none."""
    if rule not in get_args(Rule):
        raise UsageError(f"composition={rule!r}; expected one of {', '.join(get_args(Rule))}")
    if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
        raise UsageError(f"delta={delta!r}; expected a number above 0 and below 1, such as 1e-6")


def _renyi(order: float, epsilon: float) -> float:
    """The Rényi divergence of ``order`` > 1 between the two answers' distributions of ε-randomised response."""
    same = order * epsilon
    return (same + math.log1p(math.exp((1 - 2 * order) * epsilon)) - epsilon - math.log1p(math.exp(-epsilon))) / (
        order - 1
    )


def _converted(order: float, divergence: float, delta: float) -> float:
    return max(0.0, divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1))
