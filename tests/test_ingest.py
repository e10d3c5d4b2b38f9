"""Spans of other instrumentations in the store: the samples, duplicates, what is not known, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ingest_fixtures import SPAN, START, TRACE, Store, otlp, samples, span, store
from pipelines import call, lcel
from typer.testing import CliRunner

import ragtrace
from ragtrace import cli
from ragtrace.ingest.files import files_at

__all__ = ["store"]
ALICE = [("Alice Smith record 2", 1), ("Alice Smith record 0", 2)]


def test_every_sample_is_taken_whole_and_once(store: Store) -> None:
    report = store.take(samples())
    assert report.failed == [] and report.skipped == []
    assert report.files == len(files_at([samples()])) == 37
    # 345 spans by count of the files; three of pydantic-ai's two traces are the same
    assert report.spans == 342 == store.row("SELECT count(DISTINCT (trace_id, span_id)) FROM spans")[0]
    assert store.take(samples()).spans == 0
    assert store.row("SELECT count(*) FROM spans") == (342,)
    assert store.row("SELECT count(*) FROM spans WHERE attributes IS NULL OR start_time < '2018-01-01'") == (0,)


def test_dump_of_openinference_in_langchain(store: Store) -> None:
    store.take(samples() / "instrumentors" / "dump_lc_oi.json")
    stages = store.rows("SELECT stage, framework, path, query, model, status, dialect FROM stages ORDER BY start_time")
    assert stages == [
        ("retrieval", "langchain", None, "who?", None, "OK", "openinference"),
        ("retrieval", "langchain", None, "who?", None, "OK", "openinference"),
        ("generation", "langchain", None, "who?", "fake-1", "OK", "openinference"),
    ]
    documents = store.rows(
        "SELECT span_id, phase, rank, document_id, score, content, metadata FROM documents ORDER BY ALL"
    )
    assert [(s, p, r, i, x, c, json.loads(m)) for s, p, r, i, x, c, m in documents] == [
        ("146482dd82dca58d", "retrieved", 1, "d2", None, "[NAME] record 2", {"src": "s2", "n": 2}),
        ("697f788836a8b5be", "retrieved", 1, "d2", None, "Alice Smith record 2", {"src": "s2", "n": 2}),
        ("697f788836a8b5be", "retrieved", 2, "d0", None, "Alice Smith record 0", {"src": "s0", "n": 0}),
    ]
    assert store.row(
        "SELECT query, prompt, response, model, completion_tokens, prompt_tokens, perplexity FROM generations"
    ) == ("who?", "Context: [NAME] record 2\n\nwho?", "the answer", "fake-1", None, None, None)
    assert store.rows("SELECT * FROM effects") == store.rows("SELECT * FROM coverage") == []


def test_dump_of_openllmetry_in_langchain(store: Store) -> None:
    store.take(samples() / "instrumentors" / "dump_lc_tl.json")
    assert store.rows("SELECT stage, framework, query, status, dialect FROM stages ORDER BY start_time") == [
        ("retrieval", "langchain", "who?", "UNSET", "openllmetry"),
        ("retrieval", "langchain", "who?", "UNSET", "openllmetry"),
        ("generation", "langchain", "who?", "UNSET", "openllmetry"),
    ]
    inner = "SELECT content, rank FROM documents WHERE span_id = '{}' AND phase = 'retrieved' ORDER BY rank"
    assert store.rows(inner.format("4d3c406a18a9f5fe")) == ALICE
    assert store.rows(inner.format("c2d8f09fa9c8127e")) == [("[NAME] record 2", 1)]
    # the instrumentation's own word for the model is "unknown"; LangChain's name of it is there as well
    assert store.row("SELECT prompt, response, model FROM generations") == (
        "Context: [NAME] record 2\n\nwho?", "the answer", "fake-1",
    )  # fmt: skip
    [kept] = store.row(
        "SELECT attributes->'ragtrace.original' FROM spans WHERE attributes->>'gen_ai.operation.name' = 'chat'"
    )
    assert json.loads(kept)["gen_ai.request.model"] == "unknown"
    assert json.loads(json.loads(kept)["gen_ai.input.messages"])[0]["parts"][0]["content"] == "who?"


def test_dump_of_openinference_in_llama_index(store: Store) -> None:
    store.take(samples() / "instrumentors" / "dump_li_oi.json")
    assert store.rows("SELECT stage, span_id, query, model FROM stages ORDER BY start_time") == [
        ("retrieval", "9ea02efba6d200c6", "who?", None),
        ("generation", "4ea408862651eac4", "who?", "unknown"),
    ]
    score = 0.9999999999999998
    assert store.rows("SELECT rank, document_id, score, content FROM documents ORDER BY rank") == [
        (1, "n1", score, "Alice Smith record 1"), (2, "n2", score, "Alice Smith record 2"),
    ]  # fmt: skip
    prompt = (
        "Context information is below.\n---------------------\n[NAME] record 1\n---------------------\nGiven the "
        "context information and not prior knowledge, answer the query.\nQuery: who?\nAnswer: "
    )
    assert store.row("SELECT prompt, response FROM generations") == (prompt, prompt)
    # MockLLM.predict around MockLLM.complete, and .retrieve around ._retrieve: one call each
    assert store.rows("SELECT span_id, duplicate_of FROM spans WHERE duplicate_of IS NOT NULL ORDER BY ALL") == [
        ("5f5e22be2144e1d6", "4ea408862651eac4"), ("e7b0daad0b049404", "9ea02efba6d200c6"),
    ]  # fmt: skip
    assert store.row("SELECT count(*) FROM spans") == (15,)


def test_dump_of_otel_genai_in_llama_index(store: Store) -> None:
    store.take(samples() / "instrumentors" / "dump_li_otel.json")
    assert store.row("SELECT stage, query, dialect FROM stages") == ("retrieval", "who?", "otel_genai")
    assert store.rows("SELECT rank, document_id, score, content, content_hash FROM documents ORDER BY rank") == [
        (1, "n1", 0.9999999999999998, None, None), (2, "n2", 0.9999999999999998, None, None),
    ]  # fmt: skip


def test_a_part_seen_by_others_is_unknown_and_has_no_effect(store: Store) -> None:
    store.take(samples() / "instrumentors" / "dump_li_oi.json")
    columns = "defense, hook, source_status, runtime_status, verdict, runs, changed, evidence"
    row = store.row(f"SELECT {columns} FROM verdicts")
    assert row[:7] == ("Red", None, None, "unknown", "unknown", 1, None)
    assert "1 spans of openinference" in row[7] and "not known" in row[7]
    assert store.rows("SELECT * FROM effects") == []
    assert store.rows("SELECT * FROM documents WHERE phase <> 'retrieved'") == []


def test_a_reranker_that_says_both_lists_is_shown_with_both(store: Store) -> None:
    lists = {f"reranker.{side}.{i}.document.{k}": v
             for side, texts in (("input_documents", ["a", "b"]), ("output_documents", ["b"]))
             for i, t in enumerate(texts) for k, v in (("content", t), ("id", f"id-{t}"), ("score", 0.5))}  # fmt: skip
    kind = {"openinference.span.kind": "RERANKER", "reranker.query": "q", "reranker.model_name": "m"}
    store.took(otlp(span(kind | lists, name="CohereRerank.rerank")))
    assert store.rows("SELECT phase, rank, document_id, content FROM documents ORDER BY ALL") == [
        ("after_defense", 1, "id-b", "b"), ("retrieved", 1, "id-a", "a"), ("retrieved", 2, "id-b", "b"),
    ]  # fmt: skip
    assert store.row("SELECT defense, verdict, changed FROM verdicts") == ("CohereRerank", "unknown", None)
    store.took(otlp(span(kind, name="Silent.rerank", spanId="1" * 16)), "second")
    assert store.row("SELECT count(*) FROM documents") == (3,)


def test_entities_in_what_others_recorded(store: Store) -> None:
    store.took(otlp(span(answer("Write to alice.smith@enron.com about it."))))
    found = store.rows("SELECT type, text, in_query, in_documents FROM entities")
    assert ("EMAIL_REAL", "alice.smith@enron.com", False, False) in found


def test_nobody_passes_for_us(store: Store) -> None:
    """Attributes of our names on a span that is not ours are kept, and read by no view."""
    forged = {
        "gen_ai.operation.name": "retrieval", "ragtrace.stage": "retrieval", "ragtrace.run_id": "r",
        "ragtrace.arm": "x", "ragtrace.path": "invoke",
        "ragtrace.documents.after_defense": '[{"id":"x","content":"forged"}]',
        "ragtrace.effects": '[{"defense":"D","hook":"content","status":"changed"}]',
    }  # fmt: skip
    store.took(otlp(span(forged)))
    assert store.row("SELECT stage, run_id, arm, path FROM stages") == ("retrieval", None, None, None)
    assert store.rows("SELECT * FROM documents") == store.rows("SELECT * FROM effects") == []
    [kept] = store.row("SELECT attributes->'ragtrace.original' FROM spans")
    assert json.loads(kept) == {k: v for k, v in forged.items() if k.startswith("ragtrace.")}


def test_content_is_never_sql(store: Store) -> None:
    nasty = "'; DROP TABLE span_data; --"
    store.took(otlp(span(CHAT | {"gen_ai.request.model": nasty, f'k"{nasty}': nasty}, name=nasty)))
    store.took(otlp(span({"gen_ai.operation.name": "chat"}, name=nasty, spanId="2" * 16)), nasty.replace("/", "-"))
    assert store.rows("SELECT model FROM generations ORDER BY ALL") == [(nasty,), (None,)]
    assert store.row("SELECT count(*) FROM spans WHERE name LIKE '%DROP TABLE%'") == (2,)


def test_unknown_spans_are_kept_as_they_are(store: Store) -> None:
    attributes = {"http.route": "/ask", "n": 1, "list": ["a", "b"], "nested": {"a": {"b": 0.5}}, "ragtrace.x": "kept"}
    store.took(otlp(span(attributes, kind=2, status={"code": 2, "message": "no"}, parentSpanId="3" * 16)))
    row = store.row(
        "SELECT trace_id, span_id, parent_span_id, name, kind, status, status_message, service, scope, dialect, "
        "epoch_ns(start_time), duration_ms, attributes, resource FROM spans"
    )
    assert row[:12] == (
        TRACE, SPAN, "3" * 16, "x", "SERVER", "ERROR", "no", "shop", "somebody", "otel", START, 5.0,
    )  # fmt: skip
    assert json.loads(row[12]) == attributes and json.loads(row[13]) == {"service.name": "shop"}
    assert store.rows("SELECT * FROM stages") == []


# duplicates

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


def answer(text: str) -> dict[str, str]:
    told = [{"role": "assistant", "parts": [{"type": "text", "content": text}]}]
    return CHAT | {"gen_ai.output.messages": json.dumps(told)}


def calls(store: Store) -> list[str]:
    return [s for (s,) in store.rows("SELECT span_id FROM generations ORDER BY span_id")]


@pytest.mark.parametrize(
    ("inner", "outer", "shown"),
    [
        (answer("yes"), answer("yes"), ["b"]),  # the inner one, where both say as much
        (answer("yes"), answer("yes") | {"gen_ai.usage.output_tokens": 3}, ["a"]),  # the one that says more
        (answer("yes"), CHAT, ["b"]),  # what was not recorded is no difference inside another call
        (answer("yes"), answer("no"), ["a", "b"]),
        (answer("yes"), {"http.route": "/"}, ["b"]),
    ],
)
def test_calls_inside_calls(store: Store, inner: Any, outer: Any, shown: list[str]) -> None:
    store.took(otlp(span(outer, spanId="a" * 16), span(inner, spanId="b" * 16, parentSpanId="a" * 16)))
    assert calls(store) == [c * 16 for c in shown]
    assert store.row("SELECT count(*) FROM spans") == (2,)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_chain_of_three_in_any_order_and_in_files_of_their_own(store: Store, order: tuple[int, ...]) -> None:
    chain = [
        span(answer("yes"), spanId="a" * 16),
        span({"http.route": "/"}, spanId="b" * 16, parentSpanId="a" * 16),
        span(answer("yes"), spanId="c" * 16, parentSpanId="b" * 16),
    ]
    for place in order:
        store.took(otlp(chain[place]), f"file{place}")
    assert calls(store) == ["c" * 16]


def test_two_instrumentations_beside_each_other(store: Store) -> None:
    """As many rows as calls, though each was seen twice and all say the same; a third call was seen by one of them."""
    one = [span(answer("same"), spanId=f"a{i}".ljust(16, "0"), startTimeUnixNano=str(START + i * 10**7),
                endTimeUnixNano=str(START + i * 10**7 + 10**6)) for i in range(3)]  # fmt: skip
    two = [s | {"spanId": f"b{s['spanId'][1:]}", "startTimeUnixNano": f"{int(s['startTimeUnixNano']) + 1000}"}
           for s in one]  # fmt: skip
    store.took(otlp(*one, scope="one"), "one")
    store.took(otlp(*two[:2], scope="two"), "two")
    assert len(calls(store)) == 3
    assert store.row("SELECT count(*), count(duplicate_of) FROM spans") == (5, 2)


def test_calls_at_the_same_time_by_one_instrumentation_are_two(store: Store) -> None:
    store.took(otlp(span(answer("same"), spanId="a" * 16), span(answer("same"), spanId="b" * 16)))
    assert len(calls(store)) == 2


def test_a_span_that_is_its_own_ancestor_ends(store: Store) -> None:
    store.took(otlp(span(answer("x"), spanId="a" * 16, parentSpanId="b" * 16),
                    span(answer("x"), spanId="b" * 16, parentSpanId="a" * 16)))  # fmt: skip
    assert store.row("SELECT count(*) FROM spans") == (2,) and len(calls(store)) == 1


@pytest.mark.parametrize("theirs_first", [True, False])
def test_ours_is_preferred_beside_openinference(tmp_path: Path, theirs_first: bool) -> None:
    """A live pipeline under both: in the spool of the same database, collapsed when it is opened."""
    from openinference.instrumentation.langchain import LangChainInstrumentor as Theirs
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from ragtrace_langchain import LangChainInstrumentor

    from ragtrace.record.spool import SpoolExporter

    database = tmp_path / "t.duckdb"
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(SpoolExporter(database, "full")))
    theirs, ours = Theirs(), LangChainInstrumentor()
    for each in (theirs, ours) if theirs_first else (ours, theirs):
        each.instrument(tracer_provider=provider, **({"capture": "full"} if each is ours else {}))
    try:
        call("invoke", lcel(), ["q", "r"])
        call("batch", lcel(), ["q", "r"])
    finally:
        theirs.uninstrument()
        ours.uninstrument()
        provider.shutdown()
    with ragtrace.open(database) as db:
        kinds = dict(db.execute("SELECT dialect, count(*) FROM spans GROUP BY ALL").fetchall())
        assert kinds["openinference"] > 10 and kinds["ragtrace"] > 10
        whole = "trace_id IN (SELECT trace_id FROM own_spans)"
        for view, rows in (("generations", 3), ("documents", 12), ("stages", 9)):  # stages: with context
            found = db.execute(f"SELECT count(*), bool_and(d.dialect = 'ragtrace') FROM {view} v JOIN spans d "
                               f"USING (trace_id, span_id) WHERE {whole}").fetchone()  # fmt: skip
            assert found == (rows, True), view


# the command


def _run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, [str(a) for a in ("import", *arguments)])


def test_the_command_takes_all_that_can_be_taken(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text(json.dumps(otlp(span())))
    (folder / "b\x1b[31m.json").write_text(json.dumps(otlp(span(spanId="12"))))
    (folder / "c").write_text(json.dumps(otlp(span(spanId="4" * 16))))
    (folder / ".hidden").write_text("x")
    monkeypatch.setattr("sys.argv", ["ragtrace", "import", str(folder), "--db", str(tmp_path / "t.duckdb")])
    with pytest.raises(SystemExit) as code:
        cli.main()
    out, err = capsys.readouterr()
    assert code.value.code == 2 and out == f"2 spans from 2 files into {tmp_path / 't.duckdb'}\n"
    assert "span id '12'; expected 16 hex digits" in err and "1 of 3 files could not be read" in err
    assert "\x1b" not in err and "Traceback" not in err
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert db.execute("SELECT count(*) FROM spans").fetchone() == (2,)


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    file = tmp_path / "spans"
    file.write_text(json.dumps(otlp(span())))
    target = tmp_path / "t.duckdb"
    first, again = _run(file, "--db", target), _run(file, file, "--db", target)
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert first.output == f"1 spans from 1 files into {target}\n"
    assert again.output == f"0 spans from 1 files into {target}\n"
