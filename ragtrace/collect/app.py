"""The ASGI application: one route, and an answer to everything."""

from __future__ import annotations

import asyncio
import hmac
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ragtrace.collect import body
from ragtrace.collect.answers import JSON, PROTOBUF, Refused, refused, taken
from ragtrace.collect.decode import decode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ragtrace.collect.limits import Limits
    from ragtrace.collect.writing import Writer

PATH = "/v1/traces"
_DECODERS = 2
_log = logging.getLogger("ragtrace.collect")


class Receiver:
    """Takes export requests. Without a token it is for this machine's own processes, and not for its browsers."""

    def __init__(self, writer: Writer, limits: Limits, token: str | None) -> None:
        self._writer, self._limits = writer, limits
        self._expected = f"Bearer {token}".encode() if token is not None else None
        self._pool = ThreadPoolExecutor(_DECODERS, "decode")

    def app(self) -> Starlette:
        """The application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            self._pool.shutdown()
            self._writer.close()

        return Starlette(
            routes=[Route(PATH, self.traces, methods=["POST"])],
            exception_handlers={404: _not_here, 405: _not_so},
            lifespan=lifespan,
        )

    async def traces(self, request: Request) -> Response:
        """Stores one export request, or says why not."""
        asked = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        media = JSON if asked == JSON else PROTOBUF
        try:
            self._authorize(request)
            if asked not in (JSON, PROTOBUF):
                raise Refused(415, f"Content-Type is not known; expected {PROTOBUF} or {JSON}")
            return await self._take(request, media)
        except Refused as why:
            _log.info("answered %d: %s", why.status, why.message)
            return refused(media, why)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:  # by its kind alone: its text might quote what was sent
            _log.error("answered 500: %s", type(error).__name__)
            return refused(media, Refused(500, "the receiver failed on this request"))

    async def _take(self, request: Request, media: str) -> Response:
        async with self._limits.admit():
            encoding = request.headers.get("content-encoding", "").strip().lower() or "identity"
            content = await body.read(request.stream(), encoding, request.headers.get("content-length"))
            decoded = await asyncio.get_running_loop().run_in_executor(self._pool, decode, content, media)
            del content
            if decoded.table.num_rows:
                await self._writer.write(decoded.table)
        if decoded.left.spans:
            _log.warning("left out %d spans: %s", *decoded.left)
        return taken(media, decoded.left)

    def _authorize(self, request: Request) -> None:
        if self._expected is not None:
            given = request.headers.get("authorization", "").strip()
            if not hmac.compare_digest(given.encode("utf-8", "replace"), self._expected):
                raise Refused(
                    401, "no token, or a wrong one; expected Authorization: Bearer …", WWW_Authenticate="Bearer"
                )
        elif "origin" in request.headers:
            raise Refused(403, "sent by a browser, which needs a token here; start the receiver with --token")


async def _not_here(_: Request, __: Exception) -> Response:
    return PlainTextResponse(f"only {PATH} is here: this receiver takes traces, no metrics and no logs\n", 404)


async def _not_so(_: Request, __: Exception) -> Response:
    return PlainTextResponse(f"expected POST to {PATH}\n", 405, {"Allow": "POST"})
