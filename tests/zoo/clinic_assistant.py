"""Guards of the clinic's assistant: retrieval, context, prompt, answer."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import itertools
import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, List, Optional

from langchain_core.documents import Document as LCDocument
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode, TransformComponent

from ragtrace import Defense, Document, Message

log = logging.getLogger("clinic.privacy")

MAIL_RE = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b")
PHONE_RE = re.compile(r"(?:\+\d{1,3}[ -]?)?\(?\d{3}\)?[ -]?\d{3}[ -]?\d{4}")
SSN_RE = re.compile(r"\b\d{3}-\d{2}-\d{4}\b")
DOCTOR_RE = re.compile(r"\bDr\.? [A-Z]\w+(?: [A-Z]\w+)?")
KEY_RE = re.compile(r"\bsk-[A-Za-z0-9]{16,}")
UPPER_MRN_RE = re.compile(r"\bMRN[A-Z]\d{6}\b")

RULES: list[tuple[re.Pattern[str], str]] = [(MAIL_RE, "<mail>"), (PHONE_RE, "<phone>"), (SSN_RE, "<ssn>")]
EXTRA_TERMS: tuple[str, ...] = ()
SAFE_ANSWER = "Please contact the front desk for that."


class Level(str, Enum):
    OFF = "off"
    BASIC = "basic"
    FULL = "full"


@dataclass
class GuardConfig:
    level: Level = Level.BASIC


def apply_rules(text: str, rules: Iterable[tuple[re.Pattern[str], str]] = RULES) -> str:
    return functools.reduce(lambda acc, rule: rule[0].sub(rule[1], acc), rules, text)


def make_masker(pattern: re.Pattern[str], char: str = "*") -> Callable[[str], str]:
    def mask_one(match: re.Match[str]) -> str:
        found = match.group(0)
        return found[0] + char * (len(found) - 1)

    def masker(text: str) -> str:
        return pattern.sub(mask_one, text)

    return masker


def drop_system_hints(messages: list[Message]) -> None:
    messages = [Message(m.role, apply_rules(m.content)) for m in messages]
    log.debug("prompt of %d messages cleaned", len(messages))


async def remote_scrub(text: str) -> str:
    """The scrubbing service runs in-process for now."""
    await asyncio.sleep(0)
    return apply_rules(text)


# --- hierarchy of ragtrace defenses ----------------------------------------------------------------


class ClinicDefense(Defense, ABC):
    """Runs ``transform`` over the stage's text; subclasses give it."""

    def __init__(self, config: GuardConfig | None = None) -> None:
        self.config = config or GuardConfig()

    @abstractmethod
    def transform(self, text: str) -> str: ...


class ContextDefense(ClinicDefense):
    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return [self._rewrite(d) for d in documents]

    def _rewrite(self, document: Document) -> Document:
        return replace(document, content=self.transform(document.content))


class AnswerDefense(ClinicDefense):
    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        if not response:
            return response
        return self.transform(response)


class RuleContextDefense(ContextDefense):
    def transform(self, text: str) -> str:
        return apply_rules(text)


class PartialMaskContextDefense(ContextDefense):
    """First letter stays, so that staff recognise their own records."""

    _maskers = (make_masker(MAIL_RE), make_masker(PHONE_RE, "#"))

    def transform(self, text: str) -> str:
        for masker in self._maskers:
            text = masker(text)
        return text


class DiagnosisContextDefense(ContextDefense):
    def transform(self, text: str) -> str:
        """Generalise diagnosis codes. Not implemented yet; identity for the time being."""
        return text


class TermListAnswerDefense(AnswerDefense):
    """Strikes out the terms of the block list."""

    def transform(self, text: str) -> str:
        for term in EXTRA_TERMS:
            text = re.sub(re.escape(term), "[...]", text, flags=re.IGNORECASE)
        return text


class RecordNumberAnswerDefense(AnswerDefense):
    """Record numbers, whatever their case."""

    def transform(self, text: str) -> str:
        if UPPER_MRN_RE.search(text.lower()):
            return SAFE_ANSWER
        return text


class LevelledAnswerDefense(ClinicDefense):
    """What is masked depends on the level the caller's session carries."""

    def __init__(self, level: Level) -> None:
        super().__init__(GuardConfig(level=level))

    def transform(self, text: str) -> str:
        match self.config.level:
            case Level.FULL:
                return DOCTOR_RE.sub("<doctor>", apply_rules(text))
            case Level.BASIC:
                return apply_rules(text)
            case _:
                return text

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        return self.transform(response)


class UnwiredAnswerDefense(AnswerDefense):
    """Overrides the template to also count, and loses the result on the way."""

    def __init__(self, config: GuardConfig | None = None) -> None:
        super().__init__(config)
        self.hits = 0

    def transform(self, text: str) -> str:
        return apply_rules(text)

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        safe = super().on_response(query, documents, response)
        self.hits += int(safe != response)
        return response


