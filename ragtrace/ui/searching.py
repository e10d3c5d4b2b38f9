"""The list of traces: filters, one page at a time from the newest on, and the search in texts.

A page is found by where the last one ended (start and trace id), not by its number, so the thousandth costs what the
first does. Texts are searched in the store itself, stretch by stretch backwards in time, and no longer than a page may
take: what was not searched yet is said, with a link that goes on from there.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from ragtrace.errors import UsageError
from ragtrace.ui.index import EVER
from ragtrace.ui.reading import Row, Store, rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duckdb import DuckDBPyConnection

    from ragtrace.ui.index import Index

PAGE = 50
STATUSES = ("changed", "unchanged", "error", "late", "bypassed")
_LONGEST = 300  # characters of a filter
_SECONDS = 0.5
_LEAST = 0.05
_FIRST, _LARGEST = 1_000, 100_000  # traces in a stretch
# Characters that are the same in a text and, once or twice, in JSON.
_PLAIN = re.compile(r"[ !#-.0-\[\]-~]+")

_CONDITIONS = {
    "trace": "starts_with(trace_id, $trace)",
    "path": "n IN (SELECT n FROM facts WHERE kind = 'path' AND value = $path)",
    "arm": "n IN (SELECT n FROM facts WHERE kind = 'arm' AND value = $arm)",
    "run": "n IN (SELECT n FROM facts WHERE kind = 'run' AND value = $run)",
    "model": "n IN (SELECT n FROM facts WHERE kind = 'model' AND value = $model)",
    "failed": "failed",
    "since": "first_ns >= $since",
    "until": "first_ns <= $until",
    "slow": "try(last_ns - first_ns) >= $slow",
    "before": "(first_ns, trace_id) < ($start, $id)",
    "acts": """n IN (SELECT n FROM acts WHERE ($defense IS NULL OR defense = $defense)
        AND ($hook IS NULL OR hook = $hook) AND ($status IS NULL OR status = $status))""",
}
_CHOSEN = """
WITH chosen AS MATERIALIZED (
    SELECT trace_id, stage, attributes FROM span_data
    WHERE start_ns BETWEEN $low AND $high AND stage IN ('retrieval', 'generation')
        AND (dialect = 'ragtrace' OR duplicate_of IS NULL) AND trace_id IN (SELECT unnest($traces::VARCHAR[]))
)
"""
_FOUND = f"""{_CHOSEN}
SELECT DISTINCT trace_id FROM chosen
WHERE CASE WHEN $plain IS NULL OR regexp_matches(attributes::VARCHAR, $plain, 'i') THEN contains(lower(concat_ws(
    chr(0), attributes->>'gen_ai.retrieval.query.text', attributes->>'ragtrace.query',
    message_text(attributes->>'gen_ai.output.messages', chr(10)))), lower($text)) ELSE false END
"""  # noqa: S608 (constants)
_ASKED = f"""{_CHOSEN}
SELECT trace_id, left(any_value(
    coalesce(attributes->>'gen_ai.retrieval.query.text', attributes->>'ragtrace.query')), 300)
