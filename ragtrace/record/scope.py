"""The state of one request: from the caller's outermost call to its answer.

It travels in the OpenTelemetry context, so it goes wherever that goes (threads, tasks), and is freed with
the request: nothing here is kept in a map that could grow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import baggage, trace
from opentelemetry import context as otel
from opentelemetry.context import Context

from ragtrace import defense
from ragtrace.errors import RagtraceError
from ragtrace.record import attributes as a
from ragtrace.record.capture import well_formed
from ragtrace.record.crossings import MOST, Crossing, met_behind

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from ragtrace.defense import Defense
    from ragtrace.record.effects import Effect
    from ragtrace.record.spans import Recorder
    from ragtrace.record.statistics import Source
    from ragtrace.types import Document, Path, Probe

_log = logging.getLogger("ragtrace")
SCOPE_KEY = otel.create_key("ragtrace-scope")
STAGE_KEY = otel.create_key("ragtrace-stage")  # the stage or the defense that we are inside of
IN_DEFENSE = object()
_TRUTH_KEY = otel.create_key("ragtrace-truth")
_CONVERSATION_KEY = otel.create_key("ragtrace-conversation")
_MAX_DOCUMENTS = 200  # an agent may retrieve for hours; the prompt is compared with the latest


class DefenseFailedError(RagtraceError):
    """Carries a defense's exception to the app, where its ``on_error`` is ``"raise"``."""

    def __init__(self, effect: Effect, error: Exception) -> None:
        super().__init__(f"defense {effect.defense!r} failed at hook {effect.hook!r}")
        self.effect = effect
        self.error = error


class Truth(NamedTuple):
    """What an audit knows about the request it makes."""

    run_id: str
    arm: str
    probe: Probe


class Scope:
    """One request. Attributes are written by the join points only."""

    __slots__ = (
        "answer", "assembled", "crossings", "defenses", "documents", "effects", "hashes", "ids", "left", "over", "path",
        "query", "recorder", "retrieved_at", "running", "sources", "span", "streaming", "told", "truth",
    )  # fmt: skip

    def __init__(self, path: Path, standing: tuple[Defense, ...], ids: Iterable[tuple[str, Any]] = ()) -> None:
        self.path = path
        self.over = False
        self.ids = identities(ids)
        self.defenses = standing + defense.active()
        self.truth: Truth | None = otel.get_value(_TRUTH_KEY)  # type: ignore[assignment]
        self.span: Span
        self.query: str | None = None
        self.answer: str | None = None
        self.documents: list[Document] = []
        self.sources: list[Source] = []  # what was retrieved, before any defense, where statistics are made of it
        self.hashes: dict[str, str | None] = {}  # of texts that were retrieved
        self.retrieved_at = 0
        self.assembled: tuple[int, int] | None = None  # when the app says that it made the prompt (nanoseconds)
        self.recorder: Any = None
        self.told: dict[str, Any] = {}  # the attributes that every span of the request has
        self.effects: list[Effect] = []
        self.crossings: list[Crossing] = []
        self.left: dict[str, list[str]] = {}  # what a stream has given to the app, by message, in pieces or whole
        self.running: list[Any] = []  # parts that have not ended, of the request too
        self.streaming: list[Any] = []  # stages that end when their stream does, or else with the request

    def switched_on(self) -> tuple[Defense, ...]:
        """The defenses that act here: those at the request's start, and any switched on further in."""
        inner = defense.active()
        if not inner:
            return self.defenses
        return self.defenses + tuple(d for d in inner if d not in self.defenses)

    def remember(self, documents: list[Document]) -> None:
        """Keeps what was retrieved, for the context stage and for response defenses."""
        self.documents = (self.documents + documents)[-_MAX_DOCUMENTS:]

    def found(self, sources: list[Source]) -> None:
        """Keeps what a retriever returned, for the statistics."""
        self.sources = (self.sources + sources)[-_MAX_DOCUMENTS:]

    def replace(self, before: list[Document], after: list[Document]) -> None:
        """Keeps what an observed defense left of documents that were retrieved."""
        gone = {(d.id, d.content) for d in before}
        self.documents = [d for d in self.documents if (d.id, d.content) not in gone]
        self.remember(after)

    def crosses(self, stage: str, span: Span) -> Crossing:
        """A stage that begins: what observed defenses are shown before or after it is compared with it."""
        crossing = Crossing(stage, trace.format_span_id(span.get_span_context().span_id))
        if len(self.crossings) < MOST:
            self.crossings.append(crossing)
        return crossing

    def answering(self) -> Crossing | None:
        """The model's stage that gave the answer of the request."""
        said = self.answer
        return next((c for c in reversed(self.crossings) if said is not None and said in (c.answer, c.left)), None)

    def has_left(self, text: str | None) -> bool:
        """Whether ``text`` has been given to the app, on a stream."""
        return text is not None and text != "" and any(text in "".join(pieces) for pieces in self.left.values())

    def met(self, effect: Effect, before: Any) -> None:
        """Finds which crossings an observed defense met."""
        if effect.hook not in ("query", "prompt"):
            effect.spans = met_behind(self.crossings, effect.hook or "content", before)

    def keep(self, effect: Effect) -> None:
        """Keeps the effect of an observed defense that has no span of its own."""
        if len(self.effects) < MOST:
            self.effects.append(effect)


_BAGGAGE = {"enduser.id": a.USER, "user.id": a.USER, "session.id": a.SESSION, a.CONVERSATION: a.CONVERSATION}
_MAX_ID = 256  # characters: anything longer is no id


