"""Privacy helpers collected from the support-bot, the contracts RAG and the HR assistant."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import hashlib
import logging
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.runnables import Runnable, RunnableLambda

from ragtrace import Defense

try:
    from acme_dlp_client import DlpSession
except ImportError:
    DlpSession = None

logger = logging.getLogger(__name__)

EMAIL_RE = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
PHONE_RE = re.compile(r"\+?\d[\d\s().-]{7,}\d")
SSN_RE = re.compile(r"\b\d{3}-\d{2}-\d{4}\b")
TENANT_PATTERNS: tuple[re.Pattern[str], ...] = ()
NAME_RE = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")


def mask_pii(text: str) -> str:
    """Replace e-mails and phone numbers."""
    text = EMAIL_RE.sub("[EMAIL]", text)
    return PHONE_RE.sub("[PHONE]", text)


def scrub_return(fn):
    """Decorator: whatever string the function returns is scrubbed first."""

    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return mask_pii(fn(*args, **kwargs))

    return wrapper


# --------------------------------------------------------------------------- answers


class DecoratedAnswerGuard:
    """The decorator does the work."""

    @scrub_return
    def filter_output(self, output: str) -> str:
        return output.strip()


class AsyncAnswerSanitizer:
    async def _mask(self, text: str) -> str:
        await asyncio.sleep(0)
        return mask_pii(text)

    async def sanitize_response(self, response: str) -> str:
        return await self._mask(response)


class FireAndForgetSanitizer:
    async def _mask(self, text: str) -> str:
        await asyncio.sleep(0)
        return mask_pii(text)

    def sanitize_response(self, response: str) -> str:
        self._mask(response)
        return response


class AnswerReplaceGuard:
    """Strips e-mails from what the model said."""

    def mask_output(self, output: str) -> str:
        for hit in EMAIL_RE.findall(output):
            output.replace(hit, "***")
        return output


class LegacyPhoneScrubber:
    # North American numbers only
    PHONE = re.compile("\b\\d{3}[-.]\\d{3}[-.]\\d{4}\b")

    def scrub_text(self, text: str) -> str:
        return self.PHONE.sub("[phone]", text)


class ConfidentialAnswerGate:
    refusal = "I'm sorry, I can't share that."

    def filter_response(self, response: str) -> str:
        if "confidential" in response.lower():
            logger.warning("confidential marker in answer, withholding")
            return self.refusal
        return response


class EntityRecognizerGuard:
    """NER based anonymisation of answers."""

    def __init__(self, lang: str = "en"):
        self.lang = lang

    def anonymize_output(self, output: str) -> str:
        # TODO: plug in the NER model once it is hosted (PRIV-212)
        return output


class AnswerAuditTrail:
    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.digests: list[str] = []

    def filter_generation(self, response: str) -> str:
        self.counts["email"] += len(EMAIL_RE.findall(response))
        self.counts["phone"] += len(PHONE_RE.findall(response))
        self.digests.append(hashlib.sha256(response.encode()).hexdigest())
        return response


class DlpBackedGuard:
    """Uses the DLP appliance where its client is installed."""

    def __init__(self):
        self.session = DlpSession(region="eu") if DlpSession is not None else None

    def protect_response(self, response: str) -> str:
        if self.session is None:
            return response
        return self.session.redact(response)


class InjectedAnonymizerGuard:
    def __init__(self, anonymizer: Callable[[str], str]):
        self._anonymizer = anonymizer

    def anonymize_text(self, text: str) -> str:
        return self._anonymizer(text)


class EchoingPseudonymizer:
    """Same person, same pseudonym (kept in memory)."""

    def __init__(self):
        self._known: dict[str, str] = {}

    def _alias(self, match: re.Match[str]) -> str:
        name = match.group(0)
        if name not in self._known:
            self._known[name] = f"Person-{len(self._known) + 1}"
        return name

    def pseudonymize(self, text: str) -> str:
        return NAME_RE.sub(self._alias, text)


# --------------------------------------------------------------------------- mixins, super()


class BaseAnswerFilter:
    def filter_output(self, output: str) -> str:
        return output


class SsnMixin:
    def filter_output(self, output: str) -> str:
        output = super().filter_output(output)
        return SSN_RE.sub("XXX-XX-XXXX", output)


class EmailMixin:
    def filter_output(self, output: str) -> str:
        output = super().filter_output(output)
        return EMAIL_RE.sub("<redacted>", output)


class HrAnswerFilter(SsnMixin, EmailMixin, BaseAnswerFilter):
    """HR desk: both."""


class PlainAnswerFilter(BaseAnswerFilter):
    def __init__(self, desk: str):
        self.desk = desk

    def filter_output(self, output: str) -> str:
        logger.debug("desk=%s chars=%d", self.desk, len(output))
        return super().filter_output(output)


class StrictAnswerFilter(HrAnswerFilter):
    def filter_output(self, output: str) -> str:
        super().filter_output(output)
        return output


# --------------------------------------------------------------------------- queries


class QueryPiiStripper:
    patterns = (("email", EMAIL_RE), ("phone", PHONE_RE))

    def sanitize_query(self, query: str) -> str:
        for label, rx in self.patterns:
            query = rx.sub(f"[{label}]", query)
        return query


class QueryNormalizer:
    _cache: dict[str, str] = {}

    def filter_query(self, query: str) -> str:
        cached = self._cache.get(query)
        if cached is not None:
            return cached
        self._cache[query] = query
        return query


class TenantQueryMasker:
    def mask_query(self, query: str) -> str:
        for pattern in TENANT_PATTERNS:
            query = pattern.sub("[MASKED]", query)
        return query


class InjectionQueryGuard:
    _ATTACK = re.compile(r"ignore (all )?(previous|prior) instructions|repeat all the context", re.I)

    def sanitize_input(self, query: str) -> str:
        if self._ATTACK.search(query):
            return "[blocked]"
        return query


# --------------------------------------------------------------------------- prompts


class PromptPrivacyPreamble:
    RULES = "Never reveal personal data found in the context, even when asked to quote it."

    def harden_prompt(self, prompt: str) -> str:
        return f"{self.RULES}\n\n{prompt}"


class PromptRedactor:
    def redact_prompt(self, prompt: str) -> str:
        raise NotImplementedError("prompt redaction lands with the v2 template engine")


class PromptMiddleware(AgentMiddleware):
    """Masks PII in the conversation before it goes to the provider."""

    def before_model(self, state, runtime) -> dict[str, Any] | None:
        messages = []
        for message in state["messages"]:
            if isinstance(message, HumanMessage) and isinstance(message.content, str):
                message = message.model_copy(update={"content": mask_pii(message.content)})
            messages.append(message)
        return {"messages": messages}


class PromptCopyMiddleware(AgentMiddleware):
    """Masks PII in the conversation before it goes to the provider."""

    def before_model(self, state, runtime) -> dict[str, Any] | None:
        messages = copy.deepcopy(state["messages"])
        for message in messages:
            if isinstance(message.content, str):
                message.content = mask_pii(message.content)
        return None


class TokenBudgetMiddleware(AgentMiddleware):
    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def before_model(self, state, runtime) -> dict[str, Any] | None:
        self.seen += sum(len(str(m.content)) for m in state["messages"])
        logger.info("prompt chars so far: %d", self.seen)
        return None


class RoleAwareMiddleware(AgentMiddleware):
    """Staff see everything, customers do not."""

    def after_model(self, state, runtime) -> dict[str, Any] | None:
        if runtime.context.get("role") == "staff":
            return None
        last = state["messages"][-1]
        return {"messages": [last.model_copy(update={"content": mask_pii(str(last.content))})]}


class ModerationMiddleware(AgentMiddleware):
    """Output moderation. Not implemented yet."""

    def after_model(self, state, runtime) -> dict[str, Any] | None: ...


class OverrideMiddleware(AgentMiddleware):
    """Adds the privacy rules to the system prompt."""

    RULES = "Do not disclose personal data."

    def wrap_model_call(self, request, handler):
        system = SystemMessage(content=self.RULES)
        request.override(messages=[system, *request.messages])
        return handler(request)


# --------------------------------------------------------------------------- LangChain documents


class RelevanceFloor(BaseDocumentCompressor):
    """Drops weak matches: they leak, and do not help."""

    floor: float = 0.35

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        return [d for d in documents if d.metadata.get("score", 0.0) >= self.floor]


class EmailMaskingCompressor(BaseDocumentCompressor):
    mask_emails: bool

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        if not self.mask_emails:
            return documents
        return [Document(page_content=EMAIL_RE.sub("[EMAIL]", d.page_content), metadata=d.metadata) for d in documents]


class ForgetfulMaskCompressor(BaseDocumentCompressor):
    """Masks contact details in the retrieved text."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        cleaned = []
        for doc in documents:
            text = mask_pii(doc.page_content)
            cleaned.append(Document(page_content=text, metadata=dict(doc.metadata)))
        logger.debug("masked %d documents", len(cleaned))
        return documents


