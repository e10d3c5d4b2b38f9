"""What must work without any text: effects, coverage, verdicts, repeats, duplicates and the alarm on canaries.

Each by the same requests in mode ``full``, whose views must say the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from both import FRAMEWORKS, PATHS, ask
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInferenceLangChain
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as OpenInferenceLlamaIndex
from pipelines import Hooked
from store_fixtures import rows

import ragtrace
from ragtrace import audit, defense
from ragtrace.attacks.benign import BenignQueries
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.canaries import FAMILIES, plant_corpus
from ragtrace.corpora.synthetic_email import SyntheticEmail
from ragtrace.defenses import RegexMask
from ragtrace.gate import check
from ragtrace.gate.policy import made
from ragtrace.metrics import canary, nel
from ragtrace.score import score as scored
from ragtrace.types import Canary, Probe

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
        assert len(repeats) == 3  # in capitals, masked, or as it was


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
        assert kinds == ([("traffic · unknown", "breach")] if breached else [])


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", ["full", "masked", "digest", "none"])
def test_none_found_is_not_the_same_as_not_looked_for(tmp_path: Path, framework: str, mode: Any) -> None:
    def judged(name: str, *canaries: list[str] | None) -> list[tuple[str, str]]:
        for given in canaries:
            tracing = ragtrace.setup(tmp_path / f"{name}.duckdb", capture=mode, canaries=given)
            ask(framework, "invoke", DOCUMENTS, "Nobody knows.")
            tracing.shutdown()
        ragtrace.open(tmp_path / f"{name}.duckdb").close()
        gate = check(tmp_path / f"{name}.duckdb", made({"no_canary": {}}))
        return [(f.subject, f.kind) for o in gate.outcomes for f in o.findings]

    nothing = [("canaries", "no data")]
    assert judged("not looked for", None) == nothing
    assert judged("none found", [CANARY]) == (nothing if mode == "none" else [])
    assert judged("told later", None, [CANARY]) == (nothing if mode == "none" else [])
    assert judged("some not told", [CANARY], None) == (nothing if mode == "none" else [("traffic", "no data")])


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", ["full", "masked", "digest"])
@pytest.mark.parametrize("kept", [True, False])
def test_the_gate_judges_what_a_mask_left_of_an_answer(tmp_path: Path, framework: str, mode: Any, kept: bool) -> None:
    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace("Mail", "Ask") if kept else text.replace(CANARY, "[e-mail]")

    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture=mode, canaries=[CANARY])
    ask(framework, "invoke", DOCUMENTS, ANSWER, after=mask)
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        hits = rows(db, "SELECT DISTINCT channel FROM canary_hits WHERE channel = 'response'")
        assert len(hits) == kept
    findings = [f for o in check(tmp_path / "t.duckdb", made({"no_canary": {}})).outcomes for f in o.findings]
    assert [f.kind for f in findings] == (["breach"] if kept else [])


# --- an audit's numbers


def audited(database: Path, capture: Any, framework: str) -> dict[str, list[str]]:
    """An audit of a model that says its prompt, so that it gives away what it reads; the app masks in one arm."""
    corpus = plant_corpus(SyntheticEmail(12).build(4, 0), FAMILIES, 1)
    documents = {d.id: d.content for d in corpus.members}
    probes = [p for attack in (CanaryAttack(2), BenignQueries(2)) for p in attack.probes(corpus, 1)]
    tracing = ragtrace.setup(database, capture=capture)
    arm = ""

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return re.sub(r"[\w.]+@[\w.]+", "[e-mail]", text) if arm == "house" else text

    def app(query: str) -> None:
        ask(framework, "invoke", {} if arm == "no_retrieval" else documents, None, (query,), after=mask)

    resume = None
    for one in (audit.Arm("none"), audit.Arm("mask", (RegexMask(),)), audit.Arm("house"), audit.Arm("no_retrieval")):
        arm = one.name
        report = audit.run(app, [one], probes, tracing=tracing, canaries=corpus.canaries, resume=resume)
        assert report.failures == []
        resume = audit.Done(report.run_id)
    tracing.shutdown()
    defense._declared.pop("house-mask")
    with ragtrace.open(database) as db:
        scored(db, metrics=[*canary.METRIC, *nel.METRIC])
        return {name: sorted(map(repr, db.execute(query).fetchall())) for name, query in NUMBERS.items()}


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (framework, mode): audited(tmp_path_factory.mktemp("audit") / "t.duckdb", mode, framework)
        for framework in FRAMEWORKS
        for mode in ("full", "masked", "digest")
    }


NUMBERS = {
    "results": "SELECT arm, attack, metric, value, ci_low, ci_high, n, reason, interpretable, certified FROM results",
    "scores": "SELECT arm, attack, metric, probe_id, value FROM scores",
    "trade-offs": "SELECT arm, attack, channel, kind, type, before, after, n, direction, trade_off FROM tradeoffs",
    "leaks": "SELECT arm, metric FROM results WHERE value > 0",
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", ["masked", "digest"])
@pytest.mark.parametrize("what", [*NUMBERS])
def test_an_audit_counts_what_it_counts_in_full(audits: Any, framework: str, mode: str, what: str) -> None:
    assert audits[framework, mode][what] == audits[framework, "full"][what]
    assert len(audits[framework, mode][what]) > 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_its_numbers_follow_the_app_s_own_mask(audits: Any, framework: str) -> None:
    leaks = audits[framework, "digest"]["leaks"]
    assert {"('none', 'canary_recovery_email')", "('none', 'nel_email')", "('house', 'canary_recovery_person')"} <= {
        *leaks
    }
    assert not {"('house', 'canary_recovery_email')", "('house', 'nel_email')"} & {*leaks}


@pytest.mark.parametrize("mode", ["masked", "digest"])
def test_an_audit_without_statistics_has_no_data(tmp_path: Path, mode: Any) -> None:
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture=mode, statistics=False)
    probes = [Probe("p", "canary", "q", "c", 1)]
    report = audit.run(lambda q: ask("langchain", "invoke", DOCUMENTS, ANSWER, (q,)), [audit.Arm("none")], probes,
        tracing=tracing, canaries=[Canary(CANARY, "email", "d1")])  # fmt: skip
    assert report.failures == []
    tracing.shutdown()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        scored(db, metrics=["canary_recovery_email", "nel_email"])
        said = dict(db.execute("SELECT metric, value FROM results").fetchall())
    assert said == {"canary_recovery_email": 1, "nel_email": None}  # canaries are looked for all the same