def identities(told: Iterable[tuple[str, Any]] = ()) -> dict[str, str]:
    """Whose request this is, by attribute: what the app's baggage says, and ``told``, which wins. Never raises."""
    found: dict[str, str] = {}
    try:
        if carried := baggage.get_all():
            told = *((of, carried[name]) for name, of in _BAGGAGE.items() if name in carried), *told
        for attribute, value in told:
            if isinstance(value, str) and 0 < len(value) <= _MAX_ID:
                found[attribute] = well_formed(str.__str__(value))
            elif isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _MAX_ID:
                found[attribute] = int.__repr__(value)
    except Exception as error:
        kind = type(error).__qualname__  # what it says may quote the baggage
        _log.warning("ragtrace could not tell whose request this is (%s); the app is not affected", kind)
    return found


class Asked:
    """What is kept of a request, in its caller's context, for defenses that the app calls on its answer.

    It is there from the request's beginning: a stream may be read, and end, in another thread or task.
    """

    __slots__ = ("answer", "answering", "crossings", "ids", "recorder", "span", "truth", "weight")

    def __init__(self, scope: Scope, recorder: Recorder) -> None:
        self.span: SpanContext = scope.span.get_span_context()
        self.recorder = recorder
        self.truth = scope.truth
        self.ids = scope.ids
        self.answer: int | None = None
        self.answering: Crossing | None = None
        self.weight = 0  # characters of the texts that are kept
        self.crossings: tuple[tuple[str, str], ...] = ()  # stage and span id

    def ended(self, scope: Scope) -> None:
        """Keeps what its answer was, and which stages it had; texts only where a defense may yet change the answer."""
        given, self.answer = scope.answering(), hash(scope.answer)
        self.crossings = tuple((c.stage, c.span_id) for c in scope.crossings[-_KEPT:])
        ours = {d.name for d in scope.defenses}
        if given is not None and any("response" in h and name not in ours for name, h in defense.declared().items()):
            self.weight = len(given.left or "") + sum(len(source.content) for source in given.sources)
            self.answering = given
            _forget(_asked.get())


_asked: ContextVar[tuple[Asked, ...]] = ContextVar("ragtrace_asked", default=())
_KEPT = 64  # as many answers of one batch can be told apart
_TEXTS = 1_000_000  # characters of theirs


def ask(scope: Scope, recorder: Recorder) -> Asked:
    """Keeps a request that begins here, in the caller's context."""
    asked, earlier = Asked(scope, recorder), _asked.get()[1 - _KEPT :]
    _asked.set((*earlier, asked))
    return asked


def _forget(kept: tuple[Asked, ...]) -> None:
    """Lets go of the texts of all but the latest: what a defense leaves of the others' answers will not be known."""
    left = _TEXTS
    for one in reversed(kept):
        left -= one.weight
        if left < 0:
            one.answering, one.weight = None, 0


def asked_with(text: object) -> Asked | None:
    """The latest request made here whose answer was ``text``, else the latest one; ``None`` if there was none."""
    kept = _asked.get()
    told = hash(text) if isinstance(text, str) else None
    return next((e for e in reversed(kept) if told is not None and e.answer == told), kept[-1] if kept else None)


_ahead: ContextVar[SpanContext | None] = ContextVar("ragtrace_ahead", default=None)


def go_ahead(span: SpanContext) -> None:
    """The app has called a defense on what it is about to ask: the next request made here belongs to its trace."""
    _ahead.set(span)


def after_ahead() -> Context | None:
    """The context to start a request in: after what went ahead of it, once, unless a span of the app's is current."""
    span = _ahead.get()
    if span is None:
        return None
    _ahead.set(None)
    if trace.get_current_span().get_span_context().is_valid:
        return None
    return trace.set_span_in_context(trace.NonRecordingSpan(span))


def current() -> Scope | None:
    """The request we are in, if any.

    Not one that has ended: instrumentations that detach their contexts late leave such a one current for ever.
    """
    scope: Any = otel.get_value(SCOPE_KEY)
    return None if getattr(scope, "over", False) else scope


def inside() -> Any:
    """The stage we are inside of (the innermost), :data:`IN_DEFENSE` inside a defense's hook, or ``None``."""
    return None if (stage := otel.get_value(STAGE_KEY)) is None or current() is None else stage


def inside_of(subject: object) -> bool:
    """Whether we are inside the stage of ``subject``: its methods call each other, and are one call of it."""
    return getattr(otel.get_value(STAGE_KEY), "subject", None) is subject


def put_back(token: Token[Any]) -> None:
    """What was current before ``token``. Not where a coroutine is closed in another context than it ran in, as the
    collector does: nothing of it is current there, and ``otel.detach`` would log an error.
    """
    with suppress(ValueError):
        token.var.reset(token)


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """Makes ``context`` current for a piece of code that starts and ends in one task or thread."""
    token = otel.attach(context)
    try:
        yield
    finally:
        put_back(token)


@contextmanager
def probing(run_id: str, arm: str, probe: Probe) -> Iterator[None]:
    """Marks the requests made inside as one probe of an audit: its truth travels with the trace.

    :param run_id: the audit run. :param arm: the name of the defenses that are on.
    :param probe: what is asked, and why.
    """
    with attached(otel.set_value(_TRUTH_KEY, Truth(run_id, arm, probe))):
        yield


@contextmanager
def conversation(id: str) -> Iterator[None]:
    """Marks the requests made inside as one conversation: defenses may keep a budget for each.

    :param id: any string; the same for every turn.
    """
    with attached(otel.set_value(_CONVERSATION_KEY, id)):
        yield


def conversation_id() -> str | None:
    """The conversation we are in, if any."""
    value: Any = otel.get_value(_CONVERSATION_KEY)
    return value if isinstance(value, str) else None
