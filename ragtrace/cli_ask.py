"""The command ``ask``: a named question, its parameters, and the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_help import Format, console
from ragtrace.cli_json import said


def ask(
    name: Annotated[str, typer.Argument(help="A question, or an SQL file of yours; `list` names all.")] = "list",
    values: Annotated[list[str] | None, typer.Argument(help="Its parameters, as limit=5.")] = None,
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path("traces.duckdb"),
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write here instead (parquet always needs it).")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, max=1e6, help="Seconds that it may take.")] = 60.0,
    memory: Annotated[float, typer.Option(min=0.5, max=1e4, help="GB for DuckDB; more goes to disk.")] = 2.0,
    show: Annotated[bool, typer.Option("--sql", help="Only print the question's SQL.")] = False,
) -> None:
    """Asks the traces a named question: read-only, as `ragtrace sql`."""
    from ragtrace import query, questions
    from ragtrace.store import existing

    if name.casefold() == "list":
        _list(format, out)
        return
    question = questions.find(name)
    bound = question.bound(values or [])
    if show:
        typer.echo(question.sql)
        return
    where = console()
    existing(db)  # before the title is printed
    if format is Format.table and out is None:
        where.print(question.title, style="bold", markup=False, highlight=False)
    if why := query.ask(db, question.sql, format.value, out, where, timeout, values=bound, memory=memory):
        typer.echo(said(why), err=True, nl=False)


def _list(format: Format, out: Path | None) -> None:
    import pyarrow as pa

    from ragtrace import query, questions

    found = questions.load().values()
    if format is Format.json and out is None:
        told = [q._asdict() | {"parameters": {n: p._asdict() for n, p in q.parameters.items()}} for q in found]
        typer.echo(json.dumps(told, indent=2))
        return
    rows = [
        {
            "question": q.name,
            "parameters": " ".join(
                f"{n}=" if p.default is None else f"{n}={p.default}" for n, p in q.parameters.items()
            ),
            "what it asks": q.title,
        }
        for q in found
    ]
    query.show(pa.Table.from_pylist(rows), format.value, out, console())
