"""Which files a command means, and what is in each: the format is found by content, never by name."""

from __future__ import annotations

import json as standard_json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ragtrace.errors import InputError
from ragtrace.ingest.readers import (
    jaeger,
    langfuse,
    langsmith,
    otlp_json,
    otlp_logs,
    otlp_protobuf,
    phoenix,
    phoenix_text,
    span_dicts,
    zipkin,
)
from ragtrace.ingest.span import Span, shown
from ragtrace.ingest.translate import tables
from ragtrace.record.spool import FORMAT_KEY

# in this order: the last takes whatever has ids and times
_OF_JSON: tuple[Any, ...] = (otlp_json, langfuse, langsmith, jaeger, zipkin, phoenix_text, span_dicts)
_ALL = ", ".join(reader.NAME for reader in (*_OF_JSON, otlp_protobuf, phoenix))
_LARGEST = 2**30  # of a compressed file's content
_SUSPECT, _RATIO = 2**26, 200  # beyond so many bytes: no trace shrinks so well, only a bomb does
_GZIP, _ZSTD, _PARQUET, _DUCKDB = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"DUCK"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEY = re.compile(rb'(?<!\\)"\s*:')


def files_at(paths: Sequence[Path]) -> list[Path]:
    """The files among ``paths`` and in the folders among them, hidden ones left out.

    :raises InputError: a path that does not exist, or a folder without any file.
    """
    found: list[Path] = []
    for path in (given.expanduser() for given in paths):
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
        with path.open("rb") as file:
            start = file.read(12)
        if start[:4] == _PARQUET and _is_segment(path):
            return None
    return _tables(path, start[:4] == _PARQUET)


def _tables(path: Path, parquet: bool) -> Iterator[pa.Table]:
    with _named(path):
        count = 0
        for table in tables(phoenix.spans(pq.read_table(path)) if parquet else spans_of(path.read_bytes())):
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
    data = expanded(data).removeprefix(b"\xef\xbb\xbf")
    head = data.lstrip()[:1]
    if not head:
        raise InputError(f"empty when decompressed; expected {_ALL}")
    if head in (b"{", b"["):
        return _of_json(data)
    return phoenix_text.csv_spans(data) if phoenix_text.claims_csv(data) else otlp_protobuf.spans(_messages(data))


def expanded(data: bytes) -> bytes:
    """``data`` without its compression.

    :raises InputError: cut off, or far larger than any trace would be.
    """
    if data[:2] == _GZIP:
        return _gunzip(data)
    return _unzstd(data) if data[:4] == _ZSTD else data


def _gunzip(data: bytes) -> bytes:
    out: list[bytes] = []
    size, rest = 0, data
    try:
        while rest[:2] == _GZIP:  # the collector appends members
            engine = zlib.decompressobj(31)
            while not engine.eof:
                piece = engine.decompress(rest, 2**20)
                rest = engine.unconsumed_tail
                if not piece and not rest and not engine.eof:
                    raise InputError("gzip that is cut off; export it again, whole")
                size = _bounded(size + len(piece), len(data))
                out.append(piece)
            rest = engine.unused_data
    except zlib.error as error:
        raise InputError(f"gzip that cannot be read ({error}); export it again, whole") from error
    return b"".join(out)


def _unzstd(data: bytes) -> bytes:
    out: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := stream.read(2**20):
                size = _bounded(size + len(piece), len(data))
                out.append(piece)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"zstd that cannot be read ({error}); export it again, whole") from error
    return b"".join(out)


def _bounded(size: int, packed: int) -> int:
    if size > _LARGEST or (size > _SUSPECT and size > _RATIO * packed):
        raise InputError(f"{packed} bytes that decompress to more than {size}; expected at most {_LARGEST}, and traces")
    return size


def _messages(data: bytes) -> bytes:
    """The collector's file exporter compresses each message by itself, a length of four bytes before it."""
    if data[4:8] != _ZSTD:
        return data
    out, place = [], 0
    while place < len(data):
        size = int.from_bytes(data[place : place + 4], "big")
        if place + 4 + size > len(data):
            raise InputError("messages with a length before each, the last one cut off; export it again, whole")
        piece = expanded(data[place + 4 : place + 4 + size])
        out.append(len(piece).to_bytes(4, "big") + piece)
        place += 4 + size
    return b"".join(out)


def _is_segment(path: Path) -> bool:
    try:
        schema = pq.read_schema(path)
    except pa.ArrowException:
        return True
    if FORMAT_KEY in (schema.metadata or {}):
        return True
    if not phoenix.claims(schema):
        names = ", ".join(map(shown, schema.names[:6]))
        raise InputError(f"Parquet with columns {names}; expected a segment of ours, or {phoenix.NAME}")
    return False


def _of_json(data: bytes) -> Iterator[Span]:
    values = list(_units(json_values(data)))
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
    for value in values:
        inner = value.get("data") if isinstance(value, Mapping) and "attributes" not in value else None
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


def json_values(data: bytes) -> list[Any]:
    """What a JSON file holds: one value, one a line, or one after the other.

    :raises InputError: no JSON, or an object with one key twice.
    """
    try:
        values = [orjson.loads(data)]
    except orjson.JSONDecodeError as error:
        values = _lines(data) or _in_a_row(data, error)
    if len(_KEY.findall(data)) != sum(map(_keys, values)):
        _refuse_twins(data)
    return values


def _lines(data: bytes) -> list[Any] | None:
    try:
        return [orjson.loads(line) for line in data.splitlines() if line.strip()]
    except orjson.JSONDecodeError:
        return None


def _in_a_row(data: bytes, error: Exception) -> list[Any]:
    try:
        text = data.decode()
    except UnicodeDecodeError as wrong:
        raise InputError(f"starts like JSON but is no UTF-8 (byte {wrong.start})") from wrong
    try:
        values = list(_decoded(text, None))
        if _SURROGATE.search(text):  # a text that was cut in the middle of a character
            whole = standard_json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
            values = orjson.loads(whole)
        return values
    except ValueError as wrong:
        raise InputError(f"starts like JSON but is none ({error}); cut off? export it again, whole") from wrong


def _decoded(text: str, hook: Callable[[list[tuple[str, Any]]], Any] | None) -> Iterator[Any]:
    decoder, place = standard_json.JSONDecoder(object_pairs_hook=hook, parse_constant=str), 0
    blank = re.compile(r"[\s,]*")
    while (place := _end(blank, text, place)) < len(text):
        value, place = decoder.raw_decode(text, place)
        yield value


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if isinstance(value, list) else 0


def _refuse_twins(data: bytes) -> None:
    """An object with one key twice: which value was meant is not known, so neither is taken."""

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise InputError(f"key {shown(twice)} twice in one JSON object; expected each once")
        return found

    try:
        for _ in _decoded(data.decode(), hook):
            pass
    except InputError:
        raise
    except ValueError:  # orjson took it, so it is JSON
        return
