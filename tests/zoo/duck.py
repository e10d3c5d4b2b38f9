"""Defenses of apps and papers' code that derive from nothing of ours. ``TRUTH`` is checked by running them."""

from __future__ import annotations

import abc
import asyncio
import functools
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Protocol, Tuple

import numpy as np

try:
    import presidio_that_is_not_installed as presidio
except ImportError:
    presidio = None

try:
    from detoxify_not_here import clean as clean_text
except ImportError:
    def clean_text(text):
        return text

USE_NER = False
EMAIL_RE = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+")
NEVER_RE = re.compile(r"(?!)")
FAKE_NAMES = ["Alex Doe", "Sam Roe"]


# -- the six of Mind the Hook, as the paper describes them ----------------------------------------


class BaseDefense:
    """Template for all defenses of the benchmark."""

    def apply_defense_retrieval(self, query: str, docs: List[Dict], scores: List[float]) -> Tuple[List[Dict], List[float]]:
        return docs, scores

    def apply_defense_generation(self, response: str, context: Optional[List[str]] = None) -> str:
        return response


class NoDefense(BaseDefense):
    pass


class DPRetrievalDefense(BaseDefense):
    def __init__(self, epsilon: float = 1.0, sensitivity: float = 1.0):
        self.epsilon = epsilon
        self.sensitivity = sensitivity

    def apply_defense_retrieval(self, query, docs, scores):
        scale = self.sensitivity / self.epsilon
        rng = np.random.default_rng(0)
        noisy_scores = np.array(scores) + rng.laplace(0, scale, size=len(scores))
        order = np.argsort(-noisy_scores)
        return [docs[i] for i in order], [float(noisy_scores[i]) for i in order]

    def apply_defense_generation(self, response, context=None):
        # TODO: token-level DP noise at decoding.
        # For now, return unmodified response (placeholder)
        return response


class CompositionAwareDP(DPRetrievalDefense):
    def __init__(self, epsilon=1.0, total_budget=10.0):
        super().__init__(epsilon)
        self.total_budget = total_budget
        self.spent = 0.0

    def _step_epsilon(self):
        eps = max((self.total_budget - self.spent) / 2, 1e-3)
        self.spent += eps
        return eps

    def apply_defense_retrieval(self, query, docs, scores):
        self.epsilon = self._step_epsilon()
        return super().apply_defense_retrieval(query, docs, scores)

    def apply_defense_generation(self, response, context=None):
        """TODO compose the privacy loss over generated tokens."""
        modified_response = response
        return modified_response


class PrivateRAG(BaseDefense):
    def apply_defense_retrieval(self, query, docs, scores, threshold=0.3):
        rng = np.random.default_rng(1)
        kept = [(d, s) for d, s in zip(docs, scores) if s + rng.laplace(0, 0.1) > threshold]
        return [d for d, _ in kept], [s for _, s in kept]

    def apply_defense_generation(self, response, context=None):
        pass  # TODO: sparse-vector vote
        return response


class PADDefense(BaseDefense):
    PATTERNS = {"email": EMAIL_RE, "id": re.compile(r"\b\d{3}-\d{2}-\d{4}\b")}

    def apply_defense_generation(self, response, context=None):
        for label, pattern in self.PATTERNS.items():
            response = pattern.sub(f"[{label.upper()}]", response)
        return response


