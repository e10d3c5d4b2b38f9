"""What the signals read: the requests of a session, in the order of their clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache

from ragtrace.overlap import Answer, words

RUN = 8
"""Words in a row that two texts share by taking one from the other, and hardly by chance."""


@dataclass(frozen=True)
class Source:
    """A document as it was retrieved; ``content`` is ``None`` where no text is kept."""

    id: str
    content: str | None = None


@dataclass
class Request:
    """One question with what came of it. ``None`` is what is not known, never what was not there."""

    trace_id: str
    query: str | None = None
    asked_at: datetime | None = None
    sources: list[Source] | None = None
    answer: str | None = None
    quoted: dict[str, int] | None = None
    """By document, words of the longest run that the answer shares with it, where the join point has computed it."""
    times: int = 1
    """How often it was asked, as far as that can be told: by its answers, or by what was retrieved for it."""

    def absorb(self, again: Request) -> None:
        """What came of it when it was asked again."""
        if again.sources is not None:
            self.sources = list(dict.fromkeys([*(self.sources or ()), *again.sources]))
        self.answer = "\n".join(text for text in (self.answer, again.answer) if text) or None
        if again.quoted is not None:
            more, known = again.quoted, self.quoted or {}
            self.quoted = known | {id: max(run, known.get(id, 0)) for id, run in more.items()}

    @cached_property
    def runs(self) -> frozenset[int]:
        """The query's runs of :data:`RUN` words."""
        return runs(self.query or "")

    def longest_in(self, sources: Sequence[Source]) -> tuple[int, Source | None]:
        """Words of the longest run that the query shares with a source (of at least :data:`RUN`), and with which."""
        return longest(self.query or "", self.runs, sources)


@dataclass
class Session:
    """The different questions of a session, in the order of their clocks; where these are missing or equal, the trace
    id decides, so the order is always one.

    The same question again is the same request: a retry says nothing new, and where nothing joins them, retrieval and
    answer of one question are two traces. How often is only counted (:attr:`Request.times`).
    """

    name: str
    requests: list[Request] = field(default_factory=list)

    def __post_init__(self) -> None:
        order = sorted(
            self.requests, key=lambda r: (r.asked_at is None, r.asked_at or datetime.min, r.trace_id, r.query or "")
        )
        kept: dict[str, Request] = {}
        answered: Counter[str] = Counter()
        retrieved: Counter[str] = Counter()
        self.requests = []
        for request in order:
            asked = " ".join(words(request.query or ""))
            answered[asked] += request.answer is not None
            retrieved[asked] += request.sources is not None
            if asked and (first := kept.get(asked)) is not None:
                first.absorb(request)
                first.times = max(1, answered[asked], retrieved[asked])
                continue
            self.requests.append(request)
            kept[asked] = request


@dataclass(frozen=True)
class Habits:
    """What is usual in this store, so that it is held against nobody."""

    sessions: int = 0
    before: tuple[str, ...] = ()
    """What the app itself puts before the user's words: beginnings that many sessions share."""
    after: tuple[str, ...] = ()
    """And behind them."""
    quoting: float | None = None
    """Share of the sessions that often have a document quoted at length."""
    documents: float | None = None
    """Different documents of a session that 99 of 100 sessions do not exceed."""
    refusing: float | None = None
    """Share of the sessions that are often refused."""
    alike: float | None = None
    """Share of the sessions in which one answer is often given to different questions."""

    def users(self, query: str) -> str:
        """The query without what the app puts round it."""
        for start in self.before:
            if query.startswith(start):
                query = query[len(start) :]
                break
        for end in self.after:
            if query.endswith(end):
                return query[: len(query) - len(end)]
        return query

    def varied(self, documents: int) -> bool:
        """Whether sessions are known to bring up many more documents than these: in a small index all requests bring up
        the same, and in a young store nobody can tell."""
        return self.documents is not None and self.documents >= 2 * documents

    def about_the_same(self, some: frozenset[str], others: frozenset[str]) -> bool:
        """Whether two requests are about one thing: half of their documents are the same, and need not be."""
        return bool(some) and self.varied(len(some | others)) and 2 * len(some & others) >= len(some | others)


def runs(text: str) -> frozenset[int]:
    """The runs of :data:`RUN` words in a text, each as a number."""
    said = words(text)
    return frozenset([hash(tuple(said[at : at + RUN])) for at in range(len(said) - RUN + 1)])


@lru_cache(4_096)  # documents come back in many sessions
def _runs(content: str) -> frozenset[int]:
    return runs(content)


def longest(text: str, text_runs: frozenset[int], sources: Sequence[Source]) -> tuple[int, Source | None]:
    """See :meth:`Request.longest_in`; 0 and nothing where no run is that long."""
    best: tuple[int, Source | None] = (0, None)
    index: Answer | None = None
    for source in sources if text_runs else ():
        if source.content and not text_runs.isdisjoint(_runs(source.content)):
            index = index or Answer(text)
            run = index.against(source.content).longest_run
            if run > best[0]:
                best = run, source
    return best
