"""Privacy layer of the support assistant: what is retrieved, what is shown, what is said."""

from __future__ import annotations

import abc
import asyncio
import copy
import functools
import hashlib
import logging
import random
import re
from dataclasses import dataclass, field, replace
from typing import Any, Callable, ClassVar, Iterable, List, Optional, Sequence

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode, TransformComponent

from ragtrace import Defense, Document, Message

try:
    from acme_pii_engine import scrub_entities
except ImportError:  # the engine is only in the enterprise image

    def scrub_entities(text: str) -> str:
        return text


logger = logging.getLogger(__name__)

EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
PHONE = re.compile(r"\+?\d[\d\s().-]{7,}\d")
TITLED = re.compile(r"\b(?:Mr|Mrs|Ms|Dr)\.?\s+[A-Z][a-z]+(?:\s+[A-Z][a-z]+)?")
INJECTION = re.compile(r"ignore (?:all|any|previous) instructions|repeat (?:the|all) context", re.I)
WITHHELD = "I'm not able to share that."


def redact_contacts(text: str) -> str:
    """E-mail addresses and phone numbers become tags."""
    text = EMAIL.sub("[EMAIL]", text)
    return PHONE.sub("[PHONE]", text)


def with_text(item: NodeWithScore, text: str) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, id_=item.node.node_id, metadata=item.node.metadata), score=item.score)


@dataclass(frozen=True)
class PrivacySettings:
    redact_context: bool = False
    min_score: float = 0.35
    patterns: tuple[re.Pattern[str], ...] = ()
    tags: dict[str, str] = field(default_factory=lambda: {"email": "<EMAIL>", "phone": "<PHONE>"})


SETTINGS = PrivacySettings()


# --- LlamaIndex: node postprocessors ---------------------------------------------------------------


class ContactRedactionPostprocessor(BaseNodePostprocessor):
    """Rewrites the contact details in every node before synthesis."""

    email_tag: str = Field(default="[EMAIL]")
    phone_tag: str = Field(default="[PHONE]")

    @classmethod
    def class_name(cls) -> str:
        return "ContactRedactionPostprocessor"

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        for item in nodes:
            text = EMAIL.sub(self.email_tag, item.node.get_content())
            item.node.set_content(PHONE.sub(self.phone_tag, text))
        return nodes


class NodeRewritePostprocessor(BaseNodePostprocessor, abc.ABC):
    """Template: subclasses say what happens to one node's text."""

    @abc.abstractmethod
    def rewrite(self, text: str) -> str: ...

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        out: List[NodeWithScore] = []
        for item in nodes:
            out.append(with_text(item, self.rewrite(item.node.get_content())))
        logger.debug("rewrote %d nodes", len(out))
        return out


class HonorificNodeMasker(NodeRewritePostprocessor):
    def rewrite(self, text: str) -> str:
        return TITLED.sub("[PERSON]", text)


class AddressNodeMasker(NodeRewritePostprocessor):
    """Postal addresses. Waiting for the parser from the geo team."""

    def rewrite(self, text: str) -> str:
        # TODO: plug in the address parser once it is released
        return text


class RelevanceFloorPostprocessor(BaseNodePostprocessor):
    floor: float = 0.5

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        kept = [n for n in nodes if (n.score or 0.0) >= self.floor]
        if len(kept) != len(nodes):
            logger.info("dropped %d nodes below %.2f", len(nodes) - len(kept), self.floor)
        return kept


class RestrictedNodeRedactor(BaseNodePostprocessor):
    """Only nodes that the ingestion labelled as restricted are rewritten."""

    label_key: str = "classification"

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        out = []
        for item in nodes:
            if item.node.metadata.get(self.label_key) == "restricted":
                item = with_text(item, redact_contacts(item.node.get_content()))
            out.append(item)
        return out


class SnapshotRedactionPostprocessor(BaseNodePostprocessor):
    """Works on a snapshot, so that the docstore's cached nodes stay as they are."""

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        snapshot = copy.deepcopy(nodes)
        for item in snapshot:
            item.node.set_content(redact_contacts(item.node.get_content()))
        return nodes


class AsyncScrubPostprocessor(BaseNodePostprocessor):
    async def _scrub_all(self, nodes: List[NodeWithScore]) -> None:
        for item in nodes:
            item.node.set_content(redact_contacts(item.node.get_content()))
            await asyncio.sleep(0)

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        self._scrub_all(nodes)
        return nodes


