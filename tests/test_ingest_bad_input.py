"""Files that are none, or lie: refused by name, nothing of them stored, the others of the command taken."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_fixtures import ROW, START, TRACE, Store, otlp, span, store
from test_ingest_formats import BINARY, LENGTH, REQUEST, console, langfuse, phoenix, protobuf

from ragtrace.errors import InputError
from ragtrace.ingest.files import spans_of

__all__ = ["store"]
RAW = json.dumps(REQUEST).encode()


def with_attribute(value: Any) -> ROW:
    return otlp(span(spanId="5" * 16), span() | {"attributes": [{"key": "a", "value": value}]})


def deep(levels: int) -> ROW:
    value: ROW = {"stringValue": "x"}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return value


def parquet(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return bytes(out.getvalue())


@cache
def database(sql: str) -> bytes:
    path = Path(mkdtemp()) / "other.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)
    return path.read_bytes()


BAD: dict[str, tuple[Any, str]] = {
    "empty": (b"", "empty; expected OTLP"),
    "blank": (b" \n\t", "empty; expected OTLP"),
    "empty, compressed": (gzip.compress(b""), "empty when decompressed"),
    "text": (b"hello", "neither JSON, Parquet nor OTLP/protobuf"),
    "zeros": (b"\0" * 64, "neither JSON"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "neither JSON"),
    "JSON of others": ({"hello": 1}, "no span in an object with 'hello'; expected OTLP/JSON"),
    "JSON without objects": ([1], "1 where a span was expected"),
    "an empty list": ([], "no span in it"),
    "a request without spans": ({"resourceSpans": []}, "no span in it"),
    "a binary request without spans": (protobuf({"resourceSpans": [{"scopeSpans": []}]}), "no span in it"),
    "JSON, cut": (RAW[:-30], "cut off?"),
    "JSON in Latin-1": (b'{"resourceSpans": "\xe9"}', "no UTF-8"),
    "no number": (b'{"resourceSpans": NaN}', "'NaN'; expected a list"),
    "nested without end": (b"[" * 100_000, "nested"),
    "nested deeply": (with_attribute(deep(300)), "nested"),
    "nested very deeply": (b'{"a":' * 3_000 + b"1" + b"}" * 3_000, "nested"),
    "protobuf, cut": (BINARY[:-20], "neither JSON, Parquet nor OTLP/protobuf"),
    "protobuf with lengths, cut": (LENGTH + BINARY + LENGTH + BINARY[:-3], "neither JSON"),
    "gzip, cut": (gzip.compress(RAW * 50)[:-20], "cut off"),
    "gzip, broken": (b"\x1f\x8b" + bytes(40), "gzip that cannot be read"),
    "a gzip bomb": (gzip.compress(bytes(150_000_000)), "decompress to more than"),
    "zstd, broken": (b"\x28\xb5\x2f\xfd" + bytes(40), "zstd that cannot be read"),
    "trace id of the wrong length": (otlp(span(traceId=TRACE[:-2])), "expected 32 hex digits"),
    "span id of the wrong length": (otlp(span(spanId="12")), "span id '12'; expected 16 hex digits"),
    "binary span id of the wrong length": (protobuf(otlp(span(spanId="1234"))), "span id of 2 bytes (1234)"),
    "parent id of the wrong length": (otlp(span(parentSpanId="12")), "parent span id '12'"),
    "an id that is no hex": (otlp(span(spanId="g" * 16)), "expected 16 hex digits"),
    "an id of zeros": (otlp(span(traceId="0" * 32)), "not all of them zero"),
    "a binary id of zeros": (protobuf(otlp(span(spanId="0" * 16))), "not all zero"),
    "an id that is a number": (otlp(span(spanId=12)), "span id 12"),
    "no id": (otlp({k: v for k, v in span().items() if k != "traceId"}), "trace id None"),
    "a clock in 1970": (otlp(span(startTimeUnixNano="1000000")), "before the year 2000; expected one from a clock"),
    "a binary clock in 1970": (protobuf(otlp(span(startTimeUnixNano="1000000"))), "before the year 2000"),
    "an end in 1970": (otlp(span(endTimeUnixNano="1000000")), "end time '1000000', before the year 2000"),
    "no start": (otlp(span(startTimeUnixNano="0")), "no start time"),
    "a time beyond 64 bits": (otlp(span(startTimeUnixNano="9" * 30)), "fits nanoseconds"),
    "a binary time beyond 63 bits": (protobuf(otlp(span(startTimeUnixNano=str(2**64 - 1)))), "fits nanoseconds"),
    "a time that is none": (otlp(span(startTimeUnixNano="yesterday")), "time 'yesterday'; expected ISO 8601"),
    "an attribute twice": (otlp(span() | {"attributes": 2 * [{"key": "a", "value": {"intValue": "1"}}]}), "'a' twice"),
    "a binary attribute twice": (
        protobuf(otlp(span() | {"attributes": 2 * [{"key": "a", "value": {"intValue": "1"}}]})), "'a' twice"),
    "a key twice": (RAW.replace(b'"name": "x"', b'"name": "x", "name": "y"'), "key 'name' twice in one JSON object"),
    "an integer beyond 64 bits": (with_attribute({"intValue": str(2**63)}), "expected an integer of 64 bits"),
    "a very long integer": (with_attribute({"intValue": "9" * 10_000}), "expected an integer of 64 bits"),
    "a type beyond the spec": (with_attribute({"dateValue": "2020-01-01"}), "expected a value of OTLP's types"),
    "a text that is a number": (with_attribute({"stringValue": 5}), "expected a value of OTLP's types"),
    "two values": (with_attribute({"stringValue": "x", "intValue": "5"}), "expected one of stringValue"),
    "a bare value": (with_attribute("x"), "expected one of stringValue"),
    "attributes as an object": (otlp(span() | {"attributes": {"a": 1}}), "attributes {'a': 1}; expected a list"),
    "spans that are none": (otlp(5), "spans [5]; expected a list of objects"),  # type: ignore[arg-type]
    "console JSON, a bad id": ([console(), console(context={"trace_id": TRACE, "span_id": "0x12"})], "span id '0x12'"),
    "console JSON, attributes that are none": ([console(), console(attributes="x")], "attributes 'x'"),
    "Langfuse, a bad time": ({"trace": {}, "observations": [langfuse(startTime="x")]}, "time 'x'"),
    "Langfuse, ids alone": ({"id": "t", "observations": ["a", "b"]}, "export the trace with its observations"),
    "a database of others": (database("CREATE TABLE t AS SELECT 1"), "a DuckDB database; expected files of spans"),
    "Parquet of others": (parquet(pa.table({"a": [1]})), "Parquet with columns 'a'; expected a segment of ours"),
    "Phoenix, a bad id": (parquet(pa.Table.from_pylist([phoenix() | {"context.span_id": "12"}])), "span id '12'"),
    "Phoenix, no row": (parquet(pa.Table.from_pylist([phoenix()]).slice(0, 0)), "no span in it"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(store: Store, case: str) -> None:
    content, said = BAD[case]
    bad = store.write(content, "bad.duckdb")
    before, after = (store.write(otlp(span(spanId=digit * 16)), digit) for digit in "78")
    report = store.take(before, bad, after)
    assert (report.spans, report.files, report.skipped) == (2, 2, [])
    [message] = report.failed
    assert message.startswith(f"{bad}: ") and said in message
    assert store.rows("SELECT span_id FROM spans ORDER BY ALL") == [("7" * 16,), ("8" * 16,)]


def test_a_bad_span_after_thousands_of_good_ones(store: Store) -> None:
    """Far enough behind them that they had been inserted already."""
    spans = [span(spanId=f"{n:016x}") for n in range(1, 9_001)]
    store.took(otlp(*spans[:10]), "before")
    report = store.take(store.write(otlp(*spans, span(spanId="12"))))
    assert report.spans == 0 and "span id '12'" in report.failed[0]
    assert store.row("SELECT count(*) FROM spans") == (10,)
    assert store.took(otlp(*spans)).spans == 8_990
    assert store.row("SELECT count(*), count(DISTINCT span_id) FROM spans") == (9_000, 9_000)


def test_one_span_twice_in_a_file(store: Store) -> None:
    assert store.took(otlp(span(), span(name="y"), span())).spans == 1
    assert store.row("SELECT name FROM spans") == ("x",)


def test_a_file_that_may_not_be_read(store: Store) -> None:
    path = store.write(otlp(span()))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    assert "cannot be read" in store.take(path).failed[0]


@pytest.mark.parametrize("given_path", ["missing", "empty"])
def test_paths_that_hold_nothing(store: Store, given_path: str) -> None:
    (store.folder / "empty").mkdir()
    with pytest.raises(InputError, match=f"{given_path}.*expected|no file in .*{given_path}"):
        store.take(store.folder / given_path)


def test_without_the_extra_protobuf_is_named(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    [message] = store.take(store.write(BINARY)).failed
    assert "pip install 'ragtrace-audit[ingest]'" in message
    assert store.took(otlp(span()), "json").spans == 1


# anything at all

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20)
ANY = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([
        "resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value", "stringValue",
        "intValue", "arrayValue", "values", "events", "resource", "context", "trace_id", "span_id", "start_time",
        "observations", "id", "type", "startTime", "metadata", "data", "scope", "status", "name",
    ]), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def _either(usual: Any, *others: Any) -> Any:
    """Mostly what belongs there."""
    return st.sampled_from([usual] * 6 + list(others)) | (ANY if others else st.just(usual))


KINDS = ("stringValue", "intValue", "doubleValue", "arrayValue")
VALUES = st.fixed_dictionaries({}, optional=dict.fromkeys(KINDS, ANY))
LIKE_SPANS = st.fixed_dictionaries(
    {
        "traceId": _either(TRACE, "1"), "spanId": _either("1" * 16, "2" * 16, ""), "name": _either("x", 5),
        "startTimeUnixNano": _either(str(START), "0"),
        "attributes": st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": VALUES}), max_size=3) | ANY,
    },
    optional={"endTimeUnixNano": ANY, "kind": ANY, "status": ANY, "events": ANY, "parentSpanId": ANY},
)  # fmt: skip
LIKE_OTLP = st.lists(LIKE_SPANS, max_size=3).map(lambda spans: otlp(*spans))


def refused_or_taken(data: bytes) -> None:
    try:
        found = list(spans_of(data))
    except (InputError, RecursionError):
        return
    assert all(len(s.trace_id) == 32 and len(s.span_id) == 16 and s.start_ns > 0 for s in found)


@given(ANY)
def test_any_json_is_refused_or_taken(value: Any) -> None:
    refused_or_taken(json.dumps(value).encode())


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_taken(data: bytes) -> None:
    refused_or_taken(data)


@given(st.sampled_from([BINARY, LENGTH + BINARY, RAW, gzip.compress(RAW)]), st.data())
def test_any_damage_is_refused_or_taken(whole: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(whole) - 1))
    damage: Callable[[], bytes] = data.draw(st.sampled_from([
        lambda: whole[:place], lambda: whole[place:], lambda: whole[:place] + b"\xff" + whole[place + 1 :],
        lambda: whole[:place] + whole[place : place + 5] * 2 + whole[place:],
    ]))  # fmt: skip
    refused_or_taken(damage())


@settings(max_examples=60, deadline=None)
@given(LIKE_OTLP)
def test_what_looks_like_otlp_is_stored_whole_or_not_at_all(request_: ROW) -> None:
    mine = _store()
    mine.db.execute("DELETE FROM span_data")
    report = mine.take(mine.write(request_))
    stored = mine.row("SELECT count(*) FROM span_data")[0]
    spans = request_["resourceSpans"][0]["scopeSpans"][0]["spans"]
    if report.failed:
        assert stored == report.spans == 0
    else:
        assert stored == report.spans == len({s["spanId"] for s in spans}) > 0
    for view in ("stages", "documents", "generations", "effects", "verdicts", "entities", "canary_hits"):
        mine.rows(f"SELECT * FROM {view}")


@cache
def _store() -> Store:
    return Store(Path(mkdtemp()))
