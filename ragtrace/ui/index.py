"""What pages are found by: a row a trace, and what defenses did in it. Kept in memory, made from the store, no texts.

Grouping a million spans takes a second, asking the views where a defense was gone round takes several: both are done
once, at the start and at each refresh, and not for each page; the latter in the background.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

import duckdb

from ragtrace.report.terminal import harmless
from ragtrace.ui.learning import Abandoned, Verdicts, bypasses, matrix
from ragtrace.ui.reading import Store, failed
from ragtrace.ui.scratch import Scratch, in_memory

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

NAME = 100
"""Characters of a name that are kept, shown and compared."""
KINDS = ("path", "arm", "run", "model")
EVER = (-(2**63), 2**63 - 1)
"""Nanoseconds since 1970 that a store can hold."""
_BATCH = 50_000

_TRACES = """
SELECT trace_id, min(start_ns) AS first_ns, max(end_ns) AS last_ns, count(*) AS spans,
    bool_or(status = 'ERROR') AS failed, left(min_by(name, (parent_span_id IS NOT NULL, start_ns)), 200) AS name
FROM span_data GROUP BY trace_id
"""
_FACTS = """
SELECT DISTINCT trace_id, 'path' AS kind, path AS value FROM span_data WHERE path IS NOT NULL
UNION ALL SELECT DISTINCT trace_id, 'arm', arm FROM span_data WHERE arm IS NOT NULL
UNION ALL SELECT DISTINCT trace_id, 'run', run_id FROM span_data WHERE run_id IS NOT NULL
UNION ALL SELECT DISTINCT trace_id, 'model', model FROM stages WHERE model IS NOT NULL
"""
_ACTS = """
SELECT DISTINCT trace_id, defense, hook, if(late, 'late', status) AS status FROM effects WHERE defense IS NOT NULL
"""
_CANARIES = "FROM canaries LIMIT 100_000"
_NUMBERED = """
INSERT INTO acts SELECT t.n, i.defense, i.hook, i.status FROM incoming i JOIN traces t USING (trace_id)
"""


@dataclass
class Index:
    """One reading of the store."""

    connection: DuckDBPyConnection
    scratch: Scratch
    _learner: Scratch
    spans: int
    traces: int
    first: datetime | None
    last: datetime | None
    made: datetime
    names: dict[str, list[str]] = field(default_factory=dict)
    verdicts: Future[Verdicts] = field(default_factory=Future)
    abandoned: Event = field(default_factory=Event)

    def cursor(self) -> DuckDBPyConnection:
        """A connection for one request."""
        return self.connection.cursor()

    def when(self, id: str) -> tuple[int, int]:
        """Between which times the spans of a trace start, as far as that is known."""
        with self.cursor() as own:
            found = own.execute("SELECT first_ns, last_ns FROM traces WHERE trace_id = ?", [id]).fetchone()
        return found if found is not None else EVER

    def learn(self, store: Store) -> None:
        """Works out what is not known yet; never raises: whoever asks for the verdicts gets the error."""
        try:
            with self.scratch.holding():  # made now, and not for the first trace that is looked at
                pass
            with self.cursor() as own:
                for found in bypasses(store, self._learner, own):
                    if self.abandoned.is_set():
                        raise Abandoned
                    _insert(own, found, _NUMBERED)
                verdicts = matrix(store, self._learner)
                self._shorten(own, "acts", "defense")
                self._name(own)
                told = own.execute("SELECT defense, hook, status, count(DISTINCT n) FROM acts GROUP BY ALL").fetchall()
            for row in verdicts:
                row["defense"] = harmless(row["defense"], NAME)
            self.verdicts.set_result(Verdicts(verdicts, {(d, h, s): n for d, h, s, n in told}))
        except BaseException as error:
            self.verdicts.set_exception(failed(store.path, error) if isinstance(error, duckdb.Error) else error)

    def _shorten(self, own: DuckDBPyConnection, table: str, column: str) -> None:
        """Names as they are shown, so that a link or a form can carry them and still mean the same."""
        for (name,) in own.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall():  # noqa: S608 - of ours
            if (shown := harmless(name, NAME)) != name:
                own.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", [shown, name])  # noqa: S608

    def _name(self, own: DuckDBPyConnection) -> None:
        found = {"defense": own.execute("SELECT DISTINCT defense FROM acts ORDER BY ALL").fetchall()}
        for kind in KINDS:
            found[kind] = own.execute("SELECT DISTINCT value FROM facts WHERE kind = ? ORDER BY ALL", [kind]).fetchall()
        self.names = {kind: [name for (name,) in names] for kind, names in found.items()}


def build(store: Store) -> Index:
    """Reads the store: what every page needs at once.

    :raises StoreError: it cannot be read, or was made by another version.
    """
    own = in_memory()
    try:
        with store.reading() as db:
            _take(own, db, _TRACES, """
                CREATE TABLE traces AS
                SELECT row_number() OVER (ORDER BY first_ns, trace_id) AS n, * FROM incoming ORDER BY n""")  # fmt: skip
            own.execute("CREATE TABLE acts (n BIGINT, defense VARCHAR, hook VARCHAR, status VARCHAR)")
            _take(own, db, _ACTS, _NUMBERED)
            _take(own, db, _FACTS, """
                CREATE TABLE facts AS
                SELECT t.n, i.kind, i.value FROM incoming i JOIN traces t USING (trace_id)""")  # fmt: skip
            canaries = db.sql(_CANARIES).to_arrow_table()
            parts = db.sql("FROM part_hooks").to_arrow_table()
            [(spans,)] = db.execute("SELECT count(*) FROM span_data").fetchall()
    except duckdb.Error as error:
        raise failed(store.path, error) from error
    [(traces, first, last)] = own.execute(
        "SELECT count(*), make_timestamp(min(first_ns) // 1000), make_timestamp(max(first_ns) // 1000) FROM traces"
    ).fetchall()
    index = Index(
        own, Scratch(canaries, parts), Scratch(canaries, parts), spans, traces, first, last, datetime.now(UTC)
    )
    with index.cursor() as cursor:
        index._shorten(cursor, "acts", "defense")
        index._shorten(cursor, "facts", "value")
        index._name(cursor)
    return index


def started(store: Store, pool: ThreadPoolExecutor) -> Index:
    """The same, with the rest begun in ``pool``."""
    index = build(store)
    pool.submit(index.learn, store)
    return index


def _take(own: DuckDBPyConnection, db: DuckDBPyConnection, query: str, into: str) -> None:
    """The answer of the store to ``query`` as what ``into`` calls ``incoming``."""
    _insert(own, db.sql(query).to_arrow_reader(_BATCH), into)


def _insert(own: DuckDBPyConnection, found: Any, into: str) -> None:
    own.register("incoming", found)
    own.execute(into)
    own.unregister("incoming")