class EchoAnswerDefense(AnswerDefense):
    """For the staff-only deployment: nothing is hidden from clinicians."""

    def transform(self, text: str) -> str:
        return text


class CooperativeMail:
    def clean(self, text: str) -> str:
        return MAIL_RE.sub("<mail>", text)


class CooperativePhone(CooperativeMail):
    def clean(self, text: str) -> str:
        return PHONE_RE.sub("<phone>", super().clean(text))


class CooperativeQueryDefense(CooperativePhone, Defense):
    def on_query(self, query: str) -> str:
        return self.clean(query)

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        return [m if m.role == "system" else replace(m, content=self.clean(m.content)) for m in messages]


class ScoreHistogramDefense(Defense):
    """Watches for scraping: how the scores of a session are spread."""

    def __init__(self, bins: int = 10) -> None:
        self.bins = bins
        self.histogram = [0] * bins

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        for document in documents:
            slot = min(int((document.score or 0.0) * self.bins), self.bins - 1)
            self.histogram[slot] += 1
        return documents


class BucketedScoreDefense(Defense):
    """Scores in coarse buckets, against membership inference."""

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        for document in documents:
            if document.score is None:
                continue
            document.score = 0.5 if document.score >= 0.5 else 0.0
        return documents


class CopiedScoreDefense(Defense):
    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        for document in [copy.copy(d) for d in documents]:
            document.score = round(document.score or 0.0)
        return documents


class BulkExtractionDefense(Defense):
    """Requests for everything get no documents at all."""

    BULK: ClassVar[re.Pattern[str]] = re.compile(r"\b(?:list|show|dump) (?:all|every)\b", re.I)

    def on_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        return [] if self.BULK.search(query) else documents


class RebindingPromptDefense(Defense):
    def on_prompt(self, messages: list[Message]) -> list[Message]:
        drop_system_hints(messages)
        return messages


class GatheredContentDefense(Defense):
    async def _clean(self, document: Document) -> Document:
        return replace(document, content=await remote_scrub(document.content))

    async def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        return list(await asyncio.gather(*(self._clean(d) for d in documents)))


class UngatheredContentDefense(Defense):
    async def _clean(self, document: Document) -> None:
        document.content = await remote_scrub(document.content)

    async def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        for document in documents:
            self._clean(document)
        return documents


class TimedResponseDefense(Defense):
    def __init__(self, timeout: float = 2.0) -> None:
        self.timeout = timeout

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        try:
            return await asyncio.wait_for(remote_scrub(response), timeout=self.timeout)
        except asyncio.TimeoutError:
            log.error("scrubbing service too slow")
            return SAFE_ANSWER


class AsyncMinorsDefense(Defense):
    """Answers about minors: legal has not decided what to hide."""

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        raise NotImplementedError


class AsyncTraceDefense(Defense):
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.answers = 0

    async def on_response(self, query: str, documents: list[Document], response: str) -> str:
        async with self._lock:
            self.answers += 1
        return response


class SealedDocumentDefense(Defense):
    async def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        out: list[Document] = []
        for document in documents:
            if document.metadata.get("confidential"):
                document = replace(document, content=await remote_scrub(document.content))
            out.append(document)
        return out


# --- LlamaIndex ------------------------------------------------------------------------------------


class StrategyNodePostprocessor(BaseNodePostprocessor):
    """Runs the strategies in order over each node's text."""

    _strategies: list[Callable[[str], str]] = PrivateAttr(default_factory=list)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._strategies = [apply_rules, functools.partial(KEY_RE.sub, "<key>")]

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        for item in nodes:
            text = item.node.get_content()
            for strategy in self._strategies:
                text = strategy(text)
            item.node.set_content(text)
        return nodes


class ReplacingNodePostprocessor(BaseNodePostprocessor):
    """``str.replace`` for the few addresses we own."""

    OWN: ClassVar[dict[str, str]] = {"jane.smith@example.com": "<desk>", "+1 415 555 0134": "<desk>"}

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        for item in nodes:
            text = item.node.get_content()
            for address, desk in self.OWN.items():
                text.replace(address, desk)
            item.node.set_content(text)
        return nodes


class ShadowedTextNodePostprocessor(BaseNodePostprocessor):
    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        result = []
        for item in nodes:
            original = item.node.get_content()
            cleaned = apply_rules(original)
            log.debug("%s: %d -> %d chars", item.node.node_id, len(original), len(cleaned))
            result.append(
                NodeWithScore(
                    node=TextNode(text=original, id_=item.node.node_id, metadata=item.node.metadata), score=item.score
                )
            )
        return result


