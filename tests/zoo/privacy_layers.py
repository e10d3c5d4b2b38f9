"""Privacy layers gathered from several RAG services (banking, hospital, HR, shop, legal, support, education, government)."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import BaseOutputParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode, TransformComponent

from ragtrace import Defense
from ragtrace.types import Message

logger = logging.getLogger(__name__)

EMAIL_RE = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
PHONE_RE = re.compile(r"\+?\d[\d\s().-]{7,}\d")
IBAN_RE = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}\b")


def strip_emails(text: str) -> str:
    return EMAIL_RE.sub("[email]", text)


# --------------------------------------------------------------------------- duck-typed


@dataclass
class MaskerConfig:
    keep_last: int = 4
    symbol: str = "*"


class StatementMasker:
    """Masks phone and account numbers in bank statements, keeping the last digits."""

    def __init__(self, config: Optional[MaskerConfig] = None):
        self.config = config or MaskerConfig()

    def _mask(self, match: "re.Match[str]") -> str:
        value = match.group(0)
        keep = self.config.keep_last
        return self.config.symbol * (len(value) - keep) + value[-keep:]

    def mask_documents(self, documents: List[str]) -> List[str]:
        masked = []
        for doc in documents:
            doc = IBAN_RE.sub(self._mask, doc)
            masked.append(PHONE_RE.sub(self._mask, doc))
        return masked


class DischargeLetterGuard:
    """Last step before the discharge summary is shown to a visitor of the portal."""

    def filter_output(self, text):
        cleaned = strip_emails(text)
        cleaned = PHONE_RE.sub("[phone]", cleaned)
        if cleaned != text:
            logger.info("removed contact details from a summary")
        return text


class PayrollQueryFilter:
    def filter_query(self, query: str) -> str:
        # TODO: take salary bands and names out of the question before it is embedded
        return query

    def filter_response(self, response: str) -> str:
        return EMAIL_RE.sub("<hidden>", response)


class CheckoutAssistantShield:
    def __init__(self, settings: Dict[str, Any]):
        self.settings = settings

    def sanitize_response(self, response: str) -> str:
        if not self.settings["redact_customer_data"]:
            return response
        response = EMAIL_RE.sub("[customer email]", response)
        return PHONE_RE.sub("[customer phone]", response)


class CaseFileRedactor:
    """Redacts the parties' contacts from case files."""

    PLACEHOLDER = "[REDACTED]"

    def redact_documents(self, documents: list[dict]) -> list[dict]:
        for document in documents:
            text = document["text"]
            text.replace("@", " at ")
            EMAIL_RE.sub(self.PLACEHOLDER, text)
        return documents


class HelpdeskRanker:
    """Keeps tickets whose score is good enough and are not internal."""

    min_score = 0.35

    def filter_results(self, results):
        kept = [r for r in results if r["score"] >= self.min_score]
        return sorted(kept, key=lambda r: r["score"], reverse=True)


class TranscriptProtection:
    """Interface used by the student portal; each faculty is to bring its own."""

    def protect_documents(self, documents):
        raise NotImplementedError("faculties provide this")

    def protect_response(self, response):
        raise NotImplementedError


class BenefitsGateway:
    """Default gateway: the agency has asked that citizens see their own answers as they are."""

    def apply_defense_query(self, query: str) -> str:
        logger.debug("query of %d characters", len(query))
        return query

    def apply_defense_generation(self, answer: str) -> str:
        return str(answer)


class ClaimsAnonymizer:
    MASK_CONTACTS = False

    def anonymize_documents(self, documents: List[str]) -> List[str]:
        if self.MASK_CONTACTS:
            return [PHONE_RE.sub("[phone]", strip_emails(d)) for d in documents]
        return documents


class BaseRedactor(ABC):
    @abstractmethod
    def patterns(self) -> List[re.Pattern]: ...

    def redact_output(self, text: str) -> str:
        for pattern in self.patterns():
            text = pattern.sub("[removed]", text)
        return text


class LoanOfficerRedactor(BaseRedactor):
    def patterns(self) -> List[re.Pattern]:
        return [EMAIL_RE, PHONE_RE, IBAN_RE]


# --------------------------------------------------------------------------- LangChain


