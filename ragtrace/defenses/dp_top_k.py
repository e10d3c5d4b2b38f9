"""Differentially private choice among documents, with a budget for each conversation."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import replace
from typing import Literal, get_args

from ragtrace.defense import Defense
from ragtrace.defenses._accounting import Rule, affordable, check_rule, composed
from ragtrace.defenses._budget import BudgetExhaustedError, Meter, Per, check_whole
from ragtrace.defenses._chance import check_seed, positive, source
from ragtrace.defenses._mechanisms import noisy_max, peel, peeling_rate
from ragtrace.errors import UsageError
from ragtrace.types import Document, Hook, OnError

OnExhausted = Literal["empty", "block", "raise", "chance"]
WITHHELD = "I cannot answer any further questions in this conversation."
_SCORES = ("score", "relevance_score")
_log = logging.getLogger("ragtrace")


class DPTopK(Defense):
    """Chooses ``k`` documents by the exponential mechanism, and counts what that costs over a conversation.

    A score is clipped to the range from ``worst`` to ``best`` and brought to [0, 1], so that another text in one
    document moves one utility by at most 1: its sensitivity is true by construction. ``k`` rounds without putting
    back choose with p ∝ exp(rate · utility); the rate is the largest for which **all rounds together** are ε-DP (the
    closed form is derived at ``_mechanisms.peeling_cost``). The documents leave in the order in which they were
    chosen, with scores that tell their place and nothing else.

    *Guaranteed*: with ``candidates`` (ids, fixed without looking at the private texts), which of them are chosen, and
    in what order, is ε-DP with respect to the text of any one document; over a conversation it is
    (``budget``, δ)-DP by ``composition``, δ = 0 for ``"basic"``. That needs the store to return every candidate whose
    score is better than ``worst`` (ask it for many: the adapters' ``oversample``); one that is not returned counts as
    ``worst``, and a warning is logged where the answer cannot have been complete. Without ``candidates`` the same holds
    **only for the scores, the set that the store returned being held fixed**: which documents are in it was
    decided without noise, so a document's absence from it shows through.

    *Not guaranteed*: anything for the texts. What is chosen leaves in the clear, so this bounds what the choice tells
    of the documents that were *not* chosen, or by what rank one was; it hides no member that is chosen, and a candidate
    that is chosen without having been returned is left out, which shows. A budget is for one conversation in one
    process: whoever opens another has another (``per="process"`` is for that), and of more than ``remember``
    conversations the one idle longest starts anew. Events rarer than 2⁻⁵⁰ are beyond floats.

    Sources: exponential mechanism and report-noisy-max, Dwork & Roth 2014, sections 3.3 and 3.4; composition, Kairouz,
    Oh & Viswanath (arXiv 1311.0776), and Rényi accounting, Canonne, Kamath & Steinke (arXiv 2004.00010). Nearest for
    RAG: DP-RAG (arXiv 2412.19291), per-document filters (arXiv 2511.07637).

    A failing hook withholds its documents (``on_error = "block"``): a guarantee that ends with an error is none.

    :param epsilon: of one request, in (0, 100].
    :param budget: of one conversation, ≥ ``epsilon``; ``None``: without end, and nothing is promised beyond a request.
    :param k: documents that are chosen, ≥ 1; no more than the app's k, as the app cuts what is beyond it.
    :param worst: the score at and beyond which a document is as bad as can be; a missing score counts as this.
    :param best: the other end; less than ``worst`` where scores are distances. Both from the store's documentation.
    :param candidates: the ids to choose among; ``None``: those the store returned.
    :param on_exhausted: when the budget is spent: ``"empty"``, no documents, the model answers without; ``"block"``, as
        well, and its answers are replaced from then on; ``"raise"``, a ``BudgetExhaustedError`` goes to the app (as
        does any other error here); ``"chance"``, ``k`` of the candidates without looking at a score, which is free.
    :param composition: ``"basic"``, ``"advanced"``, ``"rdp"`` or ``"optimal"``; the last three need ``delta``.
    :param delta: δ of the budget, in (0, 1); well below one over the number of documents.
    :param mechanism: ``"exponential"``, or ``"laplace"``: report-noisy-max by rounds, at ε ÷ k each.
    :param per: whose budget it is: a ``"conversation"``'s (requests outside of any share one) or the ``"process"``'s.
    :param remember: conversations whose count is kept, ≥ 1.
    :param seed: makes the choice a function of (seed, query), for audits; whoever knows it can undo the noise.
    :raises UsageError: for a value outside these ranges.
    """

    name = "dp_top_k"
    on_error: OnError = "block"

    def __init__(
        self,
        epsilon: float = 1.0,
        budget: float | None = 10.0,
        k: int = 5,
        worst: float = 0.0,
        best: float = 1.0,
        candidates: Collection[str] | None = None,
        on_exhausted: OnExhausted = "empty",
        composition: Rule = "basic",
        delta: float = 1e-6,
        mechanism: Literal["exponential", "laplace"] = "exponential",
        per: Per = "conversation",
        remember: int = 100_000,
        seed: int | None = None,
    ) -> None:
        self.epsilon = positive("epsilon", epsilon)
        if self.epsilon > 100:
            raise UsageError(f"epsilon={epsilon!r}; expected at most 100 (a choice at that ε has no noise left)")
        self.budget = None if budget is None else positive("budget", budget)
        self.k = check_whole("k", k)
        self.worst, self.best = _ends(worst, best)
        self.candidates = None if candidates is None else _distinct(candidates, self.k)
        if on_exhausted not in get_args(OnExhausted):
            raise UsageError(f"on_exhausted={on_exhausted!r}; expected one of {', '.join(get_args(OnExhausted))}")
        self.on_exhausted = on_exhausted
        if on_exhausted == "raise":
            self.on_error = "raise"
        check_rule(composition, delta)
        self.composition, self.delta = composition, float(delta)
        if mechanism not in ("exponential", "laplace"):
            raise UsageError(f"mechanism={mechanism!r}; expected 'exponential' or 'laplace'")
        self.mechanism = mechanism
        self.seed = check_seed(seed)
        self.requests = None if budget is None else affordable(float(budget), self.epsilon, self.delta, composition)
        """How many requests of one conversation the budget pays for; ``None``: any number."""
        if self.requests == 0:
            raise UsageError(f"budget={budget!r} pays for no request of epsilon={epsilon!r}; expected at least epsilon")
        self._meter = Meter(self.requests, per, remember)
        self._said: set[str] = set()

    @property
    def spent(self) -> float:
        """The ε that this conversation has spent, by the rule of composition."""
        return composed(self.epsilon, self._meter.used, self.delta, self.composition)

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """The documents chosen; fewer than ``k`` where the store did not return one that was.

        :raises BudgetExhaustedError: when the budget is spent and ``on_exhausted="raise"``.
        """
        paid = self._meter.spend()
        if not paid and self.on_exhausted == "raise":
            raise BudgetExhaustedError(
                f"the budget of ε = {self.budget} is spent after {self.requests} requests of ε = {self.epsilon}; "
                "open another ragtrace.conversation(id) for another user, or give a larger budget"
            )
        if not paid and self.on_exhausted != "chance":
            return []
        pool, utilities = self._utilities(documents)
        chance = source(self.seed, query)
        if not paid:
            chosen = peel([0.0] * len(pool), 0.0, self.k, chance)
        elif self.mechanism == "laplace":
            chosen = noisy_max(utilities, self.epsilon / self.k, self.k, chance)
        else:
            chosen = peel(utilities, peeling_rate(self.epsilon, len(pool), self.k), self.k, chance)
        return [self._released(document, place) for place, i in enumerate(chosen) if (document := pool[i]) is not None]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """The answer; with ``on_exhausted="block"``, a refusal once a request went beyond the budget."""
        if self.on_exhausted == "block" and self._meter.refused:
            return WITHHELD
        return response

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """Retrieval; and the response, where it may be withheld."""
        return ("retrieval", "response") if self.on_exhausted == "block" else ("retrieval",)

    def constants(self) -> frozenset[str]:
        """The refusal, where there is one."""
        return frozenset({WITHHELD}) if self.on_exhausted == "block" else frozenset()

    def _utilities(self, documents: list[Document]) -> tuple[list[Document | None], list[float]]:
        """What to choose among, in an order that tells nothing, and the utility of each."""
        given = [(d, self._utility(d.score)) for d in documents]
        self._check(given)
        if self.candidates is None:
            return [d for d, _ in given], [u for _, u in given]
        returned: dict[str, tuple[Document, float]] = {}
        for document, utility in given:
            if utility > returned.get(document.id, (document, -1.0))[1]:
                returned[document.id] = (document, utility)
        found = [returned.get(id, (None, 0.0)) for id in self.candidates]
        return [d for d, _ in found], [u for _, u in found]

    def _utility(self, score: float | None) -> float:
        if score is None or math.isnan(score):
            return 0.0
        low, high = sorted((self.worst, self.best))
        return (min(max(score, low), high) - self.worst) / (self.best - self.worst)

    def _check(self, given: list[tuple[Document, float]]) -> None:
        """Says, once, what makes the guarantee void or the choice useless."""
        utilities = [u for _, u in given]
        if self.candidates is not None and given and min(utilities) > 0 and len(given) < len(self.candidates):
            self._say(
                "dp_top_k: the store returned fewer documents than there are candidates, all better than worst="
                f"{self.worst}, so some may be missing and its ε does not hold; have it return more (oversample), or "
                "move worst towards best"
            )
        if len(given) > 1 and utilities[0] < utilities[-1]:
            self._say(
                f"dp_top_k: documents came best first, yet by worst={self.worst} and best={self.best} the last is "
                "better than the first; are these distances? Then give a worst that is larger than best"
            )
        elif len(given) > 1 and max(utilities) == 0:
            self._say(
                f"dp_top_k: no document has a score better than worst={self.worst}, so all are alike to it; "
                "give the range of the store's scores as worst and best"
            )

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _log.warning(text)

    def _released(self, document: Document, place: int) -> Document:
        """Without what the score was: one by its place, from best to worst."""
        metadata = {k: v for k, v in document.metadata.items() if k not in _SCORES}
        return replace(document, score=self.best + (self.worst - self.best) * place / self.k, metadata=metadata)


def _ends(worst: float, best: float) -> tuple[float, float]:
    for name, value in (("worst", worst), ("best", best)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{name}={value!r}; expected a finite number, in the unit of the store's scores")
    if not 0 < abs(best - worst) < math.inf:
        raise UsageError(f"worst={worst!r}, best={best!r}; expected two different numbers, a finite range apart")
    return float(worst), float(best)


def _distinct(candidates: Collection[str], k: int) -> tuple[str, ...]:
    if isinstance(candidates, str) or not all(isinstance(c, str) for c in candidates):
        raise UsageError(f"candidates={type(candidates).__name__}; expected a collection of document ids (str)")
    distinct = tuple(dict.fromkeys(candidates))
    if len(distinct) < k:
        raise UsageError(f"{len(distinct)} candidates, expected at least k={k}")
    return distinct


DEFENSE = DPTopK
