"""Segments: complete or absent, for the owner alone, and no value of a span can lose the batch."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import Status, StatusCode
from store_fixtures import Bench, rows

from ragtrace.record.spool import SpoolExporter, spool_of


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _attributes(segment: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in pq.read_table(segment)["attributes"].to_pylist()]


def test_a_segment_is_for_its_owner_alone_and_carries_the_pid(bench: Bench) -> None:
    with bench.span("x"):
        pass
    segment = bench.write()
    assert (_mode(segment), _mode(bench.spool)) == (0o600, 0o700)
    assert f"-{os.getpid()}-" in segment.name
    assert [p.name for p in bench.spool.iterdir()] == [segment.name]


def test_a_relative_or_home_path_is_fixed_when_the_exporter_is_made(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SpoolExporter("t.duckdb").folder == SpoolExporter("~/t.duckdb").folder == spool_of(tmp_path / "t.duckdb")


@pytest.mark.parametrize("broken", ["write_table", "fsync", "rename"])
def test_a_failure_in_the_middle_leaves_nothing(bench: Bench, monkeypatch: Any, broken: str) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    target = {"write_table": "pyarrow.parquet.write_table", "fsync": "os.fsync", "rename": "pathlib.Path.rename"}
    with bench.span("x"):
        pass
    monkeypatch.setattr(target[broken], fails)
    assert SpoolExporter(bench.database).export(bench.spans()) is SpanExportResult.FAILURE
    assert list(bench.spool.iterdir()) == []


def test_failures_are_logged_once_and_counted_when_over(bench: Bench, caplog: Any) -> None:
    with bench.span("x"):
        pass
    spans, exporter = bench.spans(), SpoolExporter(bench.database)
    bench.spool.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "ragtrace"):
        assert [exporter.export(spans) for _ in range(3)] == [SpanExportResult.FAILURE] * 3
        assert [r.levelname for r in caplog.records] == ["WARNING"] and str(bench.spool) in caplog.text
        bench.spool.unlink()
        assert exporter.export(spans) is SpanExportResult.SUCCESS
    assert "3 spans were lost" in caplog.records[-1].getMessage()


NASTY = "a\x00b\ud800c\u202e\x1b[31m"


@pytest.mark.parametrize("scope", ["ragtrace", "somebody.else"])
def test_no_value_of_a_span_loses_the_batch(bench: Bench, scope: str) -> None:
    with bench.span(f"name {NASTY}", scope=scope) as span:
        span.add_event(f"event {NASTY}", {"k": NASTY})
        span.set_status(Status(StatusCode.ERROR, NASTY))
    with bench.span("other"):
        pass
    spans = bench.spans()
    spans[0]._attributes = {  # what our SDK refuses, and others let pass
        "text": NASTY,
        NASTY: 1,
        "nan": float("nan"),
        "inf": float("-inf"),
        "bytes": b"\xff",
        "object": object(),
        "list": ("x", NASTY),
        "big": 2**70,
        "none": None,
    }
    made = next(m for m in _attributes(bench.write(spans)) if m)
    clean = NASTY.replace("\ud800", "?")
    assert (made["text"], made[clean], made["list"], made["big"]) == (clean, 1, ["x", clean], 2**70)
    assert made["nan"] is None and made["inf"] is None
    with bench.open() as db:
        stored = rows(db, "SELECT status_message, attributes->>'text' AS text, events->0->>'name' AS event FROM spans")
        assert {"status_message": clean, "text": clean, "event": f"event {clean}"} in stored and len(stored) == 2


@pytest.mark.parametrize("capture", ["masked", "digest", "none"])
def test_texts_of_foreign_spans_are_dropped_where_raw_text_is_not_kept(bench: Bench, capture: Any) -> None:
    with bench.span("GET", {"url": "secret", "code": 200, "ok": True}, scope="http") as span:
        span.add_event("e", {"m": "secret"})
        span.set_status(Status(StatusCode.ERROR, "secret"))
    with bench.span("own", {"kept": "by the recorder's own rules"}):
        pass
    segment = bench.write(capture=capture)
    assert {"code": 200, "ok": True} in _attributes(segment)
    assert {"kept": "by the recorder's own rules"} in _attributes(segment)
    assert "secret" not in str(pq.read_table(segment).to_pylist())


_VALUES = st.one_of(
    st.text(max_size=20),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
)


@settings(max_examples=25, deadline=None)
@given(
    given_=st.dictionaries(
        st.text(min_size=1, max_size=10), st.one_of(_VALUES, st.lists(st.text(max_size=5))), max_size=5
    )
)
def test_attributes_come_back_as_they_were(tmp_path_factory: Any, given_: dict[str, Any]) -> None:
    bench = Bench(tmp_path_factory.mktemp("t") / "t.duckdb")
    with bench.span("x") as span:
        span.set_attributes(given_)
    assert _attributes(bench.write()) == [json.loads(json.dumps(given_))]