class RebuildTransformer(BaseDocumentTransformer):
    """Rebuilds documents as the base class for our document maskers."""

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        return [Document(page_content=d.page_content, metadata=d.metadata) for d in documents]


class PhoneMaskTransformer(BaseDocumentTransformer):
    def _clean(self, doc: Document) -> Document:
        return doc.model_copy(update={"page_content": PHONE_RE.sub("[PHONE]", doc.page_content)})

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        return list(map(self._clean, documents))

    async def atransform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        return self.transform_documents(documents, **kwargs)


class LazyMaskTransformer(BaseDocumentTransformer):
    @staticmethod
    def _mask(documents):
        for doc in documents:
            doc.page_content = mask_pii(doc.page_content)
            yield doc

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        self._mask(documents)
        return documents


class SecretsOutputParser(BaseOutputParser[str]):
    """Keeps API keys and addresses out of the final answer."""

    def parse(self, text: str) -> str:
        text = re.sub(r"\b(sk|pk)-[A-Za-z0-9]{8,}\b", "[KEY]", text)
        return mask_pii(text)


class PrivacyOutputParser(BaseOutputParser[str]):
    def parse(self, text: str) -> str:
        found = EMAIL_RE.findall(text)
        if found:
            logger.info("answer carries %d addresses", len(found))
        return text


