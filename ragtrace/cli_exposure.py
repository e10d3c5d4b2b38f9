"""The command ``exposure``: arguments in, the measuring is done in the store, and what is shown are named questions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ragtrace.cli_help import console
from ragtrace.cli_json import Json, say_json

_MEMORY = "1GB"  # for the database; where texts are compared it takes as much again


def exposure(
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path("traces.duckdb"),
    words: Annotated[int, typer.Option(min=0, help="A longer run, in words, is a quote.")] = 10,
    limit: Annotated[int, typer.Option(min=1, help="Documents shown.")] = 10,
    as_json: Json = False,
) -> None:
    """Measures what of the documents reached the answers of real traffic, without probes; goes on where it was."""
    from rich.progress import Progress

    from ragtrace import questions
    from ragtrace.report import terminal
    from ragtrace.store import existing
    from ragtrace.store import open as open_store
    from ragtrace.store.exposure import measure

    shown = console(err=True)
    with open_store(existing(db)) as connection:
        connection.execute("SET memory_limit = ?", [_MEMORY])
        with Progress(console=shown, transient=True, disable=not shown.is_terminal) as progress:
            task = progress.add_task("comparing", total=None)
            done = measure(connection, tell=lambda n, of: progress.update(task, completed=n, total=of))

        def asked(name: str, **given: int) -> list[dict[str, Any]]:
            found = connection.execute(questions.find(name).sql, given)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        documents = asked("most_exposed_documents", words=words, limit=limit)
        days = asked("quoting_answers", words=words)
    quoting, answers = (sum(day[name] for day in days) for name in ("quoting", "answers"))
    if as_json:
        say_json({
            "db": str(db), "measured": done.generations, "answers": answers, "quoting": quoting, "words": words,
            "share": quoting / answers if answers else None, "documents": documents,
            "days": [day | {"day": str(day["day"])} for day in days],
        })  # fmt: skip
        return
    out = console()
    typer.echo(f"{done.generations} answers measured now, {answers} in all")
    if not answers:
        typer.echo(
            "No answer with a document that it could have read, both with their texts or what was computed of them."
        )
        return
    typer.echo(f"{quoting} of them quote more than {words} words of a document: {quoting / answers:.1%}")
    columns = tuple(documents[0]) if documents else ()
    out.print(terminal.table(columns, [tuple(row.values()) for row in documents]))
