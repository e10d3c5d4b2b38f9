"""Masks what Microsoft Presidio recognises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from importlib.util import find_spec
from threading import Lock
from typing import Any

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import HOOKS, Document, Hook, OnError

MISSING = (
    "PresidioMask needs the package presidio-analyzer, which is not installed; "
    "run `pip install 'ragtrace-audit[presidio]'`, or give an analyzer of your own"
)


class PresidioMask(Defense):
    """Writes ``[PERSON]``, ``[EMAIL_ADDRESS]`` … in place of what Presidio's analyser finds.

    *Guaranteed*: every span the analyser reports with a score of at least ``score`` is replaced, of overlapping ones
    the whole they cover, under the name of the surest. *Not guaranteed*: what it does not find. Its recall for names
    is that of its language model, and what an attacker spells otherwise escapes it.

    Source: Microsoft Presidio (https://microsoft.github.io/presidio), a tool without a paper. Its engine loads a spaCy
    model at the first text (seconds; Presidio downloads one if none is installed), and its e-mail recogniser asks the
    net for the list of public suffixes once (an error in the log, and no harm, where there is no net): call
    :meth:`ready` at start-up. A failing hook withholds its text (``on_error = "block"``): a mask that is off when its
    dependency is missing is the trap this avoids.

    :param hooks: ``"content"``, ``"response"``, or both (default).
    :param analyzer: an object with Presidio's ``analyze(text=, language=, entities=)``, or a function without arguments
        that makes one at the first text; ``None``: Presidio's ``AnalyzerEngine()``.
    :param entities: Presidio's types to look for; ``None``: all it knows.
    :param language: of the texts, as Presidio names it.
    :param score: from 0 to 1: how sure the analyser must be.
    :raises UsageError: for a value outside these ranges, or where Presidio is missing.
    """

    name = "presidio_mask"
    on_error: OnError = "block"

    def __init__(
        self,
        hooks: Collection[str] = ("content", "response"),
        analyzer: Any = None,
        entities: Collection[str] | None = None,
        language: str = "en",
        score: float = 0.4,
    ) -> None:
        wanted = (hooks,) if isinstance(hooks, str) else tuple(hooks)
        if not wanted or not set(wanted) <= {"content", "response"}:
            raise UsageError(f"PresidioMask(hooks={hooks!r}); expected 'content', 'response', or both")
        self._hooks: tuple[Hook, ...] = tuple(h for h in HOOKS if h in wanted)
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
            raise UsageError(f"score={score!r}; expected a number from 0 to 1")
        if isinstance(entities, str) or (entities is not None and not entities):
            raise UsageError(f"entities={entities!r}; expected a collection of Presidio's types, or None for all")
        if analyzer is None and find_spec("presidio_analyzer") is None:
            raise UsageError(MISSING)
        if analyzer is not None and not (hasattr(analyzer, "analyze") or callable(analyzer)):
            raise UsageError(
                f"analyzer={type(analyzer).__name__}; expected one with analyze(), or a function that makes it"
            )
        self.language, self.score = language, float(score)
        self._entities = None if entities is None else sorted(entities)
        self._given = analyzer
        self._engine: Any = None
        self._lock = Lock()

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks chosen at construction."""
        return self._hooks

    def ready(self) -> None:
        """Loads the analyser now, not at the first request."""
        with self._lock:
            if self._engine is None:
                self._engine = self._given if hasattr(self._given, "analyze") else _maker(self._given)()

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """Masks the text of each document; metadata is left alone."""
        return [replace(d, content=self._mask(d.content)) for d in documents]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Masks the generated text."""
        return self._mask(response)

    def constants(self) -> frozenset[str]:
        """The masks of the types chosen; of all types there are, none is listed."""
        return frozenset(f"[{kind}]" for kind in self._entities or ())

    def _mask(self, text: str) -> str:
        if not text.strip():
            return text
        self.ready()
        parts: list[str] = []
        end = 0
        for start, stop, kind in self._spans(text):
            parts += text[end:start], f"[{kind}]"
            end = stop
        return "".join([*parts, text[end:]])

    def _spans(self, text: str) -> Iterable[tuple[int, int, str]]:
        """Where to mask, in order; what overlaps is one span."""
        found = self._engine.analyze(text=text, language=self.language, entities=self._entities)
        merged: list[tuple[int, int, str, float]] = []
        for hit in sorted(found, key=lambda h: (h.start, -h.end)):
            if hit.score < self.score or hit.start >= hit.end:
                continue
            if merged and hit.start < merged[-1][1]:
                start, end, kind, score = merged.pop()
                surer = (hit.entity_type, hit.score) if hit.score > score else (kind, score)
                merged.append((start, max(end, hit.end), *surer))
            else:
                merged.append((hit.start, hit.end, hit.entity_type, hit.score))
        return [span[:3] for span in merged]

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_lock"} | {"_engine": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()


def _maker(given: Any) -> Callable[[], Any]:
    if given is not None:
        return given  # type: ignore[no-any-return]
    try:
        from presidio_analyzer import AnalyzerEngine
    except ImportError as error:
        raise UsageError(MISSING) from error
    return AnalyzerEngine  # type: ignore[no-any-return]


DEFENSE = PresidioMask
