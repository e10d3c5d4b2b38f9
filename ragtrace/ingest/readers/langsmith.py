"""LangSmith: runs, as its API and its exports give them, also with their children inside.

What a run says becomes the attributes under which LangSmith itself exports the same to OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from ragtrace.ingest.span import Span, end_time, json, made_id, mapping, objects, optional_text, start_time

NAME = "LangSmith runs (run_type, inputs, outputs)"
_INNER = ("child_runs", "runs")
_IDS = {"session_id": "session.id", "thread_id": "session.id", "conversation_id": "session.id", "user_id": "user.id"}
_NESTED = ("inputs", "outputs", "extra", "tags")
_MODELS = ("ls_model_name", "model_name", "model")


def claims(found: Mapping[str, Any]) -> bool:
    """Whether ``found`` is a run, or holds a list of such."""
    runs = found.get("runs")
    return ("run_type" in found and "id" in found) or (
        isinstance(runs, list) and bool(runs) and isinstance(runs[0], Mapping) and "run_type" in runs[0]
    )


def spans(found: Mapping[str, Any], trace: Any = None, parent: Any = None) -> Iterator[Span]:
    """The run and those below it, one span each."""
    if "run_type" in found:
        trace, parent = found.get("trace_id") or trace or found.get("id"), found.get("parent_run_id") or parent
        yield _span(found, trace, parent)
        parent = found.get("id")
    for key in _INNER:
        for each in objects(found.get(key), key):
            yield from spans(each, trace, parent)


def _span(run: Mapping[str, Any], trace: Any, parent: Any) -> Span:
    run = {k: _decoded(v) if k in _NESTED else v for k, v in run.items()}
    span_id = made_id(run.get("id"), 16, "run id")
    extra = mapping(run.get("extra"), "extra")
    metadata = mapping(extra.get("metadata"), "metadata")
    outputs = mapping(run.get("outputs"), "outputs")
    attributes: dict[str, Any] = {f"langsmith.metadata.{key}": value for key, value in metadata.items()}
    attributes |= {ours: str(metadata[theirs]) for theirs, ours in _IDS.items() if metadata.get(theirs)}
    attributes |= {"langsmith.span.kind": str(run["run_type"]), "langsmith.run.id": str(run.get("id"))}
    if run.get("tags"):
        attributes["langsmith.span.tags"] = run["tags"]
    for key, value in (("gen_ai.prompt", run.get("inputs")), ("gen_ai.completion", outputs)):
        if value:
            attributes[key] = json(mapping(value, key))
    if run["run_type"] == "llm":
        attributes |= _of_model(run, extra, metadata, outputs)
    return Span(
        trace_id=made_id(str(trace).replace("-", ""), 32, "trace id"),
        span_id=span_id,
        parent_span_id=made_id(parent, 16, "parent run id") if parent else None,
        name=str(run.get("name") or ""),
        start_ns=start_time(run.get("start_time"), span_id),
        end_ns=end_time(run.get("end_time"), span_id),
        attributes=attributes,
        status="ERROR" if run.get("error") else "UNSET",
        status_message=optional_text(run.get("error")),
        scope="langsmith",
    )


def _decoded(value: Any) -> Any:
    """Its bulk exports hold JSON in texts."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _of_model(
    run: Mapping[str, Any], extra: Mapping[str, Any], metadata: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    called = mapping(extra.get("invocation_params"), "invocation_params")
    found: dict[str, Any] = {
        "gen_ai.operation.name": "text_completion" if metadata.get("ls_model_type") == "llm" else "chat"
    }
    response, usage = _first(outputs, "response_metadata"), _first(outputs, "usage_metadata")
    told = _first(outputs, "token_usage") or _first(outputs, "usage")
    model = next((m for held in (metadata, called) for k in _MODELS if (m := held.get(k))), None)
    answered = next((m for k in _MODELS if (m := response.get(k))), None)
    counts = (
        ("gen_ai.usage.input_tokens", (usage.get("input_tokens"), told.get("prompt_tokens"), run.get("prompt_tokens"))),
        (
            "gen_ai.usage.output_tokens",
            (usage.get("output_tokens"), told.get("completion_tokens"), run.get("completion_tokens")),
        ),
    )
    found |= {key: next((c for c in some if c), None) for key, some in counts}
    found |= {"gen_ai.request.model": model or answered, "gen_ai.response.model": answered}
    return {key: value for key, value in found.items() if value is not None}


def _first(value: Any, key: str, depth: int = 0) -> Mapping[str, Any]:
    """The first object under this name, wherever a provider's answer holds it."""
    if depth > 12:
        return {}
    if isinstance(value, Mapping):
        if isinstance(found := value.get(key), Mapping) and found:
            return found
        value = list(value.values())
    if isinstance(value, list):
        return next((found for each in value if (found := _first(each, key, depth + 1))), {})
    return {}
