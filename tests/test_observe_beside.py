"""A defense that the app calls on the answer, after the pipeline: it acts for the request that gave the answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ragtrace

APP = """
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
import ragtrace

ragtrace.setup("traces.duckdb", capture="full")

@ragtrace.observe(hook="response", name="house-mask")
def mask(text: str) -> str:
    return text.replace("a@b.org", "[e-mail]")

chain = FakeListChatModel(responses=["one a@b.org", "two a@b.org", "three a@b.org", "four a@b.org"]) | StrOutputParser()
print(mask(chain.invoke("q")))
answers = chain.batch(["q", "q"])
print([mask(answer) for answer in answers])
{rest}
"""


def _run(folder: Path, rest: str) -> list[tuple[str, bool]]:
    run = subprocess.run(
        [sys.executable, "-c", APP.replace("{rest}", rest)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "a@b.org" not in "".join(run.stdout.splitlines()[:2])
    with ragtrace.open(folder / "traces.duckdb") as db:
        return db.execute("SELECT path, ran FROM coverage WHERE defense = 'house-mask' ORDER BY ALL").fetchall()


def test_it_counts_for_each_request_of_a_batch(tmp_path: Path) -> None:
    assert _run(tmp_path, "") == [("batch", True), ("batch", True), ("invoke", True)]


def test_a_route_that_forgets_it_is_a_bypass(tmp_path: Path) -> None:
    assert _run(tmp_path, 'print("".join(chain.stream("q")))') == [
        ("batch", True),
        ("batch", True),
        ("invoke", True),
        ("stream", False),
    ]


def test_with_a_span_of_the_app_round_it_the_trace_stays_one(tmp_path: Path) -> None:
    rest = """
from opentelemetry import trace
with trace.get_tracer("app").start_as_current_span("handler"):
    mask(chain.invoke("q"))
"""
    assert _run(tmp_path, rest)[-1] == ("invoke", True)
    with ragtrace.open(tmp_path / "traces.duckdb") as db:
        [(traces,)] = db.execute(
            "SELECT count(DISTINCT trace_id) FROM spans WHERE name IN ('handler', 'defense house-mask') "
            "AND start_time >= (SELECT start_time FROM spans WHERE name = 'handler')"
        ).fetchall()
    assert traces == 1


def test_a_query_defense_called_before_the_pipeline_counts_for_the_next_request_only(tmp_path: Path) -> None:
    app = """
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
import ragtrace

ragtrace.setup("traces.duckdb", capture="full")

@ragtrace.observe(hook="query", name="clean")
def clean(query: str) -> str:
    return query.strip()

retriever = InMemoryVectorStore.from_texts(["one"], DeterministicFakeEmbedding(size=4)).as_retriever()
retriever.invoke(clean(" q "))
retriever.invoke(" q ")
"""
    run = subprocess.run([sys.executable, "-c", app], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    with ragtrace.open(tmp_path / "traces.duckdb") as db:
        rows = db.execute(
            "SELECT ran FROM coverage JOIN stages s USING (trace_id) WHERE stage = 'retrieval' ORDER BY s.start_time"
        ).fetchall()
    assert rows == [(True,), (False,)]
