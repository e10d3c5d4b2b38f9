"""The trace viewer: who gets in, what is found, what one trace says, what the SQL box may do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from report_store import SECRET, hostile, small
from report_store import ask as probe
from store_fixtures import Bench, effect, rows
from typer.testing import CliRunner
from ui_pages import OWN, TOKEN, ask, home, ids, inside, outside, text

import ragtrace
from ragtrace import cli
from ragtrace.errors import UsageError
from ragtrace.record import attributes as a
from ragtrace.ui import searching, trace
from ragtrace.ui.asking import Box
from ragtrace.ui.guard import Address
from ragtrace.ui.reading import Store


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def shown(database: Path) -> Any:
    return inside(database, show=True)


@pytest.fixture(scope="module")
def masked(database: Path) -> Any:
    return inside(database)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "t.duckdb")
    bench.open().close()
    return bench


def traces(database: Path, query: str, *values: Any) -> list[str]:
    with Store(database).reading() as db:  # which waits for a viewer that is reading
        return [id for (id,) in db.execute(query, list(values)).fetchall()]


# who gets in


@pytest.mark.parametrize(
    "path", ["/", "/traces", "/sql", "/static/ui.css", "/nothing", "/?token=", "/?token=" + "x" * 43]
)
def test_without_the_token_there_is_nothing(database: Path, path: str) -> None:
    answer = outside(database).get(path)
    assert answer.status_code == 403
    assert "token" in text(answer.text)
    assert "set-cookie" not in answer.headers


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(database: Path) -> None:
    client = outside(database)
    cookie = client.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert re.fullmatch(r"ragtrace_ui_8123=[\w-]{43}; HttpOnly; Path=/; SameSite=strict", cookie), cookie
    assert TOKEN not in cookie
    assert client.get("/traces").status_code == 200
    client.cookies.clear()
    for value in ("", TOKEN, "x" * 43):
        client.cookies.set("ragtrace_ui_8123", value)
        assert client.get("/traces").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example:8123", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8123.evil.example", "", "[::1]:8123"]
)
def test_another_name_for_this_machine_is_refused_also_with_the_cookie(shown: Any, host: str) -> None:
    assert shown.get("/traces", headers={"Host": host}).status_code == 403


def test_localhost_is_this_machine_too(shown: Any) -> None:
    assert shown.get("/traces", headers={"Host": "localhost:8123"}).status_code == 200


def test_where_every_address_is_listened_at_numbers_are_right_and_names_are_not() -> None:
    everywhere = Address("0.0.0.0", 80)
    assert everywhere.is_meant("192.168.1.7:80")
    assert everywhere.is_meant("[fe80::1]:80")
    assert not everywhere.is_meant("evil.example:80")
    assert not everywhere.is_meant("192.168.1.7:81")
    assert not Address("192.168.1.7", 80).is_meant("192.168.1.8:80")
    assert Address("127.0.0.1", 80).is_meant("127.0.0.1"), "browsers leave the port of http out"
    assert Address("::1", 80).is_meant("[::1]")
    assert not Address("127.0.0.1", 80).is_meant("evil.example")


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:8124"},
     OWN | {"Sec-Fetch-Site": "cross-site"}],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/refresh", "/sql"])
def test_what_does_something_must_come_from_a_page_of_ours(shown: Any, path: str, headers: dict[str, str]) -> None:
    answer = shown.post(path, data={"sql": "SELECT 1"}, headers=headers)
    assert answer.status_code == 403
    assert shown.post("/refresh", headers=OWN).status_code == 200


def test_every_answer_forbids_scripts_of_others_frames_caches_and_guesses(shown: Any) -> None:
    for path in ("/", "/traces", "/nothing", "/static/ui.js", "/traces?slow=x"):
        answer = shown.get(path)
        policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
        assert policy.pop("default-src") == "'none'"
        assert policy.pop("base-uri") == policy.pop("frame-ancestors") == "'none'"
        assert set(policy.values()) == {"'self'"}, "no inline script or style, nobody else's"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin", "no-referrer would make our own forms' origin null"
        assert not re.search(r"<script(?! src=\"/static/)|<style| style=| on\w+=", answer.text) or "static" in path


def test_only_methods_that_are_meant(shown: Any) -> None:
    assert shown.put("/traces", headers=OWN).status_code == 404
    assert shown.delete("/sql", headers=OWN).status_code == 404
    assert shown.get("/refresh").status_code == 404
    assert shown.get("/static/..%2Fserver.py").status_code == 404
    assert shown.get("/static/base.html.j2").status_code == 404


# the verdicts


def test_the_matrix_is_the_view_and_leads_to_the_traces_that_show_each_verdict(database: Path, shown: Any) -> None:
    html = home(shown)
    said = text(html)
    assert (
        "1 verdict needs attention bypassed house-mask at response: its hook was crossed without it in 1 of 3" in said
    )
    with Store(database).reading() as db:  # which waits for a viewer that is reading
        found = rows(db, "SELECT evidence FROM verdicts")
    assert len(found) == 2
    for row in found:
        for told in row["evidence"].split("; "):
            assert told in said
    expected = {
        "bypassed": traces(database, "SELECT trace_id FROM coverage WHERE NOT ran"),
        "changed": traces(database, "SELECT trace_id FROM effects WHERE defense = 'house-mask' AND text_changed "
                                    "AND status = 'changed'"),
    }  # fmt: skip
    links = {unquoted(link) for link in re.findall(r'href="(/traces\?[^"]+)"', html)}
    for status, found in expected.items():
        link = f"/traces?defense=house-mask&hook=response&status={status}"
        assert link in links
        assert ids(shown.get(link).text) == found, status


def unquoted(link: str) -> str:
    return link.replace("&amp;", "&")


def test_verdicts_worked_out_in_pieces_are_those_of_the_whole_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With parts of another instrumentation, late effects, errors, an inventory and a battery, one trace at a time."""
    from ragtrace.ui import learning

    bench = Bench(tmp_path / "v.duckdb")
    bench.open().close()
    claims = {"mask": ["response", "query"], "stub": ["prompt"]}
    for n in range(6):
        effects = [
            effect(
                "mask",
                "response",
                ["changed", "unchanged", "error"][n % 3],
                late=n == 0,
                error="E" if n % 3 == 2 else None,
            )
        ]
        probe(bench, "r", "mask", f"p{n}", "x", effects, declared=claims, path="stream" if n % 2 else "invoke")
    with bench.span("Reranker", {"openinference.span.kind": "RERANKER"}, "openinference.instrumentation.langchain"):
        pass
    with bench.open() as db:
        db.execute(
            "INSERT INTO inventory_data VALUES ('stub', 'duck', 'prompt', 'stub', 'f.py', 3, 'returns its input')"
        )
        db.execute(
            "INSERT INTO battery_data (defense, hook, family, status, n, changed) "
            "VALUES ('mask', 'response', 'email', 'changes', 2, 1)"
        )
        expected = sorted(
            db.execute("SELECT defense, hook, verdict, evidence, runs, changed, crossings FROM verdicts").fetchall(),
            key=str,
        )
    monkeypatch.setattr(learning, "_PIECES", learning._PIECES.replace(str(learning._PIECE), "2"))
    from concurrent.futures import ThreadPoolExecutor

    from ragtrace.ui.index import started

    with ThreadPoolExecutor(1) as pool:
        index = started(Store(bench.database), pool)
        found = index.verdicts.result(60)
    with index.cursor() as own:
        assert len(learning.pieces(own)) > 3
    columns = ("defense", "hook", "verdict", "evidence", "runs", "changed", "crossings")
    assert sorted((tuple(row[c] for c in columns) for row in found.rows), key=str) == expected
    assert {"mask", "stub", "Reranker"} <= {row[0] for row in expected}


