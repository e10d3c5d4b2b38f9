"""Guards of a service, as they look after a year: engines, settings, caches, plug-ins, vaults."""

from __future__ import annotations
import asyncio, dataclasses, functools, hashlib, json, logging, os, re, threading, time, typing, uuid
from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Literal, Protocol
from pydantic import BaseModel, Field, field_validator
from langchain_core.documents import BaseDocumentTransformer, Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from ragtrace import Defense, Message
from ragtrace import Document as RDoc

logger = logging.getLogger("privacy")


class EntityType(Enum):
    EMAIL = auto()
    PHONE = auto()


@dataclass(frozen=True)
class Rule:
    kind: EntityType
    pattern: re.Pattern
    enabled: bool = True

    def apply(self, text: str, mask: str) -> str:
        return self.pattern.sub(mask, text) if self.enabled else text


RULES = (
    Rule(EntityType.EMAIL, re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")),
    Rule(EntityType.PHONE, re.compile(r"\+?\d[\d ()-]{7,}\d")),
)
DISABLED = tuple(dataclasses.replace(r, enabled=False) for r in RULES)


class RuleEngine:
    def __init__(self, rules: Sequence[Rule] = RULES):
        self.rules = [r for r in rules if r.enabled]

    def run(self, text: str) -> str:
        for rule in self.rules:
            text = rule.apply(text, f"[{rule.kind.name}]")
        return text


class EngineGuard:
    def __init__(self, engine: RuleEngine | None = None):
        self.engine = engine or RuleEngine()

    def sanitize_response(self, response: str) -> str:
        started = time.perf_counter()
        cleaned = self.engine.run(response)
        logger.info("sanitised in %.1f ms", (time.perf_counter() - started) * 1000)
        return cleaned


class DisabledEngineGuard(EngineGuard):
    def __init__(self):
        super().__init__(RuleEngine(DISABLED))


class ShadowEngineGuard(EngineGuard):
    def sanitize_response(self, response: str) -> str:
        cleaned = super().sanitize_response(response)
        if cleaned != response:
            logger.warning("would have redacted")
        return response


class Settings(BaseModel):
    redact: bool = False
    mask: str = Field(default="***", min_length=1)
    kinds: list[str] = Field(default_factory=lambda: ["email"])


class SettingsGuard:
    def __init__(self, settings: Settings | None = None):
        self.settings = settings or Settings()

    def sanitize_response(self, response: str) -> str:
        if not self.settings.redact:
            return response
        return RULES[0].apply(response, self.settings.mask)


class KindsGuard:
    def __init__(self, settings: Settings | None = None):
        self.settings = settings or Settings()

    def sanitize_response(self, response: str) -> str:
        for rule in RULES:
            if rule.kind.name.lower() in self.settings.kinds:
                response = rule.apply(response, self.settings.mask)
        return response


class WrongKindsGuard:
    KINDS = ("Email", "Phone")

    def sanitize_response(self, response: str) -> str:
        for rule in RULES:
            if rule.kind.name in self.KINDS:
                response = rule.apply(response, "x")
        return response


class LRU:
    def __init__(self, size=128):
        self.data: OrderedDict[str, str] = OrderedDict()
        self.size = size
        self.lock = threading.Lock()

    def get(self, key, make):
        with self.lock:
            if key in self.data:
                self.data.move_to_end(key)
                return self.data[key]
        value = make(key)
        with self.lock:
            self.data[key] = value
            if len(self.data) > self.size:
                self.data.popitem(last=False)
        return value


class CachedGuard:
    def __init__(self):
        self.cache = LRU()
        self.engine = RuleEngine()

    def sanitize_response(self, response: str) -> str:
        return self.cache.get(response, self.engine.run)


class CachedNothing:
    def __init__(self):
        self.cache = LRU()

    def sanitize_response(self, response: str) -> str:
        return self.cache.get(response, lambda r: r)


class Vault:
    """reversible pseudonyms"""

    def __init__(self):
        self.forward: dict[str, str] = {}
        self.back: dict[str, str] = {}

    def tokenise(self, text):
        def sub(m):
            tok = self.forward.setdefault(m[0], f"<P{len(self.forward)}>")
            self.back[tok] = m[0]
            return tok

        return RULES[0].pattern.sub(sub, text)

    def restore(self, text):
        for tok, val in self.back.items():
            text = text.replace(tok, val)
        return text


class VaultQuery(Defense):
    def __init__(self):
        self.vault = Vault()

    def on_query(self, query):
        return self.vault.tokenise(query)


class VaultRoundTrip(Defense):
    def __init__(self):
        self.vault = Vault()

    def on_response(self, query, documents, response):
        return self.vault.restore(self.vault.tokenise(response))


class SentenceFilter(Defense):
    _SPLIT = re.compile(r"(?<=[.!?])\s+")

    def on_response(self, query, documents, response):
        keep = [s for s in self._SPLIT.split(response) if not RULES[0].pattern.search(s)]
        return " ".join(keep) or "(nothing to say)"


class Sharded(Defense):
    async def _clean(self, d):
        return dataclasses.replace(d, content=RuleEngine().run(d.content))

    async def on_content(self, query, documents):
        sem = asyncio.Semaphore(4)

        async def one(d):
            async with sem:
                return await self._clean(d)

        return list(await asyncio.gather(*[one(d) for d in documents]))


class TimeoutFallback(Defense):
    async def on_content(self, query, documents):
        try:
            async with asyncio.timeout(1):
                return [dataclasses.replace(d, content=RuleEngine().run(d.content)) for d in documents]
        except TimeoutError:
            return documents


class Reranked(BaseDocumentCompressor):
    model: Any = None

    def compress_documents(self, documents, query, callbacks=None):
        if self.model is None:
            logger.debug("no model, keeping order")
            return documents
        scores = self.model.predict([(query, d.page_content) for d in documents])
        return [d for _, d in sorted(zip(scores, documents), key=lambda p: -p[0])]


class Masker(BaseDocumentTransformer):
    def __init__(self, engine=None):
        self.engine = engine or RuleEngine()

    def transform_documents(self, documents, **kwargs):
        return [self._one(d) for d in documents]

    def _one(self, d):
        copy_ = d.model_copy(deep=True)
        copy_.page_content = self.engine.run(copy_.page_content)
        copy_.metadata.setdefault("redacted", True)
        return copy_

    async def atransform_documents(self, documents, **kwargs):
        return await asyncio.to_thread(self.transform_documents, documents)


class HistoryTrim(AgentMiddleware):
    def __init__(self, keep: int = 10):
        super().__init__()
        self.keep = keep

    def before_model(self, state: AgentState, runtime) -> dict[str, Any] | None:
        msgs = state["messages"]
        if len(msgs) <= self.keep:
            return None
        from langchain_core.messages import RemoveMessage

        return {"messages": [RemoveMessage(id=m.id) for m in msgs[: -self.keep]]}


class MaskAll(AgentMiddleware):
    def __init__(self):
        super().__init__()
        self.engine = RuleEngine()

    def _mask(self, m: AnyMessage) -> AnyMessage:
        if not isinstance(m.content, str):
            return m
        return m.model_copy(update={"content": self.engine.run(m.content)})

    def before_model(self, state, runtime):
        return {"messages": [self._mask(m) for m in state["messages"]]}

    def after_model(self, state, runtime):
        *_, last = state["messages"]
        new = self._mask(last)
        return {"messages": [new]} if new.content != last.content else None


class PatternPlugin(ABC):
    registry: ClassVar[dict[str, type[PatternPlugin]]] = {}

    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw)
        PatternPlugin.registry[cls.__name__] = cls

    @abstractmethod
    def scrub(self, text: str) -> str: ...


