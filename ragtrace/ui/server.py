"""Starting the page: what is refused before it starts, the address that is printed, and how it ends."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

from ragtrace.errors import StoreError, UsageError
from ragtrace.report.terminal import harmless

_DRAIN = 5  # seconds for the requests that are under way when we are told to stop
_CONNECTIONS = 64


def serve(
    database: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    allow_remote: bool = False,
    browser: bool = True,
    show_content: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serves the traces of ``database`` until SIGTERM or SIGINT. The spool is merged first.

    :raises UsageError: a host beyond this machine without ``allow_remote``, a port that is taken, a missing extra.
    :raises StoreError: no database, or none that can be read.
    """
    try:
        import uvicorn

        from ragtrace.ui.app import Viewer
        from ragtrace.ui.guard import Address, bracketed, is_loopback
        from ragtrace.ui.reading import OutdatedError, Store
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ragtrace"):
            raise
        raise UsageError(
            f"the trace viewer needs {error.name}, which is not installed; pip install 'ragtrace-audit[ui]'"
        ) from error
    if not is_loopback(host) and not allow_remote:
        raise UsageError(
            f"--host {host} can be reached from other machines, unencrypted; expected 127.0.0.1, ::1 or localhost "
            "(with `ssh -L` for a browser elsewhere), or --allow-remote as well"
        )
    store = Store(database.expanduser().absolute())
    if not store.path.exists() or store.waiting():
        try:
            store.merge()
        except StoreError as error:
            if not store.path.is_file() or "another process" not in str(error):
                raise
            say(f"the spool is not merged now: {harmless(error, None)}")
    with _socket(host, port) as listening:
        address = Address(host, listening.getsockname()[1])
        token = secrets.token_urlsafe()
        try:
            viewer = Viewer(store, show_content)
        except OutdatedError:
            store.merge()
            viewer = Viewer(store, show_content)
        config = uvicorn.Config(
            viewer.app(address, token), http="h11", ws="none", loop="asyncio", access_log=False, log_config=None,
            server_header=False, proxy_headers=False, limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=_DRAIN,
        )  # fmt: skip
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # its messages may quote what was sent
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):  # before uvicorn listens to it; and it sends it again at the end
            signal.signal(number, stop)
        shown = "127.0.0.1" if address.everywhere else bracketed(host)
        url = f"http://{shown}:{address.port}/?token={token}"
        say(f"the traces of {harmless(store.path.name)} are at {url}")
        say("whoever has this address can read them; Ctrl-C ends it")
        with _opened(url) if browser and _has_screen() else _nothing():
            server.run([listening])
    say("stopped")


def _socket(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
    except (OSError, OverflowError) as error:
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if isinstance(number, int) and number > 0 else error
        raise UsageError(
            f"cannot listen on {host} port {port}: {reason}; give another --host or --port (0: any that is free)"
        ) from error


def _has_screen() -> bool:
    """Whether a browser would have a window, and not this terminal."""
    return sys.platform in ("win32", "darwin") or any(os.environ.get(v) for v in ("DISPLAY", "WAYLAND_DISPLAY"))


@contextmanager
def _opened(url: str) -> Iterator[None]:
    """Shows ``url`` in the browser, by way of a file: everybody on this machine can read a program's arguments."""
    with tempfile.TemporaryDirectory(prefix="ragtrace-") as folder:  # for its owner alone
        page = Path(folder, "traces.html")
        page.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0;url={escape(url)}">', "utf-8")
        threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield
