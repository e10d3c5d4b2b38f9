"""An audit from end to end with a fake model: what is asked, stored, scored, and how its numbers are to be read.

The model copies its prompt, so what leaks is known; expected shares are counted by hand from the planted canaries.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.vectorstores import InMemoryVectorStore
from pipelines import lcel

import ragtrace
from ragtrace import audit, defense
from ragtrace.attacks.benign import BenignQueries
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.attacks.s2mia import S2MIA
from ragtrace.canaries import plant_corpus
from ragtrace.corpora.synthetic_email import SyntheticEmail
from ragtrace.defenses import DPRetrieval, EntitySubstitution, RegexMask
from ragtrace.errors import UsageError
from ragtrace.inventory import inventory
from ragtrace.metrics import _bleu
from ragtrace.papers.dp_r import DPStub
from ragtrace.record.setup import Tracing
from ragtrace.score import score


class Parrot(BaseChatModel):
    """Repeats what it is given, with log-probabilities."""

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        text = str(messages[-1].text)
        told = {"logprobs": {"content": [{"token": w, "logprob": -0.5} for w in text.split()]}}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, response_metadata=told))])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The database of one audit: 12 documents, 24 canaries, four arms."""
    arms = [
        audit.Arm("none"),
        audit.Arm("regex_mask", (RegexMask(),)),
        audit.Arm("dp_r", (DPStub(epsilon=1.0, seed=1),)),
        audit.Arm("entity_substitution", (EntitySubstitution(),)),
    ]
    avoid = frozenset().union(*(d.constants() for arm in arms for d in arm.defenses))
    corpus = plant_corpus(SyntheticEmail().build(12, 3, non_members=12), seed=3, avoid=avoid)
    index = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
    index.add_texts([d.content for d in corpus.members], ids=[d.id for d in corpus.members])
    chain = lcel(Parrot(), index.as_retriever(search_kwargs={"k": 12}))
    probes = [p for a in (CanaryAttack(3), S2MIA(16), BenignQueries(2)) for p in a.probes(corpus, 3)]
    database = tmp_path_factory.mktemp("audit") / "traces.duckdb"
    tracing: Tracing = ragtrace.setup(database, capture="full")
    ragtrace.declare("regex_mask", hooks=["response"])
    chain.invoke("a request of the app itself, which forgets the mask")
    defense._declared.pop("regex_mask")
    report = audit.run(chain.invoke, arms, probes, tracing=tracing, canaries=corpus.canaries, facts={"corpus": "c"})
    tracing.shutdown()
    assert report.failures == []
    assert report.asked == 4 * 21
    with ragtrace.open(database) as db:
        audit.store_inventory(db, inventory(*(d for arm in arms for d in arm.defenses)))
        assert score(db) > 0
        yield db


def _result(db: duckdb.DuckDBPyConnection, metric: str, arm: str, attack: str) -> tuple[Any, ...]:
    rows = db.execute(
        "SELECT value, interpretable, reason, n, ci_low, ci_high, signature FROM results "
        "WHERE metric = ? AND arm = ? AND attack = ?",
        [metric, arm, attack],
    ).fetchall()
    assert len(rows) == 1
    return rows[0]


def test_every_canary_is_recovered_without_defense(store: Any) -> None:
    value, readable, _, n, low, high, signature = _result(store, "canary_recovery_email", "none", "canary")
    assert (value, readable, n) == (1.0, "interpretable", 12)
    assert (round(low, 4), high) == (0.7354, 1.0)  # Clopper-Pearson 12 of 12: 0.025 ** (1 / 12)
    assert f"ragtrace:{ragtrace.__version__}" in signature
    assert "model:Parrot" in signature


def test_a_response_mask_hides_addresses_and_not_persons(store: Any) -> None:
    """Also where the store's verdict is `bypassed`, for a request that is not of this run."""
    assert store.execute("SELECT verdict FROM verdicts WHERE defense = 'regex_mask'").fetchall() == [("bypassed",)]
    assert _result(store, "canary_recovery_email", "regex_mask", "canary")[:2] == (0.0, "interpretable")
    assert _result(store, "canary_recovery_person", "regex_mask", "canary")[:2] == (1.0, "interpretable")


def test_the_stub_is_found_and_its_numbers_are_not_read(store: Any) -> None:
    verdicts = dict(store.execute("SELECT hook, verdict FROM verdicts WHERE defense = 'dp_r'").fetchall())
    assert verdicts == {"retrieval": "active", "response": "silent_stub"}
    effects = store.execute(
        "SELECT DISTINCT status FROM effects WHERE defense = 'dp_r' AND hook = 'response'"
    ).fetchall()
    assert effects == [("unchanged",)]
    value, readable, reason, *_ = _result(store, "canary_recovery_email", "dp_r", "canary")
    assert (value, readable) == (1.0, "indirect")  # another order of documents, so another answer
    assert "acts only at retrieval" in reason
    assert _result(store, "bleu_roc_auc", "dp_r", "s2mia")[1] == "interpretable"


def test_a_mask_of_the_response_is_no_reading_of_membership(store: Any) -> None:
    assert _result(store, "bleu_roc_auc", "regex_mask", "s2mia")[1] in ("indirect", "nuisance")


def test_a_scorer_that_shares_words_with_a_defense_is_entangled(store: Any) -> None:
    assert _result(store, "nel_person", "entity_substitution", "canary")[1] == "entangled"
    assert _result(store, "nel_person", "regex_mask", "canary")[1] == "interpretable"


def test_scores_are_one_a_probe_arm_and_metric_and_scoring_again_changes_nothing(store: Any) -> None:
    before = store.execute("SELECT * FROM results ORDER BY ALL").fetchall()
    assert store.execute(
        "SELECT count(*) = count(DISTINCT (run_id, probe_id, arm, attack, metric)) FROM scores"
    ).fetchone() == (True,)
    score(store)
    assert store.execute("SELECT * FROM results ORDER BY ALL").fetchall() == before


def test_an_unknown_run_is_named_with_those_there_are(store: Any) -> None:
    with pytest.raises(UsageError, match=r"no run 'x' in this database; it has: run-"):
        score(store, "x")


def test_without_the_extra_the_fix_is_named_and_nothing_is_lost(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = store.execute("SELECT count(*) FROM results").fetchone()
    _bleu._scorer.cache_clear()
    _bleu.bleu.cache_clear()
    for name in [n for n in sys.modules if n.partition(".")[0] == "sacrebleu"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=r"'sacrebleu.*pip install \"ragtrace-audit\[audit\]\""):
        score(store)
    assert store.execute("SELECT count(*) FROM results").fetchone() == before


def test_a_failing_request_is_counted_and_the_audit_goes_on(tmp_path: Path) -> None:
    def app(query: str) -> str:
        if "fail" in query:
            raise TimeoutError("model is away")
        return query

    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full")
    try:
        probes = [ragtrace.Probe(str(i), "benign", q) for i, q in enumerate(("fine", "fail", "fine"))]
        report = audit.run(app, [audit.Arm("none")], probes, tracing=tracing)
        assert (report.asked, report.failures) == (3, ["none/1: TimeoutError: model is away"])
        with pytest.raises(UsageError, match="different names"):
            audit.run(app, [audit.Arm("a"), audit.Arm("a", (DPRetrieval(),))], probes, tracing=tracing)
    finally:
        tracing.shutdown()
