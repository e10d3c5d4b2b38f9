"""What the attributes of others mean, convention by convention, from their specifications: old keys and new ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest_fixtures import Store, otlp, span, store

from ragtrace.ingest.dialects import Seen
from ragtrace.ingest.dialects.base import dialects, tell
from ragtrace.ingest.salvage import salvage

__all__ = ["store"]
J = json.dumps
PROMPT, RESPONSE = "be kind\n\nhello", "hi"
SAID = (PROMPT, RESPONSE, "m", 7, 2)
TOKENS = {"gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 2}
MODEL = {"gen_ai.request.model": "m"}
INPUT = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
OUTPUT = {"role": "assistant", "content": "hi"}


def parts(messages: list[dict[str, str]]) -> str:
    return J([{"role": m["role"], "parts": [{"type": "text", "content": m["content"]}]} for m in messages])


# name: (dialect, attributes, events); all tell the same call
GENERATIONS: dict[str, tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "genai": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.input.messages": parts(INPUT), "gen_ai.output.messages": parts([OUTPUT])}, []),
    "genai, structured": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.input.messages": json.loads(parts(INPUT)),
        "gen_ai.output.messages": json.loads(parts([OUTPUT]))}, []),
    "genai, system instructions": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.system_instructions": J([{"type": "text", "content": "be kind"}]),
        "gen_ai.input.messages": parts(INPUT[1:]), "gen_ai.output.messages": parts([OUTPUT])}, []),
    "genai, one event with all": ("otel_genai", MODEL | TOKENS | {"gen_ai.operation.name": "chat"}, [
        ("gen_ai.client.inference.operation.details", {
            "gen_ai.system_instructions": [{"type": "text", "content": "be kind"}],
            "gen_ai.input.messages": json.loads(parts(INPUT[1:])),
            "gen_ai.output.messages": parts([OUTPUT])})]),
    "genai 1.28, an event a message": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai"}, [
            ("gen_ai.system.message", {"gen_ai.system": "openai", "content": "be kind"}),
            ("gen_ai.user.message", {"gen_ai.system": "openai", "content": "hello", "role": "user"}),
            ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": J({"content": "hi"})})]),
    "azure, an event a message with its content as JSON": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.system": "az.ai.inference"}, [
            ("gen_ai.system.message", {"gen_ai.event.content": J({"role": "system", "content": "be kind"})}),
            ("gen_ai.user.message", {"gen_ai.event.content": J({"content": "hello"})}),
            ("gen_ai.choice", {"gen_ai.event.content": J({"message": {"content": "hi"}, "finish_reason": "stop"})})]),
    "genai 1.26, two events and the old tokens": ("otel_genai", MODEL | {
        "gen_ai.system": "openai", "gen_ai.usage.prompt_tokens": 7, "gen_ai.usage.completion_tokens": 2}, [
            ("gen_ai.content.prompt", {"gen_ai.prompt": J(INPUT)}),
            ("gen_ai.content.completion", {"gen_ai.completion": J([OUTPUT])})]),
    "langsmith, JSON on the span": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.prompt": J({"messages": INPUT}),
        "gen_ai.completion": J({"choices": [{"message": OUTPUT, "finish_reason": "stop"}]})}, []),
    "pydantic-ai, events in an attribute": ("otel_genai", MODEL | TOKENS | {
        "gen_ai.operation.name": "chat", "gen_ai.system": "openai", "events": J([
            {"event.name": "gen_ai.system.message", "role": "system", "content": "be kind"},
            {"event.name": "gen_ai.user.message", "role": "user", "content": "hello"},
            {"event.name": "gen_ai.choice", "index": 0, "message": OUTPUT}])}, []),
    "openllmetry, numbered": ("openllmetry", MODEL | {
        "llm.request.type": "chat", "gen_ai.system": "OpenAI", "gen_ai.usage.prompt_tokens": 7,
        "gen_ai.usage.completion_tokens": 2,
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be kind",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": J([{"type": "text", "text": "hello"}]),
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "hi",
        "gen_ai.completion.0.finish_reason": "stop"}, []),
    "openllmetry, the oldest": ("openllmetry", {
        "llm.request.type": "chat", "llm.vendor": "OpenAI", "llm.request.model": "m",
        "llm.usage.prompt_tokens": 7, "llm.usage.completion_tokens": 2,
        "llm.prompts.0.role": "system", "llm.prompts.0.content": "be kind", "llm.prompts.1.content": "hello",
        "llm.completions.0.content": "hi"}, []),
    "openinference": ("openinference", {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 7,
        "llm.token_count.completion": 2,
        "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "be kind",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "hello",
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "hi"}, []),
    "openinference, values alone": ("openinference", {
        "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 7,
        "llm.token_count.completion": 2, "input.value": J({"messages": INPUT}), "output.value": "hi"}, []),
    "langfuse SDK": ("langfuse", {
        "langfuse.observation.type": "generation", "langfuse.observation.model.name": "m",
        "langfuse.observation.input": J(INPUT), "langfuse.observation.output": J(OUTPUT),
        "langfuse.observation.usage_details": J({"prompt_tokens": 7, "completion_tokens": 2})}, []),
    "mlflow": ("mlflow", {
        "mlflow.spanType": J("CHAT_MODEL"), "mlflow.spanInputs": J({"model": "m", "messages": INPUT}),
        "mlflow.spanOutputs": J({"choices": [{"message": OUTPUT}]}),
        "mlflow.chat.tokenUsage": J({"input_tokens": 7, "output_tokens": 2, "total_tokens": 9})}, []),
    "langsmith": ("langsmith", MODEL | TOKENS | {
        "langsmith.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.prompt": J({"messages": [[
            {"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"content": "be kind", "type": "system"}},
            {"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"content": "hello", "type": "human"}}]]}),
        "gen_ai.completion": J({"generations": [[{"text": "hi", "type": "ChatGeneration", "message": {
            "lc": 1, "type": "constructor", "id": ["x"], "kwargs": {"content": "hi", "type": "ai"}}}]]})}, []),
    "vercel": ("vercel", {
        "ai.operationId": "ai.streamText.doStream", "ai.model.id": "m", "ai.usage.promptTokens": 7,
        "ai.usage.completionTokens": 2, "ai.response.text": "hi", "ai.response.finishReason": "stop",
        "ai.prompt.messages": J([INPUT[0], {"role": "user", "content": [{"type": "text", "text": "hello"}]}])}, []),
    "monocle": ("monocle", {
        "monocle_apptrace.version": "0.7", "span.type": "inference", "entity.1.type": "inference.openai",
        "entity.2.name": "m", "entity.2.type": "model.llm.m"}, [
            ("data.input", {"input": [J({"system": "be kind"}), J({"user": "hello"})]}),
            ("data.output", {"response": J({"assistant": "hi"})}),
            ("metadata", {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})]),
}  # fmt: skip


@pytest.mark.parametrize("case", GENERATIONS)
def test_generations(store: Store, case: str) -> None:
    dialect, attributes, events = GENERATIONS[case]
    store.took(otlp(span(attributes, events=events)))
    row = store.row("SELECT prompt, response, model, prompt_tokens, completion_tokens, dialect FROM generations")
    assert row == (*SAID, dialect)
    kept = json.loads(store.row("SELECT attributes FROM spans")[0])
    original = kept.get("ragtrace.original", {})
    for key, value in attributes.items():
        assert original.get(key, kept.get(key)) == value or kept[key] == J(value).replace(": ", ":").replace(", ", ",")


NODES = [{"node": {"id_": "d1", "text": "text one", "metadata": {"a": 1}}, "score": 0.5},
         {"node": {"id_": "d2", "text": "text two", "metadata": {}}, "score": 0.25}]  # fmt: skip
RETRIEVALS: dict[str, tuple[str, dict[str, Any], list[tuple[str, dict[str, Any]]]]] = {
    "genai": ("otel_genai", {
        "gen_ai.operation.name": "retrieval", "gen_ai.retrieval.query.text": "who?",
        "gen_ai.retrieval.documents": J([{"id": "d1", "score": 0.5, "content": "text one"},
                                         {"id": "d2", "score": 0.25, "content": "text two"}])}, []),
    "genai, another name of the operation": ("otel_genai", {
        "gen_ai.operation.name": "retrieve", "input.value": J({"query": "who?"}), "output.value": J(NODES)}, []),
    "openinference": ("openinference", {"openinference.span.kind": "RETRIEVER", "input.value": "who?"} | {
        f"retrieval.documents.{i}.document.{k}": v for i, row in enumerate(
            [("d1", 0.5, "text one"), ("d2", 0.25, "text two")])
        for k, v in zip(("id", "score", "content"), row, strict=True)}, []),
    "openinference, a dozen and other members": ("openinference", {
        "openinference.span.kind": "RETRIEVER", "input.value": J({"query": "who?"}),
        "retrieval.documents.0.document.id": "d1", "retrieval.documents.0.document.score": 0.5,
        "retrieval.documents.0.document.content": "text one", "retrieval.documents.0.document.extra": 1,
        "retrieval.documents.10.document.id": "d2", "retrieval.documents.10.document.score": 0.25,
        "retrieval.documents.10.document.content": "text two"}, []),
    "openllmetry, LangChain": ("openllmetry", {
        "traceloop.span.kind": "task", "traceloop.entity.name": "VectorStoreRetriever",
        "traceloop.entity.input": J({"inputs": {"query": "who?"}}), "traceloop.entity.output": J({"documents": [
            {"page_content": "text one", "id": "d1", "score": 0.5},
            {"page_content": "text two", "id": "d2", "score": 0.25}]})}, []),
    "openllmetry, LlamaIndex": ("openllmetry", {
        "traceloop.span.kind": "task", "traceloop.entity.name": "VectorIndexRetriever.task",
        "traceloop.entity.input": J({"str_or_query_bundle": {"query_str": "who?", "embedding": None}}),
        "traceloop.entity.output": J([J(node) for node in NODES])}, []),
    "openllmetry, a vector database": ("openllmetry", {
        "db.system": "chroma", "db.operation": "query", "traceloop.entity.input": J({"query": "who?"})}, [
            ("db.query.result", {"db.query.result.id": f"d{i}", "db.query.result.score": s,
                                 "db.query.result.document": t}) for i, s, t in
            ((1, 0.5, "text one"), (2, 0.25, "text two"))]),
    "mlflow": ("mlflow", {
        "mlflow.spanType": J("RETRIEVER"), "mlflow.spanInputs": J({"query": "who?"}), "mlflow.spanOutputs": J([
            {"page_content": "text one", "id": "d1", "metadata": {}, "score": 0.5},
            {"page_content": "text two", "id": "d2", "score": 0.25}])}, []),
    "langsmith": ("langsmith", {
        "langsmith.span.kind": "retriever", "gen_ai.prompt": J({"query": "who?"}), "gen_ai.completion": J(
            {"documents": [{"page_content": "text one", "id": "d1", "score": 0.5},
                           {"page_content": "text two", "id": "d2", "score": 0.25}]})}, []),
    "langfuse SDK": ("langfuse", {
        "langfuse.observation.type": "retriever", "langfuse.observation.input": J({"query": "who?"}),
        "langfuse.observation.output": J(NODES)}, []),
    "monocle": ("monocle", {"monocle_apptrace.version": "0.7", "span.type": "retrieval"}, [
        ("data.input", {"input": "who?"}), ("data.output", {"response": J(NODES)})]),
}  # fmt: skip


@pytest.mark.parametrize("case", RETRIEVALS)
def test_retrievals(store: Store, case: str) -> None:
    dialect, attributes, events = RETRIEVALS[case]
    store.took(otlp(span(attributes, events=events)))
    assert store.row("SELECT stage, query, dialect FROM stages") == ("retrieval", "who?", dialect)
    assert store.rows("SELECT phase, rank, document_id, score, content, length(content_hash) FROM documents "
                      "ORDER BY rank") == [("retrieved", 1, "d1", 0.5, "text one", 32),
                                           ("retrieved", 2, "d2", 0.25, "text two", 32)]  # fmt: skip


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e", "gen_ai.usage.input_tokens": 3},
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"},
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": parts([OUTPUT])},
        {"openinference.span.kind": "CHAIN", "input.value": "q", "output.value": "a"},
        {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "e"},
        {"traceloop.span.kind": "workflow", "traceloop.entity.input": J({"q": 1}), "traceloop.entity.output": J({})},
        {"llm.request.type": "embedding", "gen_ai.request.model": "e", "gen_ai.prompt.0.content": "x"},
        {"ai.operationId": "ai.embed.doEmbed", "ai.values": ["x"]},
        {"ai.operationId": "ai.toolCall", "gen_ai.request.model": "m"},
        {"langfuse.observation.type": "span", "langfuse.observation.input": "q"},
        {"monocle_apptrace.version": "0.7", "span.type": "agentic.turn"},
        {"langsmith.span.kind": "chain", "gen_ai.prompt": J({"q": 1}), "gen_ai.completion": J({"a": 1})},
        {"mlflow.spanType": J("CHAIN"), "mlflow.spanInputs": J({"q": 1})},
        {"http.route": "/"},
    ],
)
def test_what_is_no_stage(store: Store, attributes: dict[str, Any]) -> None:
    store.took(otlp(span(attributes)))
    assert store.rows("SELECT * FROM stages") == []


def test_tool_calls_and_what_tools_returned(store: Store) -> None:
    """What a tool retrieved went into the prompt, so it is there; a call without text is no text."""
    told = [{"role": "user", "parts": [{"type": "text", "content": "q"}]},
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"a": 1}}]},
            {"role": "tool", "parts": [{"type": "tool_call_response", "response": "Alice Smith"}]}]  # fmt: skip
    called = {"type": "tool_call", "name": "g", "arguments": {}}
    told[2]["parts"] += [  # blocks, as Anthropic and Bedrock have them; other lists are what they are
        {"type": "tool_call_response", "response": [{"type": "text", "text": "Bob"}, {"text": "Carol"}]},
        {"type": "tool_call_response", "response": [{"text": "Dan", "page": 3}]},
    ]
    answer = [{"role": "assistant", "parts": [called], "finish_reason": "x"}]
    store.took(otlp(span({"gen_ai.operation.name": "chat", "gen_ai.input.messages": J(told),
                          "gen_ai.output.messages": J(answer)})))  # fmt: skip
    assert store.row("SELECT prompt, response, finish_reason FROM generations") == (
        'q\n\nAlice Smith\n\nBob\nCarol\n\n[{"text":"Dan","page":3}]', None, "x",
    )  # fmt: skip


# cut JSON


def test_cut_json_is_flagged_and_read_as_far_as_it_goes(store: Store) -> None:
    whole = parts([*INPUT, {"role": "user", "content": "the rest of it"}])
    store.took(otlp(span({"gen_ai.operation.name": "chat", "gen_ai.input.messages": whole[: whole.index("rest") + 2],
                          "gen_ai.output.messages": parts([OUTPUT])})))  # fmt: skip
    assert store.row("SELECT prompt, response FROM generations") == ("be kind\n\nhello\n\nthe re", "hi")
    truncated, kept = store.row("SELECT truncated, attributes->'ragtrace.original' FROM spans")
    assert json.loads(truncated) == ["gen_ai.input.messages"]
    assert json.loads(kept) == {"gen_ai.input.messages": whole[: whole.index("rest") + 2]}


def test_cut_documents(store: Store) -> None:
    whole = J({"documents": [{"page_content": "text one", "metadata": {"a": 1}}, {"page_content": "text two"}]})
    base = {"traceloop.span.kind": "task", "traceloop.entity.name": "R", "gen_ai.operation.name": "vector_db_retrieve"}
    cut = whole[: whole.index("two") + 1] + "...[truncated]"
    store.took(otlp(span(base | {"traceloop.entity.input": J({"query": "who?"}), "traceloop.entity.output": cut})))
    found = store.rows("SELECT content FROM documents ORDER BY rank")
    assert found == [("text one",), ("text t...[truncated]",)]
    assert json.loads(store.row("SELECT truncated FROM spans")[0]) == ["traceloop.entity.output"]


def test_what_only_looks_like_json_is_no_cut_json(store: Store) -> None:
    store.took(otlp(span({"openinference.span.kind": "LLM", "input.value": "[INST] hello", "output.value": "{name}"})))
    assert store.row("SELECT prompt, response, (SELECT truncated FROM spans) FROM generations") == (
        "[INST] hello", "{name}", None,
    )  # fmt: skip


NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def begins(part: Any, whole: Any) -> bool:
    """Whether ``part`` is a beginning of ``whole``: all of it is there too, in its place."""
    if isinstance(part, dict):
        keys = list(whole)[: len(part)] if isinstance(whole, dict) else None
        return list(part) == keys and all(begins(part[k], whole[k]) for k in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(begins, part, whole))
    return (isinstance(part, str) and isinstance(whole, str) and whole.startswith(part)) or part == whole


@given(st.lists(JSON, min_size=1, max_size=4) | st.dictionaries(st.text(), JSON, min_size=1, max_size=4), st.data())
def test_what_is_salvaged_is_a_beginning_of_what_there_was(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans()))
    found = salvage(text[: data.draw(st.integers(1, len(text) - 1))])
    assert found is None or begins(found, value)


@given(st.text(alphabet='{}[]",:\\ua0truefalsn1.e-'))
def test_salvaging_anything_at_all_ends(text: str) -> None:
    salvage(text)


KEYS = sorted({key for cases in (GENERATIONS, RETRIEVALS) for _, attributes, _ in cases.values() for key in attributes})
EVENTS = sorted({name for cases in (GENERATIONS, RETRIEVALS) for _, _, events in cases.values() for name, _ in events})


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | JSON.map(json.dumps), max_size=6),
    st.lists(st.fixed_dictionaries({"name": st.sampled_from(EVENTS), "attributes": st.dictionaries(
        st.sampled_from(["content", "input", "response", "message", "gen_ai.event.content", "gen_ai.prompt"]),
        JSON | JSON.map(json.dumps), max_size=3)}), max_size=3),
)  # fmt: skip
def test_no_dialect_falls_over_anything(attributes: dict[str, Any], events: list[dict[str, Any]]) -> None:
    told = tell(Seen("x.y", "s", dict(attributes), events))
    json.dumps(told.attributes)
    assert told.stage in (None, "retrieval", "generation", "defense")
    assert attributes.keys() <= told.attributes.keys() | told.attributes.get("ragtrace.original", {}).keys()


def test_the_dialects_that_are_there() -> None:
    assert [d.name for d in dialects()] == [
        "monocle", "vercel", "opik", "langtrace", "laminar", "openllmetry", "genkit", "google_adk", "agentops",
        "braintrust", "langsmith", "mlflow", "haystack", "logfire", "llama_index", "openinference", "vector_db",
        "otel_genai", "langfuse",
    ]  # fmt: skip
