"""The trace viewer's pages without a browser."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from ragtrace.ui.app import Viewer
from ragtrace.ui.asking import Box
from ragtrace.ui.guard import Address
from ragtrace.ui.reading import Store

TOKEN = "t" * 43
ADDRESS = Address("127.0.0.1", 8123)
BASE = "http://127.0.0.1:8123"
OWN = {"Origin": BASE}


def outside(database: Path, show: bool = False, **limits: Any) -> TestClient:
    """A client without the cookie."""
    store = Store(database)
    box = Box(store.path, show, **limits) if limits else None
    return TestClient(Viewer(store, show, box).app(ADDRESS, TOKEN), base_url=BASE)


def inside(database: Path, show: bool = False, **limits: Any) -> TestClient:
    """A client that has opened the address that was printed."""
    client = outside(database, show, **limits)
    assert client.get(f"/?token={TOKEN}").status_code == 200
    return client


def text(html: str) -> str:
    """What a reader sees: without tags, in one line."""
    body = html.partition("<body>")[2]
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", body).split()))


def ids(html: str) -> list[str]:
    """The traces of a list, in their order."""
    return re.findall(r'href="/trace/(\w+)"', html)


def ask(client: TestClient, sql: str, **more: str) -> Any:
    """What the SQL box answers."""
    return client.post("/sql", data={"sql": sql, **more}, headers=OWN)


def home(client: TestClient) -> str:
    """The verdicts, as soon as they are worked out."""
    while "data-wait" in (html := client.get("/").text):
        pass
    return html
