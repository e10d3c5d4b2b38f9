"""Written by strangers to the engine: what would act but cannot, which it took for acting."""

from __future__ import annotations

import copy
import logging
import random
import re
import sys
import typing as t
from dataclasses import dataclass

import numpy as np
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.output_parsers import StrOutputParser

from ragtrace import Defense

log = logging.getLogger(__name__)
MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+", re.I | re.M)
PII_RE = re.compile(r"(?P<user>[\w.]+)@(?P<host>[\w.]+)")
_MASK = "[redacted]"


def _swap(rx, repl, text):
    return rx.sub(repl, text)


@dataclass
class Report:
    original: str
    cleaned: str = ""


class Swallows:
    def filter_response(self, response):
        try:
            cleaned = MAIL.sub("", response)
            cleaned.append("")
            response = cleaned
        except Exception:
            log.exception("oops")
        return response


class NeverMatches:
    RX = re.compile(r"\b\B[\w.]+@[\w.]+")

    def filter_output(self, output):
        return self.RX.sub("[mail]", output)


class LCParserIdle(StrOutputParser):
    def parse(self, text: str) -> str:
        parsed = super().parse(text)
        MAIL.sub("", parsed)
        return parsed


class MWWrapLost(AgentMiddleware):
    def wrap_model_call(self, request, handler):
        request.override(messages=[HumanMessage(MAIL.sub("", m.content)) for m in request.messages])
        return handler(request)


class EpsZero:
    scale = 0.0

    def perturb_scores(self, scores):
        return [s + self.scale * random.random() for s in scores]


class Negated:
    def filter_output(self, output):
        found = MAIL.findall(output)
        for f in found:
            output = output.replace(f, f)
        return output


class CoroNever:
    async def _clean(self, docs):
        for d in docs:
            d["text"] = MAIL.sub("", d["text"])

    def sanitize_documents(self, docs):
        coro = self._clean(docs)
        coro.close()
        return docs


class RTNoiseDropped(Defense):
    def on_retrieval(self, query, documents):
        noisy = {d.id: d.score + random.gauss(0, 1) for d in documents}
        ranking = sorted(noisy, key=noisy.get, reverse=True)
        log.debug("ranking %s", ranking)
        return list(documents)


class BackspacePattern:
    def filter_output(self, text):
        return re.sub("\b[a-z.]+@[a-z.]+\b", "[MAIL]", text)


class LiteralReplace:
    def filter_output(self, text):
        return text.replace(r"[\w.]+@[\w.]+", "[MAIL]")


class MissingSubArg:
    def filter_output(self, text):
        try:
            return PII_RE.sub(text)
        except TypeError:
            return text


class NoneEngine:
    def __init__(self):
        self.engine = None

    def filter_output(self, text):
        try:
            text = self.engine.anonymize(text)
        except AttributeError:
            pass
        return text


class IndexText:
    def filter_output(self, text: str):
        try:
            return PII_RE.sub("", text["content"])
        except Exception as e:
            log.error(e)
            return text


class Backref:
    def filter_output(self, text):
        return PII_RE.sub(r"\g<user>@\g<host>", text)


class FuncBack:
    def _keep(self, m):
        return m.group()

    def filter_output(self, text):
        return PII_RE.sub(self._keep, text)


class TernaryWrong:
    def filter_output(self, text):
        masked = PII_RE.sub("[x]", text)
        return text if masked else masked


class FiltLen:
    def filter_documents(self, documents):
        return [d for d in documents if len(d["text"]) >= 0]


class TaskNever:
    async def _one(self, d):
        d["text"] = PII_RE.sub("", d["text"])

    async def sanitize_documents(self, docs):
        coros = [self._one(d) for d in docs]
        return docs


class MapEmpty:
    NAMES = {}

    def filter_output(self, text):
        for real, fake in self.NAMES.items():
            text = text.replace(real, fake)
        return text


class VersionGate:
    def filter_output(self, text):
        if sys.version_info < (3, 0):
            text = PII_RE.sub("", text)
        return text