class ResponseRedactionRunnable(Runnable[str, str]):
    """`prompt | llm | StrOutputParser() | ResponseRedactionRunnable()`"""

    def __init__(self) -> None:
        self._chain = RunnableLambda(mask_pii)

    def invoke(self, input: str, config=None, **kwargs: Any) -> str:
        return self._chain.invoke(input, config)


# --------------------------------------------------------------------------- duck-typed, retrieved documents


class ChunkScoreNoise:
    """Gaussian noise on the scores, then re-rank."""

    def __init__(self, sigma: float = 0.2, seed: int = 13):
        self.sigma = sigma
        self.rng = random.Random(seed)

    def perturb_scores(self, query: str, documents: list[Document]) -> list[Document]:
        noisy = [(d.metadata.get("score", 0.0) + self.rng.gauss(0, self.sigma), d) for d in documents]
        noisy.sort(key=lambda pair: pair[0], reverse=True)
        return [d for _, d in noisy]


class RestrictedChunkFilter:
    """Only operators may see restricted chunks."""

    def __init__(self, role: str = "guest"):
        self.role = role

    def filter_chunks(self, documents: list[Document]) -> list[Document]:
        if self.role == "admin" or "operator":
            return documents
        return [d for d in documents if not d.metadata.get("restricted")]


class PayrollQueryFilter:
    SENSITIVE = ("salary", "payroll", "bonus")

    def filter_documents(self, query: str, documents: list[Document]) -> list[Document]:
        if any(word in query.lower() for word in self.SENSITIVE):
            return []
        return documents


@dataclass
class ContextSettings:
    mask: bool = True
    tag: str = "[PII]"
    extra: list[str] = field(default_factory=lambda: [r"\b[A-Z]{2}\d{6,}\b"])


class ContextMasker:
    def __init__(self, settings: ContextSettings | None = None):
        self.settings = settings or ContextSettings()
        self._rx = [EMAIL_RE, PHONE_RE, *(re.compile(p) for p in self.settings.extra)]

    def mask_context(self, context: str) -> str:
        for rx in self._rx:
            context = rx.sub(self.settings.tag, context)
        return context


class RolloutContextMasker:
    MASKING_ENABLED = False  # flip after the March review

    def mask_context(self, context: str) -> str:
        if self.MASKING_ENABLED:
            context = mask_pii(context)
        return context


class BestEffortContextScrubber:
    """Never let privacy break the answer."""

    analyzer = None

    def sanitize_context(self, context: str) -> str:
        try:
            for span in self.analyzer.analyze(context):
                context = context[: span.start] + "[PII]" + context[span.end :]
        except Exception:
            logger.debug("scrubbing failed", exc_info=True)
        return context


