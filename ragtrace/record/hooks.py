"""The join points: where a framework's stage meets the defenses, and where the spans are written.

An adapter asks its :class:`Recorder` for a stage, runs the framework's own code inside it, and hands the
values through ``query → documents`` (retrieval) or ``prompt → response`` (generation). Each step runs the
defenses that are switched on, compares before and after, and writes the effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from opentelemetry import context as otel
from opentelemetry.trace import SpanKind

from ragtrace.defense import Defense
from ragtrace.record import attributes as a
from ragtrace.record import describe, effects, guard, openinference
from ragtrace.record.capture import dumps
from ragtrace.record.crossings import Crossing, met_ahead
from ragtrace.record.effects import Effect
from ragtrace.record.providers import OTHER
from ragtrace.record.scope import STAGE_KEY, DefenseFailedError, Scope, inside
from ragtrace.record.spans import Part, Recorder, Request
from ragtrace.record.statistics import Source
from ragtrace.record.steps import Steps, recording, run_hook, withheld
from ragtrace.types import Document, Hook, Message, Stage

__all__ = ["Generation", "Recorder", "Request", "Retrieval"]

T = TypeVar("T")
_MAX_HASHES = 1_000  # texts of one request
_UNTOLD = "unknown"  # the conventions want a reason with each answer; the view `generations` has NULL for it


class _Stage(Part):
    """A stage: its span, and the defenses that cross it."""

    stage: Stage

    def __init__(
        self,
        recorder: Recorder,
        scope: Scope,
        name: str,
        operation: str,
        subject: object,
        told: dict[str, Any] | None = None,
    ) -> None:
        outer = inside()
        more: dict[str, Any] = {a.STAGE: self.stage, a.OPERATION: operation, **(told or {})}
        if outer is not None:
            more[a.NESTED] = True
        if recorder.capture.also:
            more[openinference.KIND] = openinference.KINDS[self.stage]
        super().__init__(recorder, scope, recorder.start(f"{operation} {name}", SpanKind.CLIENT, scope, more=more))
        self.subject = subject
        self.nested = outer is not None
        self.crossing: Crossing | None = getattr(outer, "crossing", None)
        if not self.nested and self.recording:
            self.crossing = scope.crosses(self.stage, self.span)
        self.defenses = () if self.nested else scope.switched_on()
        self.context = guard.current(self.span, recorder.capture, self.losses, otel.set_value(STAGE_KEY, self))

    def _text(self, attribute: str, text: str) -> None:
        if self.recording:
            with recording:
                if (kept := self.recorder.capture.side("inputs").text(text)) is not None:
                    self.span.set_attribute(attribute, kept)

    @property
    def _buffers(self) -> bool:
        return self.scope.path in ("stream", "astream")

    def has(self, hook: Hook) -> bool:
        """Whether a defense that is switched on acts at this hook."""
        return any(hook in d.hooks for d in self.defenses)

    def cross(
        self,
        hook: Hook,
        value: T,
        call: Callable[[Defense, T], Any],
        picture: Callable[[T], Any],
        compare: Callable[[str, Hook, Any, Any], Effect],
        restore: Callable[[Any, T], T],
        blocked: Callable[[str], T],
    ) -> Steps[T]:
        """Runs the defenses at one hook, in order, on ``value``."""
        for defense in self.defenses:
            if hook not in defense.hooks:
                continue
            before, given = picture(value), value
            try:
                value, effect = yield from run_hook(
                    defense,
                    hook,
                    partial(call, defense, given),
                    lambda after, name=defense.name, was=before: compare(name, hook, was, picture(after)),  # type: ignore[misc]
                    partial(restore, before, given),
                    blocked,
                )
            except DefenseFailedError as failed:
                self.effects.append(failed.effect)
                raise
            effect.buffered = hook == "response" and self._buffers
            self.effects.append(effect)
        return value


class Retrieval(_Stage):
    """Query in, documents out."""

    stage: Stage = "retrieval"

    def __init__(self, recorder: Recorder, scope: Scope, name: str, subject: object = None) -> None:
        super().__init__(recorder, scope, name, "retrieval", subject)
        self.asked = ""
        self.before: list[Document] | None = None  # the documents that the first part inside was given
        self.parts: list[Document] = []  # what the last part inside left of them

    def query(self, query: str) -> Steps[str]:
        """Runs the ``query`` hook; returns the query to retrieve with."""
        self.asked = query
        if not self.nested and self.scope.query is None:
            self.scope.query = query
        self._text(a.RETRIEVAL_QUERY, query)
        if self.scope.effects and self.crossing is not None and not self.nested:
            met_ahead(self.scope.effects, "query", self.crossing.span_id, query)
        sent = yield from self.cross(
            "query", query, lambda d, q: d.on_query(q), str, effects.text_effect, lambda before, _: before, lambda _: ""
        )
        if sent != query:
            self._text(a.QUERY_SENT, sent)
        return sent

    def documents(self, documents: list[Document], k: int | None = None) -> Steps[list[Document]]:
        """Runs the ``retrieval`` and ``content`` hooks; returns the documents for the app, at most ``k``."""
        acting = self.has("retrieval") or self.has("content")
        raw = documents if self.before is None else self.before
        changing = acting or raw is not documents
        before = effects.seen(raw) if changing else []
        self._write(a.RETRIEVAL_DOCUMENTS, describe.retrieved, raw)
        if self.recording and not self.nested and self.recorder.capture.statistics.measures:
            self.scope.found([Source(d.id, d.content, self.scope.hashes.get(d.content)) for d in raw])
        looking = self.recording and self.recorder.capture.canaries is not None
        texts = [d.content for d in raw] if looking else []  # before a defense edits them in place
        if acting:
            if k is not None and self.recording:
                self.span.set_attribute(a.POOL, len(documents))
            documents = yield from self._cross("retrieval", documents, lambda d, v: d.on_retrieval(self.asked, v), k)
            documents = yield from self._cross("content", documents, lambda d, v: d.on_content(self.asked, v), None)
        if changing:
            ids = {d.content: d.id for d in self.parts}  # a part may have made new documents, without an id
            left = [replace(d, id=ids.get(d.content, d.id)) for d in documents]
            self._write(a.AFTER_DEFENSE, describe.after_defense, before, left)
        if looking:
            with recording:
                kept = [d.content for d in documents] if changing else []
                self._tell({"query": [self.asked], "retrieval": texts, "content": kept}, {})
        if not self.nested:
            self.scope.remember(documents)
            self.scope.retrieved_at = time.time_ns()
            if self.crossing is not None:
                self.crossing.documents = documents
        return documents

    def _write(self, attribute: str, rows: Callable[..., list[dict[str, Any]]], *documents: Any) -> None:
        if self.recording:
            with recording:
                written = rows(*documents, self.recorder.capture.side("documents"), self.losses)
                self.span.set_attribute(attribute, dumps(written))
                if attribute is a.RETRIEVAL_DOCUMENTS and len(self.scope.hashes) < _MAX_HASHES:
                    for row, document in zip(written, *documents, strict=True):
                        self.scope.hashes[document.content] = row.get("hash")

    def _cross(
        self, hook: Hook, documents: list[Document], call: Callable[[Defense, list[Document]], Any], k: int | None
    ) -> Steps[list[Document]]:
        kept = yield from self.cross(
            hook, documents, lambda d, v: call(d, list(v)), _copies, _compared, lambda before, _: before, lambda _: []
        )
        return kept if k is None else kept[:k]


def _copies(documents: list[Document]) -> list[Document]:
    return [replace(d, metadata=dict(d.metadata)) for d in documents]


def _compared(name: str, hook: Hook, before: list[Document], after: list[Document]) -> Effect:
    return effects.documents_effect(name, hook, effects.seen(before), effects.seen(after))


class Generation(_Stage):
    """Messages in, text out. Writes the context stage's span on the way."""

    stage: Stage = "generation"

    def __init__(
        self,
        recorder: Recorder,
        scope: Scope,
        name: str,
        operation: str = "chat",
        subject: object = None,
        provider: str = OTHER,
    ) -> None:
        super().__init__(recorder, scope, name, operation, subject, {a.PROVIDER: provider})
        self.asked = ""
        self.heard: list[str] = []  # what left by callbacks: all there is of an answer that never came
        self._sent: list[Message] = []  # what the model got and said, for the statistics at the end
        self._said: Sequence[str] | None = None

    def prompt(self, messages: list[Message]) -> Steps[list[Message]]:
        """Runs the ``prompt`` hook; returns the messages for the model."""
        if self.recording and self.scope.documents and not self.nested:
            with recording:
                self._context_stage(messages)
        given = messages
        if (query := self.scope.query) is None:
            query = next((m.content for m in reversed(given) if m.role == "user"), "")
        self.asked = query
        if self.scope.effects and self.crossing is not None and not self.nested:
            said = "\n\n".join(m.content for m in given)
            met_ahead(self.scope.effects, "prompt", self.crossing.span_id, said)
        messages = yield from self.cross(
            "prompt",
            messages,
            lambda d, v: d.on_prompt([replace(m) for m in v]),
            effects.pairs,
            effects.messages_effect,
            lambda _, v: v,
            lambda name: [Message(m.role, withheld(name)) for m in given],
        )
        if self.recording:
            with recording:
                rows = describe.messages(messages, self.recorder.capture.side("inputs"))
                self.span.set_attribute(a.INPUT_MESSAGES, dumps(rows))
            self._text(a.QUERY, query)
            self._sent = messages
        return messages

    def response(self, text: str) -> Steps[str]:
        """Runs the ``response`` hook; returns the text for the app."""
        documents = self.scope.documents
        if self.recording and self._buffers and self.has("response"):
            self.span.set_attribute(a.BUFFERED, True)
        return (
            yield from self.cross(
                "response",
                text,
                lambda d, v: d.on_response(self.asked, _copies(documents), v),
                str,
                effects.text_effect,
                lambda before, _: before,
                withheld,
            )
        )

    @property
    def probed(self) -> bool:
        """Whether an audit asks here and may keep text: only then is the first token worth looking at."""
        return self.recording and self.scope.truth is not None and self.recorder.capture.side("outputs").keeps_text

    def measured(
        self,
        logprobs: Sequence[float],
        input_tokens: int | None,
        output_tokens: int | None,
        model: str | None,
        first_token: Sequence[tuple[str, float]] = (),
    ) -> None:
        """Writes the mean and count of the response's token log-probabilities (natural log), and the usage.

        :param first_token: candidates for the answer's first token, most likely first; written where :attr:`probed`.
        """
        if not self.recording:
            return
        if first_token and self.probed:
            text = self.recorder.capture.text
            self.span.set_attribute(a.FIRST_TOKEN, dumps([[text(token), logprob] for token, logprob in first_token]))
        if logprobs:
            self.span.set_attribute(a.MEAN_LOGPROB, sum(logprobs) / len(logprobs))
            self.span.set_attribute(a.LOGPROB_TOKENS, len(logprobs))
        told = {a.INPUT_TOKENS: input_tokens, a.OUTPUT_TOKENS: output_tokens, a.RESPONSE_MODEL: model}
        for name, value in told.items():
            if isinstance(value, int | str):
                self.span.set_attribute(name, value)

    def delivered(self, texts: Sequence[str], finish_reason: str | None = None) -> None:
        """Writes what the app really got, once; of a stream that was abandoned, the part that was delivered."""
        if not self.recording:
            return
        self.heard = []
        if texts and not self.nested:
            self.scope.answer = texts[0]
            if self.crossing is not None:
                self.crossing.answer, self.crossing.left = texts[0], "\n".join(texts)
                self.crossing.asked, self.crossing.sources = self.asked, self.scope.sources
        self._said = texts
        answers = [Message("assistant", text) for text in texts]
        rows = describe.messages(answers, self.recorder.capture.side("outputs"))
        for row in rows:
            row["finish_reason"] = finish_reason or _UNTOLD
        if finish_reason is not None:
            self.span.set_attribute(a.FINISH_REASONS, [finish_reason])
        self.span.set_attribute(a.OUTPUT_MESSAGES, dumps(rows))
        if texts and (hash := self.recorder.capture.digest(texts[0])) is not None:
            self.span.set_attribute(a.RESPONSE_HASH, hash)

    def _finish(self) -> None:
        if self.heard:
            self.delivered(["".join(self.heard)])
        sent, said, self._sent, self._said = self._sent, self._said, [], None
        prompt, answer = "\n\n".join(m.content for m in sent), "\n".join(said or ())
        computed: dict[str, Any] = {}
        if said is not None:
            computed = self.recorder.capture.statistics.answered(self.asked, self.scope.sources, answer, self.losses)
        self._tell({"prompt": [prompt], "response": [answer]}, computed)

    def _context_stage(self, messages: list[Message]) -> None:
        documents = self.scope.documents
        rows = describe.in_prompt(documents, "\n".join(m.content for m in messages), self.losses)
        visible = self.recorder.capture.side("inputs", "documents")
        for row in rows:
            document = documents[row["of"]]
            piece = document.content[row["start"] : row["start"] + row["run"]]
            hash = self.scope.hashes.get(piece) if row["whole"] else None
            if (hash := hash or self.recorder.capture.digest(piece)) is not None:
                row["hash"] = hash
            if not row["whole"] and (text := visible.text(piece)) is not None:
                row["content"] = text  # a whole one is found again by its hash
        since, until = self.scope.assembled or (self.scope.retrieved_at or None, None)
        told = {a.STAGE: "context", a.IN_PROMPT: dumps(rows)}
        self.recorder.start("context", SpanKind.INTERNAL, self.scope, self.outer, since, told).end(until)
