"""Which files a command means, and what is in each: the format is found by content, never by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ragtrace.errors import InputError
from ragtrace.ingest.json_text import json_values, printed
from ragtrace.ingest.readers import (
    jaeger,
    langfuse,
    langsmith,
    opik,
    otlp_json,
    otlp_logs,
    otlp_protobuf,
    phoenix,
    phoenix_text,
    rows,
    span_dicts,
    zipkin,
)
from ragtrace.ingest.span import Span, shown
from ragtrace.ingest.translate import tables
from ragtrace.ingest.unpack import LARGEST, expanded, messages
from ragtrace.record.spool import FORMAT_KEY

# in this order: the last takes whatever has ids and times
_OF_JSON: tuple[Any, ...] = (otlp_json, langfuse, langsmith, opik, jaeger, zipkin, phoenix_text, span_dicts)
_ALL = ", ".join(reader.NAME for reader in (*_OF_JSON, otlp_protobuf, phoenix, rows))
_PARQUET, _DUCKDB = b"PAR1", b"DUCK"
_UTF16 = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"{\0": "utf-16-le", b"[\0": "utf-16-le"}
_STDIN = Path("/dev/stdin")


def files_at(paths: Sequence[Path]) -> list[Path]:
    """The files among ``paths`` and in the folders among them, hidden ones left out; ``-`` is what is piped in.

    :raises InputError: a path that does not exist, or a folder without any file.
    """
    found: list[Path] = []
    for path in (_STDIN if given == Path("-") else given.expanduser() for given in paths):
        if not path.exists():
            raise InputError(f"{path} does not exist; expected a file of spans or a folder of them")
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p, path))
            if not inside:
                raise InputError(f"no file in {path}; expected spans: our own segments (.parquet), {_ALL}")
            found += inside
        else:
            found.append(path)
    return list(dict.fromkeys(found))


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def read(path: Path) -> Iterator[pa.Table] | None:
    """The spans of one file, translated; None for a segment of ours, which is merged as the spool is.

    Parquet of which the end is missing says nothing of itself, so it is taken for a segment.

    :raises InputError: named by the file: what was found, what was expected. Also while the tables are taken.
    """
    with _named(path):
        if not path.is_file():  # a pipe can be read once
            return _tables(path, _piped(path))
        with path.open("rb") as file:
            start = file.read(12)
        if start[:4] != _PARQUET:
            return _tables(path, lambda: spans_of(path.read_bytes()))
        return None if _is_segment(path) else _tables(path, lambda: _of_table(pq.read_table(path)))


def _piped(path: Path) -> Callable[[], Iterator[Span]]:
    with path.open("rb") as pipe:
        data = pipe.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise InputError(f"more than {LARGEST} bytes through a pipe; give a file")
    if data[:4] != _PARQUET:
        return lambda: spans_of(data)
    source = pa.BufferReader(data)
    if FORMAT_KEY in (pq.read_schema(source).metadata or {}):
        raise InputError("a segment of ours through a pipe; give the file")
    return lambda: _of_table(pq.read_table(source))


def _of_table(table: pa.Table) -> Iterator[Span]:
    spans = rows.spans(table)
    if spans is None:
        names = ", ".join(map(shown, table.schema.names[:6]))
        raise InputError(f"Parquet with columns {names}; expected a segment of ours, or {_ALL}")
    return spans


def _tables(path: Path, spans: Callable[[], Iterator[Span]]) -> Iterator[pa.Table]:
    with _named(path):
        count = 0
        for table in tables(spans()):
            count += table.num_rows
            yield table
        if not count:
            raise InputError(f"no span in it; expected {_ALL}")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}; nothing of this file is stored") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except pa.ArrowException as error:
        raise InputError(f"{path}: Parquet that cannot be read ({str(error).splitlines()[0]})") from error
    except (RecursionError, MemoryError) as error:
        raise InputError(f"{path}: too deeply nested or too large ({type(error).__name__}); split it") from error


def spans_of(data: bytes) -> Iterator[Span]:
    """The spans in ``data``: JSON or protobuf, compressed or not."""
    if not data.strip():
        raise InputError(f"empty; expected {_ALL}")
    if data[8:12] == _DUCKDB:
        raise InputError(
            "a DuckDB database; expected files of spans (a database of ragtrace is asked with `ragtrace sql --db`)"
        )
    data = _in_utf8(expanded(data))
    head = data.lstrip()[:1]
    if not head:
        raise InputError(f"empty when decompressed; expected {_ALL}")
    if head in (b"{", b"["):
        return _of_json(data)
    if (spans := rows.csv_spans(data)) is not None:
        return spans
    if (values := printed(data)) is not None:
        return _of_values(values)
    return otlp_protobuf.spans(messages(data))


def _in_utf8(data: bytes) -> bytes:
    """What PowerShell redirects into a file is UTF-16."""
    if (encoding := _UTF16.get(data[:2])) is None:
        return data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode(encoding).encode()
    except UnicodeError as error:
        raise InputError(f"starts like UTF-16 but is none ({error}); export it again, in UTF-8") from error


def _is_segment(path: Path) -> bool:
    try:
        schema = pq.read_schema(path)
    except pa.ArrowException:
        return True
    return FORMAT_KEY in (schema.metadata or {})


def _of_json(data: bytes) -> Iterator[Span]:
    try:
        values = json_values(data)
    except InputError:
        if (among := printed(data)) is None:
            raise
        values = among
    yield from _of_values(values)


def _of_values(given: list[Any]) -> Iterator[Span]:
    values = list(_units(given))
    others = [value for value in values if otlp_logs.claims(value)]
    told = otlp_logs.told(others)
    for found in values:
        if otlp_logs.claims(found):
            continue
        reader = next((r for r in _OF_JSON if r.claims(found)), None)
        if reader is None:
            keys = ", ".join(map(shown, list(found)[:6])) or "no members"
            raise InputError(f"JSON, but no span in an object with {keys}; expected {_ALL}")
        for span in reader.spans(found):
            span.events += told.pop((span.trace_id, span.span_id), ())
            yield span
    if others and len(others) == len(values):
        raise InputError("OTLP logs or metrics, and no span; expected them in one file with the spans they belong to")


def _units(values: list[Any]) -> Iterator[Mapping[str, Any]]:
    """The objects at the top, in a list there, in the pages that an API gives, or in a trace of MLflow's (``data``)."""
    for value in map(_unwrapped, values):
        inner = value.get("data") if isinstance(value, Mapping) and _BARE.isdisjoint(value) else None
        if isinstance(inner, list):
            yield from _units(inner)
        elif isinstance(inner, Mapping) and isinstance(inner.get("spans"), list):
            yield inner
        elif isinstance(value, list):
            yield from _units(value)
        elif isinstance(value, Mapping):
            yield value
        else:
            raise InputError(f"JSON, but {shown(value)} where a span was expected; expected {_ALL}")


_BARE = frozenset(("attributes", "columns"))  # of spans, of a table: there data is something else


def _unwrapped(value: Any) -> Any:
    """What Elasticsearch puts around a document, and Jaeger's API, version 3, around OTLP."""
    if isinstance(value, Mapping):
        if isinstance(hits := value.get("hits"), Mapping) and isinstance(hits.get("hits"), list):
            return [_unwrapped(hit) for hit in hits["hits"]]
        if isinstance(source := value.get("_source"), Mapping):
            return source
        if isinstance(result := value.get("result"), Mapping) and otlp_json.claims(result):
            return result
    return value
