"""What left the app where it changes an answer after the model's stage: no stage has seen it, the defense has.

An observed response defense was given the answer whole, perhaps within other text (a template, several answers), or a
piece of it (a field, a sentence): then what is left is the answer with that piece changed. Where what it was given has
nothing to do with any answer as it was, what left is not known, and is not guessed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragtrace.record.capture import Capture
    from ragtrace.record.crossings import Crossing
    from ragtrace.record.effects import Effect


def changed(effects: Iterable[Effect], crossings: Sequence[Crossing]) -> list[Crossing]:
    """The model's stages of whose answers these effects, in order, left something else: it is in their ``left``."""
    found: dict[str, Crossing] = {}
    for effect in effects:
        given, said = effect.given, effect.said
        if effect.hook != "response" or effect.status != "changed" or effect.late or given is None or said is None:
            continue
        if any(c.left == said and c.span_id in effect.spans for c in crossings):
            continue  # it ran within the stage, which gave what it left
        shown = _whole(given, crossings, effect.spans)
        for crossing in shown:
            crossing.left, crossing.at = said, 0
        if not shown and (shown := _around(given, crossings, effect.spans)):
            _put(shown[0], given, said)
        effect.kept = bool(shown)
        found |= {crossing.span_id: crossing for crossing in shown}
    return list(found.values())


def _whole(given: str, crossings: Sequence[Crossing], met: Collection[str]) -> list[Crossing]:
    """Those whose answer was given, alone or else within more."""
    alone = [c for c in crossings if c.left == given]
    within = alone or [c for c in crossings if c.left and c.left in given]
    return [c for c in within if c.span_id in met] or within[-1:]


def _around(given: str, crossings: Sequence[Crossing], met: Collection[str]) -> list[Crossing]:
    """The latest whose answer holds what was given."""
    around = [c for c in crossings if given and c.left and given in c.left]
    return ([c for c in around if c.span_id in met] or around)[-1:]


def _put(crossing: Crossing, given: str, said: str) -> None:
    """Changes a piece of the answer: pieces that are alike come one after another."""
    text = crossing.left or ""
    if (start := text.find(given, crossing.at)) < 0:
        start = text.find(given)
    crossing.left, crossing.at = text[:start] + said + text[start + len(given) :], start + len(said)


def rows(crossings: Iterable[Crossing], capture: Capture, losses: list[str]) -> list[dict[str, Any]]:
    """What is left of answers, as it is stored: what the capture mode keeps of a text, and statistics."""
    return [_row(crossing, capture, losses) for crossing in crossings]


def _row(crossing: Crossing, capture: Capture, losses: list[str]) -> dict[str, Any]:
    text = crossing.left or ""
    row: dict[str, Any] = {"span": crossing.span_id, "chars": len(text)}
    if (hash := capture.digest(text)) is not None:
        row["hash"] = hash
    if (content := capture.side("outputs").text(text)) is not None:
        row["content"] = content
    made = capture.statistics
    if told := made.told({"response": [text]}, made.answered(crossing.asked, crossing.sources, text, losses)):
        row["statistics"] = told
    return row