FROM chosen GROUP BY trace_id
"""  # noqa: S608 (constants)


@dataclass(frozen=True)
class Filters:
    """What was asked for, as it stands in the address; empty for everything."""

    text: str = ""
    trace: str = ""
    defense: str = ""
    hook: str = ""
    status: str = ""
    path: str = ""
    arm: str = ""
    run: str = ""
    model: str = ""
    failed: str = ""
    bypassed: str = ""
    since: str = ""
    until: str = ""
    slow: str = ""
    before: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Filters:
        """Those of an address.

        :raises UsageError: one that is none.
        """
        found = cls(**{f.name: given[f.name][:_LONGEST] for f in fields(cls) if f.name in given})
        if found.status and found.status not in STATUSES:
            raise UsageError(f"effect status {found.status!r}; expected one of {', '.join(STATUSES)}")
        found.values()
        return found

    def values(self) -> dict[str, Any]:
        """The parameters of the conditions that hold.

        :raises UsageError: no date, or no number.
        """
        made: dict[str, Any] = {k: v for k in ("trace", "path", "arm", "run", "model") if (v := getattr(self, k))}
        if self.failed:
            made["failed"] = None
        for name in ("since", "until"):
            if told := getattr(self, name):
                made[name] = _nanoseconds(name, told)
        if self.slow:
            made["slow"] = _milliseconds(self.slow)
        if self.before:
            start, _, id = self.before.partition(".")
            if not re.fullmatch(r"-?\d{1,19}", start):
                raise UsageError("the place in the list is none; begin at its first page")
            made |= {"before": None, "start": max(EVER[0], min(EVER[1], int(start))), "id": id}
        status = "bypassed" if self.bypassed else self.status
        if self.defense or self.hook or status:
            made |= {"acts": None, "defense": self.defense or None, "hook": self.hook or None, "status": status or None}
        return made

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.but(before=""))

    def but(self, **other: str) -> str:
        """The address of the same list with something else."""
        new = replace(self, **other)
        return urlencode({f.name: v for f in fields(new) if (v := getattr(new, f.name))})


@dataclass(frozen=True)
class Page:
    """``older`` is where the next page begins; ``count`` is of all pages, where no text is searched for."""

    rows: list[Row]
    older: str | None
    count: int | None
    searched: int | None
    back_to: datetime | None


def find(index: Index, store: Store, asked: Filters) -> Page:
    """One page of traces, newest first."""
    with index.cursor() as own:
        if asked.text:
            found, older, searched, back_to = _search(own, store, asked)
            count = None
        else:
            found, searched, back_to = _next(own, asked.values(), PAGE + 1), None, None
            older = _place(found[PAGE - 1]) if len(found) > PAGE else None
            found = found[:PAGE]
            given = {k: v for k, v in asked.values().items() if k not in ("before", "start", "id")}
            [(count,)] = own.execute(f"SELECT count(*) FROM traces {_where(given)}", _bound(given)).fetchall()  # noqa: S608
        _complete(own, store, found)
    return Page(found, older, count, searched, back_to)


def _next(own: DuckDBPyConnection, given: dict[str, Any], most: int) -> list[Row]:
    return rows(
        own,
        "SELECT n, trace_id, first_ns, last_ns, make_timestamp(first_ns // 1000) AS start, "  # noqa: S608
        "try((last_ns - first_ns) / 1e6) AS ms, spans, failed, name FROM traces "
        f"{_where(given)} ORDER BY first_ns DESC, trace_id DESC LIMIT $most",
        most=most,
        **_bound(given),
    )


def _where(given: dict[str, Any]) -> str:
    conditions = [text for name, text in _CONDITIONS.items() if name in given]
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""


def _bound(given: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k not in ("failed", "before", "acts")}


def _place(row: Row) -> str:
    return f"{row['first_ns']}.{row['trace_id']}"


def _search(
    own: DuckDBPyConnection, store: Store, asked: Filters
) -> tuple[list[Row], str | None, int, datetime | None]:
    """Traces with the text, where the rest begins, how many traces were searched, and back to when."""
    runs = _PLAIN.findall(asked.text)
    plain = re.escape(max(runs, key=len)) if runs else None
    given, searched, size = asked.values(), 0, _FIRST
    found: list[Row] = []
    end = time.monotonic() + _SECONDS
    with store.reading() as db:
        while True:
            began = time.monotonic()
            stretch = _next(own, given, size)
            searched += len(stretch)
            if stretch:
                asking = _among(stretch) | {"plain": plain, "text": asked.text}
                hits = {id for (id,) in db.execute(_FOUND, asking).fetchall()}
                found += [row for row in stretch if row["trace_id"] in hits]
            if len(found) > PAGE:
                return found[:PAGE], _place(found[PAGE - 1]), searched, None
            if len(stretch) < size:
                return found, None, searched, None
            last = stretch[-1]
            now = time.monotonic()
            if end - now < _LEAST:
                return found, _place(last), searched, last["start"]
            given |= {"before": None, "start": last["first_ns"], "id": last["trace_id"]}
            fitting = int(size * (end - now) / (now - began))  # so many are searched in the time that is left
            size = max(_FIRST, min(size * 16, _LARGEST, fitting))


def _among(found: list[Row]) -> dict[str, Any]:
    return {
        "traces": [row["trace_id"] for row in found],
        "low": min(row["first_ns"] for row in found),
        "high": max(row["last_ns"] for row in found),
    }


def _complete(own: DuckDBPyConnection, store: Store, found: list[Row]) -> None:
    """What a line of the list says besides: the query, where it went, and what defenses did."""
    if not found:
        return
    with store.reading() as db:
        asked = dict(db.execute(_ASKED, _among(found)).fetchall())
    by_number: dict[int, Row] = {}
    for row in found:
        row |= {"query": asked.get(row["trace_id"]), "acts": [], "path": [], "arm": [], "run": [], "model": []}
        by_number[row["n"]] = row
    numbers = {"numbers": list(by_number)}
    for n, kind, value in own.execute(
        "SELECT n, kind, value FROM facts WHERE n IN (SELECT unnest($numbers::BIGINT[])) ORDER BY ALL", numbers
    ).fetchall():
        by_number[n][kind].append(value)
    for n, defense, hook, status in own.execute(
        "SELECT n, defense, hook, status FROM acts WHERE n IN (SELECT unnest($numbers::BIGINT[])) "
        "AND status <> 'unchanged' ORDER BY ALL",
        numbers,
    ).fetchall():
        by_number[n]["acts"].append({"defense": defense, "hook": hook, "status": status})


def _nanoseconds(name: str, told: str) -> int:
    try:
        moment = datetime.fromisoformat(told)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        return int(moment.timestamp()) * 1_000_000_000
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{name} {told!r} is no time; expected for example 2026-05-01T14:30 (UTC)") from error


def _milliseconds(told: str) -> int:
    try:
        found = float(told)
    except ValueError:
        found = -1.0
    if not 0 <= found < 1e12:
        raise UsageError(f"shortest duration {told!r}; expected milliseconds, 0 or more")
    return int(found * 1e6)