# the list


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ("path=stream", "path = 'stream'"),
        ("arm=mask", "arm = 'mask'"),
        ("run=r", "run_id = 'r'"),
        ("model=m", "trace_id IN (SELECT trace_id FROM stages WHERE model = 'm')"),
        ("bypassed=1", "trace_id IN (SELECT trace_id FROM coverage WHERE NOT ran)"),
        ("status=bypassed&defense=house-mask", "trace_id IN (SELECT trace_id FROM coverage WHERE NOT ran)"),
        ("defense=rewriter", "trace_id IN (SELECT trace_id FROM effects WHERE defense = 'rewriter')"),
        ("defense=house-mask&status=unchanged",
         "trace_id IN (SELECT trace_id FROM effects WHERE defense = 'house-mask' AND status = 'unchanged')"),
        ("hook=content", "trace_id IN (SELECT trace_id FROM effects WHERE hook = 'content')"),
        ("text=SIGNED%20by", "trace_id IN (SELECT trace_id FROM generations WHERE response ILIKE '%signed by%')"),
        ("text=signs%3F&arm=none", "arm = 'none'"),
        ("text=nowhere", "false"),
        ("failed=1", "status = 'ERROR'"),
        ("defense=house-mask&path=invoke&status=changed",
         "trace_id IN (SELECT trace_id FROM effects WHERE defense = 'house-mask' AND status = 'changed')"),
        ("slow=1000000", "false"),
        ("since=2020-01-01T00:00", "run_id = 'r' OR true"),
        ("until=2020-01-01T00:00", "false"),
    ],
)  # fmt: skip
def test_filters_find_what_the_views_say(database: Path, shown: Any, asked: str, where: str) -> None:
    expected = traces(
        database, f"SELECT trace_id FROM span_data WHERE {where} GROUP BY trace_id ORDER BY min(start_ns) DESC, 1 DESC"
    )
    html = shown.get(f"/traces?{asked}").text
    assert ids(html) == expected
    if expected:
        assert len(expected) < 13 or asked.startswith(("run", "model", "since")), "the filter leaves something out"
    else:
        assert "Nothing fits." in text(html)


