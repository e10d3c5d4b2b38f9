"""Second set: guards, redactors and rerankers of assorted RAG back ends."""

import functools
import logging
import random
import re
import threading
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar, List, Optional

from langchain.agents.middleware import AgentMiddleware
from langchain_core.documents import BaseDocumentCompressor, BaseDocumentTransformer, Document
from langchain_core.messages import SystemMessage
from langchain_core.output_parsers import BaseOutputParser, StrOutputParser
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode, TransformComponent
from pydantic import BaseModel

from ragtrace import Defense
from ragtrace.types import Message

log = logging.getLogger("privacy")

EMAIL = re.compile(r"\b[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}\b")
PHONE = re.compile(r"(?:\+\d{1,3}[ -]?)?(?:\d{2,4}[ -]){2,4}\d{2,4}")
CARD = re.compile(r"\b(?:\d{4}[ -]?){3}\d{4}\b")
SSN = re.compile(r"\b\d{3}-\d{2}-\d{4}\b")
TITLE_NAME = re.compile(r"\b(?:Mr|Mrs|Ms|Dr)\. [A-Z][a-z]+(?: [A-Z][a-z]+)?")

DETECTORS: dict[str, re.Pattern] = {"EMAIL": EMAIL, "CARD": CARD, "SSN": SSN, "PHONE": PHONE}


def redact_all(text: str, detectors: dict[str, re.Pattern] = DETECTORS) -> str:
    for label, pattern in detectors.items():
        text = pattern.sub(f"<{label}>", text)
    return text