class NativeAsyncNodePostprocessor(BaseNodePostprocessor):
    """Real work in the async path; the sync one drives it."""

    async def _apostprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        texts = await asyncio.gather(*[remote_scrub(n.node.get_content()) for n in nodes])
        for item, text in zip(nodes, texts):
            item.node.set_content(text)
        return nodes

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        return asyncio.run(self._apostprocess_nodes(nodes, query_bundle))


class ContactIntentNodePostprocessor(BaseNodePostprocessor):
    """Scrubs when the question is about people, not medicine."""

    def _wants_contact(self, query_bundle: Optional[QueryBundle]) -> bool:
        asked = query_bundle.query_str.lower() if query_bundle else ""
        return any(word in asked for word in ("email", "phone", "address of"))

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        if not self._wants_contact(query_bundle):
            return nodes
        for item in nodes:
            item.node.set_content(apply_rules(item.node.get_content()))
        return nodes


class ReviewQueueNodePostprocessor(BaseNodePostprocessor):
    """Remembers which records were shown, for the yearly access review."""

    _shown: set[str] = PrivateAttr(default_factory=set)

    def _remember(self, nodes: List[NodeWithScore]) -> List[NodeWithScore]:
        self._shown.update(n.node.node_id for n in nodes)
        return nodes

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        return self._remember(nodes)

    async def _apostprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        return self._remember(nodes)


class SwitchedNodePostprocessor(BaseNodePostprocessor):
    """Redaction was rolled out by a switch, which was never turned."""

    ROLLED_OUT: ClassVar[bool] = False

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        if self.ROLLED_OUT:
            for item in nodes:
                item.node.set_content(apply_rules(item.node.get_content()))
        return nodes


class ConsentNodePostprocessor(BaseNodePostprocessor):
    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        """Drop patients without consent."""
        # TODO(anna): the consent registry has no API yet
        return nodes


class PassiveNodePostprocessor(BaseNodePostprocessor):
    """Used where a postprocessor is required and none is wanted."""

    def _postprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        return [node for node in nodes]


class RuleTransform(TransformComponent):
    def _clean(self, node: BaseNode) -> BaseNode:
        clone = node.model_copy()
        clone.set_content(apply_rules(node.get_content()))
        return clone

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return [self._clean(node) for node in nodes]


class ClonedRuleTransform(RuleTransform):
    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        cleaned = super().__call__(nodes, **kwargs)
        log.info("ingested %d nodes", len(cleaned))
        return nodes


class HandoverTransform(TransformComponent):
    """Handover notes: shift names are to be generalised (role instead of name)."""

    roles: tuple[str, ...] = ("nurse", "physician")

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        log.warning("handover notes are ingested as they are, %d roles configured", len(self.roles))
        # FIXME: name -> role mapping still missing, temporarily hand the nodes back untouched
        return nodes


# --- duck-typed ------------------------------------------------------------------------------------


class StreamRedactor:
    """Sentence by sentence, as the answer is streamed."""

    async def _sentences(self, text: str) -> AsyncIterator[str]:
        for sentence in re.split(r"(?<=[.!?])(\s+)", text):
            yield sentence

    async def redact_response(self, text: str) -> str:
        parts = [apply_rules(s) async for s in self._sentences(text)]
        return "".join(parts)


class StalledStreamRedactor:
    def _redacted(self, text: str) -> Iterator[str]:
        for line in text.splitlines(keepends=True):
            yield apply_rules(line)

    def redact_response(self, text: str) -> str:
        stream = self._redacted(text)
        log.debug("redacting with %r", stream)
        return text


class CachedOutputMasker:
    def __init__(self) -> None:
        self._cache: dict[str, str] = {}

    def mask_output(self, text: str) -> str:
        if text in self._cache:
            return self._cache[text]
        masked = apply_rules(text)
        self._cache[text] = masked
        return masked


class LoggingOutputMasker:
    def mask_output(self, text: str) -> str:
        result = text
        try:
            masked = apply_rules(text)
            log.debug("masked %d characters", len(masked))
        except re.error:
            log.exception("bad rule")
        return result


class BrokenImportSanitizer:
    """The library moved; nobody saw, since errors are only logged."""

    def sanitize_response(self, text: str) -> str:
        with contextlib.suppress(ImportError):
            from clinic_legacy_scrubber import scrub_all

            text = scrub_all(text)
        return text


class ContextLineFilter:
    """Lines with a contact detail are left out of the context."""

    @staticmethod
    def _is_clean(line: str) -> bool:
        return not (MAIL_RE.search(line) or PHONE_RE.search(line))

    def sanitize_context(self, context: str) -> str:
        return "\n".join(itertools.filterfalse(lambda ln: not self._is_clean(ln), context.split("\n")))


