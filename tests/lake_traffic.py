"""A store of which every view has rows that depend on something: on other traces too, where a view reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from report_store import ask, manifest
from store_fixtures import Bench, effect

from ragtrace.record import attributes as a

SECRET = "zq-77-ab"
TEXTS = ("Ann Lee keeps the contract in room 7.", "Bob Stone signs contract one.")
OPEN = "openinference.instrumentation.llama_index"


def fill(bench: Bench) -> None:
    """An audit with a control arm, and traffic: sessions, bypasses, parts of frameworks, calls seen twice, alone."""
    planted = [{"text": SECRET, "family": "id", "document_id": "d1"}]
    manifest(bench, "r", planted, {"none": [], "mask": ["mask"], "no_retrieval": []}, 1)
    for n in range(3):
        text = f"Contract {n} is signed by Ann Lee of Paris, {SECRET}."
        found = (("d1", text), (f"d{n}", f"Room {n}."))
        claims: dict[str, list[str]] = {"mask": ["response", "content"]}
        ask(bench, "r", "none", f"p{n}", f"Ann Lee said {SECRET}.", query="Who is Ann Lee?", found=found, declared={})
        done = [effect("mask", "response", text_changed=True)] if n else []
        ask(bench, "r", "mask", f"p{n}", f"[X] of Paris, {n}", done, found=found, declared=claims, kept=found[:1])
        ask(bench, "r", "no_retrieval", f"p{n}", "Ann Lee knows." if n else "No.", found=(("no", "Nothing."),))
    _traffic(bench)
    _parts(bench)
    _foreign(bench)
    with bench.span("beside", scope="another"):
        pass


def _traffic(bench: Bench) -> None:
    """Three sessions; a planted canary in an answer outside of the audit; a defense that fails, one that is late."""
    failed = effect("guard", "prompt", "error", error="TimeoutError")
    for n, (path, effects) in enumerate([("invoke", [failed]), ("stream", [effect("guard", "response", late=True)])]):
        for whose in ("c1", "c2"):
            with bench.request(path, declared={"guard": ["prompt", "response"]}, **{a.CONVERSATION: whose}):
                _call(bench, f"Question {n}?", f"Answer {n}: {SECRET}, says Ann Lee.", path, effects)
    with bench.request(declared="not JSON", **{a.USER: "u"}):
        _call(bench, "Who signs?", "Bob Stone signs contract one in the green room.", "invoke", [])
    with bench.request(), bench.stage("generation"):
        pass  # no document, no text


def _parts(bench: Bench) -> None:
    """A framework's part that says its hook where it changed something, and in another trace does not say it."""
    ranks = {"part": True, "documents_before": 2, "documents_after": 2}
    for n in range(3):
        ran = effect("Ranker", "retrieval", order_changed=True, **ranks) if n else effect("Ranker", "content", **ranks)
        with bench.request():
            _call(bench, "Rank?", "One.", "invoke", [ran])
    silent = {"defense": "Ranker", "status": "unchanged", **ranks}
    with bench.request(declared={"Ranker": ["retrieval"]}):
        _call(bench, "Rank silently?", "Two.", "invoke", [silent])


def _foreign(bench: Bench) -> None:
    """Another instrumentation: alone, and beside ours; a part that nobody compared, and one that we saw as well."""
    said = {"input.value": "Who?", "output.value": "Ann Lee.", "openinference.span.kind": "LLM"}
    found = {"openinference.span.kind": "RETRIEVER", "input.value": "Who?"} | {
        "retrieval.documents.0.document.content": "Ann Lee works in room 7.", "retrieval.documents.0.document.id": "f1",
    }  # fmt: skip
    with bench.span("query", {"openinference.span.kind": "CHAIN", "session.id": "s9"}, scope=OPEN):
        with bench.span("retrieve", found, scope=OPEN):
            pass
        for name in ("TheirRanker.postprocess_nodes", "Ranker.postprocess_nodes"):
            with bench.span(name, {"openinference.span.kind": "RERANKER"}, scope=OPEN):
                pass
        with bench.span("llm", said, scope=OPEN):
            pass
    same = {f"retrieval.documents.{n}.document.content": text for n, text in enumerate(TEXTS)}
    same |= {f"retrieval.documents.{n}.document.id": f"t{n}" for n in range(len(TEXTS))}
    with bench.request(), bench.span("retrieve", found | same, scope=OPEN):
        _call(bench, "Who?", "Ann Lee.", "invoke", [])


def _call(bench: Bench, query: str, answer: str, path: str, effects: Sequence[dict[str, Any]]) -> None:
    documents = json.dumps([{"id": f"t{n}", "content": text, "score": 0.5} for n, text in enumerate(TEXTS)])
    early = [e for e in effects if e.get("hook") not in ("prompt", "response")]
    late = [e for e in effects if e not in early]
    with bench.stage(
        "retrieval", path, **{a.RETRIEVAL_QUERY: query, a.RETRIEVAL_DOCUMENTS: documents}, effects=_compact(early)
    ):
        pass
    messages = [{"role": "assistant", "parts": [{"content": answer, "chars": len(answer)}]}]
    with bench.stage("generation", path, **{a.QUERY: query, a.OUTPUT_MESSAGES: messages}, effects=_compact(late)):
        pass


def _compact(effects: list[dict[str, Any]]) -> str:
    """As the recorder writes them."""
    return json.dumps(effects, separators=(",", ":"))
