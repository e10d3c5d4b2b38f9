"""Output guards, document maskers and agent middleware of the clinic assistant and the sales copilot."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import copy
import logging
import random
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce, wraps
from typing import Any, Protocol

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelResponse
from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.runnables import RunnableLambda, RunnableSerializable
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TransformComponent

from ragtrace import Defense

try:
    from northwind_pii import scrub as vendor_scrub
except ImportError:

    def vendor_scrub(text: str) -> str:
        return text


log = logging.getLogger("clinic.privacy")

EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
PHONE = re.compile(r"(?:\+\d{1,3}[ -]?)?\(?\d{3}\)?[ .-]?\d{3}[ .-]?\d{4}")
PERSON = re.compile(r"\b(?:Mr|Mrs|Ms|Dr)?\.? ?[A-Z][a-z]+ [A-Z][a-z]+\b")

drop_emails = partial(EMAIL.sub, "[email]")
drop_phones = partial(PHONE.sub, "[phone]")


def scrub(text: str) -> str:
    return drop_phones(drop_emails(text))


def compose(*steps: Callable[[str], str]) -> Callable[[str], str]:
    def run(text: str) -> str:
        return reduce(lambda acc, step: step(acc), steps, text)

    return run


def timed(fn):
    """Logs how long a guard took."""

    @wraps(fn)
    def inner(*args, **kwargs):
        start = time.perf_counter()
        try:
            return fn(*args, **kwargs)
        finally:
            log.debug("%s took %.4fs", fn.__name__, time.perf_counter() - start)

    return inner


# ---------------------------------------------------------------- guards on the answer


class ComposedGuard:
    def __init__(self):
        self._run = compose(drop_emails, drop_phones, lambda t: PERSON.sub("[person]", t))

    @timed
    def redact_response(self, response: str) -> str:
        return self._run(response)


class LambdaGuard:
    redact_output = lambda self, output: drop_emails(output)  # noqa: E731


class OutputGuardBase(abc.ABC):
    def filter_output(self, output: str) -> str:
        cleaned = self._clean(output)
        if cleaned != output:
            log.info("%s changed the answer", type(self).__name__)
        return cleaned

    @abc.abstractmethod
    def _clean(self, text: str) -> str: ...


class ClinicOutputGuard(OutputGuardBase):
    MRN = re.compile(r"\bMRN[- ]?\d{5,}\b|\b[A-Z]{2}\d{6,}\b")

    def _clean(self, text: str) -> str:
        return self.MRN.sub("[record]", scrub(text))


class CachedAnswerGuard:
    @staticmethod
    @lru_cache(maxsize=2048)
    def _masked(text: str) -> str:
        return scrub(text)

    def mask_response(self, response: str) -> str:
        try:
            return self._masked(response)
        except re.error:
            log.exception("mask failed")
            return "[withheld]"


class SwitchableGuard:
    """On unless an operator turns it off."""

    def __init__(self, enabled: bool = True):
        self.enabled = enabled

    def turn_off(self) -> None:
        self.enabled = False

    def protect_output(self, output: str) -> str:
        return scrub(output) if self.enabled else output


class ModeGuard:
    def __init__(self, mode: str):
        self.mode = mode

    def sanitize_output(self, output: str) -> str:
        match self.mode:
            case "mask":
                return scrub(output)
            case "block":
                return "[answer withheld]" if EMAIL.search(output) else output
            case _:
                return output


class BlocklistGuard:
    REFUSAL = "Sorry, I can't help with that."
    BLOCKED = frozenset({"password", "passwort", "credentials"})

    def filter_response(self, response: str) -> str:
        words = set(re.findall(r"\w+", response.lower()))
        if words & self.BLOCKED:
            return self.REFUSAL
        return response


class VendorGuard:
    """Northwind's scrubber."""

    def scrub_pii(self, text: str) -> str:
        return vendor_scrub(text)


class Redactor(Protocol):
    def redact(self, text: str) -> str: ...


class BackendGuard:
    def __init__(self, backend: Redactor):
        self.backend = backend

    def deidentify(self, text: str) -> str:
        return self.backend.redact(text)


