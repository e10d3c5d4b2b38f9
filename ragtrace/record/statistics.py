"""What is computed of texts at the join point, where they may not be kept: entities, canaries, overlap. No text leaves.

The same words as on the analyst's side: entities by :mod:`ragtrace.ner`, overlap by :mod:`ragtrace.overlap`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.overlap import LIMIT, Answer
from ragtrace.record.planted import READ

if TYPE_CHECKING:
    from ragtrace.record.capture import Capture
    from ragtrace.types import Channel

_ROWS = 200  # entities of an answer that are told one by one, and looked for in the documents
_COMPARED = 200_000  # characters of documents that one answer is compared with
_RECOGNISED = 20_000  # characters of documents not met before, in which entities are looked for: that takes longest
_KEPT = 16_384  # documents whose counts are remembered, by their digest


class Source(NamedTuple):
    """A document as it was retrieved, before any defense."""

    id: str
    content: str
    hash: str | None


class Statistics:
    """What a capture computes. ``measures``: also entities and overlap, not canaries alone."""

    __slots__ = ("_capture", "_counts", "measures")

    def __init__(self, capture: Capture, measures: bool) -> None:
        self._capture, self.measures = capture, measures
        self._counts: dict[str, dict[str, int]] = {}
        if measures:
            from ragtrace import ner

            ner.counts("")  # loads the word lists now, not in a request

    def told(self, texts: Mapping[Channel, Sequence[str]], computed: dict[str, Any]) -> dict[str, Any]:
        """``computed``, with the canaries in texts, and how many were looked for: none found is not the same as not
        looked for. That is not said where a text was too long to be looked through."""
        if (canaries := self._capture.canaries) is not None:
            if all(len(text) <= READ for given in texts.values() for text in given):
                computed["looked_for"] = len(canaries.all)
            if found := self.hits(texts):
                computed["canaries"] = found
        return computed

    def hits(self, texts: Mapping[Channel, Iterable[str]]) -> list[dict[str, Any]]:
        """The canaries in texts, each once a channel: by keyed digest, or by its text where all text is kept."""
        if (canaries := self._capture.canaries) is None:
            return []
        found = dict.fromkeys((c, canary) for c, given in texts.items() for t in given for canary in canaries.within(t))
        named = "text" if self._capture.keeps_all else "digest"
        return [
            {
                named: canary.text if named == "text" else self._capture.digest(canary.text),
                "family": canary.family,
                "channel": channel,
            }
            for channel, canary in found
        ]

    def answered(self, question: str, sources: Sequence[Source], answer: str, losses: list[str]) -> dict[str, Any]:
        """Entities of an answer and of the documents that were retrieved for it, and what it took over from each."""
        if not self.measures:
            return {}
        if not answer:  # of a model that calls tools, and of a defense that lets nothing out
            return {"entities": {}, "found": [], "leaked": 0}
        from ragtrace import ner

        sources = _compared(sources, losses)
        entities = ner.entities(answer[:LIMIT])
        told = [(e.type, e.text.lower()) for e in entities[:_ROWS]]
        asked, names = question[:LIMIT].lower(), {name for _, name in told}
        echoed = {name for name in names if name in asked}
        read = [_within(source.content[:LIMIT].lower(), names) for source in sources]
        new = set().union(*read) - echoed
        made: dict[str, Any] = {
            "entities": dict(Counter(e.type for e in entities)),
            "found": [self._row(kind, name, name in echoed, any(name in r for r in read)) for kind, name in told],
            "leaked": len({one for one in told if one[1] in new}),
        }
        if sources:
            made["in_documents"] = self._of_documents(sources, losses)
            index = Answer(answer)
            made["overlap"] = [
                {"id": source.id, "entities": len(names_in - echoed)} | index.against(source.content)._asdict()
                for source, names_in in zip(sources, read, strict=True)
            ]
        if len(entities) > _ROWS:
            losses.append(f"statistics: {_ROWS} of the answer's {len(entities)} entities looked for in the documents")
        if max(map(len, (question, answer, *(source.content for source in sources)))) > LIMIT:
            losses.append(f"statistics: only the first {LIMIT} characters of each text read")
        return made

    def _row(self, kind: str, name: str, in_query: bool, in_documents: bool) -> dict[str, Any]:
        row: dict[str, Any] = {"type": kind, "in_query": in_query, "in_documents": in_documents}
        if self._capture.key:  # a name is guessed in no time from a digest without a key
            row["digest"] = self._capture.digest(name)
        return row

    def _of_documents(self, sources: Sequence[Source], losses: list[str]) -> dict[str, int]:
        """Entities of all documents by type. A document that comes back is not read again."""
        from ragtrace import ner

        total: Counter[str] = Counter()
        left = _RECOGNISED
        for source in sources:
            if source.hash is None or (counts := self._counts.get(source.hash)) is None:
                content = source.content[:LIMIT]
                if len(content) > left:
                    losses.append(f"statistics: entities looked for in the first {_RECOGNISED} characters of documents")
                    break
                left -= len(content)
                counts = {kind: n for kind, n in ner.counts(content).items() if n}
                if source.hash is not None:
                    if len(self._counts) >= _KEPT:
                        self._counts.clear()
                    self._counts[source.hash] = counts
            total.update(counts)
        return dict(total)


def _compared(sources: Sequence[Source], losses: list[str]) -> list[Source]:
    """The documents that an answer is compared with, each once."""
    found = list(dict.fromkeys(sources))
    left = _COMPARED
    for n, source in enumerate(found):
        left -= min(len(source.content), LIMIT)
        if left < 0:
            losses.append(f"statistics: {len(found) - n} of {len(found)} documents not compared")
            return found[:n]
    return found


def _within(content: str, names: set[str]) -> set[str]:
    return {name for name in names if name in content}
