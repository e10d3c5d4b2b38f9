"""A corpus, a pipeline and a model that reads its context: an audit whose membership scores are known beforehand."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any, ClassVar

import duckdb
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

import ragtrace
from ragtrace import audit
from ragtrace.attacks import mba, rag_mia, s2mia
from ragtrace.types import Corpus, Document

_PLAIN = (
    "the report of {0} says that {1} met {2} near {3} on day {4} and paid {5} coins for {6} because {7} had left {8}."
)
DONT_KNOW = "I don't know."


def documents(n: int, seed: int) -> list[Document]:
    """Texts with names, numbers and made-up words that no other text has."""
    rng = random.Random(seed)

    def word() -> str:
        return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(4))

    def text() -> str:
        names = [word().capitalize() if i in (0, 1, 2) else word() for i in range(9)]
        names[4], names[5] = str(rng.randrange(1000, 9999)), str(rng.randrange(10_000, 99_999))
        return "T" + _PLAIN.format(*names)[1:]

    return [Document(f"{text()} {text()}", f"d{i}") for i in range(n)]


def corpus(seed: int = 5, n: int = 12) -> Corpus:
    made = documents(2 * n, seed)
    return Corpus("reports", seed, tuple(made[:n]), tuple(made[n:]))


class Bag(Embeddings):
    """Vectors of words, so that the text nearest to a query is the one that shares most with it."""

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * 512
        for word in re.findall(r"\w+", text.casefold()):
            vector[random.Random(word).randrange(512)] += 1.0
        norm = math.sqrt(sum(x * x for x in vector)) or 1.0
        return [x / norm for x in vector]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def _asks(instruction: str, question: str) -> str | None:
    """What fills the one slot of an attack's instruction."""
    before, _, after = instruction.partition("{}")
    return question.removeprefix(before).removesuffix(after) if question.startswith(before) else None


class Reader(BaseChatModel):
    """Answers each attack's questions from its context alone, with the first token's candidates beside the answer."""

    candidates: ClassVar[dict[str, list[tuple[str, float]]]] = {
        "Yes": [("Yes", 0.6), (" yes", 0.2), ("No", 0.1)],
        "No": [("No", 0.7), ("yes", 0.1), ("NO", 0.1)],
    }

    @property
    def _llm_type(self) -> str:
        return "reader"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        context, question = (str(m.text) for m in messages[-2:])
        text = self.answer(context.removeprefix("Context:\n"), question)
        told = [
            {"token": t, "logprob": math.log(p), "top_logprobs": []}
            for t, p in self.candidates.get(text, [(text, 1.0)])
        ]
        content = [{"token": "\n", "logprob": -0.1, "top_logprobs": []}, told[0] | {"top_logprobs": told}]
        message = AIMessage(text, response_metadata={"logprobs": {"content": content}})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def answer(self, context: str, question: str) -> str:
        shelf = [text for text in context.split("\n---\n") if text]
        if (text := _asks(rag_mia.INSTRUCTION, question)) is not None:
            return "Yes" if text in shelf else "No"
        if (text := _asks(mba.INSTRUCTION, question)) is not None:
            return self.fill(shelf, text)
        if (text := _asks(s2mia.INSTRUCTION, question)) is not None:
            return next((told for told in shelf if told.startswith(text)), DONT_KNOW)
        if asked := re.fullmatch(r"This is about: (.*)\n(.*) Answer with yes, no or unknown\.", question):
            told = next((t for t in shelf if t.startswith(asked[1])), None)
            said = re.search(r'"(.*)"', asked[2])
            assert said is not None
            return "unknown" if told is None else "Yes" if said[1] in told else "No"
        named = re.findall(r"\b[A-Za-z]{8}\b", question)  # the made-up words
        return next((told for told in shelf if any(n.casefold() in told.casefold() for n in named)), DONT_KNOW)

    def fill(self, shelf: list[str], masked: str) -> str:
        pattern = re.sub(r"\\\[Mask_\d+\\\]", r"(\\S+?)", re.escape(masked))
        for told in shelf:
            if found := re.fullmatch(pattern, told):
                return "\n".join(f"[Mask_{i}]: {word}" for i, word in enumerate(found.groups(), 1))
        return DONT_KNOW


def chain(members: tuple[Document, ...], model: Any, k: int = 5) -> Runnable[Any, Any]:
    index = InMemoryVectorStore(Bag())
    index.add_texts([d.content for d in members], ids=[d.id for d in members])
    prompt = ChatPromptTemplate.from_messages([("system", "Context:\n{context}"), ("user", "{question}")])
    joined = RunnableLambda(lambda found: "\n---\n".join(d.page_content for d in found))
    retriever = index.as_retriever(search_kwargs={"k": k})
    return {"context": retriever | joined, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


def audited(
    database: Path, arms: list[audit.Arm], attacks: list[Any], capture: Any = "full", model: Any = None
) -> Corpus:
    """One audit of that pipeline, in ``database``, which is closed."""
    aimed = corpus()
    tracing = ragtrace.setup(database, capture=capture)
    try:
        asked = chain(aimed.members, model or Reader())
        probes = [p for attack in attacks for p in attack.probes(aimed, 1)]
        report = audit.run(asked.invoke, arms, probes, tracing=tracing)
        assert report.failures == []
    finally:
        tracing.shutdown()
    return aimed


def sides(db: duckdb.DuckDBPyConnection, metric: str, arm: str) -> tuple[list[float | None], list[float | None]]:
    """The stored scores of members and of non-members."""
    found: dict[bool, list[float | None]] = {True: [], False: []}
    for is_member, value in db.execute(
        "SELECT DISTINCT ON (s.probe_id) is_member, value FROM scores s JOIN probes USING (run_id, probe_id, arm) "
        "WHERE metric = ? AND s.arm = ?",
        [metric, arm],
    ).fetchall():
        found[is_member].append(value)
    return found[True], found[False]
