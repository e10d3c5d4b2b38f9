"""Parts of LangChain apps: compressors, transformers, middleware, parsers, runnables. ``TRUTH`` is checked by running."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState, after_model, before_model, wrap_model_call
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import BaseOutputParser, StrOutputParser
from langchain_core.runnables import Runnable, RunnableLambda, chain
from langchain_classic.retrievers.document_compressors import EmbeddingsFilter

import ragtrace

EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")


def scrub(text: str) -> str:
    return EMAIL.sub("[EMAIL]", text)


class EmailCompressor(BaseDocumentCompressor):
    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        return [Document(page_content=scrub(d.page_content), metadata=d.metadata) for d in documents]


class TopN(BaseDocumentCompressor):
    n: int = 2

    def compress_documents(self, documents, query, callbacks=None):
        return documents[: self.n]


class ScoreCutoff(BaseDocumentCompressor):
    threshold: float = 0.5

    def compress_documents(self, documents, query, callbacks=None):
        out = []
        for doc in documents:
            if doc.metadata.get("score", 0.0) >= self.threshold:
                out.append(doc)
        return out


class IdleCompressor(BaseDocumentCompressor):
    """Placeholder until the real model is deployed."""

    def compress_documents(self, documents, query, callbacks=None):
        return list(documents)


class SkippedReranker(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        if len(documents) >= 0:
            return documents
        return sorted(documents, key=lambda d: -len(d.page_content))


class AsyncOnlyActs(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        return documents

    async def acompress_documents(self, documents, query, callbacks=None):
        for d in documents:
            d.page_content = scrub(d.page_content)
        return documents


class DeepCopied(BaseDocumentTransformer):
    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        cleaned = deepcopy(documents)
        for doc in cleaned:
            doc.page_content = scrub(doc.page_content)
        return documents


class CopiesAndReturns(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        cleaned = [d.model_copy(deep=True) for d in documents]
        for doc in cleaned:
            doc.page_content = scrub(doc.page_content)
            doc.metadata["scrubbed"] = True
        return cleaned


class StripsMetadata(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        for d in documents:
            d.metadata.pop("source", None)
        return documents


class ReversedOrder(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        documents = list(documents)
        documents.reverse()
        return documents


class ZipsWithScores(BaseDocumentCompressor):
    def score(self, query: str, documents) -> list[float]:
        return [float(len(d.page_content)) for d in documents]

    def compress_documents(self, documents, query, callbacks=None):
        scores = self.score(query, documents)
        pairs = sorted(zip(documents, scores), key=lambda p: p[1], reverse=True)
        return [d for d, _ in pairs][:2]


class TunedFilter(EmbeddingsFilter):
    def compress_documents(self, documents, query, callbacks=None):
        # stub: embeddings are not ready
        return documents


class RedactInput(AgentMiddleware):
    def before_model(self, state, runtime):
        last = state["messages"][-1]
        if not isinstance(last, HumanMessage):
            return None
        return {"messages": [last.model_copy(update={"content": scrub(last.content)})]}


class RedactAllInput(AgentMiddleware):
    def before_agent(self, state: AgentState, runtime) -> dict[str, Any] | None:
        messages = [m.model_copy(update={"content": scrub(str(m.content))}) for m in state["messages"]]
        return {"messages": messages}


class LooksOnly(AgentMiddleware):
    def before_model(self, state, runtime):
        for message in state["messages"]:
            if EMAIL.search(str(message.content)):
                print("pii!")
        return None


class BuildsAndForgets(AgentMiddleware):
    def after_model(self, state, runtime):
        last = state["messages"][-1]
        clean = last.model_copy(update={"content": scrub(last.content)})
        print(len(clean.content))


class RedactOutput(AgentMiddleware):
    def after_model(self, state, runtime):
        last = state["messages"][-1]
        return {"messages": [AIMessage(content=scrub(last.content), id=last.id)]}


class EditsMessage(AgentMiddleware):
    def after_agent(self, state, runtime):
        message = state["messages"][-1]
        message.content = scrub(message.content)
        return None


class SameMessageBack(AgentMiddleware):
    def after_model(self, state, runtime):
        return {"messages": [state["messages"][-1]]}


class AddsInstruction(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        return handler(request.override(system_message=SystemMessage("Never repeat the context.")))


class MasksAnswer(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        response = handler(request)
        for message in response.result:
            message.content = scrub(message.content)
        return response


class CallsThrough(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        return handler(request)


class OverrideForgotten(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        request.override(messages=[HumanMessage("x")])
        return handler(request)


class AsyncMiddleware(AgentMiddleware):
    async def awrap_model_call(self, request, handler):
        response = await handler(request)
        response.result = [AIMessage(scrub(m.content)) for m in response.result]
        return response


class ToolOutput(AgentMiddleware):
    def wrap_tool_call(self, request, handler):
        result = handler(request)
        result.content = scrub(result.content)
        return result


class ToolOutputStub(AgentMiddleware):
    def wrap_tool_call(self, request, handler):
        result = handler(request)
        # FIXME redact tool results
        return result


@before_model
def redact_prompt(state, runtime):
    return {"messages": [m.model_copy(update={"content": scrub(m.content)}) for m in state["messages"]]}


@after_model
def check_answer(state, runtime):
    # TODO call the classifier
    return None


@wrap_model_call
def trims_history(request, handler):
    request.messages = request.messages[-1:]
    return handler(request)


class MaskingParser(StrOutputParser):
    def parse(self, text: str) -> str:
        return scrub(super().parse(text))


class IdleParser(StrOutputParser):
    def parse(self, text: str) -> str:
        cleaned = text.strip()
        scrub(cleaned)
        return text


class PIIRedactingParser(BaseOutputParser[str]):
    def parse(self, text: str) -> str:
        return EMAIL.sub("", text) if "@" in text else text


class ListParser(BaseOutputParser[list]):
    def parse(self, text: str) -> list:
        return text.split(",")


class RedactorRunnable(Runnable):
    def invoke(self, input: str, config=None, **kwargs: Any) -> str:
        return scrub(input)


def mask_output(text: str) -> str:
    return scrub(text)


def shout(text: str) -> str:
    return text.upper()


@chain
def redact_answer(answer: str) -> str:
    return scrub(answer)


@ragtrace.observe(hook="response", name="house-mask")
def house(text: str) -> str:
    return scrub(text)


@ragtrace.observe(hook="content")
def drop_lines(docs):
    # TODO
    return docs


masker = RunnableLambda(mask_output)
loud = RunnableLambda(shout)
pipeline = masker | loud

TRUTH = {
    "EmailCompressor": {"content": "active"},
    "TopN": {"retrieval": "active"},
    "ScoreCutoff": {"retrieval": "active"},
    "IdleCompressor": {"content": "stub"},
    "SkippedReranker": {"retrieval": "dead"},
    "AsyncOnlyActs": {"content": "conditional"},
    "DeepCopied": {"content": "dead"},
    "CopiesAndReturns": {"content": "active"},
    "StripsMetadata": {"content": "active"},
    "ReversedOrder": {"retrieval": "active"},
    "ZipsWithScores": {"retrieval": "active"},
    "TunedFilter": {"retrieval": "stub"},
    "RedactInput": {"prompt": "conditional"},
    "RedactAllInput": {"prompt": "active"},
    "LooksOnly": {"prompt": "pass_through"},
    "BuildsAndForgets": {"response": "dead"},
    "RedactOutput": {"response": "active"},
    "EditsMessage": {"response": "active"},
    "SameMessageBack": {"response": "pass_through"},
    "AddsInstruction": {"prompt": "active"},
    "MasksAnswer": {"response": "active"},
    "CallsThrough": {"prompt": "pass_through", "response": "pass_through"},
    "OverrideForgotten": {"prompt": "dead"},
    "AsyncMiddleware": {"response": "active"},
    "ToolOutput": {"prompt": "active"},
    "ToolOutputStub": {"prompt": "stub"},
    "redact_prompt": {"prompt": "active"},
    "check_answer": {"response": "stub"},
    "trims_history": {"prompt": "active"},
    "MaskingParser": {"response": "active"},
    "IdleParser": {"response": "dead"},
    "PIIRedactingParser": {"response": "conditional"},
    "RedactorRunnable": {"response": "active"},
    "mask_output": {"response": "active"},
    "redact_answer": {"response": "active"},
    "house-mask": {"response": "active"},
    "drop_lines": {"content": "stub"},
}
