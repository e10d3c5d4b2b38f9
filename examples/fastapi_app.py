"""A FastAPI app under load: 200 requests at a time, two routes, one mask. Which route goes round it?

pip install 'ragtrace-audit[langchain]' fastapi httpx
python examples/fastapi_app.py
As a service: uvicorn examples.fastapi_app:app (in each worker, setup() runs; they share one database)
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, StreamingResponse
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

import ragtrace

database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database)  # capture="digest": no text is kept, and the verdicts are the same


@ragtrace.observe(hook="response", name="house-mask")
async def mask(text: str) -> str:
    return text.replace("ann.lee@corp.com", "[e-mail]")


store = InMemoryVectorStore.from_texts(["Ann Lee (ann.lee@corp.com) signs."], DeterministicFakeEmbedding(size=8))
prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
model = FakeListChatModel(responses=["Write to ann.lee@corp.com."])
chain = {"context": store.as_retriever(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()
app = FastAPI()


@app.get("/ask")
async def ask(q: str) -> PlainTextResponse:
    return PlainTextResponse(await mask(await chain.ainvoke(q)))


@app.get("/stream")
async def stream(q: str) -> StreamingResponse:
    async def tokens() -> AsyncIterator[str]:
        async for token in chain.astream(q):
            yield token

    return StreamingResponse(tokens(), media_type="text/plain")


async def load(requests: int) -> None:
    """Half of them on each route, all at once."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        answers = await asyncio.gather(
            *(client.get("/ask" if n % 2 else "/stream", params={"q": f"Who signs {n}?"}) for n in range(requests))
        )
    print("answers:", dict(sorted(Counter(f"{a.status_code} {a.text}" for a in answers).items())))


if __name__ == "__main__":
    asyncio.run(load(200))
    tracing.flush()
    with ragtrace.open(database) as db:
        (row,) = ragtrace.verdicts(db)
        print(f"{row['defense']} at {row['hook']}: {row['verdict']} on {row['bypassed_paths']}")
        print(row["evidence"])
        for path, crossings, missed in db.execute(
            "SELECT path, crossings, bypassed FROM verdict_paths WHERE crossings > 0 ORDER BY path"
        ).fetchall():
            print(f"  {path}: {crossings} answers, {missed} without the mask")
        (lost,) = db.execute("SELECT sum(lost) FROM losses").fetchone()
        print("spans lost:", lost)
