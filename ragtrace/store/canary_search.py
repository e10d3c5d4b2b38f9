"""The planted canaries as patterns, each of which looks for many in one pass over a text."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import md5

import duckdb

_PLAIN = re.compile(r"[A-Za-z0-9 _.@:,-]+")  # what nobody escapes in JSON, except by its number:
_NUMBERED = r"contains(attributes, '\u00') AND regexp_matches(attributes, '\\u00[2-7]')"
_FEW = 16  # strings that are looked for one after another: ten times as fast as a pattern of one
_LONGEST = 6_000  # characters of a pattern: far beyond, RE2 gives up its automaton and is slower than a pass for each
_MOST = 40  # patterns
_PLANTED = "SELECT DISTINCT canary, regexp_escape(canary) FROM canaries WHERE canary IS NOT NULL ORDER BY canary"


def search_for_planted(connection: duckdb.DuckDBPyConnection) -> None:
    """Writes the macros behind the view ``canary_hits`` anew, where other canaries are planted than they look for.

    Without it the rows are the same, and come later: nothing is lost where another connection does the same just now.
    """
    [(searched_for,)] = connection.execute("SELECT searched_for()").fetchall()
    planted = connection.execute(_PLANTED).fetchall()
    # as the view computes it
    digest = md5("\n".join(canary for canary, _ in planted).encode(), usedforsecurity=False).hexdigest()
    patterns = _patterns([escaped for _, escaped in planted])
    if not patterns:
        digest = ""
    if digest == searched_for:
        return
    found = " OR ".join(f"regexp_matches(text, {_quoted(pattern)})" for pattern in patterns) or "true"
    stored = _stored([canary for canary, _ in planted]) if patterns else "true"
    connection.execute("BEGIN")
    try:
        connection.execute(f"CREATE OR REPLACE MACRO may_hold_canary(text) AS {found}")
        connection.execute(f"CREATE OR REPLACE MACRO may_hold_planted(attributes) AS {stored}")
        connection.execute(f"CREATE OR REPLACE MACRO searched_for() AS {_quoted(digest)}")
        connection.execute("COMMIT")
    except duckdb.TransactionException:
        with suppress(duckdb.Error):
            connection.execute("ROLLBACK")


def _stored(canaries: list[str]) -> str:
    """Whether one may stand in attributes as they are stored: by the longest piece of each that is the same there."""
    pieces = {max(_PLAIN.findall(canary), key=len, default="") for canary in canaries}
    if "" in pieces:
        return "true"
    if len(pieces) <= _FEW:
        found = [f"contains(attributes, {_quoted(piece)})" for piece in sorted(pieces)]
    else:
        patterns = _patterns([piece.replace(".", r"\.") for piece in sorted(pieces)])
        found = [f"regexp_matches(attributes, {_quoted(pattern)})" for pattern in patterns]
    return " OR ".join([*found, _NUMBERED])


def _patterns(escaped: list[str]) -> list[str]:
    """None where there are none, or too many to gain anything."""
    groups: list[list[str]] = []
    room = 0
    for one in escaped:
        if not groups or len(one) > room:
            groups.append([])
            room = _LONGEST
        groups[-1].append(one)
        room -= len(one) + 1
    too_much = len(groups) > _MOST or any(len(one) > _LONGEST for one in escaped)
    return [] if too_much else ["|".join(group) for group in groups]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
