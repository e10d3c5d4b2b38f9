"""Generation by vote: what is written is what the model would have said anyway, or what many documents agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from secrets import token_bytes
from string import Formatter
from typing import Any

from ragtrace.defense import Defense
from ragtrace.defenses._accounting import affordable
from ragtrace.defenses._budget import Meter, Per, check_whole
from ragtrace.defenses._chance import check_seed, positive, source
from ragtrace.defenses._voting import AgreementTest, TokenVote
from ragtrace.errors import DefenseTypeError, UsageError
from ragtrace.types import Document, OnError

PROMPT = (
    "Answer the question briefly. Use the text if it helps.\n\n"
    "Text:\n{documents}\n\nQuestion: {query}\nAnswer: {answer}"
)
"""What ``generate`` is asked to continue; ``{answer}`` is what has been written so far."""
END = ""
"""The token by which an answer ends."""
Generate = Callable[[str], Sequence[str]]


class SparseVote(Defense):
    """Writes the answer anew, token by token, by a private vote of ``voters`` that each see a share of the documents.

    A document belongs to the voter that a keyed digest of its id says. At each token the model also speaks without
    documents. If enough voters say the same (a sparse-vector test: s + Lap(4/ε) against θ + Lap(2/ε)), that token is
    written, which costs nothing. If not, the voters' own choice is taken by a vote with noise (``_voting.TokenVote``),
    or the token without documents where no choice stands out; that costs one of ``private_tokens``. When these
    are spent, the rest is written without documents. So is an answer when the conversation's ``budget`` is spent.

    *Guaranteed*: an answer is (``epsilon``, ``delta``)-DP with respect to a change in the documents that touches no
    more than ``influence`` voters, provided that ``generate`` sees nothing of them but the prompt it is given: half of
    ε for the tests, half for the private tokens, shared out among ``private_tokens`` rounds (basic composition).
    One document in the store, more or less, can bring one into the top-k and drive one out: two voters. Over a
    conversation, ``budget`` ÷ ε answers at δ each.

    *Not guaranteed*: anything for the model's own answer to the full prompt, which was made before and is thrown away
    (its logs, its cost); that this is useful: with few voters and a small ε the documents hardly show, as a private
    token needs about ln(1/δ) ÷ a votes (a = ε ÷ (4 · ``influence`` · ``private_tokens``); see :attr:`votes_needed`). A
    query's own words, and what the model knows, are not protected. It works on the text of tokens, so a model that
    does not continue a prompt deterministically adds noise of its own, which neither helps nor harms the guarantee.

    Source: DPSparseVoteRAG of Koga et al. (arXiv 2412.04697), which partitions the data before retrieval and reads the
    model's own tokens; what differs here is said above. It is the method that Mind the Hook (arXiv 2608.09001) names
    beside "Private-RAG"; that one only puts noise on scores.

    It calls ``generate`` at least ``voters`` + 1 times an answer, again for each voter that a token contradicts, in the
    caller's thread. A failing call withholds the answer (``on_error = "block"``).

    :param generate: prompt → the tokens of the whole continuation, texts that joined make it; empty: nothing to add.
    :param voters: number of voters, ≥ 2; documents to share out should be several times as many.
    :param epsilon: of one answer, > 0. :param delta: of one answer, in (0, 1).
    :param private_tokens: tokens of an answer that the documents may decide, ≥ 1.
    :param threshold: votes that count as agreement, 0 to ``voters``; ``None``: half of them.
    :param influence: voters that one document can touch, 1 or 2: 1 where the documents' ids are fixed beforehand.
    :param max_tokens: length of an answer at most, ≥ 1.
    :param prompt: a template with ``{documents}``, ``{query}`` and ``{answer}``.
    :param budget: ε of one conversation, ≥ ``epsilon``; ``None``: without end.
    :param per: as for :class:`~ragtrace.defenses.DPTopK`. :param remember: likewise. :param seed: likewise.
    :raises UsageError: for a value outside these ranges.
    """

    name = "sparse_vote"
    on_error: OnError = "block"

    def __init__(
        self,
        generate: Generate,
        voters: int = 50,
        epsilon: float = 8.0,
        delta: float = 1e-4,
        private_tokens: int = 4,
        threshold: float | None = None,
        influence: int = 2,
        max_tokens: int = 64,
        prompt: str = PROMPT,
        budget: float | None = None,
        per: Per = "conversation",
        remember: int = 100_000,
        seed: int | None = None,
    ) -> None:
        if not callable(generate):
            raise UsageError(f"SparseVote(generate={generate!r}); expected a function from prompt to tokens")
        self._generate = generate
        self.voters = check_whole("voters", voters, 2)
        self.epsilon = positive("epsilon", epsilon)
        self.private_tokens = check_whole("private_tokens", private_tokens)
        if influence not in (1, 2):
            raise UsageError(f"influence={influence!r}; expected 1 or 2 (voters that one document can touch)")
        self.influence = influence
        self.threshold = voters / 2 if threshold is None else threshold
        if isinstance(threshold, bool) or not 0 <= self.threshold <= voters:
            raise UsageError(f"threshold={threshold!r}; expected a number of votes from 0 to voters={voters}")
        self.max_tokens = check_whole("max_tokens", max_tokens)
        self.prompt = _template(prompt)
        self._round = self.epsilon / (2 * private_tokens)
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 < delta < 1:
            raise UsageError(f"delta={delta!r}; expected a number above 0 and below 1, such as 1e-4")
        try:
            self._vote = TokenVote(self._round, delta / private_tokens, influence)
        except (ValueError, ArithmeticError) as error:
            raise UsageError(
                f"epsilon={epsilon!r} and delta={delta!r} for {private_tokens} tokens: {error}; use a smaller delta"
            ) from error
        self.delta = float(delta)
        self.budget = None if budget is None else positive("budget", budget)
        answers = None if budget is None else affordable(float(budget), self.epsilon, self.delta, "basic")
        if answers == 0:
            raise UsageError(f"budget={budget!r} pays for no answer of epsilon={epsilon!r}; expected at least epsilon")
        self._meter = Meter(answers, per, remember)
        self.seed = check_seed(seed)
        self._key = token_bytes(16) if seed is None else str(seed).encode()[:64]

    @property
    def votes_needed(self) -> float:
        """A private token with so many votes is as likely as none at all; more than ``voters``: none ever is likely."""
        return self._vote.least

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """The answer written anew; ``response`` is not looked at.

        :raises DefenseTypeError: if ``generate`` returned something else than texts.
        """
        shares: list[list[str]] = [[] for _ in range(self.voters)]
        for document in documents:
            shares[self._voter(document.id)].append(document.content)
        chance = source(self.seed, query)
        alone = self._speaker(query, [])
        seeing = [self._speaker(query, share) for share in shares if share]
        left = self.private_tokens if self._meter.spend() else 0
        test = self._test(chance)
        written: list[str] = []
        while len(written) < self.max_tokens:
            token = public = alone.next(written)
            if left:
                votes = [speaker.next(written) for speaker in seeing]
                votes += [public] * (self.voters - len(seeing))  # who has no document says what is said without
                if not test.agrees(votes.count(public)):
                    chosen = self._vote.choose(votes, chance)
                    token = public if chosen is None else chosen
                    left, test = left - 1, self._test(chance)
            if token == END:
                break
            written.append(token)
        return "".join(written)

    def _test(self, chance: Any) -> AgreementTest:
        return AgreementTest(self.threshold, self._round, self.influence, chance)

    def _voter(self, id: str) -> int:
        digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big") % self.voters

    def _speaker(self, query: str, share: list[str]) -> _Speaker:
        before, after = self.prompt
        return _Speaker(
            self._generate, before.format(documents="\n\n".join(share), query=query), after.format(query=query)
        )


class _Speaker:
    """One continuation of a prompt; asked again only where what was written is not what it said."""

    def __init__(self, generate: Generate, before: str, after: str) -> None:
        self._generate, self._before, self._after = generate, before, after
        self._said: list[str] | None = None

    def next(self, written: list[str]) -> str:
        n = len(written)
        if self._said is None or self._said[:n] != written:
            self._said = [*written, *_tokens(self._generate(f"{self._before}{''.join(written)}{self._after}"))]
        return self._said[n] if n < len(self._said) else END


def _tokens(found: Any) -> list[str]:
    if isinstance(found, str) or not isinstance(found, Sequence) or not all(isinstance(t, str) for t in found):
        raise DefenseTypeError(
            f"SparseVote: generate returned {type(found).__name__}, expected a list of the continuation's tokens (str)"
        )
    return [t for t in found if t]


def _template(prompt: str) -> tuple[str, str]:
    """What stands before ``{answer}`` and after it."""
    try:
        fields = [name for _, name, _, _ in Formatter().parse(prompt) if name is not None]
    except (TypeError, ValueError) as error:
        raise UsageError(f"prompt={prompt!r}: {error}; write a brace that is meant as one twice") from error
    if sorted(fields) != ["answer", "documents", "query"] or prompt.index("{documents}") > prompt.index("{answer}"):
        raise UsageError(
            f"the prompt has the placeholders {fields}; expected {{documents}}, {{query}} and {{answer}}, each once, "
            "and the documents before the answer"
        )
    before, _, after = prompt.partition("{answer}")
    return before, after


DEFENSE = SparseVote
