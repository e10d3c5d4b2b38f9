"""In the battery's child: parts of LangChain and LlamaIndex, each imported only if the defense comes from it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ragtrace.inventory import battery_inputs as inputs
from ragtrace.inventory.battery_inputs import Specimen
from ragtrace.inventory.battery_parts import DOCUMENTS, Feed
from ragtrace.types import Document

Families = set[tuple[str, str]]
_PROMPT = ("before_agent", "before_model")
_RESPONSE = ("after_model", "after_agent")


def langchain(value: Any, families: Families) -> dict[str, Feed]:
    """The hooks of a compressor, transformer, agent middleware, output parser or runnable; empty for anything else."""
    names = {name for package, name in families if package.startswith("langchain")}
    if "BaseDocumentCompressor" in names:
        return {DOCUMENTS: _compressor(value)}
    if "BaseDocumentTransformer" in names:
        return {DOCUMENTS: _transformer(value)}
    if "AgentMiddleware" in names:
        return _middleware(value)
    if "Runnable" in names:  # parsers too: whoever names one as a defense means the text that goes through it
        return {"response": _runnable(value)}
    return {}


def llama_index(value: Any, families: Families) -> dict[str, Feed]:
    """The hook of a node postprocessor, node transform or query transform; empty for anything else."""
    names = {name for package, name in families if package == "llama_index"}
    if "BaseNodePostprocessor" in names:
        return {DOCUMENTS: Feed(_nodes, lambda given, s: value.postprocess_nodes(given, query_str=inputs.QUERY))}
    if "TransformComponent" in names:
        return {DOCUMENTS: Feed(lambda s: [n.node for n in _nodes(s)], lambda given, s: value(given))}
    if "BaseQueryTransform" in names:
        return {"query": Feed(lambda s: s.text, lambda given, s: str(getattr(value.run(given), "query_str", "")))}
    return {}


def langchain_document(document: Document) -> Any:
    """Ours as LangChain's; a score goes where its retrievers put it."""
    from langchain_core.documents import Document as LangChainDocument

    score = {} if document.score is None else {"score": document.score}
    return LangChainDocument(page_content=document.content, id=document.id, metadata={**document.metadata, **score})


def _documents(specimen: Specimen) -> list[Any]:
    return [langchain_document(d) for d in inputs.documents(specimen)]


def _compressor(value: Any) -> Feed:
    from langchain_core.documents import BaseDocumentCompressor as Base

    both = type(value).acompress_documents is not Base.acompress_documents
    return _two_forms(
        lambda given: value.compress_documents(given, inputs.QUERY),
        lambda given: value.acompress_documents(given, inputs.QUERY),
        both,
    )


def _transformer(value: Any) -> Feed:
    from langchain_core.documents import BaseDocumentTransformer as Base

    both = type(value).atransform_documents is not Base.atransform_documents
    return _two_forms(value.transform_documents, value.atransform_documents, both)


def _two_forms(run: Callable[[Any], Any], arun: Callable[[Any], Any], both: bool) -> Feed:
    """The sync form; the async one where that is missing, or is written apart and the sync form does nothing."""

    def call(given: Any, specimen: Specimen) -> Any:
        try:
            result = list(run(given))
        except NotImplementedError:
            return arun(given)
        return arun(given) if both and result == given == _documents(specimen) else result

    return Feed(_documents, call)


def _runnable(value: Any) -> Feed:
    forms = ["text"]

    def make(specimen: Specimen) -> Any:
        return specimen.text if forms[-1] == "text" else _answered(specimen)[-1]

    return Feed(make, lambda given, s: value.invoke(given), forms=("text", "message"), choose=forms.append)


def _nodes(specimen: Specimen) -> list[Any]:
    from llama_index.core.schema import NodeWithScore, TextNode

    return [
        NodeWithScore(node=TextNode(text=d.content, id_=d.id, metadata=d.metadata), score=d.score)
        for d in inputs.documents(specimen)
    ]


def _middleware(value: Any) -> dict[str, Feed]:
    """``prompt`` and ``response`` as far as the class has methods for them."""
    from langchain.agents.middleware.types import AgentMiddleware

    def has(name: str) -> bool:
        return any(getattr(type(value), n) is not getattr(AgentMiddleware, n) for n in (name, f"a{name}"))

    def method(name: str) -> Callable[..., Any]:
        own = getattr(type(value), name) is not getattr(AgentMiddleware, name)
        found: Callable[..., Any] = getattr(value, name if own else f"a{name}")
        return found

    feeds: dict[str, Feed] = {}
    prompt = [method(n) for n in _PROMPT if has(n)]
    response = [method(n) for n in _RESPONSE if has(n)]
    model, tool = has("wrap_model_call"), has("wrap_tool_call")
    if prompt or model or tool:
        steps = [_tooled(value)] if tool else []
        steps += [*map(_node, prompt), *([_wrapped(value, "sent")] if model else [])]
        feeds["prompt"] = Feed(lambda s: _asked(s, tool), lambda given, s: _through(steps, given))
    if response or model:
        answers = [*([_wrapped(value, "heard")] if model else []), *map(_node, response)]
        feeds["response"] = Feed(_answered, lambda given, s: _through(answers, given), lambda v, given: _last(v))
    return feeds