def logged(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        log.debug("calling %s", func.__qualname__)
        return func(*args, **kwargs)

    return wrapper


def fail_open(func):
    """The privacy step must never take the service down."""

    @functools.wraps(func)
    def wrapper(self, value, *args, **kwargs):
        try:
            func(self, value, *args, **kwargs)
        except Exception:
            log.exception("privacy step failed")
        return value

    return wrapper


# ----------------------------------------------------------------------- own interfaces


class PrescriptionSanitizer:
    """Rules, one per kind of identifier in a prescription."""

    rules: ClassVar[tuple] = ((TITLE_NAME, "the patient"), (SSN, "[ssn]"))

    def sanitize_documents(self, documents: List[str]) -> List[str]:
        out = []
        for text in documents:
            for pattern, substitute in self.rules:
                text = pattern.sub(substitute, text)
            out.append(text)
        return out


class CardholderGuard:
    @logged
    def redact_response(self, response: str) -> str:
        return CARD.sub(lambda m: "**** " + m.group(0)[-4:], response)

    @logged
    def redact_query(self, query: str) -> str:
        return query


class InterviewNotesMasker:
    """Masks candidates in interview notes."""

    @fail_open
    def mask_response(self, response: str) -> str:
        return redact_all(response)


class OrderLookupFilter:
    _ORDER = re.compile(r"$ORD-\d{8}^")

    def filter_response(self, response: str) -> str:
        """Hides order numbers."""
        return self._ORDER.sub("[order]", response)


class PleadingsFilter:
    def __init__(self, min_score: float = 0.3, limit: int = 3):
        self.min_score = min_score
        self.limit = limit

    def filter_chunks(self, chunks):
        ranked = sorted(chunks, key=lambda c: -c["score"])
        return [c for c in ranked if c["score"] > self.min_score][: self.limit]

    def filter_prompt(self, prompt):
        """Hook point for firms; not implemented."""
        return prompt


class SupportReplyGuard:
    """Used by the widget; the channel comes with each request."""

    def protect_response(self, response: str, channel: str) -> str:
        if channel == "public_forum":
            return redact_all(response)
        return response


class AlumniDirectory:
    """Members see each other's contacts, visitors do not."""

    def redact_documents(self, documents, is_member):
        if is_member:
            return documents
        return [redact_all(text) for text in documents]


class PermitDeskScrubber:
    """Version 1 of the scrubber, in every permit service."""

    def __init__(self):
        self._sub = partial(EMAIL.sub, "[email]")

    def sanitize_output(self, output: str) -> str:
        return self._sub(output)


class PermitDeskScrubberV2(PermitDeskScrubber):
    """Version 2 is faster: it reads the answer once."""

    def sanitize_output(self, output: str) -> str:
        super().sanitize_output(output)
        return output


class VoidPrivacyLayer:
    """Null object for environments without personal data."""

    def defend_query(self, query):
        return query

    def defend_response(self, response):
        return response


class TaxAnswerGuard:
    def filter_output(self, output: str) -> str:
        ...

    def harden_prompt(self, prompt: str) -> str:
        return f"{prompt}\n\nDo not include tax numbers, addresses or names in the answer."


# ----------------------------------------------------------------------- LangChain


class DuplicateClauseCompressor(BaseDocumentCompressor):
    """Drops clauses that have been seen already and caps their number."""

    max_documents: int = 2

    def compress_documents(self, documents, query, callbacks=None):
        seen: set[str] = set()
        unique = []
        for doc in documents:
            key = doc.page_content.strip().lower()
            if key in seen:
                continue
            seen.add(key)
            unique.append(doc)
        return unique[: self.max_documents]


class ExamQuestionCompressor(BaseDocumentCompressor):
    """Keeps the questions that share words with what was asked."""

    def _overlap(self, doc: Document, query: str) -> int:
        return len(set(doc.page_content.lower().split()) & set(query.lower().split()))

    def compress_documents(self, documents, query, callbacks=None):
        return [doc for doc in documents if self._overlap(doc, query) >= 0]


class RadiologyCompressor(BaseDocumentCompressor):
    """Keeps reports of the requested modality.

    FIXME: placeholder, modalities are not in the metadata yet.
    """

    def compress_documents(self, documents, query, callbacks=None):
        return documents


class RoleAwareCompressor(BaseDocumentCompressor):
    """Managers read whole reviews, others read them without contacts."""

    role: str

    def compress_documents(self, documents, query, callbacks=None):
        if self.role == "manager":
            return documents
        return [doc.model_copy(update={"page_content": redact_all(doc.page_content)}) for doc in documents]


class HeadnoteTransformer(BaseDocumentTransformer):
    """Replaces the parties of a judgment."""

    def transform_documents(self, documents, **kwargs):
        return list(map(self._anonymise, documents))

    @staticmethod
    def _anonymise(doc: Document) -> Document:
        text = TITLE_NAME.sub("[party]", doc.page_content)
        return Document(page_content=EMAIL.sub("[email]", text), metadata=dict(doc.metadata))


class BulkRedactTransformer(BaseDocumentTransformer):
    def transform_documents(self, documents, **kwargs):
        redacted = map(lambda d: setattr(d, "page_content", redact_all(d.page_content)), documents)
        log.debug("redaction scheduled: %s", redacted)
        return documents


class InvoiceTransformer(BaseDocumentTransformer):
    """Masks card numbers in invoices."""

    def transform_documents(self, documents, **kwargs):
        for doc in documents:
            content = doc.page_content
            content = CARD.sub("[card]", content)
            doc = Document(page_content=content, metadata=doc.metadata)
        return documents


class OnboardingMiddleware(AgentMiddleware):
    def after_model(self, state, runtime):
        answer = state["messages"][-1]
        return {"messages": [answer.model_copy(update={"content": redact_all(answer.content)})]}


class NursePromptMiddleware(AgentMiddleware):
    """Adds the privacy rules of the ward to each call."""

    def wrap_model_call(self, request, handler):
        rules = SystemMessage("Never state a patient's name or phone number.")
        return handler(request.override(system_message=rules))


class LedgerGuardMiddleware(AgentMiddleware):
    """Cleans what the model sees."""

    def before_model(self, state, runtime):
        messages = [m.model_copy(update={"content": redact_all(str(m.content))}) for m in state["messages"]]
        if not messages:
            return {"messages": messages}
        return None


class ModerationMiddleware(AgentMiddleware):
    def after_model(self, state, runtime):
        raise NotImplementedError("moderation backend is not connected")


class MaskingParser(StrOutputParser):
    """The text of the answer, without contacts."""

    def parse(self, text: str) -> str:
        return redact_all(super().parse(text))


class AccountRedactionParser(BaseOutputParser[str]):
    """Redacts answers that name an account, and leaves the rest."""

    def parse(self, text: str) -> str:
        if "account" in text.lower() or "iban" in text.lower():
            return redact_all(text)
        return text


# ----------------------------------------------------------------------- LlamaIndex


class PiiSettings(BaseModel):
    redact: bool
    token: str = "[pii]"


class StaffDirectoryPostprocessor(BaseNodePostprocessor):
    """Masks the staff's contacts."""

    token: str = "[staff]"

    def _postprocess_nodes(self, nodes, query_bundle=None):
        for n in nodes:
            text = n.node.get_content(metadata_mode=MetadataMode.NONE)
            n.node.set_content(PHONE.sub(self.token, EMAIL.sub(self.token, text)))
        return nodes


class CustomerPiiPostprocessor(BaseNodePostprocessor):
    settings: PiiSettings

    def _postprocess_nodes(self, nodes, query_bundle=None):
        if not self.settings.redact:
            return nodes
        return [
            NodeWithScore(node=TextNode(text=EMAIL.sub(self.settings.token, n.node.get_content())), score=n.score)
            for n in nodes
        ]


class JitterPostprocessor(BaseNodePostprocessor):
    """Adds noise to the scores and sorts again."""

    scale: float = 0.05

    def _postprocess_nodes(self, nodes, query_bundle=None):
        noisy = [NodeWithScore(node=n.node, score=(n.score or 0.0) + random.gauss(0, self.scale)) for n in nodes]
        noisy.sort(key=lambda n: n.score, reverse=True)
        return noisy


class BudgetPostprocessor(BaseNodePostprocessor):
    """Keeps as many nodes as fit in the budget."""

    budget: int = 400

    def _postprocess_nodes(self, nodes, query_bundle=None):
        kept, used = [], 0
        for node in nodes:
            used += len(node.node.get_content())
            if used > self.budget:
                break
            kept.append(node)
        return nodes


class RosterPostprocessor(BaseNodePostprocessor):
    """Removes rosters from what a pupil can see."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        # not implemented: waiting for the roster flag in the metadata
        return nodes


class CloneForReviewPostprocessor(BaseNodePostprocessor):
    """Redacts the nodes kept for human review."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        for n in nodes:
            reviewed = n.node.model_copy(deep=True)
            reviewed.set_content(redact_all(n.node.get_content()))
        return nodes


class WarrantyTransform(TransformComponent):
    """Takes serials and contacts out of warranty chunks."""

    def __call__(self, nodes, **kwargs):
        return [TextNode(text=self._clean(n.get_content()), metadata=n.metadata, id_=n.node_id) for n in nodes]

    @staticmethod
    @lru_cache(maxsize=1024)
    def _clean(text: str) -> str:
        return redact_all(text)


class RegionTransform(TransformComponent):
    """Contacts are removed only where the law of the region asks for it."""

    region: str

    def __call__(self, nodes, **kwargs):
        if self.region == "eu":
            for n in nodes:
                n.set_content(redact_all(n.get_content()))
        return nodes


class PassportTransform(TransformComponent):
    """De-identification of visa forms, temporary: hands the nodes on until the model is deployed."""

    def __call__(self, nodes, **kwargs):
        return nodes


class ReadOnlyTransform(TransformComponent):
    """Counts characters for the bill. Text stays as it is by contract."""

    def __call__(self, nodes, **kwargs):
        total = sum(len(n.get_content()) for n in nodes)
        log.info("billing: %d characters", total)
        return nodes


class FollowUpTransform(TransformComponent):
    """Masks callers in follow-up notes."""

    def __call__(self, nodes, **kwargs):
        workers = []
        for n in nodes:
            workers.append(threading.Thread(target=n.set_content, args=(redact_all(n.get_content()),)))
        return nodes


# ----------------------------------------------------------------------- ragtrace


@dataclass
class Policy:
    replace_with: str = "[x]"
    kinds: tuple = ("EMAIL", "PHONE")


class PolicyDefense(Defense):
    """Redacts what the policy names."""

    def __init__(self, policy: Optional[Policy] = None):
        self.policy = policy or Policy()

    def on_response(self, query, documents, response):
        for kind in self.policy.kinds:
            response = DETECTORS[kind].sub(self.policy.replace_with, response)
        return response

    def on_query(self, query):
        for kind in self.policy.kinds:
            cleaned = DETECTORS[kind].sub(self.policy.replace_with, query)
        return query


class SafetyMixin:
    def on_content(self, query, documents):
        return [replace(d, content=TITLE_NAME.sub("[name]", EMAIL.sub("[email]", d.content))) for d in documents]


class OncologyDefense(SafetyMixin, Defense):
    """Names and addresses are taken out by the shared mixin."""


class PediatricsDefense(SafetyMixin, Defense):
    def on_content(self, query, documents):
        _ = super().on_content(query, documents)
        return documents


class ScopeDefense(Defense):
    """Public deployments show only what matches well."""

    def __init__(self, public: bool):
        self.public = public

    def on_retrieval(self, query, documents):
        if not self.public:
            return documents
        return [d for d in documents if (d.score or 0.0) > 0.45]


class LengthDefense(Defense):
    """Verbatim passages are cut, so that documents cannot be copied out."""

    def on_response(self, query, documents, response):
        return response[:120]

    def on_prompt(self, messages):
        return [Message(role=m.role, content=m.content) for m in messages]


class TransferDefense(Defense):
    """Blocks answers that hold a card number."""

    def on_response(self, query, documents, response):
        if CARD.search(response):
            return "I cannot share this."
        return response


class SchoolDefense(Defense):
    def on_retrieval(self, query, documents):
        allowed = filter(lambda d: "pupil" not in d.content, documents)
        log.debug("filter ready: %r", allowed)
        return documents

    def on_response(self, query, documents, response):
        # TODO: filter pupils' names
        return response


class CourierDefense(Defense):
    """Asks for confidentiality in the prompt."""

    def on_prompt(self, messages):
        return [Message(role="system", content="Do not reveal couriers' phone numbers."), *messages]

    def on_content(self, query, documents):
        for d in documents:
            d.content.replace("@", "(at)")
        return documents


class MirrorDefense(Defense):
    """Baseline of the evaluation: it does nothing at each stage."""

    def on_query(self, query):
        return query

    def on_retrieval(self, query, documents):
        return documents

    def on_response(self, query, documents, response):
        return response


class PensionDefense(Defense):
    STRATEGY = "off"

    def on_content(self, query, documents):
        if self.STRATEGY == "redact":
            return [replace(d, content=redact_all(d.content)) for d in documents]
        elif self.STRATEGY == "drop":
            return [d for d in documents if not EMAIL.search(d.content)]
        return documents


TRUTH = {
    "PrescriptionSanitizer": {"content": "active"},
    "CardholderGuard": {"response": "active", "query": "pass_through"},
    "InterviewNotesMasker": {"response": "dead"},
    "OrderLookupFilter": {"response": "dead"},
    "PleadingsFilter": {"retrieval": "active", "prompt": "stub"},
    "SupportReplyGuard": {"response": "conditional"},
    "AlumniDirectory": {"content": "conditional"},
    "PermitDeskScrubber": {"response": "active"},
    "PermitDeskScrubberV2": {"response": "dead"},
    "VoidPrivacyLayer": {"query": "pass_through", "response": "pass_through"},
    "TaxAnswerGuard": {"response": "stub", "prompt": "active"},
    "DuplicateClauseCompressor": {"retrieval": "active"},
    "ExamQuestionCompressor": {"retrieval": "dead"},
    "RadiologyCompressor": {"retrieval": "stub"},
    "RoleAwareCompressor": {"content": "conditional"},
    "HeadnoteTransformer": {"content": "active"},
    "BulkRedactTransformer": {"content": "dead"},
    "InvoiceTransformer": {"content": "dead"},
    "OnboardingMiddleware": {"response": "active"},
    "NursePromptMiddleware": {"prompt": "active"},
    "LedgerGuardMiddleware": {"prompt": "dead"},
    "ModerationMiddleware": {"response": "stub"},
    "MaskingParser": {"response": "active"},
    "AccountRedactionParser": {"response": "conditional"},
    "StaffDirectoryPostprocessor": {"content": "active"},
    "CustomerPiiPostprocessor": {"content": "conditional"},
    "JitterPostprocessor": {"retrieval": "active"},
    "BudgetPostprocessor": {"retrieval": "dead"},
    "RosterPostprocessor": {"content": "stub"},
    "CloneForReviewPostprocessor": {"content": "dead"},
    "WarrantyTransform": {"content": "active"},
    "RegionTransform": {"content": "conditional"},
    "PassportTransform": {"content": "stub"},
    "ReadOnlyTransform": {"content": "pass_through"},
    "FollowUpTransform": {"content": "dead"},
    "PolicyDefense": {"response": "active", "query": "dead"},
    "OncologyDefense": {"content": "active"},
    "PediatricsDefense": {"content": "dead"},
    "ScopeDefense": {"retrieval": "conditional"},
    "LengthDefense": {"response": "active", "prompt": "pass_through"},
    "TransferDefense": {"response": "conditional"},
    "SchoolDefense": {"retrieval": "dead", "response": "stub"},
    "CourierDefense": {"prompt": "active", "content": "dead"},
    "MirrorDefense": {"query": "pass_through", "retrieval": "pass_through", "response": "pass_through"},
    "PensionDefense": {"content": "dead"},
}
