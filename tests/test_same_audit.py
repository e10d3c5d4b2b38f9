"""One audit, two frameworks: the same documents, embedder, prompt and (real) model give the same effects and ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

import ragtrace
from ragtrace import audit, demo, embedded
from ragtrace.attacks.benign import BenignQueries
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.canaries import plant_corpus
from ragtrace.corpora.synthetic_email import SyntheticEmail
from ragtrace.defenses import EntitySubstitution, PromptModifying, RegexMask
from ragtrace.embedded.pipeline import rag
from ragtrace.types import Corpus, Document

pytestmark = [pytest.mark.model, pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset")]
TOKENS = 16


class Asked(httpx.BaseTransport):
    """The way to the model, for both frameworks: what both ask is answered once, for its answer takes seconds."""

    def __init__(self) -> None:
        self.model = httpx.HTTPTransport()
        self.answers: dict[str, tuple[int, httpx.Headers, bytes]] = {}
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        asked = json.loads(request.read())
        asked["max_tokens"] = asked.pop("max_completion_tokens", asked.get("max_tokens"))  # two names of one thing
        asked = {k: v for k, v in asked.items() if k not in ("logprobs", "top_logprobs")}  # change no text
        key = json.dumps([str(request.url), asked], sort_keys=True)
        if key not in self.answers:
            answer = self.model.handle_request(request)
            self.answers[key] = answer.status_code, answer.headers, answer.read()
        status, headers, content = self.answers[key]
        return httpx.Response(status, headers=headers, content=content)

    def close(self) -> None:
        self.model.close()


def arms() -> list[audit.Arm]:
    defenses = (RegexMask(), EntitySubstitution(), PromptModifying())
    return [audit.Arm("none"), *(audit.Arm(d.name, (d,)) for d in defenses)]


def llama_pipeline(documents: Sequence[Document], model: Any, embeddings: Any) -> Callable[[str], str]:
    """The twin of ``ragtrace.embedded.pipeline.rag``, as one writes it with LlamaIndex."""
    from llama_index.core import VectorStoreIndex, get_response_synthesizer
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.embeddings import BaseEmbedding
    from llama_index.core.prompts import ChatPromptTemplate
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.schema import TextNode

    class Embedder(BaseEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            return list(embeddings.embed_query(text))

        def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
            return list(embeddings.embed_documents(texts))

        _get_query_embedding = _get_text_embedding

        async def _aget_query_embedding(self, query: str) -> list[float]:
            return self._get_query_embedding(query)

    nodes = [TextNode(text=d.content, id_=d.id) for d in documents]
    index = VectorStoreIndex(nodes, embed_model=Embedder())
    user = "Context:\n{context_str}\n\n{query_str}"
    template = ChatPromptTemplate([ChatMessage.from_str(demo.SYSTEM, "system"), ChatMessage.from_str(user, "user")])
    synthesizer = get_response_synthesizer(llm=model, text_qa_template=template)
    engine = RetrieverQueryEngine(index.as_retriever(similarity_top_k=5), synthesizer)
    return lambda query: str(engine.query(query))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with embedded.serve() as served:
        yield served


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def client(asked: Asked) -> Iterator[httpx.Client]:
    with httpx.Client(transport=asked) as opened:
        yield opened


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    avoid = frozenset().union(*(d.constants() for arm in arms() for d in arm.defenses))
    return plant_corpus(SyntheticEmail(140).build(40, 101), ("email", "person"), 101, avoid)


def audited(database: Path, app: Callable[[str], str], corpus: Corpus, tracing: Any) -> dict[str, Any]:
    asked = [p for attack in (CanaryAttack(1), BenignQueries(1)) for p in attack.probes(corpus, corpus.seed)]
    report = audit.run(app, arms(), asked, tracing=tracing, canaries=corpus.canaries)
    assert report.failures == []
    with ragtrace.open(database) as db:
        return {
            "effects": db.execute(
                """SELECT arm, probe_id, defense, hook, status, ids_changed, order_changed, scores_changed,
                text_changed, documents_before, documents_after, chars_before, chars_after, path FROM effects
                WHERE run_id = ? ORDER BY ALL""", [report.run_id]).fetchall(),
            "retrieved": db.execute(
                """SELECT s.arm, s.probe_id, d.phase, d.rank, d.document_id, d.content
                FROM documents d JOIN stages s USING (trace_id, span_id) WHERE s.run_id = ? ORDER BY ALL""",
                [report.run_id]).fetchall(),
            "generated": db.execute(
                "SELECT arm, probe_id, prompt, response FROM generations WHERE run_id = ? ORDER BY ALL",
                [report.run_id]).fetchall(),
            "coverage": db.execute(
                "SELECT arm, defense, hook, path, ran FROM coverage WHERE run_id = ? ORDER BY ALL",
                [report.run_id]).fetchall(),
            "frameworks": db.execute(
                "SELECT DISTINCT framework FROM stages WHERE run_id = ?", [report.run_id]).fetchall(),
        }  # fmt: skip


def test_the_same_audit_on_both_frameworks(
    tmp_path: Path, url: str, corpus: Corpus, asked: Asked, client: httpx.Client
) -> None:
    from llama_index.llms.openai_like import OpenAILike

    database, embeddings = tmp_path / "t.duckdb", embedded.embedder()
    chat = embedded.chat_model(url, cache=embedded.GenerationCache(), max_tokens=TOKENS)
    chat.root_client = chat.root_client.with_options(http_client=client)
    chat.client = chat.root_client.chat.completions
    like = OpenAILike(
        model=embedded.MODEL, api_base=url, api_key="none-needed", is_chat_model=True, temperature=0, timeout=600,
        max_tokens=TOKENS, context_window=8192, http_client=client,
    )  # fmt: skip
    tracing = ragtrace.setup(database, capture="full")
    try:
        one = audited(database, rag(corpus.members, chat, embeddings, demo.SYSTEM), corpus, tracing)
        other = audited(database, llama_pipeline(corpus.members, like, embeddings), corpus, tracing)
    finally:
        tracing.shutdown()
    assert asked.requests > len(asked.answers) > 4, "both ask it, and one asks what the other asked"
    assert (one.pop("frameworks"), other.pop("frameworks")) == ([("langchain",)], [("llama_index",)])
    assert len(one["effects"]) == 2 * 4 and {e[4] for e in one["effects"]} == {"changed", "unchanged"}
    assert len({r[4] for r in one["retrieved"]}) >= 5
    for what in ("effects", "retrieved", "generated", "coverage"):
        assert one[what] == other[what]