Step = Callable[[list[Any]], Any]


async def _through(steps: list[Step], messages: list[Any]) -> list[Any]:
    for step in steps:
        messages = await step(messages)
    return messages


def _asked(specimen: Specimen, tool: bool) -> list[Any]:
    """A second turn of a conversation; if need be, after a tool has answered."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    messages = [
        SystemMessage("You answer questions.", id="message-1"),
        HumanMessage(inputs.QUERY, id="message-2"),
        AIMessage("They were shorter.", id="message-3"),
        HumanMessage(inputs.question(specimen), id="message-4"),
    ]
    if tool:
        messages.append(AIMessage("", id="message-5", tool_calls=[_CALL]))
        messages.append(ToolMessage(specimen.text, id="message-6", tool_call_id=_CALL["id"], name=_CALL["name"]))
    return messages


_CALL: dict[str, Any] = {"name": "look_up", "args": {}, "id": "call-1"}


def _tooled(value: Any) -> Step:
    """``wrap_tool_call``: what it makes of a tool's result, the last message."""

    async def step(messages: list[Any]) -> list[Any]:
        from langchain.agents.middleware.types import AgentMiddleware
        from langgraph.prebuilt.tool_node import ToolCallRequest

        def answered(request: Any) -> Any:
            return messages[-1]

        async def aanswered(request: Any) -> Any:
            return answered(request)

        request = ToolCallRequest(_CALL, None, {"messages": messages[:-1]}, None)  # type: ignore[arg-type]
        if type(value).wrap_tool_call is not AgentMiddleware.wrap_tool_call:
            result = value.wrap_tool_call(request, answered)
        else:
            result = await value.awrap_tool_call(request, aanswered)
        update = getattr(result, "update", None)  # of a command
        return [*messages[:-1], *update["messages"]] if isinstance(update, dict) else [*messages[:-1], result]

    return step


def _answered(specimen: Specimen) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage

    return [HumanMessage(inputs.QUERY, id="message-1"), AIMessage(specimen.text, id="message-2")]


def _last(messages: Any) -> Any:
    """The text of the latest answer."""
    return next((str(m.text) for m in reversed(messages) if m.type == "ai"), "")


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _node(method: Callable[..., Any]) -> Step:
    """A node of the graph: gives an update of the state, which the graph would merge."""

    async def step(messages: list[Any]) -> list[Any]:
        from langgraph.graph.message import add_messages

        update = await _awaited(method({"messages": messages}, None))
        update = update if isinstance(update, dict) else getattr(update, "update", None) or {}
        if "messages" not in update:
            return messages
        said: Any = getattr(update["messages"], "value", update["messages"])
        return list(add_messages(copy.deepcopy(messages), said))

    return step


def _wrapped(value: Any, side: str) -> Step:
    """``wrap_model_call``: what it hands on to the model (``sent``), or makes of the model's answer (``heard``)."""

    async def step(messages: list[Any]) -> list[Any]:
        from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
        from langchain_core.language_models import FakeListChatModel
        from langchain_core.messages import AIMessage, SystemMessage

        system, rest = [m for m in messages if isinstance(m, SystemMessage)], messages
        if side == "sent":
            rest = [m for m in messages if not isinstance(m, SystemMessage)]
        sent: list[Any] = []
        answer = AIMessage("The report does not say.", id="answer") if side == "sent" else rest[-1]

        def answered(request: Any) -> Any:
            own = [] if request.system_message is None else [request.system_message]
            sent[:] = [*own, *request.messages]
            return ModelResponse(result=[answer])

        async def aanswered(request: Any) -> Any:
            return answered(request)

        asked = rest if side == "sent" else rest[:-1]
        request = ModelRequest(
            model=FakeListChatModel(responses=["…"]), messages=asked, system_message=system[0] if system else None,
            state={"messages": asked},
        )  # fmt: skip
        if type(value).wrap_model_call is not AgentMiddleware.wrap_model_call:
            response = value.wrap_model_call(request, answered)
        else:
            response = await value.awrap_model_call(request, aanswered)
        if side == "sent":
            return sent
        response = getattr(response, "model_response", response)
        return [*asked, *([response] if isinstance(response, AIMessage) else response.result)]

    return step