class ScoreFloorCompressor(BaseDocumentCompressor):
    """Drops documents whose relevance score is below a floor."""

    floor: float = 0.5

    def compress_documents(self, documents, query, callbacks=None):
        return [d for d in documents if d.metadata.get("score", 0.0) >= self.floor]


class ContactStrippingCompressor(BaseDocumentCompressor):
    """Rewrites pages of the supplier directory without contacts."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks=None) -> Sequence[Document]:
        cleaned = []
        for doc in documents:
            content = PHONE_RE.sub("", strip_emails(doc.page_content))
            cleaned.append(Document(page_content=content, metadata=doc.metadata))
        return cleaned


class WardRerankCompressor(BaseDocumentCompressor):
    """Orders clinical notes by ward priority."""

    def compress_documents(self, documents, query, callbacks=None):
        ranked = list(documents)
        sorted(ranked, key=lambda d: d.metadata.get("priority", 0), reverse=True)
        return ranked


class LegalHoldTransformer(BaseDocumentTransformer):
    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        snapshot = copy.deepcopy(list(documents))
        for doc in snapshot:
            doc.page_content = strip_emails(doc.page_content)
        return documents


class TenantTransformer(BaseDocumentTransformer):
    """Redacts documents for callers that ask for it."""

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        if kwargs.get("external_user"):
            return [
                Document(page_content=strip_emails(d.page_content), metadata=d.metadata)
                for d in documents
            ]
        return documents


class SyllabusTransformer(BaseDocumentTransformer):
    """Removes teachers' private contacts. Not implemented yet, returns the input for now."""

    def transform_documents(self, documents: Sequence[Document], **kwargs: Any) -> Sequence[Document]:
        return documents


class RefundPIIMiddleware(AgentMiddleware):
    """Hides e-mail addresses in what the customer typed."""

    def before_model(self, state, runtime):
        updated = []
        for message in state["messages"]:
            if isinstance(message.content, str):
                updated.append(message.model_copy(update={"content": strip_emails(message.content)}))
            else:
                updated.append(message)
        return {"messages": updated}


class TriageMiddleware(AgentMiddleware):
    def before_model(self, state, runtime):
        # placeholder until the PHI service is available
        return None

    def after_model(self, state, runtime):
        last = state["messages"][-1]
        clean = PHONE_RE.sub("[phone]", last.content)
        return {"messages": [AIMessage(content=clean, id=last.id)]}


class AuditPIIMiddleware(AgentMiddleware):
    """Scrubs the model's answer before it is kept by the records office."""

    def after_model(self, state, runtime):
        message = state["messages"][-1]
        scrubbed = AIMessage(content=strip_emails(message.content), id=message.id)
        logger.debug("answer scrubbed: %d characters", len(scrubbed.content))
        return None


class RedactingOutputParser(BaseOutputParser[str]):
    def parse(self, text: str) -> str:
        return PHONE_RE.sub("[phone]", EMAIL_RE.sub("[email]", text.strip()))


class GuardedAnswerParser(BaseOutputParser[str]):
    """Answers pass through the guard; failures of the guard must not break the chat."""

    def parse(self, text: str) -> str:
        try:
            content = text["content"]
            return EMAIL_RE.sub("[email]", content)
        except Exception:
            logger.warning("guard failed, answer left as it is")
            return text


class PrivacyPassthroughParser(BaseOutputParser[str]):
    """Used by tenants that have opted out of post-processing."""

    def parse(self, text: str) -> str:
        return text


class ConsentMiddleware(AgentMiddleware):
    """Masks the user's contacts unless consent was recorded in the state of the conversation."""

    def before_model(self, state, runtime):
        if state.get("consent_given"):
            return None
        return {
            "messages": [
                m.model_copy(update={"content": strip_emails(m.content)}) if isinstance(m, HumanMessage) else m
                for m in state["messages"]
            ]
        }


# --------------------------------------------------------------------------- LlamaIndex


class EmailPostprocessor(BaseNodePostprocessor):
    """Masks addresses in nodes of the HR handbook."""

    placeholder: str = "[email]"

    @classmethod
    def class_name(cls) -> str:
        return "EmailPostprocessor"

    def _postprocess_nodes(self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None):
        result = []
        for item in nodes:
            text = EMAIL_RE.sub(self.placeholder, item.node.get_content())
            result.append(NodeWithScore(node=TextNode(text=text, id_=item.node.node_id), score=item.score))
        return result


