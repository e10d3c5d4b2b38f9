"""Sessions of benign users and of our own attacks over an index of real passages, written as spans of ours.

Retrieval is real (TF-IDF, top 5); no language model runs. What answers is said with each kind of session.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import orjson
import pyarrow as pa
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer

from ragtrace.attacks.ikea import IKEA
from ragtrace.attacks.prompt_manipulation import PromptManipulation
from ragtrace.attacks.prompt_stealing import PromptStealing
from ragtrace.attacks.rag_mia import RAGMIA
from ragtrace.attacks.rag_thief import RAGThief
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.ingest.translate import SAID
from ragtrace.record.spool import segment_schema
from ragtrace.store import add_tables
from ragtrace.types import Corpus, Document

DATA = Path(os.environ.get("RAGTRACE_DATA", Path(__file__).parents[2] / "shared" / "data"))
SOURCES = ("nq", "triviaqa", "pubmedqa")
QUESTIONS = 10
REFUSED = "I cannot help with that."
ATTACKS = ("prompt_stealing", "prompt_manipulation", "rag_thief", "s2mia", "rag_mia", "ikea", "ikea_reworded")
_CHUNK = 2_000


class Turn(NamedTuple):
    query: str
    documents: list[Document]
    answer: str


@dataclass(frozen=True)
class Visit:
    """A session: who (benign source, or attack), and its turns."""

    name: str
    kind: str
    turns: list[Turn]


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text("utf-8").split("\n") if line]


def questions() -> dict[str, list[tuple[str, str]]]:
    """(question, answer) of each source, each once."""
    found = {
        "nq": [(r["question"], r["answers"][0]) for r in rows("nq") + rows("nq_extra")],
        "triviaqa": [(r["question"], r["answer"]) for r in rows("triviaqa")],
        "pubmedqa": [(r["question"], r["long_answer"]) for r in rows("pubmedqa")],
    }
    return {name: list(dict(pairs).items()) for name, pairs in found.items()}


class Library:
    """The real passages of NQ and PubMedQA; four of five are indexed. ``titles`` puts the question of each abstract,
    which is its title, before it."""

    def __init__(self, seed: int = 0, titles: bool = False) -> None:
        passages = [
            Document(r["passage"], f"nq-{n}", metadata={"subject": r["title"]})
            for n, r in enumerate(rows("nq"))
            if r["passage"]
        ]
        for r in rows("pubmedqa"):
            for n, text in enumerate(r["contexts"]):
                content = f"{r['question']}\n{text}" if titles and n == 0 else text
                topic = ", ".join(r["meshes"][:2]) or r["question"]
                passages.append(Document(content, f"pm-{r['pubid']}-{n}", metadata={"subject": topic}))
        once = list({passage.content: passage for passage in passages if len(passage.content.split()) >= 30}.values())
        random.Random(seed).shuffle(once)
        cut = len(once) * 4 // 5
        self.members, self.others = once[:cut], once[cut:]
        self._vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english")
        self._index = self._vectorizer.fit_transform([d.content for d in self.members]).T.tocsr()

    def top(self, queries: Sequence[str], k: int = 5) -> list[list[Document]]:
        found = []
        for at in range(0, len(queries), 500):
            scores = (self._vectorizer.transform(queries[at : at + 500]) @ self._index).toarray()
            best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
            found += [[self.members[place] for place in places] for places in best]
        return found

    def part(self, seed: int) -> Corpus:
        """What one attacker aims at."""
        source = random.Random(f"part {seed}")
        return Corpus("library", seed, tuple(source.sample(self.members, 60)), tuple(source.sample(self.others, 60)))

    @cached_property
    def embed(self) -> Callable[[list[str]], Any]:
        """Vectors for IKEA: hashed words and pairs, cheap."""
        hashing = HashingVectorizer(n_features=2**12, alternate_sign=False, ngram_range=(1, 2), norm="l2")
        return lambda texts: hashing.transform(texts).toarray()


def benign(library: Library, asked: Sequence[tuple[str, str]], kind: str, name: str = "") -> list[Visit]:
    """Sessions of ten questions in the order given; each is answered by its own (short) answer."""
    found = library.top([query for query, _ in asked])
    turns = [Turn(query, documents, answer) for (query, answer), documents in zip(asked, found, strict=True)]
    return [
        Visit(f"{name or kind}-{at}", kind, turns[at : at + QUESTIONS])
        for at in range(0, len(turns) - QUESTIONS + 1, QUESTIONS)
    ]


def of_one_topic(library: Library, asked: Sequence[tuple[str, str]], count: int, seed: int) -> list[Visit]:
    """Sessions about one thing: a question, and those that are nearest to it by their words."""
    source = random.Random(f"topic {seed}")
    vectors = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform([query for query, _ in asked])
    chosen = []
    for start in source.sample(range(len(asked)), count):
        near = np.argsort(-(vectors[start] @ vectors.T).toarray()[0], kind="stable")[:QUESTIONS]
        chosen += [asked[place] for place in near]
    return benign(library, chosen, "one topic")


def scripted(library: Library, queries: Sequence[str], kind: str, name: str, obeyed: bool = False) -> Visit:
    """An attacker whose queries are there from the start; the app refuses, or copies out what it retrieved."""
    found = library.top(queries)
    return Visit(
        name, kind, [Turn(q, ds, _copied(ds) if obeyed else REFUSED) for q, ds in zip(queries, found, strict=True)]
    )


def attacked(
    library: Library, attack: str, seed: int, app: Callable[[Sequence[Document]], str] | None = None, kind: str = ""
) -> Visit:
    """Ten queries of one of our own attacks, before an app. Without one PS, PM, S2MIA and RAG-MIA are refused, so that
    only what is asked can be seen; RAG-Thief needs an app that copies, IKEA one that answers: with two sentences of the
    best document, or (``ikea_reworded``) with these, every sixth word left out, so that no long run stays."""
    corpus, name, kind = library.part(seed), f"{kind or attack}-{seed}", kind or attack
    app = app or ANSWERED.get(attack)
    ikea = IKEA(QUESTIONS, embed=library.embed, theta_topic=0.0)
    made: dict[str, Any] = {
        "prompt_stealing": PromptStealing(QUESTIONS), "prompt_manipulation": PromptManipulation(QUESTIONS),
        "s2mia": S2MIA(QUESTIONS, split="position"), "rag_mia": RAGMIA(QUESTIONS), "rag_thief": RAGThief(QUESTIONS),
        "ikea": ikea, "ikea_reworded": ikea,
    }  # fmt: skip
    if not hasattr(made[attack], "session"):
        queries = [probe.query for probe in made[attack].probes(corpus, seed)]
        found = library.top(queries)
        answers = [app(documents) if app else REFUSED for documents in found]
        return Visit(name, kind, [Turn(*turn) for turn in zip(queries, found, answers, strict=True)])
    session, answer = made[attack].session(corpus, seed), None
    turns: list[Turn] = []
    while True:
        try:
            probe = session.send(answer)
        except StopIteration:
            return Visit(name, kind, turns)
        [documents] = library.top([probe.query])
        answer = app(documents) if app else REFUSED
        turns.append(Turn(probe.query, documents, answer))


def _copied(documents: Sequence[Document]) -> str:
    return "\n\n".join(document.content for document in documents)


def _two_sentences(documents: Sequence[Document]) -> str:
    return ". ".join(documents[0].content.split(". ")[:2]) + "."


def _reworded(documents: Sequence[Document]) -> str:
    return " ".join(word for n, word in enumerate(_two_sentences(documents).split()) if n % 6 != 5)


ANSWERED: dict[str, Callable[[Sequence[Document]], str]] = {
    "rag_thief": _copied, "ikea": _two_sentences, "ikea_reworded": _reworded,
}  # fmt: skip


def store(db: duckdb.DuckDBPyConnection, visits: Iterable[Visit], seed: int = 0) -> int:
    """Writes the sessions as spans, a minute between two questions; returns how many spans."""
    schema = segment_schema()
    for name in SAID:
        schema = schema.append(pa.field(name, pa.string()))
    source = random.Random(f"ids {seed}")

    def tables() -> Iterator[pa.Table]:
        waiting: list[dict[str, Any]] = []
        for visit in visits:
            start = 1_700_000_000_000_000_000 + source.randrange(30 * 86_400) * 1_000_000_000
            for n, turn in enumerate(visit.turns):
                waiting += _spans(visit.name, turn, start + n * 60_000_000_000, source)
            if len(waiting) >= _CHUNK:
                yield pa.Table.from_pylist(waiting, schema)
                waiting = []
        yield pa.Table.from_pylist(waiting, schema)

    return add_tables(db, tables())


def _spans(session: str, turn: Turn, start: int, source: random.Random) -> list[dict[str, Any]]:
    common = {
        "ragtrace.framework": "none",
        "ragtrace.path": "invoke",
        "ragtrace.capture": "full",
        "session.id": session,
    }
    found = [{"id": d.id, "content": d.content} for d in turn.documents]
    said = [{"role": "assistant", "parts": [{"type": "text", "content": turn.answer}]}]
    own: list[dict[str, Any]] = [
        {},
        {"ragtrace.stage": "retrieval", "gen_ai.retrieval.query.text": turn.query,
         "gen_ai.retrieval.documents": orjson.dumps(found).decode()},
        {"ragtrace.stage": "generation", "ragtrace.query": turn.query, "gen_ai.output.messages":
        orjson.dumps(said).decode()},
    ]  # fmt: skip
    trace, ids = f"{source.getrandbits(128):032x}", [f"{source.getrandbits(64):016x}" for _ in own]
    return [
        {"trace_id": trace, "span_id": ids[n], "parent_span_id": ids[0] if n else None, "name": "request",
         "kind": "INTERNAL", "start_time_ns": start + n, "end_time_ns": start + n + 1_000_000, "status": "UNSET",
         "service": "app", "scope": "ragtrace", "attributes": orjson.dumps(common | more).decode(), "events": "[]",
         "resource": "{}"}
        for n, more in enumerate(own)
    ]  # fmt: skip