class DocumentAnonymizer:
    def __init__(self, config: GuardConfig | None = None) -> None:
        self._config = config or GuardConfig()

    @functools.cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], str]]:
        return [*RULES, (DOCTOR_RE, "<doctor>")]

    def anonymize_documents(self, documents: list[LCDocument]) -> list[LCDocument]:
        return [
            LCDocument(page_content=apply_rules(d.page_content, self._rules), metadata=d.metadata) for d in documents
        ]


class DetachedDocumentAnonymizer:
    def anonymize_documents(self, documents: list[LCDocument]) -> list[LCDocument]:
        contents = [d.page_content for d in documents]
        for i, content in enumerate(contents):
            contents[i] = apply_rules(content)
        return documents


class ScopedPromptGuard:
    """``audience`` is given with each call by the channel's adapter."""

    def sanitize_prompt(self, prompt: str, audience: str = "staff") -> str:
        if audience == "public":
            return apply_rules(prompt)
        return prompt


class KeyLeakGuard:
    def filter_generation(self, text: str) -> str:
        if KEY_RE.search(text) is not None:
            log.critical("answer held an API key")
            return SAFE_ANSWER
        return text


class HandlerChainGuard:
    """One handler for each kind of detail, in the order of the table."""

    def __init__(self) -> None:
        self._handlers: dict[str, Callable[[str], str]] = {"mail": self._mail, "doctor": self._doctor}

    def _mail(self, text: str) -> str:
        return MAIL_RE.sub("<mail>", text)

    def _doctor(self, text: str) -> str:
        return DOCTOR_RE.sub("<doctor>", text)

    def protect_response(self, text: str) -> str:
        for handler in self._handlers.values():
            text = handler(text)
        return text


class QuerySanitizer:
    def sanitize_query(self, query: str) -> str: ...


class QueryTrimmer:
    """The privacy review asked for one entry point; so far queries need nothing."""

    def protect_query(self, query: str) -> str:
        log.debug("query of %d characters from pid %d", len(query), os.getpid())
        return query


TRUTH = {
    "RuleContextDefense": {"content": "active"},
    "PartialMaskContextDefense": {"content": "active"},
    "DiagnosisContextDefense": {"content": "stub"},
    "TermListAnswerDefense": {"response": "dead"},
    "RecordNumberAnswerDefense": {"response": "dead"},
    "LevelledAnswerDefense": {"response": "conditional"},
    "UnwiredAnswerDefense": {"response": "dead"},
    "EchoAnswerDefense": {"response": "pass_through"},
    "CooperativeQueryDefense": {"query": "active", "prompt": "active"},
    "ScoreHistogramDefense": {"retrieval": "pass_through"},
    "BucketedScoreDefense": {"retrieval": "active"},
    "CopiedScoreDefense": {"retrieval": "dead"},
    "BulkExtractionDefense": {"retrieval": "conditional"},
    "RebindingPromptDefense": {"prompt": "dead"},
    "GatheredContentDefense": {"content": "active"},
    "UngatheredContentDefense": {"content": "dead"},
    "TimedResponseDefense": {"response": "active"},
    "AsyncMinorsDefense": {"response": "stub"},
    "AsyncTraceDefense": {"response": "pass_through"},
    "SealedDocumentDefense": {"content": "conditional"},
    "StrategyNodePostprocessor": {"content": "active"},
    "ReplacingNodePostprocessor": {"content": "dead"},
    "ShadowedTextNodePostprocessor": {"content": "dead"},
    "NativeAsyncNodePostprocessor": {"content": "active"},
    "ContactIntentNodePostprocessor": {"content": "conditional"},
    "ReviewQueueNodePostprocessor": {"content": "pass_through"},
    "SwitchedNodePostprocessor": {"content": "dead"},
    "ConsentNodePostprocessor": {"retrieval": "stub"},
    "PassiveNodePostprocessor": {"content": "pass_through"},
    "RuleTransform": {"content": "active"},
    "ClonedRuleTransform": {"content": "dead"},
    "HandoverTransform": {"content": "stub"},
    "StreamRedactor": {"response": "active"},
    "StalledStreamRedactor": {"response": "dead"},
    "CachedOutputMasker": {"response": "active"},
    "LoggingOutputMasker": {"response": "dead"},
    "BrokenImportSanitizer": {"response": "dead"},
    "ContextLineFilter": {"content": "active"},
    "DocumentAnonymizer": {"content": "active"},
    "DetachedDocumentAnonymizer": {"content": "dead"},
    "ScopedPromptGuard": {"prompt": "conditional"},
    "KeyLeakGuard": {"response": "conditional"},
    "HandlerChainGuard": {"response": "active"},
    "QuerySanitizer": {"query": "stub"},
    "QueryTrimmer": {"query": "pass_through"},
}
