"""Trace a chain of your own, ask where its defense acts, and find the route that goes round it.

pip install 'ragtrace-audit[langchain]'
python examples/quickstart.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

import ragtrace

# 1. One line, before your pipelines run. The default, capture="digest", keeps no text.
database = Path(tempfile.mkdtemp()) / "traces.duckdb"
tracing = ragtrace.setup(database, capture="full")


# 2. One line on the defense that you already have: it is declared, and compared at every call.
@ragtrace.observe(hook="response", name="house-mask")
def mask(text: str) -> str:
    return text.replace("ann.lee@corp.com", "[e-mail]")


# 3. Your chain, unchanged.
store = InMemoryVectorStore.from_texts(["Ann Lee (ann.lee@corp.com) signs."], DeterministicFakeEmbedding(size=8))
prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
model = FakeListChatModel(responses=["Write to ann.lee@corp.com."])
chain = {"context": store.as_retriever(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()

print("invoke:", (chain | mask).invoke("Who signs?"))
print("stream:", "".join(chain.stream("Who signs?")))  # somebody forgot the mask on this route

# 4. Ask. A service writes all the time; only a script that reads at once has to flush.
tracing.flush()
db = ragtrace.open(database)
for row in ragtrace.verdicts(db):  # in a notebook: ragtrace.verdicts(db), or .to_pandas(), .to_polars()
    print(f"\n{row['defense']} at {row['hook']}: {row['verdict']} (path {row['bypassed_paths']})")
    print(row["evidence"])