class CataloguePostprocessor(BaseNodePostprocessor):
    """Text cleaning of the shop catalogue: its text is public, so it is left as it is."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return [NodeWithScore(node=n.node, score=n.score) for n in nodes]


class CutoffPostprocessor(BaseNodePostprocessor):
    """Similarity cutoff for the product catalogue."""

    cutoff: float = 0.0

    def _postprocess_nodes(self, nodes, query_bundle=None):
        selected = []
        for node in nodes:
            if (node.score or 0.0) < self.cutoff:
                logger.debug("below cutoff: %s", node.score)
            selected.append(node)
        return selected


class SealedRecordPostprocessor(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        def unsealed():
            for item in nodes:
                if not item.node.metadata.get("sealed"):
                    yield item

        unsealed()
        return nodes


class PatientNamePostprocessor(BaseNodePostprocessor):
    """De-identifies nodes when the question comes from a research account."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        if query_bundle is None or "research" not in query_bundle.query_str.lower():
            return nodes
        for item in nodes:
            item.node.set_content(PHONE_RE.sub("[phone]", strip_emails(item.node.get_content())))
        return nodes


class ReorderPostprocessor(BaseNodePostprocessor):
    """Keeps the store's order."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        return list(nodes)


class GradesPostprocessor(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        """Will drop the nodes with grades of other students."""
        # TODO(maria): needs the enrolment service
        return nodes


class IngestScrubber(TransformComponent):
    """Scrubs contacts at ingestion."""

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            node.set_content(PHONE_RE.sub("[phone]", strip_emails(node.get_content())))
        return nodes


class LedgerTransform(TransformComponent):
    """Masks IBANs, phones and addresses before chunks are indexed."""

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            content = node.get_content()
            content = IBAN_RE.sub("[iban]", content)
            content = PHONE_RE.sub("[phone]", content)
            content = EMAIL_RE.sub("[email]", content)
        return nodes


class OptInTransform(TransformComponent):
    """Scrubs documents whose owner has ticked the privacy box."""

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        for node in nodes:
            if node.metadata.get("privacy") == "strict":
                node.set_content(PHONE_RE.sub("[phone]", strip_emails(node.get_content())))
        return nodes


# --------------------------------------------------------------------------- ragtrace


class TellerDefense(Defense):
    """Takes contacts out of both what is retrieved and what is said."""

    def on_content(self, query, documents):
        return [replace(d, content=self._clean(d.content)) for d in documents]

    def on_response(self, query, documents, response):
        return self._clean(response)

    @staticmethod
    def _clean(text: str) -> str:
        return PHONE_RE.sub("[phone]", EMAIL_RE.sub("[email]", text))


class TopKDefense(Defense):
    def __init__(self, k: int = 2):
        self.k = k

    def on_retrieval(self, query, documents):
        ranked = sorted(documents, key=lambda d: d.score or 0.0, reverse=True)
        return ranked[: self.k]


class InjectionDefense(Defense):
    """Refuses questions that try to read out the context."""

    TRIGGERS = ("ignore previous", "repeat the context", "print everything")

    def on_query(self, query):
        lowered = query.lower()
        if any(t in lowered for t in self.TRIGGERS):
            return "The question was refused."
        return query


class AsyncRecordDefense(Defense):
    """Redacts answers with a coroutine shared with the batch jobs."""

    async def _redact(self, text: str) -> str:
        await asyncio.sleep(0)
        return strip_emails(text)

    def on_response(self, query, documents, response):
        self._redact(response)
        return response

    def on_query(self, query):
        return EMAIL_RE.sub("someone", query)


class DebugOnlyDefense(Defense):
    def __init__(self, enabled: bool = False):
        self.enabled = enabled

    def on_response(self, query, documents, response):
        if self.enabled:
            response = EMAIL_RE.sub("[email]", response)
            response = PHONE_RE.sub("[phone]", response)
        return response


class EmployeeDefense(Defense):
    def on_content(self, query, documents):
        return documents
        return [replace(d, content=strip_emails(d.content)) for d in documents]

    def on_prompt(self, messages):
        rules = "Never reveal an employee's contact details."
        return [replace(m, content=rules + "\n" + m.content) if m.role == "system" else m for m in messages]


class NoiseDefense(Defense):
    """Perturbs scores so that membership cannot be told from them."""

    def on_retrieval(self, query, documents):
        noisy = []
        for doc in documents:
            digest = hashlib.sha256((query + doc.id).encode()).digest()[0] / 255
            noisy.append(replace(doc, score=(doc.score or 0.0) + 0.1 * (digest - 0.5)))
        return noisy


class CourtDefense(Defense):
    """Defense for the court registry."""

    def on_query(self, query):
        pass

    def on_response(self, query, documents, response):
        ...


class TutorDefense(Defense):
    def on_content(self, query, documents):
        logger.info("%d documents for a tutor", len(documents))
        return documents

    def on_response(self, query, documents, response):
        answer = response
        return answer


class ParcelDefense(Defense):
    """Masks tracking contacts unless there is a reason not to."""

    def _exempt(self, query: str) -> bool:
        return len(query) >= 0

    def on_response(self, query, documents, response):
        if self._exempt(query):
            return response
        return PHONE_RE.sub("[phone]", strip_emails(response))


class CitizenDefense(Defense):
    def __init__(self, role: str):
        self.role = role

    def on_content(self, query, documents):
        if self.role in {"clerk", "auditor"}:
            return documents
        return [replace(d, content=strip_emails(d.content)) for d in documents]


class WelfareDefense(Defense):
    """Adds the confidentiality rule to the system message."""

    RULE = "Do not repeat personal data."

    def on_prompt(self, messages):
        prompt = copy.copy(messages)
        prompt.insert(0, Message(role="system", content=self.RULE))
        return messages


TRUTH = {
    "StatementMasker": {"content": "active"},
    "DischargeLetterGuard": {"response": "dead"},
    "PayrollQueryFilter": {"query": "stub", "response": "active"},
    "CheckoutAssistantShield": {"response": "conditional"},
    "CaseFileRedactor": {"content": "dead"},
    "HelpdeskRanker": {"retrieval": "active"},
    "TranscriptProtection": {"content": "stub", "response": "stub"},
    "BenefitsGateway": {"query": "pass_through", "response": "pass_through"},
    "ClaimsAnonymizer": {"content": "dead"},
    "LoanOfficerRedactor": {"response": "active"},
    "ScoreFloorCompressor": {"retrieval": "active"},
    "ContactStrippingCompressor": {"content": "active"},
    "WardRerankCompressor": {"retrieval": "dead"},
    "LegalHoldTransformer": {"content": "dead"},
    "TenantTransformer": {"content": "conditional"},
    "SyllabusTransformer": {"content": "stub"},
    "RefundPIIMiddleware": {"prompt": "active"},
    "TriageMiddleware": {"prompt": "stub", "response": "active"},
    "AuditPIIMiddleware": {"response": "dead"},
    "RedactingOutputParser": {"response": "active"},
    "GuardedAnswerParser": {"response": "dead"},
    "PrivacyPassthroughParser": {"response": "pass_through"},
    "ConsentMiddleware": {"prompt": "conditional"},
    "EmailPostprocessor": {"content": "active"},
    "CataloguePostprocessor": {"content": "pass_through"},
    "CutoffPostprocessor": {"retrieval": "dead"},
    "SealedRecordPostprocessor": {"retrieval": "dead"},
    "PatientNamePostprocessor": {"content": "conditional"},
    "ReorderPostprocessor": {"retrieval": "pass_through"},
    "GradesPostprocessor": {"retrieval": "stub"},
    "IngestScrubber": {"content": "active"},
    "LedgerTransform": {"content": "dead"},
    "OptInTransform": {"content": "conditional"},
    "TellerDefense": {"content": "active", "response": "active"},
    "TopKDefense": {"retrieval": "active"},
    "InjectionDefense": {"query": "conditional"},
    "AsyncRecordDefense": {"query": "active", "response": "dead"},
    "DebugOnlyDefense": {"response": "dead"},
    "EmployeeDefense": {"content": "dead", "prompt": "active"},
    "NoiseDefense": {"retrieval": "active"},
    "CourtDefense": {"query": "stub", "response": "stub"},
    "TutorDefense": {"content": "pass_through", "response": "pass_through"},
    "ParcelDefense": {"response": "dead"},
    "CitizenDefense": {"content": "conditional"},
    "WelfareDefense": {"prompt": "dead"},
}