def test_a_trace_is_found_by_the_beginning_of_its_id(database: Path, shown: Any) -> None:
    [id, *_] = traces(database, "SELECT trace_id FROM span_data ORDER BY random() LIMIT 1")
    assert ids(shown.get(f"/traces?trace={id[:12]}").text) == [id]


def test_pages_follow_one_another_without_gaps_and_twice_nothing(bench: Bench) -> None:
    for n in range(2 * searching.PAGE + 7):
        with bench.request(), bench.stage("retrieval", **{a.RETRIEVAL_QUERY: f"question {n}"}):
            pass
    with bench.open() as db:
        # several that began at the very same time, across the end of a page
        db.execute("UPDATE span_data SET start_ns = 1000 * (start_ns // 100000000)")
        expected = [
            id for (id,) in db.execute(
                "SELECT trace_id FROM span_data GROUP BY 1 ORDER BY min(start_ns) DESC, 1 DESC"
            ).fetchall()
        ]  # fmt: skip
    client = inside(bench.database, show=True)
    for query in ("", "text=question"):
        found, link = [], f"/traces?{query}"
        while link:
            html = client.get(link).text
            found += ids(html)
            following = re.search(r'rel="next" href="([^"]+)"', html)
            link = unquoted(following[1]) if following else ""
        assert found == expected
    assert "« newest" in html
    assert "OFFSET" not in Path(searching.__file__).read_text()


def test_a_search_that_takes_long_says_how_far_it_came_and_goes_on_from_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(9):
        with bench.request(), bench.stage("retrieval", **{a.RETRIEVAL_QUERY: "needle" if n == 0 else "hay"}):
            pass
    bench.open().close()
    monkeypatch.setattr(searching, "_SECONDS", 0.0)
    monkeypatch.setattr(searching, "_FIRST", 4)
    client, link, seen = inside(bench.database, show=True), "/traces?text=needle", 0
    for _ in range(3):
        html = client.get(link).text
        seen += 1
        if ids(html):
            break
        assert "Nothing so far." in html
        link = unquoted(re.search(r'href="(/traces\?[^"]+before=[^"]+)"', html)[1])
    assert seen == 3
    assert len(ids(html)) == 1


