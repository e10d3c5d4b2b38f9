"""Starting the receiver: what is refused before it starts, the socket, and how it ends."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

from ragtrace.errors import StoreError, UsageError
from ragtrace.record.spool import spool_of

_SHORTEST_TOKEN = 16
_DRAIN = 30  # seconds for the requests that are under way when we are told to stop
_CONNECTIONS = 512
_NEW_TOKEN = "python -c 'import secrets; print(secrets.token_urlsafe())'"  # noqa: S105
_MAGIC_AT, _MAGIC = 8, b"DUCK"


def serve(
    database: Path,
    host: str = "127.0.0.1",
    port: int = 4318,
    token: str | None = None,
    rate: float | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Receives spans for ``database`` until SIGTERM or SIGINT; requests under way are answered first.

    :raises UsageError: a host that needs a token, a token that is none, a port that is taken.
    :raises StoreError: the spool beside ``database`` cannot be written to.
    """
    _check_token(host, token)
    database = database.expanduser().absolute()
    _check_database(database)
    try:
        import uvicorn

        from ragtrace.collect.app import PATH, Receiver
        from ragtrace.collect.limits import RATE, Limits
        from ragtrace.collect.writing import Writer
        from ragtrace.ingest.busy import busy
    except ImportError as error:
        raise UsageError(
            f"the receiver needs {error.name}, which is not installed; pip install 'ragtrace-audit[collect]'"
        ) from error
    if rate is not None and not rate > 0:
        raise UsageError(f"--rate {rate:g}; expected requests a second, more than 0")
    app = Receiver(Writer(database), Limits(RATE if rate is None else rate), token).app()
    config = uvicorn.Config(
        app, http="h11", ws="none", loop="asyncio", access_log=False, log_config=None, server_header=False,
        limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=_DRAIN,
    )  # fmt: skip
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # its messages may quote what was sent
    server = uvicorn.Server(config)

    def stop(*_: object) -> None:
        server.should_exit = True

    with _socket(host, port) as listening:
        # until uvicorn has its own handlers these stop it, and it drains; it sends the signal again when all is done
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        place = f"[{host}]" if ":" in host else host
        say(f"listening on http://{place}:{listening.getsockname()[1]}{PATH}; spans go to {spool_of(database)}")
        with busy():
            server.run([listening])
    say("stopped; everything that was confirmed is in the spool")


def _check_token(host: str, token: str | None) -> None:
    if token is None:
        if not _is_loopback(host):
            raise UsageError(
                f"--host {host} can be reached from other machines, and no token is given; expected --token, or "
                f"RAGTRACE_COLLECT_TOKEN, of at least {_SHORTEST_TOKEN} characters ({_NEW_TOKEN}), or --host 127.0.0.1"
            )
        return
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"a token of {len(token)} characters; expected at least {_SHORTEST_TOKEN}, ASCII, no blanks: {_NEW_TOKEN}"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_database(database: Path) -> None:
    """What can be told without opening it: a serving process never does."""
    spool = spool_of(database)
    try:
        if database.is_dir():
            raise StoreError(f"{database} is a folder, expected a database file")
        if database.exists():
            with database.open("rb") as file:
                start = file.read(_MAGIC_AT + len(_MAGIC))
            if start and start[_MAGIC_AT:] != _MAGIC:
                raise StoreError(f"{database} is no DuckDB database; move it away, or give another --db")
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {spool}: {error.strerror}; choose a --db in a folder of yours") from error


def _socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else error
        raise UsageError(f"cannot listen on {host} port {port}: {reason}; give another --host or --port") from error
