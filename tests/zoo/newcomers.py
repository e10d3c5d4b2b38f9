"""Written by strangers to the engine: what its first reading got wrong, and now gets right."""

from __future__ import annotations

import base64
import functools
import itertools
import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from langchain_core.documents import Document as LCDocument
from langchain_core.documents.compressor import BaseDocumentCompressor

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


class JsonRoundTrip:
    def apply_defense_context(self, documents):
        safe = json.loads(json.dumps(documents))
        return safe


class TakeWhile:
    def filter_results(self, results):
        return list(itertools.islice(results, 2))


class NotYet:
    def _mask(self, t):
        raise NotImplementedError("soon")

    def filter_output(self, output):
        return self._mask(output)


class PartialClass:
    scrubber = staticmethod(partial(_swap, MAIL, "<>"))

    def filter_output(self, output):
        return self.scrubber(output)


class Dispatcher:
    def __init__(self, strategy: str = "hash"):
        self.strategy = strategy
        self._table = {"hash": self._hash, "noop": self._noop}

    def _hash(self, t):
        return MAIL.sub(lambda m: str(hash(m[0])), t)

    def _noop(self, t):
        return t

    def filter_output(self, output):
        return self._table[self.strategy](output)


class GetattrDispatch:
    kinds = ("mail", "phone")

    def _drop_mail(self, t):
        return MAIL.sub("", t)

    def _drop_phone(self, t):
        return re.sub(r"\d{7,}", "", t)

    def filter_output(self, output):
        for k in self.kinds:
            output = getattr(self, f"_drop_{k}")(output)
        return output


class LCSame(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        return [LCDocument(page_content=d.page_content, metadata=dict(d.metadata)) for d in documents]


class PassBase:
    def filter_output(self, output):
        return output


class CallCls:
    def __init__(self, inner=None):
        self.inner = inner or PassBase()

    def filter_output(self, output):
        return self.inner.filter_output(output)


class RTPromptConcat(Defense):
    def on_prompt(self, messages):
        extra = []
        return extra + list(messages)


class Nonlocal:
    def filter_output(self, text):
        result = text

        def apply():
            nonlocal result
            result = PII_RE.sub("", result)

        apply()
        return result


class Threaded:
    def sanitize_documents(self, docs):
        def one(d):
            return {**d, "text": PII_RE.sub("", d["text"])}

        with ThreadPoolExecutor() as ex:
            return list(ex.map(one, docs))


class Init:
    def __init__(self, rx=None):
        self.rx = rx or PII_RE
        self._sub = functools.partial(self.rx.sub, "[m]")

    def filter_output(self, text):
        return self._sub(text)


class Bound:
    def __init__(self):
        self.cleaner = PII_RE.sub

    def filter_output(self, text):
        return self.cleaner("", text)


class Chain2:
    def __init__(self):
        self.steps = [self._a, self._b]

    def _a(self, x):
        return PII_RE.sub("", x)

    def _b(self, x):
        return x

    def filter_output(self, text):
        for step in self.steps:
            text = step(text)
        return text


class Chain2Idle:
    def __init__(self):
        self.steps = [self._b]

    def _b(self, x):
        return x

    def filter_output(self, text):
        for step in self.steps:
            text = step(text)
        return text


class FormatWrap:
    def filter_output(self, text):
        return "%s" % text


class RaiseThenMask:
    def _check(self, text):
        if PII_RE.search(text):
            raise ValueError("pii")

    def filter_output(self, text):
        try:
            self._check(text)
        except ValueError:
            return "[removed]"
        return text


class B64:
    def filter_output(self, text):
        return base64.b64encode(text.encode()).decode()


class FoldsOverMethods:
    def __init__(self):
        self._pipeline = (self._lower, self._mask)

    def _lower(self, s):
        return s.lower()

    def _mask(self, s):
        return MAIL.sub(_MASK, s)

    def redact_response(self, response):
        return functools.reduce(lambda acc, f: f(acc), self._pipeline, response)


class ReturnsTheCleaned:
    def redact_response(self, response):
        rep = Report(original=response)
        rep.cleaned = MAIL.sub(_MASK, response)
        return rep.cleaned


class Masker:
    def __call__(self, s):
        return MAIL.sub("", s)

    def run(self, s):
        return MAIL.sub("", s)


class SortsWords:
    def filter_output(self, text):
        toks = text.split(" ")
        toks.sort()
        return " ".join(toks)


class DeclaredThenMade:
    engine = None

    def __init__(self):
        self.engine = Masker()

    def filter_output(self, text):
        return self.engine.run(text)


class GivenOrLambda(Defense):
    def __init__(self, f=None):
        super().__init__()
        self.mask = f or (lambda s: MAIL.sub("", s))

    def on_response(self, query, documents, response):
        return self.mask(response)


class GivenPatterns:
    def __init__(self, patterns=None):
        self.patterns = patterns or []

    def _all(self, response):
        for p in self.patterns:
            response = re.sub(p, _MASK, response)
        return response


class GivenSome(GivenPatterns):
    def __init__(self):
        super().__init__([r"\S+@\S+"])

    def redact_response(self, response):
        return self._all(response)


TRUTH = {
    "JsonRoundTrip": {"content": "pass_through"},
    "TakeWhile": {"retrieval": "active"},
    "NotYet": {"response": "stub"},
    "PartialClass": {"response": "active"},
    "Dispatcher": {"response": "conditional"},
    "GetattrDispatch": {"response": "active"},
    "LCSame": {"content": "pass_through"},
    "PassBase": {"response": "pass_through"},
    "CallCls": {"response": "pass_through"},
    "RTPromptConcat": {"prompt": "pass_through"},
    "Nonlocal": {"response": "active"},
    "Threaded": {"content": "active"},
    "Init": {"response": "active"},
    "Bound": {"response": "active"},
    "Chain2": {"response": "active"},
    "Chain2Idle": {"response": "pass_through"},
    "FormatWrap": {"response": "pass_through"},
    "RaiseThenMask": {"response": "conditional"},
    "B64": {"response": "active"},
    "FoldsOverMethods": {"response": "active"},
    "ReturnsTheCleaned": {"response": "active"},
    "SortsWords": {"response": "active"},
    "DeclaredThenMade": {"response": "active"},
    "GivenOrLambda": {"response": "active"},
    "GivenSome": {"response": "conditional"},
}
