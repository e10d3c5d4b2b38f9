"""Which crossings an observed defense met: the stages of its request whose query, documents or answer it was given.

A defense of ours runs inside the stage that it acts on. One that the app or the framework brings runs before or
after it, so what it saw is compared with what crossed: an answer that it never saw was not protected by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ragtrace.record.pictures import Documents

if TYPE_CHECKING:
    from ragtrace.record.effects import Effect
    from ragtrace.record.statistics import Source
    from ragtrace.types import Document, Hook

MOST = 1_000  # crossings kept of one request; an agent may go on for hours


class Crossing:
    """One stage of a request, as far as an observed defense can have met it. ``None`` means: not known yet.

    ``left`` is the model's whole answer, or what observed defenses have left of it; ``at``, where the next piece of it
    is looked for. ``asked`` and ``sources`` are what statistics of it need.
    """

    __slots__ = ("answer", "asked", "at", "documents", "left", "sources", "span_id", "stage")

    def __init__(self, stage: str, span_id: str) -> None:
        self.stage = stage
        self.span_id = span_id
        self.answer: str | None = None
        self.left: str | None = None
        self.at = 0
        self.asked = ""
        self.sources: list[Source] = []
        self.documents: list[Document] | None = None


def met_behind(crossings: Iterable[Crossing], hook: Hook, before: object) -> list[str]:
    """The crossings whose documents or answer were given to a defense that ran after them: their span ids."""
    if isinstance(before, Documents):
        kept = [c for c in crossings if c.stage == "retrieval"]
        met = [c for c in kept if c.documents is None or _share(c.documents, before.documents)]
    else:
        kept = [c for c in crossings if c.stage == "generation"]
        given = before if isinstance(before, str) else ""
        met = [c for c in kept if c.answer is None or c.answer in given or (given and given in c.answer)]
        if all(c.answer == "" for c in met):  # an empty answer is in any text
            met = [*(c for c in met if c is not kept[-1]), *kept[-1:]]
    return [c.span_id for c in met or kept[-1:]]


def met_ahead(effects: Iterable[Effect], hook: Hook, span_id: str, text: str) -> None:
    """Notes that ``text`` now crosses ``hook``, in the effects of what ran before it.

    Such an effect met the crossing if its text is in what crosses; or if it met none so far, and what crosses was
    changed again, rather than being the text from before it: then somebody threw its change away.
    """
    for effect in effects:
        if effect.hook != hook or effect.said is None:
            continue
        made = effect.said in text or (text != "" and text in effect.said)
        thrown_away = effect.status == "changed" and bool(effect.given) and (effect.given or "") in text
        if made or not (effect.spans or thrown_away):
            effect.spans.append(span_id)


def _share(crossed: list[Document], given: list[Document]) -> bool:
    ids, texts = {d.id for d in given}, [d.content for d in given]
    return any(d.id in ids or any(d.content in t for t in texts) for d in crossed)
