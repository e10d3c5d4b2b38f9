"""The JSON in a file or a request: one value, one a line, one after another, or among other things on a console."""

from __future__ import annotations

import json as standard_json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ragtrace.errors import InputError
from ragtrace.ingest.span import shown

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_KEY = re.compile(rb'(?<!\\)"\s*:')
_OBJECT = re.compile(r"[\[{]\s*[A-Za-z_]\w*:\s")
_CONTEXT = re.compile(r'^ +"context": \{\r?$', re.MULTILINE)  # Python's console exporter: once a span
_BLOCK = re.compile(r"^\{\r?\n.*?^\}\r?$", re.MULTILINE | re.DOTALL)
_WHOLE = "cut off? export it again, whole"


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
        raise InputError(f"starts like JSON but is none ({_where(text, wrong) or error}); {_WHOLE}") from wrong


def _where(text: str, error: ValueError) -> str | None:
    """Which line is none, where each should be, or the one that a reader stumbled over; None where all is one line."""
    if _OBJECT.match(text):
        return "a JavaScript object as its console shows it, which leaves out what is nested or long: export OTLP"
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    bad = [(n, line) for n, line in lines if not _is_json(line)]
    if not bad or len(bad) * 2 > len(lines):
        place = error.lineno if isinstance(error, standard_json.JSONDecodeError) else 1
        bad = [(n, line) for n, line in lines if n == place]
        if place == 1 or not bad:
            return None
    [(n, line), *more] = bad
    return f"line {n}, {shown(line)}" + (f", and {len(more)} more" if more else "")


def _is_json(line: str) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


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


def printed(data: bytes) -> list[Any] | None:
    """What Python's console exporter printed, where an app has printed other things between; None where it did not."""
    if b'"context": {' not in data:
        return None
    try:
        text = data.decode()
        values = [orjson.loads(block) for block in _BLOCK.findall(text)]
    except ValueError:
        return None
    spans = [value for value in values if "context" in value]
    return spans if spans and len(spans) == len(_CONTEXT.findall(text)) else None
