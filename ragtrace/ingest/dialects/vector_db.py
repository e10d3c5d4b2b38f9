"""A vector database seen by OpenLIT, OpenLLMetry or Spring AI: ``db.vector.query.*``, and hits where they are told."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from ragtrace.ingest.dialects._shapes import documents, made
from ragtrace.ingest.dialects.base import Seen
from ragtrace.record import attributes as a

_CONTENT, _DOCUMENTS = "db.vector.query.content", "db.vector.query.response.documents"
_MARKS = frozenset(("db.vector.query.top_k", _CONTENT, _DOCUMENTS, "db.milvus.search.data_count"))
_OPERATION, _OPENLIT = "gen_ai.operation.name", "vectordb"
_WRITES = ("insert", "upsert", "add", "delete", "update", "create", "peek", "drop", "replace")
_FOUND = "db.search.result"
_TEXTS = ("document", "text", "content", "page_content", "chunk_text", "body")
_LONGEST = 100_000  # of a text that is read as Python writes a list


class _VectorDB:
    name, rank = "vector_db", 70

    def owns(self, span: Seen) -> bool:
        return not _MARKS.isdisjoint(span.attributes) or span.attributes.get(_OPERATION) == _OPENLIT

    def translate(self, span: Seen) -> dict[str, Any]:
        operation = str(span.get("db.operation.name", "db.operation") or "").lower()
        if operation.startswith(_WRITES) or (
            _MARKS.isdisjoint(span.attributes) and operation not in ("query", "search")
        ):
            return {a.STAGE: None}
        found = _documents(span) if _DOCUMENTS in span.attributes else None
        return {
            a.STAGE: "retrieval",
            a.RETRIEVAL_QUERY: _asked(span),
            a.RETRIEVAL_DOCUMENTS: found if found is not None else _hits(span),
        }


def _asked(span: Seen) -> str | None:
    """The query's text; with OpenLIT it may be a vector, or a list as Python prints it."""
    told = span.get(_CONTENT)
    if isinstance(told, str):
        return told
    told = span.get("db.query.text", "db.statement")
    if not isinstance(told, str) or span.get(_OPERATION) != _OPENLIT:
        return None  # by the conventions a statement in the database's own language
    told = told.removeprefix("texts=")
    if told.startswith(("['", '["')):
        texts = _printed(told)
        return texts[0] if isinstance(texts, list) and isinstance(texts[0], str) else None
    return told if span.get("db.system.name") == "pinecone" and not told.startswith(("[", "{", "None")) else None


def _documents(span: Seen) -> list[dict[str, Any]] | None:
    """Spring AI puts quotes around texts and commas between, and escapes nothing in them."""
    told = span.get(_DOCUMENTS)
    if isinstance(told, str) and told.startswith('["') and told.endswith('"]') and len(told) > 3:
        try:
            return documents(orjson.loads(told))
        except orjson.JSONDecodeError:
            return documents(told[2:-2].split('", "'))
    return documents(span.load(_DOCUMENTS))


def _hits(span: Seen) -> list[dict[str, Any]] | None:
    size = len(_FOUND) + 1
    rows = [
        hit({str(key)[size:]: value for key, value in held.items()})
        for event in span.events
        if event.get("name") == _FOUND and isinstance(held := event.get("attributes"), Mapping)
    ]
    return [row for row in rows if row] or None


def hit(held: Mapping[str, Any]) -> dict[str, Any] | None:
    """One document of a database's answer: what is stored with it may be anywhere, and its text among that."""
    stored = next(
        (held[key] for key in ("entity", "payload", "metadata") if held.get(key) not in (None, "", "None")), None
    )
    if isinstance(stored, str):
        found = Seen("", None, {}).parsed(stored, "")
        stored = found if found is not stored else (_printed(stored) or stored)
    places = (held, stored) if isinstance(stored, Mapping) else (held,)
    text = next((place[key] for place in places for key in _TEXTS if place.get(key) not in (None, "", "None")), None)
    score = next((held[key] for key in ("score", "distance") if held.get(key) is not None), None)
    identity = held.get("id", held.get("_id"))
    if isinstance(stored, Mapping):  # a text is kept once
        stored = {key: value for key, value in stored.items() if value is not text}
    return made(id=identity, score=score, content=text, metadata=stored)


def _printed(text: str) -> Any:
    """A value as Python prints it; None for what is none."""
    if len(text) < _LONGEST:
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return ast.literal_eval(text)
    return None


DIALECT = _VectorDB()
