"""The receiver, asked in its own process: what it takes, what it refuses, and how it says so."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import threading
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from ingest_fixtures import SPAN, START, TRACE, otlp, pairs, span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from store_fixtures import _empty as empty

import ragtrace
from ragtrace.collect import body
from ragtrace.collect.app import PATH, Receiver
from ragtrace.collect.limits import Limits
from ragtrace.collect.writing import Writer
from ragtrace.record.spool import SpoolExporter, spool_of

JSON, PROTOBUF = "application/json", "application/x-protobuf"
CANARY = "canary-7f3a9"
BAD = "0123"


class Posting:
    """Posts to a receiver, and looks at what it stored."""

    def __init__(self, database: Path, token: str | None = None, limits: Limits | None = None, **more: Any) -> None:
        self.database = database
        self.writer = Writer(database, **more)
        app = Receiver(self.writer, limits or Limits(), token).app()
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4318")

    async def __call__(self, content: Any, media: str = JSON, **headers: str) -> httpx.Response:
        if isinstance(content, dict):
            content = json.dumps(content).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(PATH, content=content, headers={"Content-Type": media, **named}, timeout=60)

    def segments(self) -> list[Path]:
        return sorted(spool_of(self.database).glob("*.parquet"))

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if not self.database.exists():
            self.database.write_bytes(empty())
        with ragtrace.open(self.database) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def post(tmp_path: Path) -> Posting:
    return Posting(tmp_path / "t.duckdb")


def protobuf(*spans: dict[str, Any]) -> ExportTraceServiceRequest:
    """The same request as ``otlp(*spans)``, written independently of our readers."""
    request = ExportTraceServiceRequest()
    holder = request.resource_spans.add()
    holder.resource.attributes.append(KeyValue(key="service.name", value=AnyValue(string_value="shop")))
    scoped = holder.scope_spans.add()
    scoped.scope.name = "somebody"
    for told in spans:
        made = scoped.spans.add()
        made.trace_id, made.span_id = bytes.fromhex(told["traceId"]), bytes.fromhex(told["spanId"])
        made.name, made.kind = told["name"], told["kind"]
        made.start_time_unix_nano = int(told["startTimeUnixNano"])
        made.end_time_unix_nano = int(told["endTimeUnixNano"])
        for pair in told["attributes"]:
            made.attributes.append(KeyValue(key=pair["key"], value=AnyValue(string_value=pair["value"]["stringValue"])))
    return request


def _status(answer: httpx.Response) -> tuple[int, str]:
    """Code and message of a google.rpc.Status, in the encoding that the answer says it has."""
    if answer.headers["content-type"] == JSON:
        said = json.loads(answer.content)
        return said["code"], said["message"]
    status = Status.FromString(answer.content)
    return status.code, status.message


def _partial(answer: httpx.Response) -> tuple[int, str]:
    if answer.headers["content-type"] == JSON:
        said = json.loads(answer.content).get("partialSuccess", {})
        return int(said.get("rejectedSpans", "0")), said.get("errorMessage", "")
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    return partial.rejected_spans, partial.error_message


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("media", [JSON, PROTOBUF, "Application/JSON; charset=utf-8"])
async def test_a_request_is_stored_and_confirmed(post: Posting, media: str, packed: bool) -> None:
    spans = [span({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}), span({"k": "v"}, spanId="b" * 16)]
    content = protobuf(*spans).SerializeToString() if media == PROTOBUF else json.dumps(otlp(*spans)).encode()
    answer = (
        await post(gzip.compress(content), media, Content_Encoding="gzip") if packed else await post(content, media)
    )
    assert answer.status_code == 200
    assert answer.content == (b"" if media == PROTOBUF else b"{}"), "partial_success is unset on full success"
    assert answer.headers["content-type"] == (PROTOBUF if media == PROTOBUF else JSON)
    [segment] = post.segments()
    assert segment.stat().st_mode & 0o777 == 0o600 and segment.parent.stat().st_mode & 0o777 == 0o700
    told = "trace_id, span_id, service, dialect, start_time::VARCHAR, duration_ms"
    assert post.rows(f"SELECT {told} FROM spans ORDER BY span_id") == [
        (TRACE, "b" * 16, "shop", "otel", "2026-09-21 14:13:20", 5.0),
        (TRACE, SPAN, "shop", "otel_genai", "2026-09-21 14:13:20", 5.0),
    ]
    assert post.rows("SELECT stage, model FROM stages") == [("generation", "m")], "translated when it is merged"


async def test_what_is_sent_again_is_stored_once(post: Posting) -> None:
    for _ in range(3):
        assert (await post(otlp(span()))).status_code == 200
    assert post.rows("SELECT count(*) FROM spans") == [(1,)]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"resourceSpans": []}', b'{"resourceSpans": [{"scopeSpans": []}]}'])
async def test_an_empty_request_succeeds(post: Posting, content: bytes) -> None:
    answer = await (post(content, PROTOBUF) if not content else post(content))
    assert (answer.status_code, _partial(answer)) == (200, (0, ""))
    assert post.segments() == []


REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "short span id": ({"spanId": BAD}, "expected 16 hex digits"),
    "long span id": ({"spanId": SPAN * 2}, "expected 16 hex digits"),
    "zero span id": ({"spanId": "0" * 16}, "not all of them zero"),
    "no span id": ({"spanId": None}, "expected 16 hex digits"),
    "short trace id": ({"traceId": BAD}, "expected 32 hex digits"),
    "short parent id": ({"parentSpanId": BAD}, "expected 16 hex digits"),
    "clock in 1970": ({"startTimeUnixNano": "5000000000"}, "expected one from a clock that is set"),
    "no start": ({"startTimeUnixNano": None}, "expected one from a clock that is set"),
    "time of 70 bits": ({"startTimeUnixNano": str(2**70)}, "63 bits"),
    "a key twice": ({"attributes": pairs({CANARY: CANARY}) * 2}, "OTLP allows each key once"),
    "no integer": ({"attributes": [{"key": "k", "value": {"intValue": CANARY}}]}, "64 bits"),
    "no string": ({"attributes": [{"key": "k", "value": {"stringValue": [CANARY]}}]}, "a value of OTLP's types"),
}


@pytest.mark.parametrize(("wrong", "expected"), REJECTED.values(), ids=REJECTED)
async def test_a_wrong_span_is_left_out_counted_and_not_quoted(
    post: Posting, wrong: dict[str, Any], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await post(otlp(span({"v": CANARY}) | wrong, span(spanId="b" * 16), span({"v": CANARY}) | wrong))
    rejected, message = _partial(answer)
    assert (answer.status_code, rejected) == (200, 2)
    assert expected in message and CANARY not in message
    assert CANARY not in caplog.text and "left out 2 spans" in caplog.text
    assert post.rows("SELECT span_id FROM spans") == [("b" * 16,)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("span_id", b"abc"), ("trace_id", b""), ("start_time_unix_nano", 5), ("parent_span_id", b"x" * 9)],
)
async def test_the_same_in_protobuf(post: Posting, field: str, value: Any) -> None:
    request = protobuf(span(), span(spanId="b" * 16))
    setattr(request.resource_spans[0].scope_spans[0].spans[0], field, value)
    answer = await post(request.SerializeToString(), PROTOBUF)
    rejected, message = _partial(answer)
    assert (answer.status_code, rejected) == (200, 1) and "expected" in message
    assert post.rows("SELECT span_id FROM spans") == [("b" * 16,)]


async def test_attribute_types_beyond_the_spec_are_tolerated(post: Posting) -> None:
    values: dict[str, Any] = {
        "future": {"decimalValue": "1.5"}, "both": {"stringValue": "s", "noteValue": 1},
        "empty": {}, "null": {"stringValue": None}, "none": None,
        "bytes": {"bytesValue": "AAEC"},
        "nan": {"doubleValue": "NaN"},
        "map": {"kvlistValue": {"values": pairs({"a": 1, "b": [True, "x", {"c": 2.5}]})}},
    }  # fmt: skip
    attributes = [{"key": key, "value": value} for key, value in values.items()]
    answer = await post(otlp(span() | {"attributes": attributes, "color": "unknown members are ignored"}))
    assert (answer.status_code, _partial(answer)) == (200, (0, ""))
    [(stored,)] = post.rows("SELECT attributes FROM spans")
    assert json.loads(stored) == {
        "future": None, "both": "s", "empty": None, "null": None, "none": None, "bytes": "AAEC", "nan": "NaN",
        "map": {"a": 1, "b": [True, "x", {"c": 2.5}]},
    }  # fmt: skip


async def test_a_value_that_protobuf_does_not_know_yet(post: Posting) -> None:
    request = protobuf(span({"k": CANARY}))
    raw = request.SerializeToString()
    old = request.resource_spans[0].scope_spans[0].spans[0].attributes[0].value.SerializeToString()
    new = bytes([15 << 3 | 2]) + old[1:]  # the same bytes as field 15, which AnyValue has not
    answer = await post(raw.replace(old, new), PROTOBUF)
    assert (answer.status_code, _partial(answer)) == (200, (0, ""))
    assert post.rows("SELECT attributes->'k' FROM spans") == [("null",)]


async def test_texts_that_are_no_text(post: Posting) -> None:
    told = json.dumps(otlp(span({"k": "half \ud83d", "nul": "a\0b"}, name="n\0\x1b[31m"))).encode()
    assert (await post(told)).status_code == 200
    [(name, attributes)] = post.rows("SELECT name, attributes FROM spans")
    assert name == "n\0\x1b[31m" and json.loads(attributes) == {"k": "half ?", "nul": "a\0b"}


_REQUEST = protobuf(span({"k": CANARY})).SerializeToString()
_TEXT = json.dumps(otlp(span({"k": CANARY}))).encode()
_TWICE = _TEXT.replace(b'"name": "x"', b'"name": "x", "name": "y"')
REFUSED: dict[str, tuple[bytes, str, str, int]] = {
    "cut protobuf": (_REQUEST[:-10], PROTOBUF, "", 400),
    "JSON as protobuf": (_TEXT, PROTOBUF, "", 400),
    "protobuf as JSON": (_REQUEST, JSON, "", 400),
    "cut JSON": (_TEXT[:-10], JSON, "", 400),
    "a list": (b"[" + _TEXT + b"]", JSON, "", 400),
    "two objects": (_TEXT + _TEXT, JSON, "", 400),
    "a key of JSON twice": (_TWICE, JSON, "", 400),
    "no JSON at all": (b"", JSON, "", 400),
    "wrong members": (b'{"resourceSpans": "' + CANARY.encode() + b'"}', JSON, "", 400),
    "deep lists": (b"[" * 200_000, JSON, "", 400),
    "deep objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, JSON, "", 400),
    "no UTF-8": (_TEXT.replace(CANARY.encode(), b"\xff\xfe"), JSON, "", 400),
    "no gzip": (_TEXT, JSON, "gzip", 400),
    "cut gzip": (gzip.compress(_TEXT)[:-10], JSON, "gzip", 400),
    "damaged gzip": (gzip.compress(_TEXT)[:20] + b"\0\0\0\0" + gzip.compress(_TEXT)[24:], JSON, "gzip", 400),
    "gzip undeclared": (gzip.compress(_TEXT), JSON, "", 400),
    "zstd": (_TEXT, JSON, "zstd", 415),
    "text": (_TEXT, "text/plain", "", 415),
    "form": (_TEXT, "application/x-www-form-urlencoded", "", 415),
    "no type": (_TEXT, "", "", 415),
    "too large": (bytes(100_000_000), JSON, "", 413),
    "too large, compressed": (os.urandom(17 * 2**20), JSON, "gzip", 413),
    "bomb": (gzip.compress(bytes(2**28)) * 4, PROTOBUF, "gzip", 413),
}
_CODES = {400: 3, 413: 8, 415: 3}


@pytest.mark.parametrize(("content", "media", "encoding", "status"), REFUSED.values(), ids=REFUSED)
async def test_what_is_no_request_is_refused_whole(
    post: Posting, content: bytes, media: str, encoding: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "ragtrace")
    answer = await post(content, media, **({"Content_Encoding": encoding} if encoding else {}))
    code, message = _status(answer)
    assert (answer.status_code, code) == (status, _CODES[status])
    assert answer.headers["content-type"] == (JSON if media == JSON else PROTOBUF)
    assert len(message) > 20 and CANARY not in message + caplog.text
    assert post.segments() == []
    assert (await post(otlp(span()))).status_code == 200, "it lives"


@pytest.mark.parametrize("size", [0, 2**16, 2**30])
async def test_a_large_body_without_a_length_is_not_held(post: Posting, size: int) -> None:
    bomb = gzip.compress(bytes(2**28))  # sent plain, in pieces, or in one

    async def chunks() -> AsyncIterator[bytes]:
        for i in range(0, len(bomb), size) if size else range(1_000):
            yield bomb[i : i + size] if size else bytes(100_000)

    tracemalloc.start()
    try:
        answer = await post(chunks(), JSON, **({"Content_Encoding": "gzip"} if size else {}))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.status_code == 413 and "smaller batches" in _status(answer)[1]
    assert peak < 3 * body.LARGEST


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
async def test_many_attributes_and_one_of_them_twice(post: Posting, media: str) -> None:
    told = span({f"k{i}": "" for i in range(150_000)} | {"last": ""})
    told["attributes"].append(told["attributes"][-1])
    start = time.monotonic()
    answer = await post(protobuf(told).SerializeToString() if media == PROTOBUF else otlp(told), media)
    assert _partial(answer)[0] == 1
    assert time.monotonic() - start < 60, "an hour, if each were looked for among all"


async def test_a_gzip_of_several_members(post: Posting) -> None:
    halves = gzip.compress(_TEXT[:50]) + gzip.compress(_TEXT[50:])
    assert (await post(halves, JSON, Content_Encoding="gzip")).status_code == 200
    assert post.rows("SELECT count(*) FROM spans") == [(1,)]


@pytest.mark.parametrize("packed", [gzip.compress(_REQUEST)[:-4], zlib.compress(_REQUEST)[:-2]])
async def test_a_checksum_that_did_not_arrive(post: Posting, packed: bytes) -> None:
    answer = await post(packed, PROTOBUF, Content_Encoding="gzip" if packed[:1] == b"\x1f" else "deflate")
    assert answer.status_code == 400 and "cut off" in _status(answer)[1]
    assert post.segments() == []


async def test_a_body_that_does_not_arrive(post: Posting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "SECONDS", 0.01)

    async def never() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    answer = await post(never())
    assert answer.status_code == 408 and answer.headers["retry-after"] == "1"


TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    ("given", "status"),
    [(None, 401), ("", 401), (TOKEN, 401), (f"Bearer {TOKEN}x", 401), ("Bearer ", 401), (f"Bearer {TOKEN}", 200)],
)
async def test_the_token(tmp_path: Path, given: str | None, status: int) -> None:
    post = Posting(tmp_path / "t.duckdb", TOKEN)
    answer = await post(otlp(span()), **({"Authorization": given} if given is not None else {}))
    assert answer.status_code == status
    assert len(post.segments()) == (status == 200)
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer" and _status(answer)[0] == 16
        assert TOKEN not in answer.text


async def test_browsers_need_a_token(post: Posting, tmp_path: Path) -> None:
    assert (await post(otlp(span()), Origin="https://evil.example")).status_code == 403
    assert post.segments() == []
    held = Posting(tmp_path / "u.duckdb", TOKEN)
    assert (await held(otlp(span()), Origin="https://our.example", Authorization=f"Bearer {TOKEN}")).status_code == 200


async def test_other_paths_and_methods(post: Posting) -> None:
    assert (await post.client.get(PATH)).status_code == 405
    assert (await post.client.post("/v1/metrics", content=b"{}")).status_code == 404


async def test_too_many_a_second(tmp_path: Path) -> None:
    now = [100.0]
    post = Posting(tmp_path / "t.duckdb", limits=Limits(rate=0.5, clock=lambda: now[0]))
    assert [(await post({})).status_code for _ in range(2)] == [200, 429]
    answer = await post({})
    assert answer.headers["retry-after"] == "2" and _status(answer)[0] == 8
    now[0] += 2
    assert (await post({})).status_code == 200


async def test_too_many_at_a_time(tmp_path: Path) -> None:
    post = Posting(tmp_path / "t.duckdb", limits=Limits(admitted=2))
    go, here = asyncio.Event(), asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[bytes]:
        here.release()
        await go.wait()
        yield b"{}"

    waiting = [asyncio.create_task(post(slow())) for _ in range(2)]
    for _ in waiting:
        await here.acquire()
    answer = await post({})
    assert (answer.status_code, answer.headers["retry-after"], _status(answer)[0]) == (503, "1", 14)
    go.set()
    assert [(await task).status_code for task in waiting] == [200, 200]
    assert (await post({})).status_code == 200


async def test_what_comes_while_a_segment_is_written_goes_into_the_next_together(
    post: Posting, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, go, begun = SpoolExporter.write, threading.Event(), threading.Event()

    def slow(self: SpoolExporter, table: Any) -> None:
        begun.set()
        assert go.wait(60)
        write(self, table)

    monkeypatch.setattr(SpoolExporter, "write", slow)
    first = asyncio.create_task(post(otlp(span())))
    await asyncio.to_thread(begun.wait, 60)
    others = [asyncio.create_task(post(otlp(span(spanId=f"{i:016x}")))) for i in range(1, 7)]
    while len(post.writer._waiting) < len(others):
        await asyncio.sleep(0)
    go.set()
    assert [(await task).status_code for task in (first, *others)] == [200] * 7
    assert len(post.segments()) == 2
    assert post.rows("SELECT count(*) FROM spans") == [(7,)]


async def test_a_disk_that_refuses(
    post: Posting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        for _ in range(2):
            answer = await post(otlp(span({"k": CANARY})))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert [f for f in spool_of(post.database).iterdir() if f.suffix != ".tally"] == []
    assert caplog.text.count("No space left on device") == 1 and CANARY not in caplog.text
    assert (await post(otlp(span()))).status_code == 200
    assert "writes to" in caplog.text


async def test_a_full_spool_pushes_nothing_out(tmp_path: Path) -> None:
    post = Posting(tmp_path / "t.duckdb", limit=10)
    assert (await post(otlp(span()))).status_code == 200
    answer = await post(otlp(span(spanId="b" * 16)))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60") and "compact" in _status(answer)[1]
    assert post.rows("SELECT span_id FROM spans") == [(SPAN,)]


@pytest.mark.parametrize("where", ["ragtrace.collect.app.decode", "ragtrace.collect.body.read"])
async def test_a_mistake_of_ours_quotes_nothing(
    post: Posting, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ValueError(CANARY)

    with monkeypatch.context() as patched:
        patched.setattr(where, broken)
        answer = await post(otlp(span()))
    assert (answer.status_code, _status(answer)[0]) == (500, 13)
    assert CANARY not in answer.text + caplog.text and "ValueError" in caplog.text
    assert (await post(otlp(span()))).status_code == 200


async def test_what_it_took_is_counted(post: Posting) -> None:
    assert (await post(otlp(span(), span(spanId="b" * 16), span(spanId=BAD)))).status_code == 200
    assert post.rows("SELECT service, ended, written, lost FROM losses") == [("ragtrace collect", 2, 2, 0)]
    post.writer.close()


async def test_times_are_exact(post: Posting) -> None:
    assert (await post(otlp(span(startTimeUnixNano=str(START + 1), endTimeUnixNano=str(START + 3))))).status_code == 200
    assert post.rows("SELECT start_ns, end_ns FROM span_data") == [(START + 1, START + 3)]