@dataclass(frozen=True)
class GuardConfig:
    active: bool = False
    mask: str = "[hidden]"


class ConfiguredGuard:
    def __init__(self) -> None:
        self._config = GuardConfig()

    def redact_response(self, response: str) -> str:
        if not self._config.active:
            return response
        return EMAIL.sub(self._config.mask, response)


class BestEffortGuard:
    def __init__(self):
        self.calls = 0

    def sanitize_response(self, response: str) -> str:
        result = response
        try:
            masked = EMAIL.sub(response)
            result = masked
        except Exception as exc:
            log.warning("masking skipped: %s", exc)
        finally:
            self.calls += 1
        return result


class TypeCheckedGuard:
    def mask_output(self, output: str) -> str:
        if type(output) == "str":  # noqa: E721
            return scrub(output)
        return output


class CountingGuard:
    """Logs how many addresses it found, then replaces them."""

    def redact_output(self, output: str) -> str:
        hits = (m.group(0) for m in EMAIL.finditer(output))
        log.info("%d addresses in answer", len(list(hits)))
        for hit in hits:
            output = output.replace(hit, "[email]")
        return output


class VerbosePatternGuard:
    SSN = re.compile(
        r"""
        \b(?!000)\d{3}   # area
        -\d{2}           # group
        -\d{4}\b         # serial
        """
    )

    def redact_text(self, text: str) -> str:
        return self.SSN.sub("[ssn]", text)


class FlaggableGuard:
    enabled = True

    def anonymize_response(self, response: str) -> str:
        if not self.enabled:
            return response
        return PERSON.sub("[person]", response)


class DemoGuard(FlaggableGuard):
    """For the sales demo, where names must stay readable."""

    enabled = False


class MembershipGuard:
    async def protect_response(self, response: str) -> str:
        raise NotImplementedError


class DifferentialPrivacyGuard:
    def __init__(self, epsilon: float = 1.0):
        self.epsilon = epsilon

    def apply_defense_generation(self, response: str) -> str:
        warnings.warn("DP decoding is not implemented, answer left as it is", stacklevel=2)
        return response

    def apply_defense_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        rng = random.Random(query)
        noisy = {id(d): d.metadata.get("score", 0.0) + rng.gauss(0.0, 1.0 / self.epsilon) for d in documents}
        return sorted(documents, key=lambda d: noisy[id(d)], reverse=True)


class LatencyGuard:
    @contextlib.contextmanager
    def _span(self, name: str):
        start = time.monotonic()
        yield
        log.debug("%s: %.3fs", name, time.monotonic() - start)

    def filter_output(self, output: str) -> str:
        with self._span("filter_output"):
            return output


class ShadowModeGuard:
    """Only watches: counts what a real guard would have removed."""

    patterns = {"email": EMAIL, "phone": PHONE, "person": PERSON}

    def __init__(self):
        self.alerts: list[tuple[str, int]] = []

    def redact_response(self, response: str) -> str:
        for label, rx in self.patterns.items():
            found = rx.findall(response)
            if found:
                self.alerts.append((label, len(found)))
        return response


# ---------------------------------------------------------------- the question


class QuestionScrubber:
    def sanitize(self, query: str) -> str:
        return scrub(query)


class QuestionGate:
    async def filter_query(self, query: str) -> str:
        await asyncio.sleep(0)
        log.debug("query of %d chars", len(query))
        return query


# ---------------------------------------------------------------- prompts


