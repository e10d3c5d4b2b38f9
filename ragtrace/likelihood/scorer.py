"""What gives the likelihood of a text: any object that can score passages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Passage(NamedTuple):
    """A text whose tokens are to be scored, and what stands before it. The pair (prefix, text) is enough.

    :param prefix: what the model is asked (its prompt); empty for a text that stands alone.
    :param lead: what the model is taken to have written itself before ``text``.
    :param moments: whether ``mu`` and ``sigma`` are wanted.
    """

    prefix: str
    text: str
    lead: str = ""
    moments: bool = True


@dataclass(frozen=True)
class TokenLikelihoods:
    """Of each scored token of a text, in order.

    ``logprobs`` are natural logarithms; ``mu`` and ``sigma`` are mean and standard deviation of the log-probability of
    a token drawn from the model's own distribution at that place (empty where they were not wanted). ``note`` says
    what was left out: of the prefix, or why there are no tokens at all.
    """

    logprobs: tuple[float, ...] = ()
    mu: tuple[float, ...] = ()
    sigma: tuple[float, ...] = ()
    note: str | None = None


class Scorer(Protocol):
    """``name`` stands beside every number: it says which model it is, and how it is asked."""

    name: str

    def score(self, passages: Sequence[Passage]) -> list[TokenLikelihoods]:
        """One for each passage, in order; a passage's result does not depend on the others."""
        ...