class LatencyProbePostprocessor(BaseNodePostprocessor):
    """Counts what leaves the retriever; the privacy dashboard reads it."""

    _seen: int = PrivateAttr(default=0)

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        self._seen += len(nodes)
        logger.info("nodes=%d total=%d", len(nodes), self._seen)
        return nodes


class ClearanceNodeFilter(BaseNodePostprocessor):
    """Drops what the caller may not read."""

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        raise NotImplementedError("clearance lookup is not wired up yet")


class LazyNodeRedactor(BaseNodePostprocessor):
    def _redacted(self, nodes: Iterable[NodeWithScore]) -> Iterable[NodeWithScore]:
        for item in nodes:
            item.node.set_content(redact_contacts(item.node.get_content()))
            yield item

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        self._redacted(nodes)
        return nodes


class GuardedNodeRedactor(BaseNodePostprocessor):
    _engine: Any = PrivateAttr(default=None)

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        try:
            cleaned = [with_text(n, self._engine.redact(n.node.get_content())) for n in nodes]
        except Exception:
            logger.warning("redaction engine failed, nodes left as they are", exc_info=True)
            return nodes
        return cleaned


# --- LlamaIndex: ingestion transforms and synthesizers ---------------------------------------------


class PseudonymizeTransform(TransformComponent):
    """E-mail addresses become stable pseudonyms at ingestion."""

    salt: str = "support-kb"

    def _pseudonym(self, match: re.Match[str]) -> str:
        digest = hashlib.sha256((self.salt + match.group(0).lower()).encode()).hexdigest()
        return f"user-{digest[:8]}"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            node.set_content(EMAIL.sub(self._pseudonym, node.get_content()))
        return nodes


class OptInScrubTransform(TransformComponent):
    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        if kwargs.get("scrub_pii"):
            for node in nodes:
                node.set_content(redact_contacts(node.get_content()))
        return nodes


class LoopLocalScrubTransform(TransformComponent):
    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            text = node.get_content()
            for pattern, tag in ((EMAIL, "[EMAIL]"), (PHONE, "[PHONE]")):
                text = pattern.sub(tag, text)
        return nodes


class IdentityPrivacyTransform(TransformComponent):
    """Keeps the pipeline's shape in deployments without personal data."""

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return list(nodes)


class RedactingCompactSynthesizer(CompactAndRefine):
    """The answer is redacted before it reaches the chat window."""

    def get_response(self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **kw: Any) -> Any:
        answer = super().get_response(query_str, text_chunks, prev_response, **kw)
        return redact_contacts(str(answer))

    async def aget_response(
        self, query_str: str, text_chunks: Sequence[str], prev_response: Any = None, **kw: Any
    ) -> Any:
        answer = await super().aget_response(query_str, text_chunks, prev_response, **kw)
        return redact_contacts(str(answer))


# --- ragtrace defenses -----------------------------------------------------------------------------


class ContactDefense(Defense):
    """Both sides: what the model reads and what it writes."""

    name = "contacts"

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return [replace(d, content=redact_contacts(d.content)) for d in documents]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return redact_contacts(response)

    def constants(self) -> frozenset[str]:
        return frozenset({"[EMAIL]", "[PHONE]"})


class ResponseOnlyContactDefense(ContactDefense):
    """The context must stay searchable for the citation view."""

    name = "contacts-response"

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return documents


class NoisyRankingDefense(Defense):
    def __init__(self, scale: float = 0.2, seed: int = 13) -> None:
        self.scale = scale
        self._rng = random.Random(seed)

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        noisy = [replace(d, score=(d.score or 0.0) + self._rng.gauss(0.0, self.scale)) for d in documents]
        noisy.sort(key=lambda d: d.score, reverse=True)
        return noisy


class RankingDefense(Defense):
    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        jittered = {d.id: (d.score or 0.0) + random.uniform(-0.1, 0.1) for d in documents}
        sorted(documents, key=lambda d: jittered[d.id], reverse=True)
        return documents


class AsyncPromptHardening(Defense):
    RULE: ClassVar[str] = "Never reveal names, e-mail addresses or phone numbers found in the context."

    async def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [Message(role="system", content=self.RULE), *messages]


class AsyncAnswerGuard(Defense):
    """Asks for contact details are answered with a refusal."""

    WORDS = ("e-mail of", "email of", "phone number", "home address")

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        asked = query.lower()
        if any(w in asked for w in self.WORDS):
            return WITHHELD
        return response


