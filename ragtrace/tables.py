"""Verdicts, results and answers as rows that a notebook shows and a data frame takes.

``ragtrace.open`` returns a DuckDB connection, whose answers are data frames already (``db.sql("…").df()``). What is
added here is what they lack: the two tables that everybody looks at under one name each, the same three ways out of
every table, and a view of them in which a trace's text is shown and never interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from ragtrace import table_html
from ragtrace.errors import UsageError
from ragtrace.inventory import Inventory
from ragtrace.report import terminal
from ragtrace.store import open as open_store

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

Database = duckdb.DuckDBPyConnection | str | Path
_ROWS = 40  # of a plain text
_COLUMNS = 8
_WIDTH = 120
_VERDICTS = """
FROM verdicts ORDER BY defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook)
"""
_RESULTS = "FROM results WHERE coalesce(run_id = ?, true) ORDER BY run_id, metric, attack, corpus, arm"
_SHOWN = {
    "verdicts": ("defense", "hook", "verdict", "runs", "changed", "evidence"),
    "results": ("metric", "attack", "arm", "value", "ci_low", "ci_high", "n", "interpretable"),
}


class Table:
    """Rows with named columns: ``for row in table``, ``table.to_pandas()``, or the last line of a notebook's cell.

    :param kind: ``verdicts`` or ``results``, which are shown as what they are; anything else is shown as it stands.
    """

    def __init__(self, rows: pa.Table, kind: str | None = None) -> None:
        self._rows, self._kind = rows, kind

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._rows.column_names)

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Each row as a dict."""
        return iter(self._rows.to_pylist())

    def to_arrow(self) -> pa.Table:
        """As an Arrow table, without a copy."""
        return self._rows

    def to_pandas(self) -> Any:
        """As a pandas data frame.

        :raises UsageError: pandas is not installed.
        """
        _needs("pandas", "to_pandas")
        return self._rows.to_pandas()

    def to_polars(self) -> Any:
        """As a polars data frame.

        :raises UsageError: polars is not installed.
        """
        return _needs("polars", "to_polars").from_arrow(self._rows)

    def __repr__(self) -> str:
        from rich.console import Console

        console = Console(file=StringIO(), width=_WIDTH, no_color=True, highlight=False, force_jupyter=False)
        self._print(console)
        file = console.file
        assert isinstance(file, StringIO)
        return "\n".join(line.rstrip() for line in file.getvalue().splitlines())

    def _repr_html_(self) -> str:
        rows = list(self)
        if self._kind == "verdicts":
            return table_html.verdicts(rows)
        if self._kind == "results":
            return table_html.results(rows)
        return table_html.plain(self.columns, rows)

    def _print(self, console: Console) -> None:
        wanted = _SHOWN.get(self._kind or "", tuple(self.columns))
        names = [name for name in wanted if name in self.columns][:_COLUMNS]
        shown = self._rows.select(names).slice(0, _ROWS).to_pylist()
        console.print(terminal.table(names, ([_short(row[name]) for name in names] for row in shown)))
        if (more := len(self) - len(shown)) > 0:
            console.print(f"… and {more} more rows")
        if (hidden := len(self.columns) - len(names)) > 0:
            console.print(f"{hidden} more columns: to_pandas(), to_polars() and to_arrow() have all of them")


def verdicts(db: Database) -> Table:
    """Where does each defense act? The view ``verdicts``.

    :param db: what :func:`ragtrace.open` returned, or the path of a database.
    :raises StoreError: no database at the path, or none that can be read.
    """
    with _opened(db) as connection:
        return Table(connection.sql(_VERDICTS).to_arrow_table(), "verdicts")


def results(db: Database, run: str | None = None) -> Table:
    """What leaked, each number with its interval and with whether it may be read: the view ``results``.

    :param db: what :func:`ragtrace.open` returned, or the path of a database.
    :param run: only this run.
    :raises UsageError: there is no such run.
    :raises StoreError: no database at the path, or none that can be read.
    """
    with _opened(db) as connection:
        known = [r for (r,) in connection.execute("SELECT DISTINCT run_id FROM results ORDER BY run_id").fetchall()]
        if run is not None and run not in known:
            there = ", ".join(map(terminal.harmless, known[:20])) or "none: run ragtrace.score.score(db) first"
            raise UsageError(f"no results of a run {terminal.harmless(run)!r} in this database; it has: {there}")
        return Table(connection.sql(_RESULTS, params=[run]).to_arrow_table(), "results")


def table(found: duckdb.DuckDBPyRelation | Inventory | pa.Table) -> Table:
    """Any other rows as such a table, for example ``ragtrace.table(db.sql("FROM coverage"))``.

    :param found: an answer of DuckDB, what ``inventory()`` returned, or an Arrow table.
    :raises UsageError: anything else.
    """
    if isinstance(found, Inventory):
        found = pa.Table.from_pylist(
            [
                {"defense": d.defense, "kind": d.kind, "hook": h.hook, "status": h.status, "where": h.where,
                 "reason": h.reason}
                for d in found for h in d.hooks
            ],
            pa.schema([(name, pa.string()) for name in ("defense", "kind", "hook", "status", "where", "reason")]),
        )  # fmt: skip
    elif isinstance(found, duckdb.DuckDBPyRelation):
        found = found.to_arrow_table()
    if not isinstance(found, pa.Table):
        raise UsageError(
            f"table() got a {type(found).__name__}; expected an answer of DuckDB (db.sql(…)), an inventory, or an "
            "Arrow table"
        )
    return Table(found.rename_columns(_distinct(found.column_names)))


def _distinct(names: list[str]) -> list[str]:
    return [name if name not in names[:i] else f"{name}_{i}" for i, name in enumerate(names)]


def _opened(db: Database) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    if isinstance(db, duckdb.DuckDBPyConnection):
        return nullcontext(db)
    from ragtrace.store import existing

    return open_store(existing(db))


def _needs(package: str, what: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{what}() needs the package {error.name!r}, which is not installed; install it with: pip install {package}"
        ) from error


def _short(value: Any) -> Any:
    return f"{value:.3g}" if isinstance(value, float) else value
