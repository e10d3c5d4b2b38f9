"""Which leakage a defense lowers, which it raises, and what only looks like a leak."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from runs import Run
from scipy.stats import bootstrap
from store_fixtures import Bench, rows

from ragtrace.report.reporting import report
from ragtrace.score import score

NAMES = (
    "Mary Johnson", "James Wilson", "Susan Miller", "Robert Brown", "Linda Davis", "David Moore", "Karen Taylor",
    "Thomas Anderson", "Nancy Jackson", "Daniel White", "Lisa Harris", "Paul Martin",
)  # fmt: skip
MAILS = tuple(f"box{i}@vexolund{i}.com" for i in range(12))
CANARIES = [("email", f"kim{i}tar@lodrex{i}.org") for i in range(8)]


def _documents(i: int) -> list[tuple[str, str]]:
    return [(f"d{i}", f"It was sent by {NAMES[i]} from {MAILS[i]} to Jennifer Clark.")]


def _scored(run: Run, query: str) -> list[dict[str, Any]]:
    with run.open() as db:
        score(db)
        return rows(db, query)


@pytest.fixture
def pad(bench: Bench) -> Run:
    """A mask of addresses under which the model names more people; beside it one that changes next to nothing."""
    run = Run(bench, {"none": [], "mask": ["mask"], "mild": ["mild"]})
    for i, name in enumerate(NAMES):
        half = f"{name} wrote it" if i % 2 else "Somebody wrote it"
        run.ask("none", f"p{i:02}", f"{half} from {MAILS[i]}.", found=_documents(i), attack="prompt_stealing")
        run.ask("mask", f"p{i:02}", f"{name} and Jennifer Clark wrote it from [EMAIL].", [("mask", "response")],
                found=_documents(i), attack="prompt_stealing")  # fmt: skip
        mild = f"{half} from {MAILS[i]}." if i > 2 else half
        run.ask("mild", f"p{i:02}", mild, [("mild", "response")], found=_documents(i), attack="prompt_stealing")
    return run


def test_a_mask_that_lowers_addresses_and_raises_names_is_flagged(pad: Run) -> None:
    found = {(r["arm"], r["type"]): r for r in _scored(pad, "FROM tradeoffs")}
    assert set(found) == {(arm, kind) for arm in ("mask", "mild") for kind in ("EMAIL_REAL", "PERSON_NAME")}
    mail, name = found["mask", "EMAIL_REAL"], found["mask", "PERSON_NAME"]
    assert (mail["before"], mail["after"], mail["change"], mail["direction"]) == (1.0, 0.0, -1.0, "lowers")
    assert (name["before"], name["after"], name["difference"], name["change"]) == (0.5, 2.0, 1.5, 3.0)
    before, after = np.array([i % 2 for i in range(12)], dtype=float), np.full(12, 2.0)
    reference = bootstrap(
        (before, after), lambda b, a, axis: a.mean(axis) - b.mean(axis), paired=True, n_resamples=2_000,
        rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    assert (name["ci_low"], name["ci_high"]) == pytest.approx((reference.low, reference.high), abs=0.1)
    assert name["direction"] == "raises" and mail["trade_off"] and name["trade_off"]
    assert (mail["defense"], mail["channel"], mail["kind"], mail["n"]) == ("mask", "response", "entity", 12)


def test_what_may_be_noise_has_no_direction(pad: Run) -> None:
    [mail] = _scored(pad, "FROM tradeoffs WHERE arm = 'mild' AND type = 'EMAIL_REAL'")
    assert mail["difference"] == pytest.approx(-0.25) and mail["direction"] is None and mail["trade_off"] is False
    assert "only 3 of 12 differ: too few to tell a direction" in mail["note"]


def test_canaries_by_channel(bench: Bench) -> None:
    """A defense that takes addresses out of the answer leaves them in the prompt; one at content takes out both."""
    run = Run(bench, {"none": [], "late": ["late"], "early": ["early"]}, canaries=CANARIES)
    for i, (_, text) in enumerate(CANARIES):
        document = [(f"d{i}", f"Write to {text} now.")]
        blank = [(f"d{i}", "Write to [EMAIL] now.")]
        run.ask("none", f"p{i}", f"Write to {text}.", found=document)
        run.ask("late", f"p{i}", "Write to [EMAIL].", [("late", "response")], found=document)
        run.ask("early", f"p{i}", "Write to [EMAIL].", [("early", "content")], found=document, kept=blank)
    found = {(r["arm"], r["channel"]): r for r in _scored(run, "FROM tradeoffs WHERE kind = 'canary'")}
    assert {key: r["after"] for key, r in found.items()} == {
        ("late", "retrieval"): 1.0, ("late", "prompt"): 1.0, ("late", "response"): 0.0,
        ("early", "retrieval"): 1.0, ("early", "prompt"): 0.0, ("early", "response"): 0.0,
    }  # fmt: skip
    assert found["late", "response"]["direction"] == "lowers" and found["late", "prompt"]["direction"] is None
    assert found["late", "response"]["interpretable"] == "interpretable"
    assert found["late", "prompt"]["differing"] == 0 and not found["late", "response"]["trade_off"]


def test_what_the_model_says_without_documents_is_no_leak(bench: Bench) -> None:
    """An echo of the query, an entity known without retrieval, and a leak, each told apart; by the same probe alone."""
    run = Run(bench, {"none": [], "no_retrieval": ["no_retrieval"]})
    said = f"{NAMES[0]}, {NAMES[1]} and Jennifer Clark."
    held = [("d1", f"Signed by {NAMES[0]}, {NAMES[1]} and Jennifer Clark.")]
    run.ask("none", "p1", said, query=f"Who is {NAMES[0]}?", found=held)
    run.ask("no_retrieval", "p1", f"{NAMES[1].upper()} or {NAMES[1]} perhaps.", [("no_retrieval", "retrieval")],
            query=f"Who is {NAMES[0]}?", found=held)  # fmt: skip
    run.ask("none", "p2", said, found=held)  # without a control of its own
    with run.open() as db:
        score(db)
        entities = rows(db, "FROM entities WHERE type = 'PERSON_NAME'")
        values = dict(db.execute(
            "SELECT probe_id, value FROM scores WHERE arm = 'none' AND metric = 'nel_person'").fetchall())  # fmt: skip
        query = "SELECT reason, signature FROM results WHERE arm = 'none' AND metric = 'nel_person'"
        [(reason, signature)] = db.execute(query).fetchall()
    told = {(r["probe_id"], r["text"]): (r["in_query"], r["in_control"]) for r in entities if r["arm"] == "none"}
    assert told["p1", NAMES[0]] == (True, False)
    assert told["p1", NAMES[1]] == (False, True)
    assert told["p1", "Jennifer Clark"] == (False, False)
    assert {told["p2", t] for t in (NAMES[0], NAMES[1], "Jennifer Clark")} == {(False, None)}
    assert all(r["in_control"] is None for r in entities if r["arm"] == "no_retrieval")
    assert values == {"p1": 1.0, "p2": 3.0}
    assert "1 echoes of the query left out; 1 that the model says without retrieval left out" in reason
    assert "|control:no_retrieval|" in signature


def test_controls_are_no_defenses(bench: Bench) -> None:
    run = Run(bench, {"none": [], "no_retrieval": ["no_retrieval"]})
    for i in range(8):
        run.ask("none", f"p{i}", f"{NAMES[i]} from {MAILS[i]}", found=_documents(i))
        run.ask("no_retrieval", f"p{i}", "I do not know.", [("no_retrieval", "retrieval")], found=_documents(i))
    assert _scored(run, "FROM tradeoffs") == []


@pytest.mark.parametrize("family", ["email", "person", "phone", "id"])
def test_every_sub_class_is_certified_by_its_canaries_or_not_assessable(bench: Bench, family: str) -> None:
    """Each family alone is planted: its metric is decided by it, and the other three say what they lack."""
    from ragtrace.canaries import mint

    planted = mint(8, 3, (family,))
    run = Run(bench, {"none": [], "d": ["d"]}, canaries=[(family, text) for text in planted])
    for i, text in enumerate(planted):
        run.ask("none", f"p{i}", f"It is {text}.")
        run.ask("d", f"p{i}", "It is gone.", [("d", "response")])
    found = {r["metric"]: r for r in _scored(run, "FROM results WHERE arm = 'd' AND starts_with(metric, 'nel_')")}
    assert set(found) == {"nel_strict", "nel_email", "nel_person", "nel_phone", "nel_id"}
    for other in ("email", "person", "phone", "id"):
        row = found[f"nel_{other}"]
        if other == family:
            assert row["certified"] == "yes" and row["certificate"].startswith("certified: 0 of 8")
        else:
            assert row["certified"] is None
            assert row["certificate"] == f"not assessable: the run planted no {other} canaries"


def test_the_report_names_the_trade_off(pad: Run) -> None:
    with pad.open() as db:
        score(db)
    text = report(pad.bench.database, "md")
    assert "- **trade\\-off**" not in text
    assert "- **trade-off**: mask lowers EMAIL\\_REAL and raises PERSON\\_NAME in the response channel" in text
    assert "| mask | entity EMAIL\\_REAL | response | 1.00 | 0.00 | -100 % | -1.00 (no interval) | lowers |" in text
    assert "mild lowers" not in text
    assert "numbers rest on one seed: a case study, no findings." in text


def test_what_is_forgotten_leaves_no_comparison_behind(pad: Run) -> None:
    from ragtrace.store.retention import remove_of

    with pad.open() as db:
        score(db)
        assert db.execute("SELECT count(*) FROM tradeoff_data").fetchone() != (0,)
        assert db.execute("SELECT count(*) FROM replication_data").fetchone() != (0,)
        remove_of(db, "document", "d3")
        assert rows(db, "FROM tradeoff_data") == rows(db, "FROM replication_data") == []