@pytest.mark.parametrize(
    "word", ['say "no"', "back\\slash", "line\nbreak", "ünïcode ß", "日本", "a/b", "100%", ".*", "'"]
)
def test_text_is_found_whatever_json_made_of_it(bench: Bench, word: str) -> None:
    said = [{"role": "assistant", "parts": [{"content": f"before {word} after"}]}]
    for messages in (said, [{"role": "assistant", "parts": [{"content": "other words"}]}]):
        with bench.request(), bench.stage("generation", **{a.OUTPUT_MESSAGES: messages}):
            pass
    bench.open().close()
    client = inside(bench.database)
    expected = traces(bench.database, "SELECT trace_id FROM generations WHERE contains(response, ?)", word)
    assert len(expected) == 1
    assert ids(client.get("/traces", params={"text": word}).text) == expected


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("since=yesterday", "expected for example 2026-05-01T14:30"),
        ("slow=-3", "expected milliseconds, 0 or more"),
        ("slow=nan", "expected milliseconds"),
        ("status=gone", "expected one of changed, unchanged, error, late, bypassed"),
        ("before=x.y", "begin at its first page"),
    ],
)
def test_a_filter_that_is_none_is_told(shown: Any, asked: str, words: str) -> None:
    answer = shown.get(f"/traces?{asked}")
    assert answer.status_code == 400
    assert words in text(answer.text)


# one trace


def test_a_trace_tells_its_spans_what_was_changed_word_by_word_and_where_its_documents_stood(
    database: Path, shown: Any
) -> None:
    [id] = traces(database, "SELECT DISTINCT trace_id FROM effects WHERE defense = 'rewriter'")
    html = shown.get(f"/trace/{id}").text
    assert len(re.findall(r"<rect ", html)) == 3
    assert "By <del>Zebulon Quill</del><ins>[NAME]</ins>." in html
    said = text(html)
    assert "3 spans in" in said
    assert re.search(r"as retrieved rank .* 1 d1 0\.5 .* after the defenses rank .* 1 d1 0\.4", said)
    assert re.search(rf"Canaries .* {SECRET} person prompt retrieval d1", said)
    assert "probe: canary-4" in said
    assert "the undefended arm" not in said


def test_a_bypass_is_told_first_and_in_red(database: Path, shown: Any) -> None:
    [id] = traces(database, "SELECT DISTINCT trace_id FROM coverage WHERE NOT ran")
    html = shown.get(f"/trace/{id}").text
    assert "1 bypass house-mask did not run at response (path stream), which it declares" in text(html)
    assert re.search(r'<tr class="missed"><th scope="row">house-mask</th><td>response</td><td>stream</td>', html)


def test_a_changed_answer_is_set_against_the_undefended_twins(database: Path, shown: Any) -> None:
    query = "SELECT trace_id FROM generations WHERE probe_id = 'canary-1' AND arm = ?"
    [mine], [twin] = traces(database, query, "mask"), traces(database, query, "none")
    html = shown.get(f"/trace/{mine}").text
    assert "Signed by <del>Zebulon Quill</del><ins>[PERSON]</ins> today" in html
    assert f'<a href="/trace/{twin}">its trace</a>' in html
    assert text(html).count("canary-1") >= 1
    assert len(re.findall(r"<rect ", html)) == 3, "the twin's spans are not this trace's"


def test_texts_are_masked_unless_they_may_be_shown(database: Path, masked: Any, shown: Any) -> None:
    for id in traces(database, "SELECT DISTINCT trace_id FROM span_data WHERE probe_id IS NOT NULL"):
        html = masked.get(f"/trace/{id}").text
        for word in ("Zebulon", "Quill", "Signed", "signs", "PERSON", "is_member"):
            assert word not in html, word
        assert "•" in html
    assert "Who signs?" not in masked.get("/traces").text
    assert "••• •••••?" in masked.get("/traces").text
    assert "Who signs?" in shown.get("/traces").text


