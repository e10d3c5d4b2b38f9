"""The same spans in every wrapping that people's tools put around them: encodings, compression, pipes, tables."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ingest_fixtures import ROW, SPAN, TRACE, Store, otlp, span, store
from test_ingest_exports import DOCS, EXPECTED, ISO, PROMPT, jaeger, phoenix_rows, runs, told
from test_ingest_formats import console

__all__ = ["store"]
ONE = json.dumps(otlp(span({"k": "ü"})), ensure_ascii=False)
STORED = [(TRACE, SPAN, "ü")]
ASKED = "SELECT trace_id, span_id, attributes->>'k' FROM spans"


def arrow(codec: str) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        return bytes(pa.compress(data, codec=codec, asbytes=True))

    return compress


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "zstd": arrow("zstd"), "bzip2": bz2.compress, "xz": lzma.compress, "lz4": arrow("lz4"),
}  # fmt: skip


@pytest.mark.parametrize("how", PACKED)
def test_compressed(store: Store, how: str) -> None:
    whole = PACKED[how](ONE.encode())
    [failed] = store.take(store.write(whole[: len(whole) * 2 // 3])).failed
    assert f"{how} that " in failed or "cut off" in failed
    store.took(whole)
    assert store.rows(ASKED) == STORED


@pytest.mark.parametrize("how", ["gzip", "bzip2", "xz"])
def test_what_was_appended(store: Store, how: str) -> None:
    second = json.dumps(otlp(span(spanId="2" * 16))).encode()
    assert store.took(PACKED[how](ONE.encode() + b"\n") + PACKED[how](second)).spans == 2


@pytest.mark.parametrize("how", PACKED)
def test_bombs(store: Store, how: str) -> None:
    [failed] = store.take(store.write(PACKED[how](bytes(70_000_000)))).failed
    assert "decompress to more than" in failed


def test_an_archive(store: Store) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.json", ONE)
    [failed] = store.take(store.write(out.getvalue())).failed
    assert "an archive; expected the files that are in it" in failed


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(store: Store, encoding: str) -> None:
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    store.took(mark + ONE.encode(encoding))
    assert store.rows(ASKED) == STORED


def test_utf_16_that_is_cut(store: Store) -> None:
    [failed] = store.take(store.write(ONE.encode("utf-16")[:-1])).failed
    assert "starts like UTF-16 but is none" in failed and "in UTF-8" in failed


def test_pipes(store: Store) -> None:
    pipe = store.folder / "pipe"
    os.mkfifo(pipe)
    feeder = subprocess.Popen([sys.executable, "-c", f"open({str(pipe)!r}, 'wb').write({ONE.encode()!r})"])
    assert store.take(pipe).failed == []
    assert feeder.wait() == 0
    assert store.rows(ASKED) == STORED


@pytest.mark.parametrize("content", [ONE.encode(), gzip.compress(ONE.encode())])
def test_standard_input(tmp_path: Path, content: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from ragtrace.cli import main; main()", "import", "-", "--db", tmp_path / "t.duckdb"],
        input=content, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"1 spans from 1 files")


def test_a_segment_through_a_pipe(store: Store) -> None:
    from ragtrace.record.spool import segment_schema

    path = store.folder / "segment"
    pq.write_table(segment_schema().empty_table(), path)
    pipe = store.folder / "pipe"
    os.mkfifo(pipe)
    feeder = subprocess.Popen(
        [sys.executable, "-c", f"open({str(pipe)!r}, 'wb').write(open({str(path)!r}, 'rb').read())"]
    )
    [failed] = store.take(pipe).failed
    feeder.wait()
    assert "a segment of ours through a pipe; give the file" in failed


def test_which_line_is_none(store: Store) -> None:
    lines = [ONE, ONE.replace(SPAN, "2" * 16), '{"resourceSpans": [\x1b[31m', ONE.replace(SPAN, "3" * 16)]
    [failed] = store.take(store.write("\n".join(lines).encode())).failed
    assert """(line 3, '{"resourceSpans": [\\x1b[31m'); cut off?""" in failed
    assert store.rows(ASKED) == []


def test_spans_among_what_an_app_prints(store: Store) -> None:
    first, second = (json.dumps(console(context={"trace_id": TRACE, "span_id": d * 16}), indent=4) for d in "78")
    text = f"Starting\n{first}\nThe answer is {{42}}\n{second}\n{{\n  not JSON\n"
    assert store.took(text.encode()).spans == 2
    for torn in (text.replace('"kind"', "kind", 1), text.replace("\n}\nThe", "\n The")):
        [failed] = store.take(store.write(torn.encode(), "torn")).failed
        assert "nothing of this file is stored" in failed
    [failed] = store.take(store.write(f"{first}\n{second}\nThe answer\n{second[:90]}".encode(), "cut")).failed
    assert "is none (line" in failed


def test_what_javascript_shows(store: Store) -> None:
    [failed] = store.take(store.write(b"{\n  traceId: 'aa',\n  attributes: [Object]\n}\n")).failed
    assert "a JavaScript object as its console shows it" in failed and "export OTLP" in failed


def table(rows: list[ROW], delimiter: str = ",") -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(k for r in rows for k in r)), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def parquet(rows: list[ROW]) -> bytes:
    out = pa.BufferOutputStream()
    names = dict.fromkeys(k for r in rows for k in r)
    pq.write_table(pa.Table.from_pylist([dict.fromkeys(names) | r for r in rows]), out)
    return bytes(out.getvalue())


def texts(row: ROW) -> ROW:
    return {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()}


@pytest.mark.parametrize("write", [table, parquet, lambda rows: b"\n".join(json.dumps(r).encode() for r in rows)])
def test_langsmith_with_json_in_texts(store: Store, write: Callable[[list[ROW]], bytes]) -> None:
    """As its bulk exports have it."""
    store.took(write([texts(each) for each in runs()]))
    found = told(store)
    assert found["stages"] == EXPECTED["stages"] and found["generations"] == EXPECTED["generations"]
    assert [(i, c) for _, i, _, c in found["documents"]] == [("d0", "Alice, room 0"), ("d1", "Bob, room 1")]


@pytest.mark.parametrize("write", [table, parquet])
def test_langfuse_rows(store: Store, write: Callable[[list[ROW]], bytes]) -> None:
    """The export button of its table of observations."""
    head = {"traceId": TRACE, "traceName": "t", "startTime": ISO, "endTime": ISO, "level": "DEFAULT", "name": "x"}
    documents = json.dumps([{"id": i, "score": s, "page_content": t} for i, s, t in DOCS])
    rows = [
        head | {"id": "a" * 16, "type": "RETRIEVER", "input": '{"query": "who?"}', "output": documents},
        head | {"id": "b" * 16, "type": "GENERATION", "input": json.dumps([{"role": "user", "content": PROMPT}]),
                "output": '"yes"', "model": "m", "usageDetails": '{"input": 11, "output": 3}'},
    ]  # fmt: skip
    store.took(write(rows))
    found = told(store)
    assert found["documents"] == EXPECTED["documents"]
    assert found["generations"] == [(PROMPT, "yes", "m", 11, 3, None)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters(store: Store, delimiter: str) -> None:
    store.took(table(phoenix_rows("2026-09-21 14:13:20.000000+00:00"), delimiter))
    assert told(store) == EXPECTED


@pytest.mark.parametrize("orient", ["index", "split", "columns", "records"])
def test_each_way_pandas_turns_a_frame(store: Store, orient: Any) -> None:
    frame = pd.DataFrame(phoenix_rows(ISO)).set_index("context.span_id", drop=False)
    store.took(frame.to_json(orient=orient).encode())
    assert told(store) == EXPECTED


def test_a_frame_with_rows_too_short(store: Store) -> None:
    frame = json.loads(pd.DataFrame(phoenix_rows(ISO)).to_json(orient="split"))
    frame["data"][1].pop()
    [failed] = store.take(store.write(frame)).failed
    assert "one a column" in failed


@pytest.mark.parametrize("wrapped", ["documents", "hits", "plain"])
def test_jaeger_in_elasticsearch(store: Store, wrapped: str) -> None:
    [trace] = jaeger()["data"]
    spans = [s | {"process": trace["processes"]["p1"]} for s in trace["spans"]]
    if wrapped != "plain":
        spans = [{"_index": "jaeger-span-2026", "_source": s} for s in spans]
    content = {"took": 1, "hits": {"total": 3, "hits": spans}} if wrapped == "hits" else spans
    store.took(content)
    assert told(store) == EXPECTED
    assert store.rows("SELECT DISTINCT service FROM spans") == [("shop",)]


def test_jaeger_s_third_api(store: Store) -> None:
    store.took({"result": json.loads(ONE)})
    assert store.rows(ASKED) == STORED


def opik(id: str, kind: str, **more: Any) -> ROW:
    """As Opik 2.2.122 sends it, and ``opik export`` writes it."""
    return {
        "id": f"01a22e84-a30{id}-7fcc-bd99-a5a456068e32", "trace_id": "01a22e84-a2d0-7da0-ab8d-45ff59913bff",
        "parent_span_id": None if id == "1" else "01a22e84-a301-7fcc-bd99-a5a456068e32", "name": "x", "type": kind,
        "project_name": "Default Project", "start_time": "2026-09-21T14:13:20.154401Z",
        "end_time": "2026-09-21T14:13:20.155750Z", "source": "sdk",
    } | more  # fmt: skip


def opik_spans() -> list[ROW]:
    message = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"],
               "kwargs": {"content": "Room 4.", "type": "ai"}}  # fmt: skip
    return [
        opik("1", "general", input={"q": "Who?"}, output={"output": "Hi."}),
        opik("2", "llm", input={"messages": [{"role": "user", "content": "Who?"}]}, model="gpt-x", provider="openai",
             output={"choices": [{"message": {"role": "assistant", "content": "Hi."}}]},
             usage={"completion_tokens": 2, "prompt_tokens": 5, "total_tokens": 7}),
        opik("3", "llm", metadata={"created_from": "langchain", "ls_model_name": "fake-1", "ls_provider": "m"},
             input={"messages": [[{"content": "Use: it", "type": "system"}, {"content": "Where?", "type": "human"}]]},
             output={"generations": [[{"text": "Room 4.", "type": "ChatGeneration", "message": message}]]}),
        opik("4", "llm", input={"messages": []}, error_info={"exception_type": "E", "message": "out"}),
        opik("5", "guardrail", input={"text": "Who?"}, output={"result": "passed"}, name="PII"),
    ]  # fmt: skip


@pytest.mark.parametrize("wrapped", ["export", "spans"])
def test_opik(store: Store, wrapped: str) -> None:
    trace = {"id": "01a22e84-a2d0-7da0-ab8d-45ff59913bff", "thread_id": "t-1", "name": "app"}
    whole = {"trace": trace, "spans": opik_spans(), "attachments": [], "downloaded_at": "x", "project_name": "p"}
    assert store.took(whole if wrapped == "export" else opik_spans()).spans == 5
    assert store.rows("""SELECT DISTINCT trace_id, dialect, attributes->>'$."session.id"' FROM spans""") == [
        ("01a22e84a2d07da0ab8d45ff59913bff", "opik", "t-1" if wrapped == "export" else None)
    ]
    assert store.row("SELECT count(*), count(DISTINCT parent_span_id) FROM spans WHERE parent_span_id IN "
                     "(SELECT span_id FROM spans)") == (4, 1)  # fmt: skip
    assert store.rows("SELECT prompt, response, model, prompt_tokens, completion_tokens FROM generations "
                      "ORDER BY model NULLS LAST") == [
        ("Use: it\n\nWhere?", "Room 4.", "fake-1", None, None), ("Who?", "Hi.", "gpt-x", 5, 2), (None,) * 5,
    ]  # fmt: skip
    assert store.rows("SELECT status, status_message FROM spans WHERE status <> 'UNSET'") == [("ERROR", "out")]
    assert store.rows("SELECT DISTINCT defense, verdict FROM verdicts") == [("PII", "unknown")]
    assert store.took(whole, "again").spans == 0