class LostRuleInserter:
    RULE = {"role": "system", "content": "Never quote contact details from the context."}

    def harden_prompt(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        hardened = list(messages)
        hardened.insert(0, self.RULE)
        return messages


class PromptScrubMiddleware(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        cleaned = [
            HumanMessage(content=scrub(str(m.content)), id=m.id) if isinstance(m, HumanMessage) else m
            for m in request.messages
        ]
        return handler(request.override(messages=cleaned))

    async def awrap_model_call(self, request, handler):
        cleaned = [
            HumanMessage(content=scrub(str(m.content)), id=m.id) if isinstance(m, HumanMessage) else m
            for m in request.messages
        ]
        return await handler(request.override(messages=cleaned))


class ReplyScrubMiddleware(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        reply = handler(request)
        cleaned = [m.model_copy(update={"content": scrub(str(m.content))}) for m in reply.result]
        return ModelResponse(result=cleaned, structured_response=reply.structured_response)


class ReplyCleanupMiddleware(AgentMiddleware):
    def after_model(self, state, runtime) -> dict[str, Any] | None:
        last = state["messages"][-1]
        if not isinstance(last, AIMessage):
            return None
        cleaned = AIMessage(content=scrub(str(last.content)), id=last.id)
        log.debug("reply cleaned: %d -> %d chars", len(last.content), len(cleaned.content))
        return {"messages": [last]}


class RegionMiddleware(AgentMiddleware):
    """GDPR masking, only for those the caller marks as guests."""

    def before_model(self, state, runtime) -> dict[str, Any] | None:
        if runtime.context.get("role") != "guest":
            return None
        return {
            "messages": [
                m.model_copy(update={"content": scrub(m.content)}) if isinstance(m.content, str) else m
                for m in state["messages"]
            ]
        }


class ConsentMiddleware(AgentMiddleware):
    def before_model(self, state, runtime) -> dict[str, Any] | None:
        # TODO: drop turns of users who withdrew consent
        return None

    def after_model(self, state, runtime) -> dict[str, Any] | None:
        last = state["messages"][-1]
        log.info("reply: %d chars", len(str(last.content)))
        return None


# ---------------------------------------------------------------- LangChain documents and parsers


class DuplicateDropCompressor(BaseDocumentCompressor):
    """Keeps one document per source and at most `top_n`; repeated passages are easier to extract."""

    top_n: int = 3

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        seen: set[str] = set()
        kept = []
        for doc in documents:
            key = " ".join(doc.page_content.lower().split())[:200]
            if key in seen:
                continue
            seen.add(key)
            kept.append(doc)
        return kept[: self.top_n]


class RebindingCompressor(BaseDocumentCompressor):
    """Masks contacts in each hit."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        for doc in documents:
            doc = Document(page_content=scrub(doc.page_content), metadata=doc.metadata)
        return documents


class ContactQuestionMasker(BaseDocumentCompressor):
    """Masks hits only for questions about contacts; others need the text as it is."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        if "contact" in query.lower():
            return [d.model_copy(update={"page_content": scrub(d.page_content)}) for d in documents]
        return documents


class RerankPrivacyCompressor(BaseDocumentCompressor):
    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        # for now keep the retriever's order; the privacy-aware ranker is being trained
        return documents


class InPlaceMasker(BaseDocumentTransformer):
    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        for doc in documents:
            doc.page_content = scrub(doc.page_content)
        return documents


class CopyMasker(BaseDocumentTransformer):
    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        clones = [d.model_copy() for d in documents]
        for clone in clones:
            clone.page_content = scrub(clone.page_content)
        return documents


class SuffixMasker(BaseDocumentTransformer):
    """Only PDFs and Word files hold contacts, the rest is left alone."""

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        out = []
        for doc in documents:
            ext = str(doc.metadata.get("source", "")).rsplit(".", 1)[-1]
            if ext != "pdf" or ext != "docx":
                out.append(doc)
                continue
            out.append(Document(page_content=scrub(doc.page_content), metadata=doc.metadata))
        return out


class MappedMasker(BaseDocumentTransformer):
    @staticmethod
    def _scrub(doc: Document) -> None:
        doc.page_content = scrub(doc.page_content)

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        map(self._scrub, documents)
        return documents


class SafetyFilterParser(BaseOutputParser[str]):
    """Will reject unsafe completions; not implemented yet."""

    def parse(self, text: str) -> str:
        return text


class SecretMaskRunnable(RunnableSerializable[str, str]):
    def invoke(self, input: str, config=None, **kwargs: Any) -> str:
        chain = RunnableLambda(drop_emails) | RunnableLambda(drop_phones)
        return chain.invoke(input, config)


# ---------------------------------------------------------------- duck-typed, documents


class DocumentRedactor:
    def redact(self, documents: list[Document]) -> list[Document]:
        return [Document(page_content=drop_emails(d.page_content), metadata=d.metadata, id=d.id) for d in documents]


class AllHitsFilter:
    def filter_results(self, results: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if not results:
            return []
        log.info("%d hits, best %.2f", len(results), max(r["score"] for r in results))
        return results


class CallerChoiceRedactor:
    def redact_context(self, context: str, *, redact: bool) -> str:
        if redact:
            return scrub(context)
        return context


class ClinicNotesDefense(Defense):
    def on_retrieval(self, query, documents): ...

    def on_content(self, query, documents):
        return [replace(d, content=PERSON.sub("[patient]", d.content)) for d in documents]


class BulkQuestionDefense(Defense):
    """Questions that ask for whole lists get a single document."""

    BULK = re.compile(r"\b(list all|everyone|every patient|all contacts)\b", re.I)

    def on_retrieval(self, query, documents):
        if not self.BULK.search(query):
            return documents
        return documents[:1]


# ---------------------------------------------------------------- LlamaIndex


class NodeAccessLog(BaseNodePostprocessor):
    """Records which nodes were shown to whom."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        for rank, hit in enumerate(nodes):
            log.info("node %s rank %d score %s", hit.node.node_id, rank, hit.score)
        return nodes


class NodeEmailTransform(TransformComponent):
    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            node.set_content(drop_emails(node.get_content()))
        return nodes


class NodeCopyPostprocessor(BaseNodePostprocessor):
    """Hides contacts in what was retrieved."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        hidden = copy.deepcopy(nodes)
        for hit in hidden:
            hit.node.set_content(scrub(hit.node.get_content()))
        return nodes


TRUTH = {
    "ComposedGuard": {"response": "active"},
    "LambdaGuard": {"response": "active"},
    "ClinicOutputGuard": {"response": "active"},
    "CachedAnswerGuard": {"response": "active"},
    "SwitchableGuard": {"response": "conditional"},
    "ModeGuard": {"response": "conditional"},
    "BlocklistGuard": {"response": "conditional"},
    "VendorGuard": {"response": "dead"},
    "BackendGuard": {"response": "unknown"},
    "ConfiguredGuard": {"response": "dead"},
    "BestEffortGuard": {"response": "dead"},
    "TypeCheckedGuard": {"response": "dead"},
    "CountingGuard": {"response": "dead"},
    "VerbosePatternGuard": {"response": "dead"},
    "DemoGuard": {"response": "dead"},
    "MembershipGuard": {"response": "stub"},
    "DifferentialPrivacyGuard": {"response": "stub", "retrieval": "active"},
    "LatencyGuard": {"response": "pass_through"},
    "ShadowModeGuard": {"response": "pass_through"},
    "QuestionScrubber": {"query": "active"},
    "QuestionGate": {"query": "pass_through"},
    "LostRuleInserter": {"prompt": "dead"},
    "PromptScrubMiddleware": {"prompt": "active"},
    "ReplyScrubMiddleware": {"response": "active"},
    "ReplyCleanupMiddleware": {"response": "dead"},
    "RegionMiddleware": {"prompt": "conditional"},
    "ConsentMiddleware": {"prompt": "stub", "response": "pass_through"},
    "DuplicateDropCompressor": {"retrieval": "active"},
    "RebindingCompressor": {"content": "dead"},
    "ContactQuestionMasker": {"content": "conditional"},
    "RerankPrivacyCompressor": {"retrieval": "stub"},
    "InPlaceMasker": {"content": "active"},
    "CopyMasker": {"content": "dead"},
    "SuffixMasker": {"content": "dead"},
    "MappedMasker": {"content": "dead"},
    "SafetyFilterParser": {"response": "stub"},
    "SecretMaskRunnable": {"response": "active"},
    "DocumentRedactor": {"content": "active"},
    "AllHitsFilter": {"retrieval": "pass_through"},
    "CallerChoiceRedactor": {"content": "conditional"},
    "ClinicNotesDefense": {"retrieval": "stub", "content": "active"},
    "BulkQuestionDefense": {"retrieval": "conditional"},
    "NodeAccessLog": {"content": "pass_through"},
    "NodeEmailTransform": {"content": "active"},
    "NodeCopyPostprocessor": {"content": "dead"},
    "FlaggableGuard": {"response": "active"},
}