def test_a_trace_of_many_spans_comes_in_parts_and_stands_as_a_tree(bench: Bench) -> None:
    with bench.request(declared={"mask": ["query"]}):
        for n in range(trace.PAGE + 5):
            with bench.stage("retrieval", **{a.RETRIEVAL_QUERY: f"q{n}"}), bench.span(f"inner {n}"):
                pass
    bench.open().close()
    [id] = traces(bench.database, "SELECT DISTINCT trace_id FROM span_data")
    client = inside(bench.database, show=True)
    first, last = client.get(f"/trace/{id}").text, client.get(f"/trace/{id}?page=3").text
    assert "211 spans in" in text(first)
    assert "105 crossings" not in first
    assert re.search(r"mask query invoke no: bypassed 105", text(last)), "coverage is of the whole trace"
    assert [len(re.findall("<rect ", page)) for page in (first, last)] == [100, 11]
    assert [re.findall(r'class="who d(\d)"', first)[n] for n in range(3)] == ["0", "1", "2"]


def test_a_span_that_is_its_own_ancestor_is_shown_all_the_same(bench: Bench) -> None:
    with bench.request(), bench.span("one"), bench.span("two"):
        pass
    with bench.open() as db:
        db.execute(
            "UPDATE span_data SET parent_span_id = (SELECT span_id FROM span_data WHERE name = 'two') "
            "WHERE name = 'one'"
        )
    [id] = traces(bench.database, "SELECT DISTINCT trace_id FROM span_data")
    said = text(inside(bench.database).get(f"/trace/{id}").text)
    assert "one" in said
    assert "two" in said


def test_a_trace_too_large_to_be_read_says_how_much_of_it_was(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_BYTES", 5_000)
    with bench.request():
        for _ in range(9):
            with bench.stage("retrieval", **{a.RETRIEVAL_QUERY: "x" * 1_000}):
                pass
    bench.open().close()
    [id] = traces(bench.database, "SELECT DISTINCT trace_id FROM span_data")
    assert "Only the first 5 spans of this trace are read here" in text(inside(bench.database).get(f"/trace/{id}").text)


@pytest.mark.parametrize("path", ["/trace/nothing", "/trace/%3Cscript%3E", "/trace/a/b", "/trace/"])
def test_no_such_trace(shown: Any, path: str) -> None:
    answer = shown.get(path)
    assert answer.status_code == 404
    assert "<script>" not in answer.text


# SQL


def test_an_answer_is_paged_and_comes_as_csv(shown: Any) -> None:
    first = ask(shown, "SELECT range AS n, 'a,\"b' AS t FROM range(250)")
    assert first.status_code == 200
    assert "250 rows" in text(first.text)
    key = str(first.url).rpartition("/")[2]
    assert len(re.findall("<tr>", first.text)) == 101
    assert re.search(r"<td>249</td>", shown.get(f"/sql/{key}?page=3").text)
    file = shown.get(f"/sql/{key}.csv")
    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    assert file.headers["content-disposition"].startswith("attachment")
    assert file.text.splitlines()[:2] == ["n,t", '0,"a,""b"']
    assert len(file.text.splitlines()) == 251


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("", "the box is empty"),
        ("SELECT * FROM dokuments", 'Did you mean "documents"'),
        ("SELECT 1; SELECT 2", "got 2 SQL statements, expected one"),
        ("DELETE FROM span_data", "got DELETE, expected a question"),
        ("COPY span_data TO 'x.csv'", "got COPY, expected a question"),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration"),
        ("SELECT * FROM 'https://example.com/x.parquet'", "disabled"),
        ("ATTACH 'x.duckdb'", "expected a question"),
        ("SET memory_limit = '9GB'", "expected a question"),
        ("SELECT $missing", "missing"),
        ("x" * 60_000, "expected at most 50000"),
    ],
)
def test_the_box_only_asks(shown: Any, sql: str, words: str) -> None:
    answer = ask(shown, sql)
    assert answer.status_code == 400
    assert words in text(answer.text)