class TypeChecking:
    def filter_output(self, text):
        if t.TYPE_CHECKING:
            text = PII_RE.sub("", text)
        return text


class NumpyNoiseLost:
    def perturb_scores(self, scores):
        arr = np.array(scores)
        arr += np.random.normal(0, 1, len(scores))
        return scores


class TokensLost:
    def filter_output(self, text):
        toks = text.split()
        for i, tok in enumerate(toks):
            if PII_RE.match(tok):
                toks[i] = "***"
        return text


class Chain2Lost:
    def __init__(self):
        self.steps = [self._a]

    def _a(self, x):
        return PII_RE.sub("", x)

    def filter_output(self, text):
        for step in self.steps:
            step(text)
        return text


class TemplateLost:
    def filter_prompt(self, prompt):
        guard = f"Do not reveal personal data.\n\n{prompt}"
        return prompt


class CharsLost:
    def redact_response(self, response):
        chars = list(response)
        for m in MAIL.finditer(response):
            for i in range(m.start(), m.end()):
                chars[i] = "*"
        return response


class DividesByZero:
    def redact_response(self, response):
        try:
            raise_if = 1 / 0
            response = MAIL.sub(_MASK, response)
        except ZeroDivisionError:
            pass
        return response


class NoRounds:
    def redact_response(self, response):
        for _ in range(0):
            response = MAIL.sub(_MASK, response)
        return response


class OnlyBytes:
    def redact_response(self, response):
        if isinstance(response, bytes):
            response = response.decode().replace("@", "")
        return response


class PutsBackInTheEnd:
    def __init__(self):
        self.vault = {}

    def redact_response(self, response):
        def repl(m):
            self.vault[m.group(0)] = 1
            return m.group(0)

        return MAIL.sub(repl, response)


class ReturnsTheOriginal:
    def redact_response(self, response):
        rep = Report(original=response)
        rep.cleaned = MAIL.sub(_MASK, response)
        return rep.original


class MappedCopies:
    def redact_documents(self, documents):
        clones = list(map(copy.copy, documents))
        for c in clones:
            c["text"] = MAIL.sub(_MASK, c["text"])
        return documents


class EqualAnyway:
    def filter_output(self, text):
        masked = MAIL.sub("", text)
        if masked == text:
            return masked
        return text


TRUTH = {
    "Swallows": {"response": "dead"},
    "NeverMatches": {"response": "dead"},
    "LCParserIdle": {"response": "dead"},
    "MWWrapLost": {"prompt": "dead"},
    "EpsZero": {"retrieval": "dead"},
    "Negated": {"response": "dead"},
    "CoroNever": {"content": "dead"},
    "RTNoiseDropped": {"retrieval": "dead"},
    "BackspacePattern": {"response": "dead"},
    "LiteralReplace": {"response": "dead"},
    "MissingSubArg": {"response": "dead"},
    "NoneEngine": {"response": "dead"},
    "IndexText": {"response": "dead"},
    "Backref": {"response": "dead"},
    "FuncBack": {"response": "dead"},
    "TernaryWrong": {"response": "dead"},
    "FiltLen": {"retrieval": "dead"},
    "TaskNever": {"content": "dead"},
    "MapEmpty": {"response": "dead"},
    "VersionGate": {"response": "dead"},
    "TypeChecking": {"response": "dead"},
    "NumpyNoiseLost": {"retrieval": "dead"},
    "TokensLost": {"response": "dead"},
    "Chain2Lost": {"response": "dead"},
    "TemplateLost": {"prompt": "dead"},
    "CharsLost": {"response": "dead"},
    "DividesByZero": {"response": "dead"},
    "NoRounds": {"response": "dead"},
    "OnlyBytes": {"response": "dead"},
    "PutsBackInTheEnd": {"response": "dead"},
    "ReturnsTheOriginal": {"response": "dead"},
    "MappedCopies": {"content": "dead"},
    "EqualAnyway": {"response": "dead"},
}