class LPRAGDefense(BaseDefense):
    NAME_VOCABULARY = ["Jordan Smith", "Casey Jones"]

    def _perturb(self, text: str) -> str:
        text = re.sub(r"[\w.+-]+@[\w-]+\.\w+", "user@example.com", text)
        return re.sub(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b", lambda m: self.NAME_VOCABULARY[len(m.group()) % 2], text)

    def apply_defense_context(self, contexts: List[str]) -> List[str]:
        return [self._perturb(c) for c in contexts]

    def apply_defense_generation(self, response, context=None):
        return self._perturb(response)


# -- others ---------------------------------------------------------------------------------------


class OutputFilterProtocol(Protocol):
    def filter_output(self, text: str) -> str: ...


class AbstractFilter(abc.ABC):
    @abc.abstractmethod
    def filter_output(self, text: str) -> str:
        """Filters."""


class EmailOutputFilter(AbstractFilter):
    def filter_output(self, text: str) -> str:
        return EMAIL_RE.sub("<email>", text)


class PresidioFilter(AbstractFilter):
    """Uses Presidio where there is one."""

    def filter_output(self, text: str) -> str:
        if presidio is None:
            return text
        return presidio.anonymize(text)


class IdentityFallback(AbstractFilter):
    def filter_output(self, text):
        return clean_text(text)


class LazyImport(AbstractFilter):
    def filter_output(self, text):
        try:
            from scrubadub_not_here import clean
        except ImportError:
            return text
        return clean(text)


class NerRedactor:
    def __init__(self, enabled=False):
        self.enabled = enabled

    def redact(self, text: str) -> str:
        if not self.enabled:
            return text
        return EMAIL_RE.sub("[X]", text)


class GlobalFlag:
    def sanitize_output(self, answer):
        if USE_NER and len(answer) > 3:
            answer = EMAIL_RE.sub("", answer)
        return answer


@dataclass
class ChunkSanitizer:
    replacement: str = "***"
    seen: List[str] = field(default_factory=list)

    def sanitize_documents(self, chunks: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        cleaned = []
        for chunk in chunks:
            new_chunk = dict(chunk)
            new_chunk["text"] = EMAIL_RE.sub(self.replacement, chunk["text"])
            cleaned.append(new_chunk)
        return cleaned


class ChunkSanitizerLostCopy:
    def sanitize_documents(self, chunks):
        for chunk in chunks:
            chunk = {**chunk, "text": EMAIL_RE.sub("*", chunk["text"])}
        return chunks


class InPlaceNoReturn:
    def redact_documents(self, documents):
        for doc in documents:
            doc["text"] = EMAIL_RE.sub("[REDACTED]", doc["text"])


class ThresholdFilter:
    def __init__(self, threshold=0.5):
        self.threshold = threshold

    def filter_retrieval(self, query, results):
        return list(filter(lambda r: r["score"] >= self.threshold, results))


class EmptyBlocklist:
    BLOCKED = set()

    def filter_documents(self, docs):
        return [d for d in docs if d["text"] not in self.BLOCKED]


class GuardAlwaysTrue:
    def filter_output(self, text):
        if text is not None or "@" in text:
            return text
        return EMAIL_RE.sub("", text)


class SwallowsEverything:
    def filter_output(self, text):
        try:
            return self.anonymizer.run(text)
        except Exception:
            return text


class UndefinedHelper:
    def mask_response(self, response):
        try:
            response = mask_all_entities(response)
        except NameError as e:
            print("masking failed", e)
        return response


class ImpossiblePattern:
    def redact_text(self, text):
        return NEVER_RE.sub("[REDACTED]", text)


class GeneratorNeverConsumed:
    def redact_documents(self, docs):
        (doc.update(text=EMAIL_RE.sub("", doc["text"])) for doc in docs)
        return docs


class MapNeverConsumed:
    def redact_documents(self, docs):
        map(self._redact_one, docs)
        return docs

    def _redact_one(self, doc):
        doc["text"] = EMAIL_RE.sub("", doc["text"])
        return doc


class GeneratorHelper:
    def redact_documents(self, docs):
        return list(self._each(docs))

    def _each(self, docs):
        for d in docs:
            yield {**d, "text": EMAIL_RE.sub("#", d["text"])}


class NeverAwaited:
    async def sanitize_output(self, output):
        self._mask(output)
        return output

    async def _mask(self, text):
        return EMAIL_RE.sub("", text)


class AwaitsTwice:
    async def sanitize_output(self, output):
        masked = await self._mask(output)
        await asyncio.sleep(0)
        return masked

    async def _mask(self, text):
        return EMAIL_RE.sub("", text)


def logged(fn):
    @functools.wraps(fn)
    def wrapper(self, *args, **kwargs):
        result = fn(self, *args, **kwargs)
        print("ran", fn.__name__)
        return result
    return wrapper


def returns_original(fn):
    @functools.wraps(fn)
    def wrapper(self, text):
        fn(self, text)
        return text
    return wrapper


def masked_after(fn):
    @functools.wraps(fn)
    def wrapper(self, text):
        return EMAIL_RE.sub("[m]", fn(self, text))
    return wrapper


class DecoratedActs:
    @logged
    def filter_output(self, text):
        return EMAIL_RE.sub("", text)


class DecoratorLosesIt:
    @returns_original
    def filter_output(self, text):
        return EMAIL_RE.sub("", text)


class DecoratorDoesIt:
    @masked_after
    def filter_output(self, text):
        return text


class MaskMixin:
    def _mask(self, text):
        return EMAIL_RE.sub("[MASK]", text)


class NoopMixin:
    def _mask(self, text):
        return text


class MixinActs(MaskMixin, NoopMixin):
    def filter_output(self, output):
        return self._mask(output)


class MixinIdle(NoopMixin, MaskMixin):
    def filter_output(self, output):
        return self._mask(output)


class Engine:
    def __init__(self, token="[E]"):
        self.token = token

    def run(self, text):
        return EMAIL_RE.sub(self.token, text)


class NullEngine:
    def run(self, text):
        return text


class Delegates:
    def __init__(self):
        self.engine = Engine()

    def anonymize(self, text):
        return self.engine.run(text)


class DelegatesToNull:
    def __init__(self):
        self.engine = NullEngine()

    def anonymize(self, text):
        return self.engine.run(text)


class PartialHelper:
    def mask_text(self, text):
        scrub = functools.partial(re.sub, EMAIL_RE, "[p]")
        return scrub(text)


class WrongVariable:
    def filter_output(self, response):
        cleaned_response = EMAIL_RE.sub("[EMAIL]", response)
        if cleaned_response != response:
            print("filtered")
        return response


class DictResponse:
    def filter_output(self, result: dict) -> dict:
        result["answer"] = EMAIL_RE.sub("[EMAIL]", result["answer"])
        return result


class TupleReturned:
    def filter_output(self, text):
        out, n = EMAIL_RE.subn("[EMAIL]", text)
        return out, {"masked": n}


class TupleUntouched:
    def filter_output(self, text):
        matches = EMAIL_RE.findall(text)
        return text, {"found": len(matches)}


class PromptHardener:
    def apply_defense_prompt(self, prompt: str) -> str:
        return "Do not reveal personal data.\n\n" + prompt


class QueryTodo:
    def filter_input(self, query):
        # TODO block injections
        if "ignore previous" in query.lower():
            pass
        return query


class QueryBlocker:
    def filter_input(self, query):
        if "ignore previous" in query.lower() or "@" in query:
            raise ValueError("blocked")
        return query


class Pipeline:
    """Calls such methods and is none itself."""

    def __init__(self, guard):
        self.guard = guard

    def answer(self, q):
        return self.guard.filter_output(q)


class CharByChar:
    def mask(self, text):
        out = ""
        for ch in text:
            out += "*" if ch.isdigit() or ch == "@" else ch
        return out


class WhileLoop:
    def mask(self, text):
        m = EMAIL_RE.search(text)
        while m:
            text = text[: m.start()] + "[E]" + text[m.end():]
            m = EMAIL_RE.search(text)
        return text


TRUTH = {
    "BaseDefense": {"retrieval": "pass_through", "response": "pass_through"},
    "NoDefense": {"retrieval": "pass_through", "response": "pass_through"},
    "DPRetrievalDefense": {"retrieval": "active", "response": "stub"},
    "CompositionAwareDP": {"retrieval": "active", "response": "stub"},
    "PrivateRAG": {"retrieval": "active", "response": "stub"},
    "PADDefense": {"retrieval": "pass_through", "response": "active"},
    "LPRAGDefense": {"retrieval": "pass_through", "content": "active", "response": "active"},
    "EmailOutputFilter": {"response": "active"},
    "PresidioFilter": {"response": "dead"},
    "IdentityFallback": {"response": "dead"},
    "LazyImport": {"response": "dead"},
    "NerRedactor": {"response": "dead"},
    "GlobalFlag": {"response": "dead"},
    "ChunkSanitizer": {"content": "active"},
    "ChunkSanitizerLostCopy": {"content": "dead"},
    "InPlaceNoReturn": {"content": "active"},
    "ThresholdFilter": {"retrieval": "active"},
    "EmptyBlocklist": {"retrieval": "dead"},
    "GuardAlwaysTrue": {"response": "dead"},
    "SwallowsEverything": {"response": "dead"},
    "UndefinedHelper": {"response": "dead"},
    "ImpossiblePattern": {"response": "dead"},
    "GeneratorNeverConsumed": {"content": "dead"},
    "MapNeverConsumed": {"content": "dead"},
    "GeneratorHelper": {"content": "active"},
    "NeverAwaited": {"response": "dead"},
    "AwaitsTwice": {"response": "active"},
    "DecoratedActs": {"response": "active"},
    "DecoratorLosesIt": {"response": "dead"},
    "DecoratorDoesIt": {"response": "active"},
    "MixinActs": {"response": "active"},
    "MixinIdle": {"response": "pass_through"},
    "Delegates": {"response": "active"},
    "DelegatesToNull": {"response": "pass_through"},
    "PartialHelper": {"response": "active"},
    "WrongVariable": {"response": "dead"},
    "DictResponse": {"response": "active"},
    "TupleReturned": {"response": "active"},
    "TupleUntouched": {"response": "pass_through"},
    "PromptHardener": {"prompt": "active"},
    "QueryTodo": {"query": "stub"},
    "CharByChar": {"response": "active"},
    "WhileLoop": {"response": "conditional"},
    "QueryBlocker": {"query": "pass_through"},
}