def test_time_and_rows_are_limited_and_the_page_lives_on(database: Path) -> None:
    client = inside(database, seconds=1.0, most=500)
    long = ask(client, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = 7")
    assert long.status_code == 400
    assert "took longer than 1 s" in text(long.text)
    many = ask(client, "SELECT * FROM range(100000)")
    assert "There are more: the first 500 are kept here." in text(many.text)
    assert client.get("/traces").status_code == 200


def test_a_question_that_takes_all_memory_ends_itself_alone(database: Path) -> None:
    client = inside(database, seconds=100.0, most=500)
    answer = ask(client, "SELECT list(range) FROM range(400000000)")
    assert answer.status_code == 400
    assert "memory" in text(answer.text).lower()
    assert client.get("/traces").status_code == 200


def test_a_child_that_dies_is_told(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    with pytest.raises(UsageError, match="no answer"):
        Box(database, False).ask("SELECT 1", {}, ())


def test_cells_that_may_hold_text_are_masked_by_column_or_name(masked: Any, shown: Any) -> None:
    sql = (
        "SELECT trace_id, content, content AS defense2, 'house-mask' AS who, score, upper(content) AS document_id, "
        "[content] AS l FROM documents LIMIT 1"
    )
    row = re.findall(r"<td>(.*?)</td>", ask(masked, sql).text)
    assert re.search(r">[0-9a-f]{32}</a>", row[0])
    assert row[1] == row[2] == "•• •• ••••••."
    assert row[3] == "house-mask", "a name that is known is no content"
    assert row[4] == "0.5"
    assert row[5] == "IT IS SIGNED.", "an alias that claims to be a name is the asker's own doing"
    assert "signed" not in row[6]
    assert "are masked" in text(ask(masked, sql).text)
    assert "It is signed." in ask(shown, sql).text


@pytest.mark.parametrize("name", ["documents", "trace", "bypasses", "verdicts"])
def test_saved_questions_stand_in_the_box_with_their_parameters(shown: Any, name: str) -> None:
    from ragtrace import questions

    question = questions.load()[name]
    html = shown.get(f"/sql?question={name}").text
    assert question.title in text(html)
    for parameter in question.parameters:
        assert f'name="value.{parameter}"' in html
    answer = ask(shown, question.sql, question=name, **{"value.limit": "1"} if "limit" in question.parameters else {})
    assert re.search(r"\d+ rows?", text(answer.text))
    assert answer.status_code == 200


def test_every_saved_question_is_answered(shown: Any) -> None:
    from ragtrace import questions

    said = text(shown.get("/sql").text)
    for question in questions.load().values():
        assert question.title in said
    wrong = ask(shown, "SELECT $limit", question="documents", **{"value.limit": "many"})
    assert wrong.status_code == 400
    assert "expected limit=<integer>" in text(wrong.text)
    assert shown.get("/sql?question=none").status_code == 400


def test_an_answer_that_is_gone_says_so(shown: Any) -> None:
    first = ask(shown, "SELECT 1")
    for n in range(8):
        ask(shown, f"SELECT {n}")
    assert "no longer kept" in text(shown.get(str(first.url)).text)
    assert shown.get(f"{first.url}.csv").status_code == 404


# hostile content


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("show", [True, False])
def test_hostile_text_stays_text_on_every_page(owned: Path, show: bool) -> None:
    client = inside(owned, show=show, seconds=100.0, most=10_000)
    pages = ["/", "/traces", "/traces?text=%3Cscript", "/traces?defense=%3Cscript%3E", "/sql"]
    pages += [f"/trace/{id}" for id in ids(client.get("/traces").text)[:12]]
    found = [client.get(page) for page in pages]
    home(client)
    found[0] = client.get("/")
    found += [ask(client, "SELECT * FROM documents"), ask(client, "SELECT defense, evidence FROM verdicts")]
    for answer in found:
        assert answer.status_code == 200
        assert len(answer.text) < 3_000_000
        bare = re.sub(r'<script src="/static/ui.js" defer></script>', "", answer.text)
        assert "<script" not in bare
        assert not re.search(r"<(iframe|img|base|object|style|meta http)", bare)
        assert not re.search(r"<[^>]*\s(on\w+|style)=", re.sub(r'"[^"]*"', '""', bare))
        assert not set(text(answer.text)) & set("\u202e\u2066\u2067\u2069\x1b\x07\u200b\ufeff\u2028\x00")


def test_names_of_any_kind_lead_to_their_traces(owned: Path) -> None:
    client = inside(owned)
    html = home(client)
    links = [unquoted(link) for link in re.findall(r'href="(/traces\?[^"]+status=bypassed[^"]*)"', html)]
    assert len(links) >= 45, "every hostile defense was bypassed somewhere"
    for link in links[::7]:
        assert ids(client.get(link).text), link


# a live store


def test_refresh_brings_what_came_meanwhile_and_nobody_is_locked_out(bench: Bench) -> None:
    with bench.request():
        pass
    bench.open().close()
    client = inside(bench.database)
    assert "1 trace, 1 span" in text(client.get("/traces").text)
    with bench.request():
        pass
    bench.write()
    said = text(client.get("/traces").text)
    assert "Refresh (1 new segment)" in said
    assert "1 trace," in said
    assert "2 traces, 2 spans" in text(client.post("/refresh", headers=OWN).text)
    client.get("/")
    with ragtrace.open(bench.database) as db:  # between requests the viewer has it not
        assert db.execute("SELECT count(*) FROM span_data").fetchall() == [(2,)]


def test_a_database_that_another_process_has_is_told_and_then_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ragtrace.ui import reading

    with bench.request():
        pass
    bench.open().close()
    client = inside(bench.database)
    client.get("/")
    monkeypatch.setattr(reading, "_RETRIES", 1)
    monkeypatch.setattr(reading, "_PAUSE", 0.0)
    holder = subprocess.Popen(
        [sys.executable, "-c", "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('has it', flush=1); input()",
         str(bench.database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout.readline() == "has it\n"
        answer = client.get("/traces")
        assert answer.status_code == 503
        assert f"is open in another process (PID {holder.pid})" in text(answer.text)
        assert client.post("/refresh", headers=OWN).status_code == 503
        holder.communicate("\n")
    assert client.get("/traces").status_code == 200


def test_segments_that_cannot_be_read_are_told(bench: Bench) -> None:
    with bench.request():
        pass
    bench.open().close()
    client = inside(bench.database)
    (bench.spool / "x-y-z-1.parquet").write_bytes(b"torn")
    with pytest.warns(UserWarning):
        answer = client.post("/refresh", headers=OWN)
    assert "1 segment of the spool could not be merged" in text(answer.text)


# bad input, and the command


def test_an_empty_database_says_how_to_fill_it(bench: Bench) -> None:
    client = inside(bench.database)
    for page in ("/", "/traces"):
        answer = client.get(page)
        assert answer.status_code == 200
        assert "ragtrace.setup(…)" in text(answer.text)
    assert ask(client, "FROM verdicts").status_code == 200


def test_traffic_without_probes_or_defenses_is_shown(bench: Bench) -> None:
    with bench.request(), bench.stage("retrieval"):
        pass
    bench.open().close()
    client = inside(bench.database)
    assert "No defense is declared, observed or inventoried" in text(client.get("/").text)
    [id] = ids(client.get("/traces").text)
    said = text(client.get(f"/trace/{id}").text)
    assert "No document was retrieved" in said
    assert "Nothing was changed in this trace" in said


def test_wrong_input_ends_with_2_and_words_that_help(tmp_path: Path, database: Path) -> None:
    foreign = tmp_path / "foreign.duckdb"
    with duckdb.connect(str(foreign)) as made:
        made.execute("CREATE TABLE t (i INT)")
    text_file = tmp_path / "notes.txt"
    text_file.write_text("no database")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, words in (
            (["--db", str(tmp_path / "none.duckdb")], "no database at"),
            (["--db", str(foreign)], "not one of ragtrace"),
            (["--db", str(text_file)], "is not a readable DuckDB database"),
            (["--db", str(tmp_path)], "is a folder"),
            (["--db", str(database), "--port", port], "Address already in use; give another --host or --port"),
            (["--db", str(database), "--host", "0.0.0.0"], "expected 127.0.0.1, ::1 or localhost"),
            (["--db", str(database), "--host", "192.0.2.1", "--allow-remote"], "cannot listen on 192.0.2.1"),
        ):
            answer = CliRunner().invoke(cli.app, ["ui", *arguments, "--no-browser"])
            assert isinstance(answer.exception, ragtrace.errors.RagtraceError), (arguments, answer.output)
            assert words in str(answer.exception), arguments
    assert not (tmp_path / "none.duckdb").exists()


def test_without_the_extra_the_fix_is_told(database: Path) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None; sys.modules['jinja2'] = None\n"
        "from ragtrace.cli import main; main()"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, "ui", "--db", str(database)], capture_output=True, text=True, timeout=120
    )
    assert answer.returncode == 2
    assert "pip install 'ragtrace-audit[ui]'" in answer.stderr


def test_it_is_served_at_the_printed_address_until_it_is_told_to_stop(database: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "from ragtrace.cli import main; main()", "ui", "--db", str(database), "--no-browser"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "DISPLAY": ""},
    )  # fmt: skip
    with process:
        url = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})$", process.stdout.readline().strip())
        assert url
        from urllib.request import Request, urlopen

        with urlopen(url[0]) as answer:
            cookie = answer.headers["set-cookie"].partition(";")[0]
        with urlopen(Request(f"http://127.0.0.1:{url[1]}/traces", headers={"Cookie": cookie})) as answer:
            assert b"13 traces" in answer.read()
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    assert url[2] not in out, "the token is printed once"
    assert out.splitlines()[-1] == "stopped"
    assert errors == ""


