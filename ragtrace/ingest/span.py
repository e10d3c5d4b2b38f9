"""A span of any origin, as every reader hands it on, and the checks that all of them owe the store."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import orjson
import pyarrow as pa

from ragtrace.errors import InputError
from ragtrace.record import attributes as a
from ragtrace.record.capture import dumps
from ragtrace.record.spool import segment_schema

KINDS = ("INTERNAL", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")  # by the number that OTLP gives them
STATUSES = ("UNSET", "OK", "ERROR")
EARLIEST = 946_684_800_000_000_000  # the year 2000: a clock that says less was never set
LATEST = 2**63 - 1
_HEX = re.compile(r"[0-9a-f]+")
_DEPTH = 100


@dataclass(slots=True)
class Span:
    """One span; ids are lower-case hex digits, times nanoseconds since 1970, ``resource`` a JSON object."""

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    start_ns: int
    end_ns: int | None
    attributes: dict[str, Any]
    kind: str = "INTERNAL"
    status: str = "UNSET"
    status_message: str | None = None
    scope: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    resource: str = "{}"
    service: str = ""


def table_of_rows(rows: Sequence[tuple[Any, ...]], more: Sequence[str] = ()) -> pa.Table:
    """Rows in the order of a segment's columns, and of ``more`` columns of text after them.

    :raises InputError: a value that no column holds.
    """
    fields = [*segment_schema(), *(pa.field(name, pa.string()) for name in more)]
    columns: Iterable[Any] = zip(*rows, strict=True) if rows else [()] * len(fields)
    try:
        arrays = [pa.array(values, f.type) for values, f in zip(columns, fields, strict=True)]
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"a value that cannot be stored ({error}); expected UTF-8 and 64-bit integers") from error
    return pa.table(arrays, names=[f.name for f in fields])


def json(value: Any) -> str:
    """``value`` as JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # an integer of more than 64 bits, a lone surrogate, or nested too deeply
        try:
            return dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"an attribute that cannot be stored ({error}); expected plain JSON values") from error


def hex_id(value: Any, digits: int, what: str) -> str:
    """An id as ``digits`` lower-case hex digits; a prefix ``0x`` is dropped.

    :raises InputError: anything else, or zeros alone.
    """
    text = value.lower().removeprefix("0x") if isinstance(value, str) else ""
    if len(text) != digits or not _HEX.fullmatch(text) or not text.strip("0"):
        raise InputError(f"{what} {shown(value)}; expected {digits} hex digits, not all of them zero")
    return text


def otlp_id(value: Any, digits: int, what: str) -> str:
    """The same, or in base64, as protobuf's own JSON has them."""
    if isinstance(value, str) and len(value) == (24 if digits == 32 else 12):
        with suppress(binascii.Error):
            value = base64.b64decode(value, validate=True).hex()
    return hex_id(value, digits, what)


def made_id(value: Any, digits: int, what: str) -> str:
    """The same where a back end gives ids of its own making: any text becomes the digest of itself."""
    text = str(value).lower().removeprefix("0x") if value is not None else ""
    if len(text) == digits and _HEX.fullmatch(text) and text.strip("0"):
        return text
    if not text:
        raise InputError(f"no {what}; expected a text that is not empty")
    return blake2b(str(value).encode("utf-8", "replace"), digest_size=digits // 2).hexdigest()


def start_time(value: Any, span_id: str) -> int:
    """A start that a clock can have shown.

    :raises InputError: a time that is missing, not a time, or before the year 2000.
    """
    found = nanoseconds(value)
    if found is None or found < EARLIEST:
        when = "no start time" if not found else f"start time {shown(value)}, before the year 2000"
        raise InputError(f"span {span_id} has {when}; expected one from a clock that is set")
    return found


def end_time(value: Any, span_id: str) -> int | None:
    """An end; None for a span that was never ended."""
    found = nanoseconds(value)
    if not found:
        return None
    if found < EARLIEST:
        raise InputError(
            f"span {span_id} has end time {shown(value)}, before the year 2000; expected none or a real one"
        )
    return found


def nanoseconds(value: Any) -> int | None:
    """A time in any of the usual notations: ISO 8601, [seconds, nanoseconds], a datetime, or a number by its size."""
    found = _nanoseconds(value)
    if found is not None and not 0 <= found <= LATEST:
        raise InputError(f"time {shown(value)}; expected one that fits nanoseconds since 1970 in 63 bits")
    return found


def _nanoseconds(value: Any) -> int | None:
    try:
        match value:
            case None | "":
                return None
            case bool():
                raise ValueError
            case int():
                return value
            case float():
                return int(value * 1e9) if abs(value) < 1e11 else int(value)
            case str() if value.isascii() and value.isdigit():
                return int(value) if len(value) < 20 else LATEST + 1
            case str():
                return _of(datetime.fromisoformat(value), value)
            case datetime():
                return _of(value, "")
            case [int() as seconds, int() as rest]:
                return seconds * 1_000_000_000 + rest
            case _:
                raise ValueError
    except (ValueError, OverflowError) as error:
        raise InputError(f"time {shown(value)}; expected ISO 8601 or nanoseconds since 1970") from error


def _of(moment: datetime, text: str) -> int:
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    whole = (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000
    beyond = re.search(r"\.\d{6}(\d{1,3})", text)  # what datetime drops
    return whole + (int(beyond[1].ljust(3, "0")) if beyond else 0)


def status_name(value: Any) -> str:
    """OK, ERROR or UNSET, from a name or OTLP's number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return STATUSES[value] if 0 <= value < len(STATUSES) else "UNSET"
    name = str(value or "").rpartition(".")[2].upper().removeprefix("STATUS_CODE_")
    return name if name in STATUSES else "UNSET"


def known_scope(attributes: Mapping[str, Any]) -> str | None:
    """The scope of a span that came without one: many back ends keep none, and ours are known all the same."""
    return a.SCOPE if a.CAPTURE in attributes else None


def kind_name(value: Any) -> str:
    """OpenTelemetry's span kind, from a name or OTLP's number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return KINDS[value] if 0 <= value < len(KINDS) else "INTERNAL"
    name = str(value or "").rpartition(".")[2].upper().removeprefix("SPAN_KIND_")
    return name if name in KINDS else "INTERNAL"


def mapping(value: Any, what: str) -> dict[str, Any]:
    """A JSON object, or its text.

    :raises InputError: anything else, or nested too deeply.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError(f"{what} {shown(value)}; expected a JSON object")
    _shallow(value, 0)
    return {str(k): v for k, v in value.items()}


def objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects; None is an empty one.

    :raises InputError: anything else.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise InputError(f"{what} {shown(value)}; expected a list of objects")
    return value


def _shallow(value: Any, depth: int) -> None:
    if depth > _DEPTH:
        raise InputError(f"values nested more than {_DEPTH} deep; expected attributes")
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for child in children:
        if isinstance(child, Mapping | list | tuple):
            _shallow(child, depth + 1)


def optional_text(value: Any) -> str | None:
    """A text that is not empty, or None."""
    return str(value) if value not in (None, "") else None


def shown(value: Any) -> str:
    """A foreign value for a message: its beginning."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # Python refuses to print very long integers
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "…"
