"""The command ``detect``: arguments in, exit codes out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ragtrace.cli_json import Json, say_json


def detect(
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path("traces.duckdb"),
    everything: Annotated[
        bool, typer.Option("--all", help="Every session looked at, not the suspicious alone.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Look at all sessions, as if none had been looked at.")
    ] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit code 1 where a session is suspicious.")] = False,
    as_json: Json = False,
) -> None:
    """Looks for attacks in production traffic: sessions that look like extraction or membership probing, and why."""
    from ragtrace.cli_help import console
    from ragtrace.detection import detect as look
    from ragtrace.detection import suspicions, unread
    from ragtrace.report.terminal import table
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    with open_store(existing(db)) as connection:
        looked = look(connection, again)
        found = suspicions(connection, everything)
        without, total = unread(connection)
    suspicious = sum(bool(one.suspicious) for one in found)
    if as_json:
        say_json(
            {
                "db": str(db),
                "looked_at": looked,
                "suspicious": suspicious,
                "without_text": without,
                "sessions": [s._asdict() for s in found],
            }
        )
    else:
        if found:
            rows = [(s.session, _shown(s.score), "; ".join(s.reasons), s.trace_id or s.first_trace) for s in found]
            console().print(table(("session", "score", "reasons", "trace"), rows))
        typer.echo(f"{suspicious} suspicious; {looked} sessions with new traces looked at")
        if without:
            typer.echo(
                f"In {without} of {total} sessions no question has its text (capture digest or none): there only long "
                "quotations and coverage were judged, so an attack that the app refuses is not seen."
            )
    if fail and suspicious:
        raise typer.Exit(1)


def _shown(score: float | None) -> str:
    return "no data" if score is None else f"{score:.2f}"