class EmailPlugin(PatternPlugin):
    def scrub(self, text):
        return RULES[0].apply(text, "x")


class PluginGuard:
    def sanitize_response(self, response):
        for cls in PatternPlugin.registry.values():
            response = cls().scrub(response)
        return response


class DescMask:
    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, obj, owner=None):
        return lambda text: RULES[0].apply(text, "x")


class DescGuard:
    mask = DescMask()

    def sanitize_response(self, response):
        return self.mask(response)


@contextmanager
def span(name):
    yield name


class SpanGuard:
    def sanitize_response(self, response):
        with span("mask") as s:
            out = RULES[0].apply(response, "x")
        return out


class SpanIdle:
    def sanitize_response(self, response):
        with span("mask"):
            out = response
        return out


class GenSend:
    def sanitize_response(self, response):
        parts = []
        it = iter(response.split("@"))
        parts.append(next(it))
        for p in it:
            parts.append("(at)")
            parts.append(p)
        return "".join(parts)


class GenSame:
    def sanitize_response(self, response):
        return "@".join(response.split("@"))


class Refuser:
    def sanitize_response(self, response):
        if any(r.pattern.search(response) for r in RULES):
            raise ValueError("blocked: personal data")
        return response


TRUTH = {
    "EngineGuard": {"response": "active"},
    "DisabledEngineGuard": {"response": "dead"},
    "ShadowEngineGuard": {"response": "dead"},
    "SettingsGuard": {"response": "dead"},
    "KindsGuard": {"response": "active"},
    "WrongKindsGuard": {"response": "dead"},
    "CachedGuard": {"response": "active"},
    "CachedNothing": {"response": "pass_through"},
    "VaultQuery": {"query": "active"},
    "VaultRoundTrip": {"response": "dead"},
    "SentenceFilter": {"response": "active"},
    "Sharded": {"content": "active"},
    "TimeoutFallback": {"content": "active"},
    "Reranked": {"retrieval": "dead"},
    "Masker": {"content": "active"},
    "HistoryTrim": {"prompt": "conditional"},
    "MaskAll": {"prompt": "active", "response": "conditional"},
    "PluginGuard": {"response": "active"},
    "DescGuard": {"response": "active"},
    "SpanGuard": {"response": "active"},
    "SpanIdle": {"response": "pass_through"},
    "GenSend": {"response": "active"},
    "GenSame": {"response": "pass_through"},
    "Refuser": {"response": "pass_through"},
    "EmailPlugin": {"response": "active"},
}
