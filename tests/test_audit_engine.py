"""How an audit asks: many at a time, threads or one event loop, shared probes once, and on after an interruption."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pipelines import lcel

import ragtrace
from ragtrace import audit
from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import Probe

ARMS = [audit.Arm("none"), audit.Arm("other")]


class Shout(Defense):
    name = "shout"

    def on_response(self, query: str, documents: list[Any], response: str) -> str:
        return response.upper()


def probes(n: int) -> list[Probe]:
    return [Probe(f"p{i}", "canary", f"question {i}", target_id=f"d{i}", detail={"answers": [i]}) for i in range(n)]


@pytest.fixture
def tracing(tmp_path: Path) -> Any:
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full")
    yield tracing
    tracing.shutdown()


def asked(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        return db.execute(sql).fetchall()


@pytest.mark.parametrize("concurrency", [1, 4])
def test_each_answer_belongs_to_its_probe_and_arm(tmp_path: Path, tracing: Any, concurrency: int) -> None:
    chain = lcel()
    arms = [audit.Arm("none"), audit.Arm("shout", (Shout(),))]
    report = audit.run(chain.invoke, arms, probes(20), tracing=tracing, concurrency=concurrency)
    assert (report.asked, report.skipped, report.failures) == (40, 0, [])
    rows = asked(
        tmp_path, "SELECT p.arm, p.query, g.response, p.detail FROM probes p JOIN generations g USING (trace_id)"
    )
    assert len(rows) == 40
    for arm, query, response, detail in rows:
        number = query.split()[-1]
        assert response.endswith(query.upper() if arm == "shout" else query)
        assert detail == f'{{"answers":[{number}]}}'
    effects = asked(tmp_path, "SELECT DISTINCT arm, defense FROM effects")
    assert effects == [("shout", "shout")]


def test_as_many_at_a_time_as_was_said_and_no_more(tracing: Any) -> None:
    together = threading.Barrier(3, timeout=30)
    lock, now, most = threading.Lock(), 0, 0

    def app(query: str) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait()  # only three requests under way at a time let each other go on
        with lock:
            now -= 1

    audit.run(app, ARMS, probes(6), tracing=tracing, concurrency=3)
    assert most == 3


def test_an_async_app_runs_in_one_loop(tmp_path: Path, tracing: Any) -> None:
    chain = lcel()
    loops, waiting, most = set(), 0, 0

    async def app(query: str) -> None:
        nonlocal waiting, most
        loops.add(id(asyncio.get_running_loop()))
        waiting += 1
        most = max(most, waiting)
        await asyncio.sleep(0)
        await chain.ainvoke(query)
        waiting -= 1

    report = audit.run(app, ARMS[:1], probes(8), tracing=tracing, concurrency=4)
    assert (report.asked, report.failures, len(loops)) == (8, [], 1)
    assert 1 < most <= 4
    rows = asked(
        tmp_path,
        "SELECT path, p.query = s.query FROM probes p JOIN stages s USING (trace_id, probe_id) "
        "WHERE stage = 'retrieval'",
    )
    assert rows == [("ainvoke", True)] * 8


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_failing_request_stops_nothing(tracing: Any, concurrency: int) -> None:
    def app(query: str) -> None:
        if query.endswith("3"):
            raise ValueError("no\x1b[31m answer")

    steps: list[str] = []
    report = audit.run(app, ARMS, probes(5), tracing=tracing, concurrency=concurrency, step=steps.append)
    assert sorted(report.failures) == [
        "none/p3: ValueError: no\x1b[31m answer",
        "other/p3: ValueError: no\x1b[31m answer",
    ]
    assert steps == ["none"] * 5 + ["other"] * 5


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, tracing: Any, concurrency: int) -> None:
    chain = lcel()
    count, lock = 0, threading.Lock()

    def until_stopped(query: str) -> None:
        nonlocal count
        with lock:
            count += 1
            stop = count == 9
        if stop:
            raise KeyboardInterrupt
        chain.invoke(query)

    with pytest.raises(KeyboardInterrupt):
        audit.run(until_stopped, ARMS, probes(12), tracing=tracing, concurrency=concurrency)
    tracing.flush()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        ((run,),) = db.execute("SELECT DISTINCT run_id FROM probes").fetchall()
        before = audit.done(db, run)
    assert 0 < len(before.answered) < 24
    report = audit.run(chain.invoke, ARMS, probes(12), tracing=tracing, concurrency=concurrency, resume=before)
    assert (report.run_id, report.skipped) == (run, len(before.answered))
    assert report.asked == 24 - report.skipped
    rows = asked(
        tmp_path,
        "SELECT arm, count(*), count(DISTINCT probe_id) FROM probes WHERE status <> 'ERROR' GROUP BY arm ORDER BY arm",
    )
    assert rows == [("none", 12, 12), ("other", 12, 12)]


def test_what_was_answered_is_answered_though_the_app_failed_later(tmp_path: Path, tracing: Any) -> None:
    chain = lcel()

    def flaky(query: str) -> None:
        chain.invoke(query)
        if query.endswith("1"):
            raise ValueError("late")

    first = audit.run(flaky, ARMS[:1], probes(3), tracing=tracing)
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        before = audit.done(db, first.run_id)
    # the request itself was answered: what failed came after it, in the app
    assert {probe for _, probe in before.answered} == {"p0", "p1", "p2"}


def test_attacks_that_share_probes_send_them_once(tracing: Any) -> None:
    sent: list[str] = []
    audit.run(sent.append, ARMS[:1], [*probes(3), *probes(4)], tracing=tracing)
    assert sent == [f"question {i}" for i in range(4)]


def test_bad_input(tracing: Any) -> None:
    with pytest.raises(UsageError, match="concurrency is 0"):
        audit.run(print, ARMS, probes(1), tracing=tracing, concurrency=0)
    twins = [Probe("p", "canary", "one"), Probe("p", "canary", "two")]
    with pytest.raises(UsageError, match="two different probes are called 'p'"):
        audit.run(print, ARMS, twins, tracing=tracing)
    with pytest.raises(UsageError, match="at least one probe"):
        audit.run(print, ARMS, [], tracing=tracing)


def test_an_attacker_who_adapts_sees_each_answer_and_begins_anew_in_every_arm(tmp_path: Path, tracing: Any) -> None:
    chain = lcel()
    seen: list[str | None] = []

    def session() -> Any:
        answer = yield Probe("a/1", "adaptive", "one")
        seen.append(answer)
        answer = yield Probe("a/2", "adaptive", f"two after {len(answer or '')}")
        seen.append(answer)

    def app(query: str) -> Any:
        if query == "one" and len(seen) == 2:
            raise ValueError("no answer")
        return chain.invoke(query)

    report = audit.run(app, ARMS, [], tracing=tracing, sessions=[session])
    assert report.asked == 4
    assert seen[0] and seen[0].endswith("one")
    assert seen[2] is None, "a failed request has no answer, and the attacker goes on"
    rows = asked(tmp_path, "SELECT arm, query FROM probes WHERE probe_id = 'a/2' ORDER BY arm")
    assert rows == [("none", f"two after {len(seen[0])}"), ("other", "two after 0")]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_many_turns_are_one_conversation_a_seed_and_attack(tracing: Any, concurrency: int) -> None:
    from ragtrace.record.scope import conversation_id

    talks: dict[str, set[str | None]] = {}
    order: list[str] = []

    def app(query: str) -> None:
        talks.setdefault(query.split()[0], set()).add(conversation_id())
        order.append(query)

    sent = [Probe(f"{a}-{i}", a, f"{a} {i}") for i in range(3) for a in ("canary", "benign")]
    audit.run(app, ARMS[:1], sent, tracing=tracing, concurrency=concurrency, mode="multi_turn")
    assert {len(ids) for ids in talks.values()} == {1}
    assert talks["canary"] != talks["benign"]
    assert [q for q in order if q.startswith("canary")] == ["canary 0", "canary 1", "canary 2"]


class Turn(Defense):
    """Says how many requests of the conversation it has seen, as a budget would."""

    name = "turn"

    def __init__(self) -> None:
        self.seen: dict[str | None, int] = {}

    def on_response(self, query: str, documents: list[Any], response: str) -> str:
        from ragtrace.record.scope import conversation_id

        id = conversation_id()
        self.seen[id] = self.seen.get(id, 0) + 1
        return f"turn {self.seen[id]}"


@pytest.mark.parametrize("mode", ["single_turn", "multi_turn"])
def test_a_conversation_cut_in_two_is_held_again_from_its_beginning(tmp_path: Path, tracing: Any, mode: Any) -> None:
    """A defense that keeps a budget has forgotten, after the interruption, what the first half spent of it."""
    chain, calls = lcel(), 0

    def until_stopped(query: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        chain.invoke(query)

    sent = [Probe(f"{a}-{i}", a, f"{a} {i}") for a in ("canary", "benign") for i in range(4)]
    with pytest.raises(KeyboardInterrupt):
        audit.run(until_stopped, [audit.Arm("t", (Turn(),))], sent, tracing=tracing, mode=mode)
    tracing.flush()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        [(run,)] = db.execute("SELECT DISTINCT run_id FROM probes").fetchall()
        before = audit.done(db, run)
    report = audit.run(chain.invoke, [audit.Arm("t", (Turn(),))], sent, tracing=tracing, resume=before, mode=mode)
    # 4 of canary and 1 of benign were answered: the former is whole, the latter begins again where turns count
    assert (report.skipped, report.asked) == ((5, 3) if mode == "single_turn" else (4, 4))
    last = dict(asked(
        tmp_path,
        "SELECT probe_id, max_by(response, start_time) FROM generations WHERE probe_id IS NOT NULL GROUP BY probe_id",
    ))  # fmt: skip
    turns = [1, 1, 1, 1] if mode == "single_turn" else [1, 2, 3, 4]
    assert last == {f"{a}-{i}": f"turn {turns[i]}" for a in ("canary", "benign") for i in range(4)}


def test_an_arm_with_a_request_that_failed_has_not_come_to_its_end(tmp_path: Path, tracing: Any) -> None:
    chain = lcel()

    def app(query: str) -> None:
        if query == "question 1":
            with ragtrace.retrieval(query):
                raise ConnectionError
        chain.invoke(query)

    report = audit.run(app, [ARMS[0], audit.Arm("other", attacks=())], probes(2), tracing=tracing)
    tracing.flush()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert audit.done(db, report.run_id).finished == {"other"}
    audit.run(chain.invoke, ARMS[:1], probes(2), tracing=tracing, resume=audit.Done(report.run_id))
    tracing.flush()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert audit.done(db, report.run_id).finished == {"none", "other"}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("plain", "plain"),
        ({"answer": "a", "context": []}, "a"),
        ({"messages": ["first", "last"]}, "last"),
        ({"other": 1}, None),
        ({"messages": []}, None),
        (None, None),
        (3, None),
    ],
)
def test_the_text_of_an_answer(answer: Any, text: str | None) -> None:
    from langchain_core.messages import AIMessage
    from llama_index.core.base.response.schema import Response

    from ragtrace.asking import text_of

    assert text_of(answer) == text
    assert text_of(AIMessage("said")) == "said"
    assert text_of(Response("told")) == "told"


def test_a_session_that_came_to_its_end_is_not_begun_again(tmp_path: Path, tracing: Any) -> None:
    chain = lcel()
    begun: list[int] = []

    def session() -> Any:
        begun.append(1)
        yield Probe("a/1", "adaptive", "one")
        yield Probe("a/2", "adaptive", "two")

    def until_the_second_arm(query: str) -> str:
        if len(begun) == 2 and query == "two":
            raise KeyboardInterrupt
        return chain.invoke(query)

    with pytest.raises(KeyboardInterrupt):
        audit.run(until_the_second_arm, ARMS, [], tracing=tracing, sessions=[session])
    tracing.flush()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        ((run,),) = db.execute("SELECT DISTINCT run_id FROM probes").fetchall()
        before = audit.done(db, run)
    assert before.finished == {"none"}
    report = audit.run(chain.invoke, ARMS, [], tracing=tracing, sessions=[session], resume=before)
    assert (report.asked, len(begun)) == (2, 3)
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert audit.done(db, run).finished == {"none", "other"}