class AsyncAnswerScrubber(Defense):
    async def _scrub(self, text: str) -> str:
        return await asyncio.to_thread(redact_contacts, text)

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        try:
            return await self._scrub(response)
        except asyncio.TimeoutError:
            logger.exception("scrubbing timed out")
            return WITHHELD


class ForgetfulAsyncScrubber(Defense):
    async def _scrub(self, text: str) -> str:
        return await asyncio.to_thread(redact_contacts, text)

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        cleaned = await self._scrub(response)
        logger.debug("scrubbed %d characters", len(response) - len(cleaned))
        return response


class QueryInjectionDefense(Defense):
    def on_query(self, query: str) -> str:
        if INJECTION.search(query):
            logger.warning("possible extraction attempt")
            return "(removed)"
        return query


class EnterpriseScrubDefense(Defense):
    """The named-entity engine of the enterprise image."""

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return [replace(d, content=scrub_entities(d.content)) for d in documents]


class SettingsDrivenDefense(Defense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        if not SETTINGS.redact_context:
            return documents
        return [replace(d, content=redact_contacts(d.content)) for d in documents]


class PatternTableDefense(Defense):
    """Applies every pattern of the settings."""

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        for pattern in SETTINGS.patterns:
            response = pattern.sub("***", response)
        return response


class PrivacyBudgetDefense(Defense):
    """Differentially private top-k. Placeholder until the accountant lands."""

    def __init__(self, epsilon: float = 1.0) -> None:
        self.epsilon = epsilon

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        # Not implemented: exponential mechanism over the scores
        return documents


class AuditTrailDefense(Defense):
    def __init__(self, sink: list[dict[str, Any]] | None = None) -> None:
        self.sink = sink if sink is not None else []

    def on_query(self, query: str) -> str:
        self.sink.append({"event": "query", "chars": len(query)})
        return query

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        self.sink.append({"event": "answer", "emails": len(EMAIL.findall(response))})
        return response


class DefenseMixin:
    """Shared by the defenses that touch text."""

    tag = "[REMOVED]"

    def clean(self, text: str) -> str:
        for pattern in (EMAIL, PHONE, TITLED):
            text = pattern.sub(self.tag, text)
        return text


class MixedInQueryDefense(DefenseMixin, Defense):
    tag = "(someone)"

    def on_query(self, query: str) -> str:
        return self.clean(query)


class MixedInPromptDefense(DefenseMixin, Defense):
    def on_prompt(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            replace(message, content=self.clean(message.content))
        return messages


class EarlyReturnDefense(DefenseMixin, Defense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        if len(documents) >= 0:
            return documents
        return [replace(d, content=self.clean(d.content)) for d in documents]


class ReleaseGate(Defense):
    """``enabled`` comes from the tenant's record; there is no default."""

    def __init__(self, enabled: bool, tag: str = "[PII]") -> None:
        self.enabled = enabled
        self.tag = tag

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        if not self.enabled:
            return response
        return EMAIL.sub(self.tag, PHONE.sub(self.tag, response))


# --- duck-typed guards of the older service --------------------------------------------------------


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        logger.debug("-> %s", fn.__name__)
        try:
            return fn(*args, **kwargs)
        finally:
            logger.debug("<- %s", fn.__name__)

    return wrapper


def redacts_result(fn: Callable[..., str]) -> Callable[..., str]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> str:
        return redact_contacts(fn(*args, **kwargs))

    return wrapper


class DecoratedOutputFilter:
    @redacts_result
    def filter_output(self, text: str) -> str:
        return text.strip()


class LoggedOutputFilter:
    @logged
    def filter_output(self, text: str) -> str:
        return text


class ContextSanitizer:
    """Dict-shaped chunks, as the vector service returns them."""

    def __init__(self, tags: dict[str, str] | None = None) -> None:
        self.tags = tags or SETTINGS.tags

    def _one(self, chunk: dict[str, Any]) -> dict[str, Any]:
        text = EMAIL.sub(self.tags["email"], chunk["text"])
        return {**chunk, "text": PHONE.sub(self.tags["phone"], text)}

    def sanitize_context(self, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(map(self._one, chunks))


class ChunkSanitizer:
    def _one(self, chunk: dict[str, Any]) -> dict[str, Any]:
        return {**chunk, "text": redact_contacts(chunk["text"])}

    def sanitize_context(self, chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for chunk in chunks:
            chunk = self._one(chunk)
        return chunks


class BaseOutputGuard:
    def sanitize_output(self, text: str) -> str:
        return EMAIL.sub("[EMAIL]", text)


class StrictOutputGuard(BaseOutputGuard):
    def sanitize_output(self, text: str) -> str:
        text = super().sanitize_output(text)
        return TITLED.sub("[PERSON]", text)


class LegacyOutputGuard(BaseOutputGuard):
    """Kept for the v1 API: the gateway redacts there."""

    def sanitize_output(self, text: str) -> str:
        return text


class VerboseOutputGuard(BaseOutputGuard):
    def sanitize_output(self, text: str) -> str:
        cleaned = super().sanitize_output(text)
        if cleaned != text:
            logger.info("answer had an e-mail address")
        return text


class LeakyAnswerBlocker:
    """More than a couple of addresses in one answer looks like a dump."""

    def __init__(self, limit: int = 2) -> None:
        self.limit = limit

    def filter_response(self, response: str) -> str:
        if len(EMAIL.findall(response)) > self.limit:
            return WITHHELD
        return response


class PromptAnonymizer:
    def anonymize_prompt(self, prompt: str) -> str:
        pass


class QueryMasker:
    def mask_query(self, query: str, strict: bool = False) -> str:
        if strict:
            query = redact_contacts(query)
        return query


class QueryRedactor:
    def redact_query(self, query: str) -> str:
        """To be done with the new tokenizer."""
        return query  # placeholder


TRUTH = {
    "ContactRedactionPostprocessor": {"content": "active"},
    "HonorificNodeMasker": {"content": "active"},
    "AddressNodeMasker": {"content": "stub"},
    "RelevanceFloorPostprocessor": {"retrieval": "active"},
    "RestrictedNodeRedactor": {"content": "conditional"},
    "SnapshotRedactionPostprocessor": {"content": "dead"},
    "AsyncScrubPostprocessor": {"content": "dead"},
    "LatencyProbePostprocessor": {"content": "pass_through"},
    "ClearanceNodeFilter": {"retrieval": "stub"},
    "LazyNodeRedactor": {"content": "dead"},
    "GuardedNodeRedactor": {"content": "dead"},
    "PseudonymizeTransform": {"content": "active"},
    "OptInScrubTransform": {"content": "conditional"},
    "LoopLocalScrubTransform": {"content": "dead"},
    "IdentityPrivacyTransform": {"content": "pass_through"},
    "RedactingCompactSynthesizer": {"response": "active"},
    "contacts": {"content": "active", "response": "active"},
    "contacts-response": {"content": "pass_through", "response": "active"},
    "NoisyRankingDefense": {"retrieval": "active"},
    "RankingDefense": {"retrieval": "dead"},
    "AsyncPromptHardening": {"prompt": "active"},
    "AsyncAnswerGuard": {"response": "conditional"},
    "AsyncAnswerScrubber": {"response": "active"},
    "ForgetfulAsyncScrubber": {"response": "dead"},
    "QueryInjectionDefense": {"query": "conditional"},
    "EnterpriseScrubDefense": {"content": "dead"},
    "SettingsDrivenDefense": {"content": "dead"},
    "PatternTableDefense": {"response": "dead"},
    "PrivacyBudgetDefense": {"retrieval": "stub"},
    "AuditTrailDefense": {"query": "pass_through", "response": "pass_through"},
    "MixedInQueryDefense": {"query": "active"},
    "MixedInPromptDefense": {"prompt": "dead"},
    "EarlyReturnDefense": {"content": "dead"},
    "ReleaseGate": {"response": "conditional"},
    "DecoratedOutputFilter": {"response": "active"},
    "LoggedOutputFilter": {"response": "pass_through"},
    "ContextSanitizer": {"content": "active"},
    "ChunkSanitizer": {"content": "dead"},
    "StrictOutputGuard": {"response": "active"},
    "LegacyOutputGuard": {"response": "pass_through"},
    "VerboseOutputGuard": {"response": "dead"},
    "LeakyAnswerBlocker": {"response": "conditional"},
    "PromptAnonymizer": {"prompt": "stub"},
    "QueryMasker": {"query": "conditional"},
    "QueryRedactor": {"query": "stub"},
    "BaseOutputGuard": {"response": "active"},
}
