"""OpenInference's keys beside ours, for back ends that show documents and messages under no others (Phoenix, Arize).

They are made of what a span of ours says already, when it ends, so the capture mode holds for them as well. Their
lists take one attribute a fact, and a span takes 128 in all, the oldest being dropped for the newest: so they get the
room that ours leave, a document or a message whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from ragtrace.record import attributes as a
from ragtrace.record.capture import dumps
from ragtrace.types import Stage

KIND: Final = "openinference.span.kind"
CHAIN: Final = "CHAIN"
KINDS: Final[dict[Stage, str]] = {"retrieval": "RETRIEVER", "context": CHAIN, "generation": "LLM"}
_INPUT, _OUTPUT = "input.value", "output.value"
_MODEL, _TOKENS = "llm.model_name", "llm.token_count."
_DOCUMENTS, _ASKED, _SAID = "retrieval.documents", "llm.input_messages", "llm.output_messages"
_USUAL = 128  # attributes a span, where its SDK does not say
_Row = dict[str, Any]


def write(span: Any, losses: list[str], given: str | None, answer: str | None) -> None:
    """Writes what the span says in OpenInference's words too; what does not fit is named among the ``losses``.

    :param given: what went into the request as text, on the span of a request; ``answer``: what came out.
    """
    told: Mapping[str, Any] = span.attributes
    room = getattr(getattr(span, "_limits", None), "max_span_attributes", _USUAL)
    left = 10**9 if room is None else room - len(told) - 1  # one for the losses, which are written after
    if left < 0:
        return  # saying so would cost one of ours
    kept: _Row = {}
    stage = told.get(a.STAGE)
    units: list[tuple[str, list[_Row]]] = []
    if stage == "retrieval":
        given = told.get(a.RETRIEVAL_QUERY)
        units = [(_DOCUMENTS, _documents(told))]
    elif stage == "generation":
        asked, said = (_messages(_list(told, key)) for key in (a.INPUT_MESSAGES, a.OUTPUT_MESSAGES))
        given, answer = (rows[0].get("message.content") if rows else None for rows in (asked[-1:], said))
        kept |= _of_model(told)
        units = [(_SAID, said), (_ASKED, asked)]
    kept |= {k: v for k, v in ((_INPUT, given), (_OUTPUT, answer)) if v}
    kept = dict(list(kept.items())[:left])
    for prefix, rows in units:
        for number, row in enumerate(rows):
            if len(kept) + len(row) > left:
                what = "documents" if prefix == _DOCUMENTS else "messages"
                losses.append(f"openinference: {number} of {len(rows)} {what} in {prefix}: a span has room for {room}")
                break
            kept |= {f"{prefix}.{number}.{key}": value for key, value in row.items()}
    span.set_attributes(kept)


def _of_model(told: Mapping[str, Any]) -> _Row:
    prompt, completion = told.get(a.INPUT_TOKENS), told.get(a.OUTPUT_TOKENS)
    total = prompt + completion if isinstance(prompt, int) and isinstance(completion, int) else None
    counts = {"prompt": prompt, "completion": completion, "total": total}
    found = {_MODEL: told.get(a.REQUEST_MODEL)} | {_TOKENS + name: count for name, count in counts.items()}
    return {key: value for key, value in found.items() if value is not None}


def _documents(told: Mapping[str, Any]) -> list[_Row]:
    """What the app got: the documents that the defenses left, where there are any."""
    rows = retrieved = _list(told, a.RETRIEVAL_DOCUMENTS)
    if a.AFTER_DEFENSE in told:
        after = _list(told, a.AFTER_DEFENSE)
        rows = [retrieved[row["of"]] | row if "of" in row else row for row in after]
    return [dict(_document(row)) for row in rows]


def _document(row: _Row) -> Iterable[tuple[str, Any]]:
    for key in ("id", "score", "content"):
        if row.get(key) is not None:
            yield f"document.{key}", row[key]
    if row.get("metadata"):
        yield "document.metadata", dumps(row["metadata"])


def _messages(rows: list[_Row]) -> list[_Row]:
    found = []
    for row in rows:
        texts = [part["content"] for part in row["parts"] if "content" in part]
        found.append({"message.role": row["role"]} | ({"message.content": "\n".join(texts)} if texts else {}))
    return found


def _list(told: Mapping[str, Any], key: str) -> list[_Row]:
    """One of our JSON lists; empty where there is none, or where the SDK's limit of a value's length has cut it."""
    try:
        found = orjson.loads(told.get(key, "[]"))
    except orjson.JSONDecodeError:
        return []
    return found if isinstance(found, list) else []
