"""The command ``watch``: arguments in, exit codes out."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Annotated

import typer


def watch(
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path("traces.duckdb"),
    every: Annotated[float, typer.Option(min=0.1, max=86_400, help="Seconds between two looks.")] = 2.0,
    webhook: Annotated[
        str | None, typer.Option(envvar="RAGTRACE_WEBHOOK", help="POST each alarm here, as JSON.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once; exit code 1 where an alarm was raised.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print alarms as JSON, one a line.")] = False,
) -> None:
    """Raises alarms: canaries in answers, defenses that stop acting, new bypasses, losses; until SIGTERM or Ctrl-C."""
    from ragtrace.report.terminal import harmless
    from ragtrace.store import existing
    from ragtrace.watching import Alarm
    from ragtrace.watching import watch as look
    from ragtrace.watching.sending import Webhook, exporting, telemetry
    from ragtrace.watching.sending import as_json as told

    count: list[Callable[[Alarm], None]] = []

    def tell(alarm: Alarm) -> None:
        for one in count:
            one(alarm)
        if as_json:
            typer.echo(json.dumps(told(alarm)))
        else:
            said = f"{alarm.raised_at:%Y-%m-%d %H:%M:%S} {alarm.kind}: {alarm.subject}: {alarm.message}"
            typer.echo(harmless(said + (f" (trace {alarm.trace_id})" if alarm.trace_id else ""), 2_000))

    stop = Event()
    senders = [Webhook(webhook)] if webhook else []
    before = {sign: signal.signal(sign, lambda *_: stop.set()) for sign in (signal.SIGTERM, signal.SIGINT)}
    try:
        with exporting():
            count.append(telemetry())
            raised = look(existing(db), senders, every, tell, stop, once)
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
    if once and raised:
        raise typer.Exit(1)
