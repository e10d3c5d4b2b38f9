"""What must work without any text: effects, coverage, verdicts, repeats, duplicates and the alarm on canaries.

Each by the same requests in mode ``full``, whose views must say the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from both import FRAMEWORKS, PATHS, ask
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInferenceLangChain
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as OpenInferenceLlamaIndex
from pipelines import Hooked
from store_fixtures import rows

import ragtrace
from ragtrace.gate import check
from ragtrace.gate.policy import made

CANARY = "kotumar@zepolin.org"
DOCUMENTS = {"d1": f"Write to {CANARY} about it.", "d2": "The other document of the two."}
ANSWER = f"Mail {CANARY} about it."
MODES: tuple[Any, ...] = ("full", "digest")


def named(name: str, *hooked: Any) -> Any:
    for one in hooked:
        type(one).name = name
    return hooked


def broken(_: Any) -> Any:
    raise ValueError(CANARY)


def requests(database: Path, capture: Any, framework: str) -> None:
    """Along every path: a defense that acts, one that does not, one that fails, one that only claims to be there, and
    functions of the app's own, of which one comes after the answer."""
    tracing = ragtrace.setup(database, capture=capture)
    ragtrace.declare("ghost", hooks=["prompt"])

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace(CANARY, "[e-mail]")

    @ragtrace.observe(hook="response", name="house-nothing")
    def nothing(text: str) -> str:
        return text

    defenses = [
        *named("reverse", Hooked("retrieval", lambda ds: ds[::-1])),
        *named("cut", Hooked("content", lambda ds: ds[:1])),
        *named("shout", Hooked("query", str.upper), Hooked("response", str.upper)),
        *named("idle", Hooked("prompt", lambda ms: ms)),
        *named("failing", Hooked("content", broken)),
    ]
    for path in PATHS:
        ask(framework, path, DOCUMENTS, ANSWER)
        with ragtrace.defend(*defenses):
            ask(framework, path, DOCUMENTS, ANSWER)
        ask(framework, path, DOCUMENTS, ANSWER, after=mask)
        ask(framework, path, DOCUMENTS, ANSWER, after=nothing)
    tracing.shutdown()


@pytest.fixture(params=FRAMEWORKS)
def stores(request: Any, tmp_path: Path) -> list[Path]:
    """The same requests in both modes."""
    databases = [tmp_path / f"{mode}.duckdb" for mode in MODES]
    for database, mode in zip(databases, MODES, strict=True):
        requests(database, mode, request.param)
    return databases


VIEWS = {
    "effects": "SELECT * EXCLUDE (trace_id, span_id, duration_us, crossings), len(crossings) AS met FROM effects",
    "coverage": "SELECT * EXCLUDE (trace_id, request_id, span_id) FROM coverage",
    "verdicts": "SELECT * EXCLUDE (evidence), regexp_replace(evidence, '[0-9a-f]{16,}', '') FROM verdicts",
    "repeats": "SELECT count(*) AS n, path FROM generations GROUP BY response_hash, path",
    "repeated texts": "SELECT count(*) AS n, phase, rank, document_id FROM documents "
    "GROUP BY phase, rank, document_id, content_hash",
    "stages": "SELECT stage, framework, path, model, status, nested FROM stages",
    "lengths": "SELECT path, response_chars FROM generations",
}


def test_the_views_say_what_they_say_in_full(stores: list[Path]) -> None:
    said = []
    for database in stores:
        with ragtrace.open(database) as db:
            said.append({name: sorted(map(repr, rows(db, query))) for name, query in VIEWS.items()})
    full, digested = said
    for name in VIEWS:
        assert digested[name] == full[name], name
        assert len(full[name]) > 2


def test_they_say_what_happened(stores: list[Path]) -> None:
    with ragtrace.open(stores[1]) as db:
        assert db.execute("SELECT count(*) FROM spans WHERE attributes::VARCHAR LIKE '%zepolin%'").fetchone() == (0,)
        verdicts = {(r["defense"], r["hook"]): r["verdict"] for r in rows(db, "FROM verdicts")}
        assert verdicts["reverse", "retrieval"] == verdicts["cut", "content"] == verdicts["shout", "query"] == "active"
        assert verdicts["idle", "prompt"] == "dormant" and verdicts["failing", "content"] == "error"
        masks = rows(db, "SELECT DISTINCT status FROM effects WHERE defense = 'house-mask'")
        assert masks == [{"status": "changed"}]
        repeats = rows(db, "SELECT count(*) AS n FROM generations GROUP BY response_hash ORDER BY n")
        assert len(repeats) == 2  # in capitals or not


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", MODES)
def test_another_instrumentation_beside_counts_no_call_twice(tmp_path: Path, framework: str, mode: Any) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture=mode)
    beside = OpenInferenceLangChain() if framework == "langchain" else OpenInferenceLlamaIndex()
    beside.instrument(tracer_provider=tracing.provider)
    try:
        for path in ("invoke", "astream"):
            ask(framework, path, DOCUMENTS, ANSWER)
    finally:
        beside.uninstrument()
        tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT count(*) FROM spans WHERE dialect <> 'ragtrace'").fetchone() > (3,)
        assert db.execute("SELECT count(*) FROM generations").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM stages WHERE stage = 'retrieval'").fetchone() == (2,)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("path", PATHS)
def test_the_gate_sounds_for_a_canary_in_an_answer(tmp_path: Path, framework: str, path: str) -> None:
    for n, (answer, question, breached) in enumerate(
        [(ANSWER, "why", True), ("Nobody knows.", "why", False), (ANSWER, f"Is it {CANARY}?", False)]
    ):
        tracing = ragtrace.setup(tmp_path / f"{n}.duckdb", canaries=[CANARY])
        ask(framework, path, DOCUMENTS, answer, (question,))
        tracing.shutdown()
        with ragtrace.open(tmp_path / f"{n}.duckdb"):
            pass
        gate = check(tmp_path / f"{n}.duckdb", made({"no_canary": {}}))
        kinds = [(f.subject, f.kind) for o in gate.outcomes for f in o.findings]
        assert kinds == [("traffic · unknown", "breach") if breached else ("canaries", "no data")]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_gate_does_not_judge_an_answer_that_was_masked_later(tmp_path: Path, framework: str) -> None:
    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace(CANARY, "[e-mail]")

    tracing = ragtrace.setup(tmp_path / "t.duckdb", canaries=[CANARY])
    ask(framework, "invoke", DOCUMENTS, ANSWER, after=mask)
    tracing.shutdown()
    ragtrace.open(tmp_path / "t.duckdb").close()
    [finding] = [f for o in check(tmp_path / "t.duckdb", made({"no_canary": {}})).outcomes for f in o.findings]
    assert finding.kind == "no data" and "house-mask changed" in finding.message
