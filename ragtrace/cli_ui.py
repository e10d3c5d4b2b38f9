"""The command ``ui``: arguments in, a page served until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def ui(
    db: Annotated[Path, typer.Option("--db", help="The DuckDB database.")] = Path("traces.duckdb"),
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine with --allow-remote.")] = "127.0.0.1",
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --host be one that other machines reach, unencrypted.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    show_content: Annotated[bool, typer.Option("--show-content", help="Show texts of traces unmasked.")] = False,
) -> None:
    """Shows the traces in a browser, on this machine alone: search, waterfall, what defenses changed, SQL."""
    from ragtrace.ui import serve

    serve(db, host, port, allow_remote=allow_remote, browser=not no_browser, show_content=show_content, say=typer.echo)
