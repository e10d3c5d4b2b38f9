"""Messages and documents in the many shapes in which frameworks and providers write them, as ours."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from ragtrace.record.capture import digest

_ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "AIMessageChunk": "assistant", "function": "tool"}
_LISTS = ("messages", "message", "choices", "generations", "candidates", "contents", "input", "prompts", "output")
_TEXTS = ("content", "text", "prompt", "completion", "response", "answer", "output_text", "value")
_DOCUMENTS = ("documents", "source_documents", "nodes", "retrieved_references", "results", "source_nodes", "matches",
              "data", "chunks", "output", "outputs", "result", "response")  # fmt: skip
_BLOCK = frozenset(("type", "text", "annotations", "cache_control", "citations"))
_USUAL, _REMEMBERED = 100, 4_096  # characters of a key, and keys, that are remembered at most
_NODE = re.compile(r"NodeWithScore\(node=\w+\(id_=(?P<id>[^)]*)\), score=(?P<score>[^)]*)\)")


def message(role: Any, *parts: dict[str, Any], finish: Any = None) -> dict[str, Any]:
    """One message."""
    name = str(role or "")
    made = {"role": _ROLES.get(name, name.lower() or "user"), "parts": list(parts)}
    if finish:
        made["finish_reason"] = str(finish)
    return made


def text_part(text: str) -> dict[str, Any]:
    """A part that is text."""
    return {"type": "text", "content": text}


def messages(value: Any, role: str) -> list[dict[str, Any]] | None:
    """Whatever holds messages, as a list of ours; ``role`` is that of what has none. None where there is nothing."""
    found = _messages(value, role, 0)
    return found or None


def _messages(value: Any, role: str, depth: int) -> list[dict[str, Any]]:
    if value is None or depth > 12:
        return []
    if isinstance(value, str):
        return [message(role, text_part(value))] if value else []
    if isinstance(value, list | tuple):
        if value and all(isinstance(v, Mapping) and _is_part(v) for v in value):
            return [message(role, *(p for v in value for p in _part(v)))]
        return [m for v in value for m in _messages(v, role, depth + 1)]
    if not isinstance(value, Mapping):
        return [message(role, text_part(str(value)))]
    return _of_object(value, role, depth)


def _of_object(value: Mapping[str, Any], role: str, depth: int) -> list[dict[str, Any]]:
    if isinstance(value.get("kwargs"), Mapping) and "lc" in value:  # LangChain, serialised
        return _messages(value["kwargs"], role, depth + 1)
    if isinstance(value.get("data"), Mapping) and "type" in value:  # LangChain, as a dict
        return _messages({"role": value["type"], **value["data"]}, role, depth + 1)
    if _says(value):
        return [_message(value, role)]
    system = value.get("system", value.get("system_instruction"))
    before = _messages(system, "system", depth + 1) if system and "system_fingerprint" not in value else []
    for key in _LISTS:
        if value.get(key):
            finish = value.get("finish_reason") or value.get("finishReason")
            inner = _messages(value[key], role, depth + 1)
            if finish and inner:
                inner[-1].setdefault("finish_reason", str(finish))
            return before + inner
    for key in _TEXTS:
        if isinstance(value.get(key), str | list):
            return before + _messages(value[key], role, depth + 1)
    if isinstance(value.get("content"), Mapping):
        return before + _messages(value["content"], role, depth + 1)
    if before or all(key in _LISTS and inner == [] for key, inner in value.items()):
        return before
    return [message(role, text_part(orjson.dumps(value, default=str).decode()))]


def _kind(value: Mapping[str, Any]) -> str | None:
    kind = value.get("type")
    return kind if isinstance(kind, str) else None


def _says(value: Mapping[str, Any]) -> bool:
    """Whether this is one message: something that it says, and who says it or how."""
    kind = _kind(value)
    named = "role" in value or kind in _ROLES or kind in ("system", "tool", "function_call_output", "function_call")
    return named or isinstance(value.get("parts"), list) or "tool_calls" in value


def _message(value: Mapping[str, Any], role: str) -> dict[str, Any]:
    kind = _kind(value)
    given = value.get("role") or (kind if kind in _ROLES or kind in ("system", "tool") else None)
    if kind == "function_call_output" and not given:
        given = "tool"
    parts: list[dict[str, Any]] = []
    for key in ("parts", "contents", "content", "text", "blocks", "output"):
        if key in value and value[key] not in (None, "", []):
            parts = [p for each in _listed(value[key]) for p in _part(each)]
            break
    if given in ("tool", "function"):
        parts = [{**p, "type": "tool_call_response"} if p.get("type") == "text" else p for p in parts]
    calls = value.get("tool_calls") or value.get("toolCalls") or ([value] if kind == "function_call" else [])
    parts += [_call(c) for c in _listed(calls) if isinstance(c, Mapping)]
    return message(given or role, *parts, finish=value.get("finish_reason") or value.get("finishReason"))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _is_part(value: Mapping[str, Any]) -> bool:
    if "role" in value:
        return False
    return "toolName" in value or value.get("type") in (
        "text",
        "tool_call",
        "tool_use",
        "tool_call_response",
        "reasoning",
    )


def _part(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        return [text_part(value)] if value else []
    if not isinstance(value, Mapping):
        return [text_part(str(value))] if value is not None else []
    value = value.get("message_content", value) if isinstance(value.get("message_content"), Mapping) else value
    kind = value.get("type")
    if kind in ("tool_call", "tool_use", "tool-call", "function_call") or (
        "toolName" in value and "result" not in value
    ):
        return [_call(value)]
    if kind in ("tool_call_response", "tool_result", "tool-result") or "functionResponse" in value:
        said = next(
            (value[k] for k in ("content", "response", "result", "output", "functionResponse") if k in value), ""
        )
        return [{"type": "tool_call_response", "id": value.get("id", value.get("toolCallId")), "content": _text(said)}]
    for key in ("content", "text"):
        if value.get(key) not in (None, ""):
            return [{"type": kind if isinstance(kind, str) else "text", "content": _text(value[key])}]
    if "functionCall" in value or "function_call" in value:
        return [_call(value.get("functionCall") or value.get("function_call"))]
    return [{"type": kind if isinstance(kind, str) else "other", **{k: v for k, v in value.items() if k != "type"}}]


def _call(value: Any) -> dict[str, Any]:
    value = value.get("tool_call", value) if isinstance(value, Mapping) else {}
    inner = value.get("function") if isinstance(value.get("function"), Mapping) else value
    name = inner.get("name", value.get("toolName", value.get("tool_name")))
    arguments = next((inner[k] for k in ("arguments", "args", "input") if k in inner), value.get("input"))
    identity = value.get("id", value.get("toolCallId", value.get("call_id")))
    return {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}


def _text(value: Any) -> str:
    """A text, that of its blocks, or what there is as JSON."""
    if isinstance(value, list | tuple) and value:
        blocks = [v.get("text") if isinstance(v, Mapping) and v.keys() <= _BLOCK else None for v in value]
        if all(isinstance(block, str) for block in blocks):
            return "\n".join(map(str, blocks))
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def documents(value: Any) -> list[dict[str, Any]] | None:
    """Whatever holds retrieved documents, as a list of ours; None where there is nothing of the kind."""
    for _ in range(4):
        if not isinstance(value, Mapping):
            break
        inner = next((value[k] for k in _DOCUMENTS if isinstance(value.get(k), list | dict | str)), None)
        if inner is None or isinstance(inner, str):
            inner = _loads(inner) if inner else [value]
        value = inner
    if not isinstance(value, list):
        return None
    found = [_document(_loads(v) if isinstance(v, str) else v) for v in value]
    return [d for d in found if d] if any(found) or not value else None


def _loads(text: Any) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return text


def _document(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str):
        node = _NODE.search(value)
        return made(id=node["id"], score=node["score"]) if node else made(content=value)
    if not isinstance(value, Mapping):
        return None
    outer, score = value, _first(value, "score", "relevance_score", "_score")
    for key in ("document", "node", "kwargs", "retrievedReference"):
        if isinstance(outer.get(key), Mapping):
            outer = outer[key]
    content = _first(outer, "content", "page_content", "pageContent", "text", "chunk", "document", "body")
    if isinstance(content, Mapping):
        content = content.get("text", content)
    metadata = _first(outer, "metadata", "meta", "payload", "attributes")
    return made(
        id=_first(outer, "id", "id_", "doc_id", "document_id", "node_id", "_id"),
        score=score if score is not None else _first(outer, "score", "relevance_score"),
        content=content,
        metadata=_loads(metadata) if isinstance(metadata, str) else metadata,
    )


def made(id: Any = None, score: Any = None, content: Any = None, metadata: Any = None) -> dict[str, Any] | None:
    """One document, with what is known of it."""
    row: dict[str, Any] = {}
    if id is not None:
        row["id"] = str(id)
    if score is not None and (number := _number(score)) is not None:
        row["score"] = number
    if content is not None:
        text = content if isinstance(content, str) else _text(content)
        row["chars"], row["hash"], row["content"] = len(text), digest(text), text
    if metadata:
        row["metadata"] = metadata
    return row or None


def _number(value: Any) -> float | None:
    if type(value) is bool:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _first(value: Mapping[str, Any], *keys: str) -> Any:
    return next((value[k] for k in keys if value.get(k) is not None), None)


def integer(value: Any) -> int | None:
    """A count, whatever it is written as."""
    number = _number(value)
    return int(number) if number is not None and 0 <= number < 2**63 else None


def nested(attributes: Mapping[str, Any], prefix: str) -> Any:
    """What stands flat under ``prefix``, with dots and numbers in its keys, as lists and objects; None: nothing."""
    given = attributes.get(prefix)
    if given is not None:
        return unflattened(given)
    start, size = prefix + ".", len(prefix) + 1
    pairs = [(key[size:].split("."), value) for key, value in attributes.items() if key.startswith(start)]
    return _tree(pairs) if pairs else None


def flat_rows(attributes: Mapping[str, Any], prefix: str, known: frozenset[str]) -> list[dict[str, Any]] | None:
    """The rows of a list that stands flat under ``prefix``, if they have no members but ``known``: the common case."""
    rows: dict[int, dict[str, Any]] = {}
    remembered = _PLACES[prefix]
    for key, value in attributes.items():
        place = remembered.get(key, _UNSEEN)
        if place is _UNSEEN:
            place = _place(key, prefix)
            if len(key) < _USUAL:
                if len(remembered) >= _REMEMBERED:
                    remembered.clear()
                remembered[key] = place
        if place is not None:
            number, member = place
            if member not in known:
                return None
            if number in rows:
                rows[number][member] = value
            else:
                rows[number] = {member: value}
    if not rows:
        return None
    return [rows[number] for number in sorted(rows)]


_UNSEEN: Any = object()
_PLACES: dict[str, dict[str, Any]] = defaultdict(dict)  # by prefix, which only our dialects give


def _place(key: str, prefix: str) -> tuple[int, str] | None:
    """Which row and member of a flat list ``key`` is; None for what does not begin with ``prefix``."""
    if not key.startswith(prefix + "."):
        return None
    number, _, member = key[len(prefix) + 1 :].partition(".")
    return (int(number), member) if number.isdecimal() and len(number) < 8 else (-1, "")


def unflattened(value: Any) -> Any:
    """The same below a value: Phoenix has ``[{"message.role": …}]``."""
    if isinstance(value, Mapping):
        if any("." in str(key) for key in value):
            return _tree([(str(k).split("."), unflattened(v)) for k, v in value.items()])
        return {k: unflattened(v) for k, v in value.items()}
    return [unflattened(v) for v in value] if isinstance(value, list | tuple) else value


def _tree(pairs: Iterable[tuple[list[str], Any]]) -> Any:
    root: dict[str, Any] = {}
    for path, value in pairs:
        here = root
        for step in path[:-1]:
            below = here.setdefault(step, {})
            if not isinstance(below, dict):
                below = here[step] = {"": below}
            here = below
        here[path[-1]] = value
    return _listing(root)


def _listing(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdecimal() for key in node):
        return [_listing(node[key]) for key in sorted(node, key=int)]
    return {key: _listing(value) for key, value in node.items()}