def test_the_browser_is_shown_the_token_by_a_file_of_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    from ragtrace.ui import server

    seen, there = {}, Event()

    def show(url: str) -> bool:
        page = Path(url.removeprefix("file://"))
        seen.update(url=url, text=page.read_text(), mode=stat.S_IMODE(page.parent.stat().st_mode))
        there.set()
        return True

    monkeypatch.setattr(server.webbrowser, "open", show)
    with server._opened("http://127.0.0.1:1/?token=secret"):
        assert there.wait(30)
    assert "secret" not in seen["url"]
    assert "token=secret" in seen["text"]
    assert seen["mode"] == 0o700
    assert not Path(seen["url"].removeprefix("file://")).exists()


def test_a_database_of_an_older_version_gets_the_views_of_this_one(bench: Bench) -> None:
    from ragtrace.ui.reading import OutdatedError

    with bench.open() as db:
        db.execute("DROP VIEW part_hooks")
        db.execute("DELETE FROM ragtrace_meta WHERE key = 'definitions'")
    with pytest.raises(OutdatedError, match="part_hooks"):
        outside(bench.database)
    process = subprocess.Popen(
        [sys.executable, "-c", "from ragtrace.cli import main; main()", "ui", "--db", str(bench.database),
         "--no-browser"], stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert "are at http://127.0.0.1:" in process.stdout.readline()
        process.terminate()
    outside(bench.database)


def test_a_signal_that_comes_before_uvicorn_listens_to_it_ends_it(database: Path) -> None:
    code = (
        "import os, signal, uvicorn\n"
        "run = uvicorn.Server.run\n"
        "def early(self, sockets):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run(self, sockets)\n"
        "uvicorn.Server.run = early\n"
        "from ragtrace.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "ui", "--db", str(database), "--no-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("stopped\n")


def test_a_file_that_may_not_be_written_to_is_served(database: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(database.read_bytes())
    before = copy.read_bytes()
    client = inside(copy)
    home(client)
    client.get("/traces")
    assert copy.read_bytes() == before, "nothing was written"


def test_the_help_has_an_example() -> None:
    assert "ragtrace ui --db traces.duckdb" in CliRunner().invoke(cli.app, ["ui", "--help"]).output


def test_the_package_is_light_until_it_serves() -> None:
    code = (
        "import sys, ragtrace.ui, json\n"
        "print(json.dumps([m in sys.modules for m in ('starlette', 'jinja2', 'uvicorn')]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert json.loads(answer.stdout) == [False, False, False]
