"""OpenInference (Arize): ``openinference.span.kind``, lists flat with numbers in their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragtrace.ingest.dialects._shapes import documents, flat_rows, integer, made, message, messages, nested, text_part
from ragtrace.ingest.dialects.base import PART, Seen
from ragtrace.record import attributes as a

_KIND = "openinference.span.kind"
_INPUT, _OUTPUT = "input.value", "output.value"
_QUERIES = ("query_str", "query", "question", "input", "q")  # names that prompt templates give it
_PARTS = (
    "_postprocess_nodes",
    "postprocess_nodes",
    "compress_documents",
)  # methods that LlamaIndex and LangChain trace


_DOCUMENT = frozenset(f"document.{key}" for key in ("content", "id", "score", "metadata"))
_MESSAGE = frozenset(("message.role", "message.content"))


class _OpenInference:
    name, rank = "openinference", 30

    def owns(self, span: Seen) -> bool:
        return _KIND in span.attributes or span.scope.startswith(("openinference.", "@arizeai/openinference"))

    def translate(self, span: Seen) -> dict[str, Any]:
        kind = str(span.get(_KIND) or "").upper()
        made: dict[str, Any] = {a.STAGE: None, a.FRAMEWORK: _framework(span)}
        if kind == "LLM":
            made |= _generation(span)
        elif kind == "RETRIEVER":
            made |= _retrieval(span)
        elif kind in ("RERANKER", "GUARDRAIL"):
            made |= _part(span)
        elif kind == "CHAIN" and span.name.rpartition(".")[2] in _PARTS:
            made |= {a.STAGE: "defense", PART: span.name.rpartition(".")[0]}
        elif not kind:
            del made[a.STAGE]
        return made


def _framework(span: Seen) -> str | None:
    if span.scope.startswith("openinference.instrumentation."):
        return span.scope.removeprefix("openinference.instrumentation.") or None
    said = span.get("metadata")
    if isinstance(said, str):
        return "langchain" if '"ls_' in said or '"lc_' in said else None
    return "langchain" if isinstance(said, Mapping) and any(str(k).startswith(("ls_", "lc_")) for k in said) else None


def _generation(span: Seen) -> dict[str, Any]:
    told = _messages(span, "llm.input_messages", "user") or messages(_prompts(span), "user")
    output = _messages(span, "llm.output_messages", "assistant")
    if output is None:
        choices = nested(span.attributes, "llm.choices")
        output = messages(choices, "assistant") or messages(span.load(_OUTPUT), "assistant")
    variables = span.load("llm.prompt_template.variables")
    query = next((variables[k] for k in _QUERIES if k in variables), None) if isinstance(variables, Mapping) else None
    reason = span.get("llm.finish_reason")
    if reason and output:
        output[-1].setdefault("finish_reason", str(reason))
    return {
        a.STAGE: "generation",
        a.QUERY: query if isinstance(query, str) else None,
        a.REQUEST_MODEL: _model(span),
        a.INPUT_MESSAGES: told or (messages(span.load(_INPUT), "user") if variables is None else None),
        a.OUTPUT_MESSAGES: output,
        a.INPUT_TOKENS: integer(span.get("llm.token_count.prompt")),
        a.OUTPUT_TOKENS: integer(span.get("llm.token_count.completion")),
    }


def _model(span: Seen) -> Any:
    """Where the instrumentation found no name, the provider's answer may hold one."""
    return span.get("llm.model_name", "llm.model") or _named(span.load(_OUTPUT), 0)


def _named(value: Any, depth: int) -> str | None:
    if depth > 8 or not isinstance(value, Mapping | list):
        return None
    if isinstance(value, Mapping) and isinstance(name := value.get("model_name", value.get("model")), str):
        return name
    below = value.values() if isinstance(value, Mapping) else value
    return next((name for each in below if (name := _named(each, depth + 1))), None)


def _prompts(span: Seen) -> Any:
    found = nested(span.attributes, "llm.prompts")
    return [p.get("prompt", p) if isinstance(p, Mapping) else p for p in found] if isinstance(found, list) else found


def _messages(span: Seen, key: str, role: str) -> list[dict[str, Any]] | None:
    rows = flat_rows(span.attributes, key, _MESSAGE)
    if rows is not None:
        return [
            message(row.get("message.role") or role, text_part(str(row["message.content"])))
            if row.get("message.content")
            else message(row.get("message.role") or role)
            for row in rows
        ]
    return messages(_said(nested(span.attributes, key)), role)


def _documents(span: Seen, key: str) -> list[dict[str, Any]] | None:
    rows = flat_rows(span.attributes, key, _DOCUMENT)
    if rows is None:
        return documents(nested(span.attributes, key))
    found = []
    for row in rows:
        get = row.get
        metadata = get("document.metadata")
        one = made(
            get("document.id"), get("document.score"), get("document.content"), metadata and span.parsed(metadata, key)
        )
        if one:
            found.append(one)
    return found


def _said(found: Any) -> Any:
    if not isinstance(found, list):
        return found
    return [m["message"] if isinstance(m, Mapping) and isinstance(m.get("message"), Mapping) else m for m in found]


def _retrieval(span: Seen) -> dict[str, Any]:
    found = _documents(span, "retrieval.documents")
    output = documents(span.load(_OUTPUT))
    if found and output and len(found) == len(output):  # LangChain's ids are in the output alone
        for mine, theirs in zip(found, output, strict=True):
            if "id" not in mine and "id" in theirs and mine.get("content") == theirs.get("content"):
                mine["id"] = theirs["id"]
    return {
        a.STAGE: "retrieval",
        a.RETRIEVAL_QUERY: query_in(span.load(_INPUT)),
        a.RETRIEVAL_DOCUMENTS: found if found is not None else output,
    }


def query_in(value: Any) -> str | None:
    """The query in what a retriever was called with."""
    for _ in range(6):
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            value = value[0]
            continue
        if not isinstance(value, Mapping):
            return None
        keys = (
            "query_str",
            "query",
            "query_bundle",
            "str_or_query_bundle",
            "input",
            "inputs",
            "question",
            "text",
            "args",
        )
        value = next((value[k] for k in keys if value.get(k)), None)
    return None


def _part(span: Seen) -> dict[str, Any]:
    """What went in and came out, where the span itself says both; no more than that is known of it."""
    before = _documents(span, "reranker.input_documents")
    after = _documents(span, "reranker.output_documents")
    both = before is not None and after is not None
    return {
        a.STAGE: "defense",
        PART: span.name.rpartition(".")[0] or span.name,
        a.RETRIEVAL_QUERY: span.get("reranker.query"),
        a.RETRIEVAL_DOCUMENTS: before if both else None,
        a.AFTER_DEFENSE: after if both else None,
    }


DIALECT = _OpenInference()