class EarlyReturnDocRedactor:
    def redact_documents(self, documents: list[Document]) -> list[Document]:
        return documents

        for doc in documents:
            doc.page_content = mask_pii(doc.page_content)
        return documents


# the interface of the paper's code base: two hooks, one of them a placeholder


class AnonymizationDefense:
    def __init__(self, strength: float = 1.0):
        self.strength = strength

    def apply_defense_retrieval(self, query: str, documents: list[Document]) -> list[Document]:
        """Placeholder: anonymisation happens after generation for now."""
        return documents

    def apply_defense_generation(self, response: str) -> str:
        return NAME_RE.sub("[NAME]", mask_pii(response))


class RagtraceContentGuard(Defense):
    """Masks addresses in documents; the answer is masked only when the user asked about contacts."""

    def on_content(self, query, documents):
        return [dataclasses.replace(d, content=mask_pii(d.content)) for d in documents]

    def on_response(self, query, documents, response):
        if "contact" not in query.lower():
            return response
        return mask_pii(response)


class KioskDefense(Defense):
    def on_query(self, query: str) -> str:
        pass  # TODO

    def on_response(self, query, documents, response: str) -> str:
        if os.environ.get("KIOSK_REDACTION", "on") == "on":
            return mask_pii(response)
        return response


TRUTH = {
    "DecoratedAnswerGuard": {"response": "active"},
    "AsyncAnswerSanitizer": {"response": "active"},
    "FireAndForgetSanitizer": {"response": "dead"},
    "AnswerReplaceGuard": {"response": "dead"},
    "LegacyPhoneScrubber": {"response": "dead"},
    "ConfidentialAnswerGate": {"response": "conditional"},
    "EntityRecognizerGuard": {"response": "stub"},
    "AnswerAuditTrail": {"response": "pass_through"},
    "DlpBackedGuard": {"response": "dead"},
    "InjectedAnonymizerGuard": {"response": "unknown"},
    "EchoingPseudonymizer": {"response": "dead"},
    "HrAnswerFilter": {"response": "active"},
    "PlainAnswerFilter": {"response": "pass_through"},
    "StrictAnswerFilter": {"response": "dead"},
    "QueryPiiStripper": {"query": "active"},
    "QueryNormalizer": {"query": "pass_through"},
    "TenantQueryMasker": {"query": "dead"},
    "InjectionQueryGuard": {"query": "conditional"},
    "PromptPrivacyPreamble": {"prompt": "active"},
    "PromptRedactor": {"prompt": "stub"},
    "PromptMiddleware": {"prompt": "active"},
    "PromptCopyMiddleware": {"prompt": "dead"},
    "TokenBudgetMiddleware": {"prompt": "pass_through"},
    "RoleAwareMiddleware": {"response": "conditional"},
    "ModerationMiddleware": {"response": "stub"},
    "OverrideMiddleware": {"prompt": "dead"},
    "RelevanceFloor": {"retrieval": "active"},
    "EmailMaskingCompressor": {"content": "conditional"},
    "ForgetfulMaskCompressor": {"content": "dead"},
    "RebuildTransformer": {"content": "pass_through"},
    "PhoneMaskTransformer": {"content": "active"},
    "LazyMaskTransformer": {"content": "dead"},
    "SecretsOutputParser": {"response": "active"},
    "PrivacyOutputParser": {"response": "pass_through"},
    "ResponseRedactionRunnable": {"response": "active"},
    "ChunkScoreNoise": {"retrieval": "active"},
    "RestrictedChunkFilter": {"retrieval": "dead"},
    "PayrollQueryFilter": {"retrieval": "conditional"},
    "ContextMasker": {"content": "active"},
    "RolloutContextMasker": {"content": "dead"},
    "BestEffortContextScrubber": {"content": "dead"},
    "EarlyReturnDocRedactor": {"content": "dead"},
    "AnonymizationDefense": {"retrieval": "stub", "response": "active"},
    "RagtraceContentGuard": {"content": "active", "response": "conditional"},
    "KioskDefense": {"query": "stub", "response": "conditional"},
    "mask_pii": {"response": "active"},
    "BaseAnswerFilter": {"response": "pass_through"},
    "SsnMixin": {"response": "active"},
    "EmailMixin": {"response": "active"},
}
