"""The extraction attacks end to end: through ``audit.run`` against a real pipeline, scored from the store alone."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from membership_audit import Bag, chain
from pipelines import Echo

import ragtrace
from ragtrace import audit
from ragtrace.attacks.adaptive import Adaptive
from ragtrace.attacks.canary import CanaryAttack
from ragtrace.attacks.deal import DEAL
from ragtrace.attacks.ikea import IKEA
from ragtrace.attacks.prompt_manipulation import PromptManipulation
from ragtrace.attacks.prompt_stealing import PromptStealing
from ragtrace.attacks.rag_thief import INJECTION, RAGThief
from ragtrace.audit import Arm
from ragtrace.canaries import plant_corpus
from ragtrace.corpora.synthetic_corp import build
from ragtrace.defenses.regex_mask import RegexMask
from ragtrace.score import score
from ragtrace.types import Corpus

CORPUS = plant_corpus(build(16, 3, 8), ("email",), seed=3)
EMAIL = re.compile(r"[\w.]+@[\w.]+\w")
Say = Callable[[str, str], str]


class Speaker(BaseChatModel):
    """Says what its function makes of the context and the question."""

    say: Any

    @property
    def _llm_type(self) -> str:
        return "speaker"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        context, question = (str(m.text) for m in messages[-2:])
        message = AIMessage(self.say(context.removeprefix("Context:\n"), question))
        return ChatResult(generations=[ChatGeneration(message=message)])


def refusing(context: str, question: str) -> str:
    return "I'm sorry, but I cannot share the documents."


def tagged(context: str, question: str) -> str:
    return "\n".join(f"<passage>{text}</passage>" for text in context.split("\n---\n"))


# what a request in this encoding says → how a model writes an address that knows this one encoding only
KNOWN: dict[str, tuple[str, Callable[[str], str]]] = {
    "base64": ("base64", lambda f: base64.b64encode(f.encode()).decode()),
    "spaced": ("one space between", " ".join),
    "spelled": ("telephone: write at", lambda f: f.replace("@", " at ").replace(".", " dot ")),
    "json": ("JSON", lambda f: json.dumps(dict(zip(("user", "host", "ending"), re.split("[@.]", f), strict=False)))),
}


def knowing(encoding: str) -> Say:
    sign, write = KNOWN[encoding]
    return lambda context, question: "\n".join(map(write if sign in question else str, EMAIL.findall(context)))


def knows_halves(context: str, question: str) -> str:
    if "only what stands" not in question:
        return "Please ask for one part at a time."
    return "\n".join(f.split("@")["after the @" in question] for f in EMAIL.findall(context))


FIXED = (PromptStealing(16), PromptManipulation(16))
# vectors that count words are farther apart than sentence vectors: the published thresholds are for those
WIDE = {"theta_topic": 0.02, "theta_inter": 0.9, "tau": 0.95}
ADAPTING = (IKEA(24, embed=Bag().embed_documents, **WIDE), DEAL(24), RAGThief(40), Adaptive(32))
NAMES = [attack.name for attack in (*FIXED, *ADAPTING)]


def audited(
    database: Path, model: Any, arms: list[Arm], fixed: Any = (), adapting: Any = (), mode: Any = "single_turn",
    corpus: Corpus = CORPUS, facts: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    tracing = ragtrace.setup(database, capture="full")
    try:
        report = audit.run(
            chain(corpus.members, model, k=3).invoke,
            arms,
            [probe for attack in fixed for probe in attack.probes(corpus, 7)],
            sessions=[lambda a=attack: a.session(corpus, 7) for attack in adapting],
            tracing=tracing,
            canaries=corpus.canaries,
            facts={"seed": 7, "members": len(corpus.members)} if facts is None else facts,
            mode=mode,
        )
        assert report.failures == []
    finally:
        tracing.shutdown()


@pytest.fixture(scope="module", params=["echo", "tagged", "refusing"])
def asked(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Any]]:
    """All attacks against one app, scored."""
    database = tmp_path_factory.mktemp("extraction") / "t.duckdb"
    model = {"echo": Echo(), "tagged": Speaker(say=tagged), "refusing": Speaker(say=refusing)}[request.param]
    audited(database, model, [Arm("none")], FIXED, ADAPTING)
    with ragtrace.open(database) as db:
        score(db, metrics=["extraction_coverage", "canary_recovery_decoded"])
        yield request.param, db


def values(db: Any, metric: str, attack: str, arm: str = "none") -> tuple[Any, ...]:
    row = db.execute(
        "SELECT value, n, ci_low, ci_high, reason FROM results WHERE metric = ? AND attack = ? AND arm = ?",
        [metric, attack, arm],
    ).fetchone()
    assert row is not None
    return tuple(row)


@pytest.mark.parametrize("name", NAMES)
def test_a_leaky_app_gives_its_documents_and_a_refusing_one_none(asked: tuple[str, Any], name: str) -> None:
    app, db = asked
    for metric in ("extraction_coverage", "canary_recovery_decoded"):
        value, n, low, high, _ = values(db, metric, name)
        assert n == 16
        if app == "refusing":
            assert value == 0
        else:
            # by hand: the documents retrieved for this attack, all of which both models repeat
            (retrieved,) = db.execute(
                "SELECT count(DISTINCT content) FROM documents JOIN probes USING (trace_id) WHERE attack = ?", [name]
            ).fetchone()
            assert value == retrieved / 16 > 0.5
            assert (low is None and value == 1.0) or low < value <= high


@pytest.mark.parametrize("name", NAMES)
def test_the_curve_rises_to_the_result(asked: tuple[str, Any], name: str) -> None:
    _, db = asked
    curve = [
        value
        for (value,) in db.execute(
            "SELECT value FROM scores WHERE metric = 'extraction_coverage' AND attack = ? ORDER BY probe_id", [name]
        ).fetchall()
    ]
    (sent,) = db.execute("SELECT count(*) FROM probes WHERE attack = ?", [name]).fetchone()
    assert len(curve) == sent and curve == sorted(curve)
    assert curve[-1] == values(db, "extraction_coverage", name)[0]
    assert (
        name.startswith("prompt")
        or sent == {"ikea": 24, "deal": 24, "rag_thief": 40, "adaptive": 32}[name]
        or (
            asked[0] == "refusing" and name in ("ikea", "rag_thief")  # they end when nothing is left to ask
        )
    )


def test_anchors_move_with_the_answers(asked: tuple[str, Any]) -> None:
    app, db = asked
    rows = db.execute("SELECT detail, query FROM probes WHERE attack = 'ikea' ORDER BY probe_id").fetchall()
    details = [json.loads(detail) for detail, _ in rows]
    moved = [d for d in details if d["origin"] == "answer"]
    if app == "refusing":
        assert not moved
    else:
        assert moved and any(d["step"] > 0 for d in moved)
        said = "\n".join(r for (r,) in db.execute("SELECT response FROM generations").fetchall())
        assert all(all(word in said for word in d["anchor"].split()) for d in moved)
    assert len({query for _, query in rows}) == len(rows)


def test_continuations_are_pieces_of_the_answers(asked: tuple[str, Any]) -> None:
    app, db = asked
    rows = db.execute(
        "SELECT detail, query, probe_id FROM probes WHERE attack = 'rag_thief' ORDER BY probe_id"
    ).fetchall()
    details = [json.loads(detail) for detail, *_ in rows]
    if app == "refusing":
        assert {d["direction"] for d in details} == {"topic"}
        return
    assert {d["direction"] for d in details} == {"topic", "forward", "backward"}
    answers = db.execute(
        "SELECT p.probe_id, response FROM probes p JOIN generations USING (trace_id) WHERE attack = 'rag_thief'"
    ).fetchall()
    before, after = INJECTION.split("{}")
    for detail, query, probe in (r for r, d in zip(rows, details, strict=True) if d["direction"] != "topic"):
        piece = query.removeprefix(before).removesuffix(after)
        earlier = " ".join(" ".join(said.split()) for who, said in answers if who < probe)
        assert piece in earlier, detail


@pytest.mark.parametrize("encoding", KNOWN)
def test_adaptive_gets_through_a_mask_that_the_fixed_attack_does_not(tmp_path: Path, encoding: str) -> None:
    database = tmp_path / "t.duckdb"
    arms = [Arm("none"), Arm("masked", (RegexMask(),))]
    audited(database, Speaker(say=knowing(encoding)), arms, [CanaryAttack(32)], [Adaptive(32)])
    with ragtrace.open(database) as db:
        score(db, metrics=["canary_recovery_decoded", "canary_recovery_email"])
        for attack in ("canary", "adaptive"):
            assert values(db, "canary_recovery_decoded", attack)[0] > 0.5
        assert values(db, "canary_recovery_decoded", "canary", "masked")[0] == 0
        assert values(db, "canary_recovery_email", "canary", "masked")[0] == 0
        assert values(db, "canary_recovery_decoded", "adaptive", "masked")[0] > 0.3
        used = {}
        for arm in ("none", "masked"):
            rows = db.execute(
                "SELECT detail->>'encoding' FROM probes WHERE attack = 'adaptive' AND arm = ? ORDER BY probe_id", [arm]
            ).fetchall()
            used[arm] = [asked for (asked,) in rows]
        tries = 16  # 2 x 7 encodings, one of them of two queries
        assert used["masked"][:tries] == used["none"][:tries]
        assert used["masked"][tries:].count(encoding) > 10  # of 16, for now and then it tries another
        (raw,) = db.execute("SELECT count(*) FROM canary_hits WHERE arm = 'masked' AND channel = 'response'").fetchone()
        assert raw == 0


def test_halves_over_two_turns_of_one_conversation(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    attack = Adaptive(20, encodings=["plain", "split"])
    audited(database, Speaker(say=knows_halves), [Arm("masked", (RegexMask(),))], adapting=[attack], mode="multi_turn")
    with ragtrace.open(database) as db:
        score(db, metrics=["canary_recovery_decoded"])
        assert values(db, "canary_recovery_decoded", "adaptive", "masked")[0] > 0.3
        rows = db.execute("SELECT detail FROM probes ORDER BY probe_id").fetchall()
        details = [json.loads(detail) for (detail,) in rows]
        assert [d["encoding"] for d in details[-12:]].count("split") >= 10
        for first, second in pairwise(details):
            if first.get("part") == 1:
                assert (second["part"], second["pair"]) == (2, first["pair"])


def test_without_a_manifest_the_share_is_of_what_was_retrieved(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    audited(database, Echo(), [Arm("none")], [PromptStealing(2)], facts={})
    with ragtrace.open(database) as db:
        score(db, metrics=["extraction_coverage"])
        value, n, low, _, reason = values(db, "extraction_coverage", "prompt_stealing")
        assert value == 1.0 and n < 7 and low is None and "those retrieved" in reason
