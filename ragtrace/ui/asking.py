"""The SQL box: asks in another process, keeps the last few answers for paging, masks what may be text of a trace."""

from __future__ import annotations

import csv
import io
import json
import secrets
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from ragtrace.errors import UsageError
from ragtrace.report.html.words import mask

SECONDS = 30.0
ROWS = 10_000
PAGE = 100
_LONGEST = 50_000  # characters of a question
_GRACE = 20.0  # seconds after its time that a question's process may take to say so
_AT_ONCE = 2
_KEPT = 8
# Columns of the views that hold text of traces; those of other names (an alias, an expression) may hold it as well.
_CONTENT = frozenset((
    "query", "query_after_defense", "prompt", "response", "content", "text", "target_text", "canary", "status_message",
    "attributes", "events", "resource", "metadata", "detail", "first_token", "asked", "e",
))  # fmt: skip
_DESCRIBED = frozenset(("column_name", "column_type", "null", "key", "explain_key", "explain_value", "view_name"))


@dataclass(frozen=True)
class Answer:
    """Rows of an answer as they may be shown; ``more`` where there were more than are kept."""

    sql: str
    columns: list[str]
    rows: list[list[str | None]]
    more: bool
    left_out: int
    seconds: float
    masked: bool

    def csv(self) -> str:
        """The rows as they are shown, as CSV."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()


class Box:
    """Questions and their answers.

    :param show: texts of traces may be shown.
    """

    def __init__(self, database: Path, show: bool, seconds: float = SECONDS, most: int = ROWS) -> None:
        self._database, self._show, self._seconds, self._most = database, show, seconds, most
        self._free = BoundedSemaphore(_AT_ONCE)
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._answers: OrderedDict[str, Answer] = OrderedDict()

    def ask(self, sql: str, values: Mapping[str, Any], names: Collection[str]) -> str:
        """Asks; the key of the answer. A text cell that is one of ``names`` is no content.

        :raises UsageError: with what is wrong with the question, or that too many are being asked.
        """
        if len(sql) > _LONGEST:
            raise UsageError(f"a question of {len(sql)} characters; expected at most {_LONGEST}")
        if not self._free.acquire(blocking=False):
            raise UsageError(f"{_AT_ONCE} questions are being asked already; ask again when one has its answer")
        try:
            told = self._told(sql, values)
        finally:
            self._free.release()
        if "error" in told:
            raise UsageError(told["error"])
        rows, masked = told["rows"], False
        if not self._show:
            rows, masked = _masked(told, names)
        key = secrets.token_urlsafe(12)
        with self._lock:
            self._answers[key] = Answer(
                sql, told["columns"], rows, told["more"], told["left_out"], told["seconds"], masked
            )
            while len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
        return key

    def answer(self, key: str) -> Answer | None:
        """An answer that is still kept."""
        with self._lock:
            return self._answers.get(key)

    def stop(self) -> None:
        """Ends what is being asked."""
        with self._lock:
            for process in self._running:
                process.kill()

    def _told(self, sql: str, values: Mapping[str, Any]) -> dict[str, Any]:
        asked = {
            "database": str(self._database), "sql": sql, "values": dict(values), "seconds": self._seconds,
            "rows": self._most,
        }  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ragtrace.ui.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8",
        )  # fmt: skip
        with self._lock:
            self._running.add(process)
        try:
            with process:
                try:
                    out, _ = process.communicate(json.dumps(asked), timeout=self._seconds + _GRACE)
                    found: dict[str, Any] = json.loads(out)
                except (subprocess.TimeoutExpired, ValueError, OSError):
                    process.kill()
                    return {"error": "no answer: the question took too much memory or time; ask for less"}
                return found
        finally:
            with self._lock:
                self._running.discard(process)


def _masked(told: dict[str, Any], names: Collection[str]) -> tuple[list[list[str | None]], bool]:
    """The rows without texts, and whether anything was masked."""
    known = (frozenset(told["known"]) - _CONTENT) | _DESCRIBED
    closed = [text and column not in known for column, text in zip(told["columns"], told["texts"], strict=True)]
    rows, masked = [], False
    for row in told["rows"]:
        made = [
            mask(cell) if hide and cell is not None and cell not in names else cell
            for cell, hide in zip(row, closed, strict=True)
        ]
        masked = masked or made != row
        rows.append(made)
    return rows, masked
