"""What a dialect is given, what it must say, and how the dialects are asked."""

from __future__ import annotations

import json as standard_json
from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import orjson

from ragtrace.ingest.salvage import salvage
from ragtrace.plugins import scan
from ragtrace.record import attributes as a
from ragtrace.record.capture import dumps

GROUP = "ragtrace.dialects"
UNKNOWN = "otel"
PART = "ragtrace.part"  # class name of a framework's part that another instrumentation saw: a defense, perhaps
TRUNCATED = "ragtrace.truncated"  # JSON list: the attributes whose JSON was cut before it came to us
ORIGINAL = "ragtrace.original"  # JSON object: foreign attributes whose names we needed for the canonical ones


class Seen:
    """One foreign span as a dialect sees it."""

    __slots__ = ("attributes", "events", "name", "scope", "truncated")

    def __init__(
        self, name: str, scope: str | None, attributes: dict[str, Any], events: list[dict[str, Any]] | None = None
    ) -> None:
        self.name, self.scope, self.attributes, self.events = name, scope or "", attributes, events or []
        self.truncated: list[str] = []

    def get(self, *keys: str) -> Any:
        """The first of these attributes that is there and not empty."""
        attributes = self.attributes
        for key in keys:
            value = attributes.get(key)
            if value is not None and value != "":
                return value
        return None

    def load(self, *keys: str) -> Any:
        """The same, and JSON in a text is parsed; where it was cut, what can be read, and the key is remembered."""
        for key in keys:
            value = self.attributes.get(key)
            if value is not None and value != "":
                return self.parsed(value, key)
        return None

    def parsed(self, value: Any, key: str) -> Any:
        """``value``, with JSON in it parsed; ``key`` is where it was."""
        if not isinstance(value, str):
            return value
        text = value.lstrip()
        if text[:1] not in ("{", "[", '"'):
            return value
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            rescued = _lenient(text)
            if rescued is not None:
                return rescued
            rescued = salvage(text)
            if rescued is None or rescued in ({}, []) or text[:1] == '"':
                return value
            self.truncated.append(key)
            return rescued

    def event(self, name: str) -> Mapping[str, Any] | None:
        """The attributes of the first event of this name."""
        for event in self.events:
            if event.get("name") == name:
                found = event.get("attributes")
                return found if isinstance(found, Mapping) else {}
        return None


def _lenient(text: str) -> Any:
    """JSON as Python writes it (NaN), or with half of a character in it."""
    try:
        value = standard_json.loads(text, parse_constant=str)
        return orjson.loads(standard_json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


class Dialect(Protocol):
    """One instrumentation's way of saying things."""

    @property
    def name(self) -> str:
        """What the column ``dialect`` says."""

    @property
    def rank(self) -> int:
        """Lower is asked first; what is more particular has less. The first owner gives the name, the rest fill in."""

    def owns(self, span: Seen) -> bool:
        """Whether the span speaks this dialect."""

    def translate(self, span: Seen) -> dict[str, Any]:
        """Canonical attributes; those that are None are not known.

        ``ragtrace.stage`` with None in it says that the span is known to be no stage.
        """


@cache
def dialects() -> tuple[Dialect, ...]:
    """All of them, in the order in which they are asked."""
    return tuple(sorted(scan("ragtrace.ingest.dialects", "DIALECT", GROUP).values(), key=lambda d: (d.rank, d.name)))


class Told:
    """What was made of one span."""

    __slots__ = ("attributes", "dialect", "framework", "stage")

    def __init__(self, dialect: str, framework: str | None, stage: str | None, attributes: dict[str, Any]) -> None:
        self.dialect, self.framework, self.stage, self.attributes = dialect, framework, stage, attributes


def tell(span: Seen) -> Told:
    """The span's dialect and stage, and its attributes with the canonical ones among them.

    Where a dialect fails on what a stranger has written, the span is kept as it came: it must not keep others out.
    """
    try:
        return _tell(span)
    except Exception:
        return Told(UNKNOWN, None, None, span.attributes)


def _tell(span: Seen) -> Told:
    owners = [dialect for dialect in dialects() if dialect.owns(span)]
    if not owners:
        return Told(UNKNOWN, None, None, span.attributes)
    known: dict[str, Any] = {}
    for dialect in owners:
        for key, value in dialect.translate(span).items():
            if key not in known or (known[key] is None and key != a.STAGE):
                known[key] = value
        if a.STAGE in known and known[a.STAGE] is None:
            break  # no stage, so nothing else is asked for
    stage = known.pop(a.STAGE, None)
    framework = known.pop(a.FRAMEWORK, None)
    return Told(owners[0].name, framework, stage, _merged(span, known, staged=stage is not None))


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # keys that are no text, an integer of more than 64 bits
        return dumps(value)


def _merged(span: Seen, known: dict[str, Any], staged: bool) -> dict[str, Any]:
    """Theirs and ours side by side; of theirs, nothing is lost and nothing can pass for ours."""
    if not staged and not span.truncated and not any(value is not None for value in known.values()):
        return span.attributes
    merged = dict(span.attributes)
    original = {k: merged.pop(k) for k in [k for k in merged if k.startswith("ragtrace.")]} if staged else {}
    for key, value in known.items():
        if value is None:
            continue
        told = _json(value) if type(value) is list or type(value) is dict else value
        if key in merged and merged[key] != told:
            if told is not value and key not in span.truncated and span.parsed(merged[key], key) == value:
                continue  # the same in other words
            original[key] = merged[key]
        merged[key] = told
    if span.truncated:
        merged[TRUNCATED] = orjson.dumps(sorted(set(span.truncated))).decode()
    if original:
        merged[ORIGINAL] = original
    return merged
