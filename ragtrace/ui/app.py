"""The pages: addresses in, templates out."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import duckdb
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ragtrace import questions
from ragtrace.errors import RagtraceError, StoreError, UsageError
from ragtrace.report.html import arranged
from ragtrace.types import HOOKS
from ragtrace.ui import searching, trace
from ragtrace.ui.asking import PAGE, Box
from ragtrace.ui.guard import Address, Guard
from ragtrace.ui.index import started
from ragtrace.ui.reading import failed
from ragtrace.ui.showing import Pages, asset, numbered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from ragtrace.ui.reading import Store

_BODY = 400_000  # bytes of a form
_SOON = 1.5  # seconds that the matrix is waited for before a page says that it is not there yet
_FIRST = "SELECT defense, hook, verdict, evidence FROM verdicts ORDER BY defense, hook"


class Viewer:
    """Everything that is shown of one store."""

    def __init__(self, store: Store, show: bool, box: Box | None = None) -> None:
        self._store, self._show = store, show
        self._box = box or Box(store.path, show)
        self._pages = Pages(store.path.name, show)
        self._pool = ThreadPoolExecutor(1, "verdicts")
        self._left = store.waiting()
        self._index = started(store, self._pool)

    def app(self, address: Address, token: str) -> ASGIApp:
        """The application, guarded."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            self._box.stop()
            self._index.abandoned.set()
            self._pool.shutdown(cancel_futures=True)

        routes = [
            Route("/", self.home),
            Route("/traces", self.traces),
            Route("/trace/{id:path}", self.trace),
            Route("/sql", self.sql, methods=["GET"]),
            Route("/sql", self.ask, methods=["POST"]),
            Route("/sql/{key}.csv", self.csv),
            Route("/sql/{key}", self.answer),
            Route("/refresh", self.refresh, methods=["POST"]),
            Route("/static/{name}", self.static),
        ]
        handlers: Mapping[Any, Any] = {
            404: self._nothing, 405: self._nothing, RagtraceError: self._sorry, duckdb.Error: self._sorry,
            500: self._broken,
        }  # fmt: skip
        return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan), address, token)

    def home(self, _: Request) -> Response:
        """The verdict matrix, each with the traces that show it."""
        try:
            found = self._index.verdicts.result(timeout=_SOON)
        except NotYet:
            return self._page("waiting", "verdicts", 200)
        columns: list[str | None] = [*HOOKS]
        if any(row["hook"] is None for row in found.rows):
            columns.append(None)
        return self._page(
            "verdicts", "verdicts", matrix=arranged.matrix(found.rows), columns=columns, traces=found.traces,
            alarms=arranged.alarms(found.rows),
        )  # fmt: skip

    def traces(self, request: Request) -> Response:
        """The list."""
        asked = searching.Filters.of(request.query_params)
        if asked.bypassed or asked.status == "bypassed":
            try:
                self._index.verdicts.result(timeout=_SOON)
            except NotYet:
                return self._page("waiting", "traces", 200)
        found = searching.find(self._index, self._store, asked)
        return self._page("traces", "traces", asked=asked, found=found, names=self._index.names, many=_MANY)

    def trace(self, request: Request) -> Response:
        """One trace."""
        id, page = request.path_params["id"], _number(request, "page")
        found = trace.read(self._index, self._store, id, page, self._show)
        if found is None:
            return self._told(
                f"No trace {id!r} is in this database. It may be in the spool still: refresh. Or it was deleted.", 404
            )
        return self._page("trace", "traces", trace=found, grave=[r for r in found.coverage if not r["ran"]])

    def sql(self, request: Request) -> Response:
        """The box, with a saved question in it where one is asked for."""
        name = request.query_params.get("question")
        question = questions.load().get(name) if name else None
        if name and question is None:
            raise UsageError(f"no question is called {name!r}; take one from the list")
        return self._boxed(question.sql if question else _FIRST, question=question)

    async def ask(self, request: Request) -> Response:
        """Asks what stands in the box."""
        form = await _form(request)
        question = questions.load().get(form.get("question", ""))
        sql = form.get("sql", "")
        values = {}
        try:
            if not sql.strip():
                raise UsageError("the box is empty; expected one question: SELECT, FROM, DESCRIBE, SHOW or EXPLAIN")
            if question is not None and question.parameters:
                values = question.bound([f"{k}={v}" for k, v in numbered(form).items() if v.strip()])
                values = {k: v for k, v in values.items() if f"${k}" in sql}
            names = {name for known in self._index.names.values() for name in known}
            key = await run_in_threadpool(self._box.ask, sql, values, names | _WORDS)
        except UsageError as error:
            return self._boxed(sql, str(error), 400, question, numbered(form))
        return RedirectResponse(f"/sql/{key}", 303)

    def answer(self, request: Request) -> Response:
        """A page of an answer."""
        found = self._box.answer(request.path_params["key"])
        if found is None:
            return self._told("This answer is no longer kept: only the last few are. Ask again.", 404)
        page, pages = _number(request, "page"), max(1, -(-len(found.rows) // PAGE))
        return self._boxed(
            found.sql, answer=found, rows=found.rows[(page - 1) * PAGE : page * PAGE], page=page, pages=pages,
            key=request.path_params["key"],
        )  # fmt: skip

    def csv(self, request: Request) -> Response:
        """The same as a file."""
        found = self._box.answer(request.path_params["key"])
        if found is None:
            return self._told("This answer is no longer kept: only the last few are. Ask again.", 404)
        named = {"Content-Disposition": 'attachment; filename="answer.csv"'}
        return Response(found.csv(), media_type="text/csv; charset=utf-8", headers=named)

    def refresh(self, _: Request) -> Response:
        """Merges the spool, and reads the store anew."""
        self._left = self._store.merge()
        self._index.abandoned.set()
        self._index = started(self._store, self._pool)
        return RedirectResponse("/traces", 303)

    def static(self, request: Request) -> Response:
        """Files of ours."""
        found = asset(request.path_params["name"])
        if found is None:
            return Response(status_code=404)
        return Response(found[0], media_type=found[1])

    def _boxed(
        self, sql: str, error: str | None = None, status: int = 200, question: questions.Question | None = None,
        given: Mapping[str, str] | None = None, **more: Any,
    ) -> Response:  # fmt: skip
        return self._page(
            "sql", "sql", status, sql=sql, error=error, question=question, given=given or {},
            saved=questions.load().values(), **({"answer": None} | more),
        )  # fmt: skip

    def _page(self, name: str, tab: str, status: int = 200, **values: Any) -> Response:
        index = self._index
        return HTMLResponse(
            self._pages.render(name, tab=tab, index=index, left=self._left, waiting=self._store.waiting(), **values),
            status,
        )

    def _told(self, text: str, status: int) -> Response:
        return self._page("message", "", status, text=text)

    def _sorry(self, _: Request, error: Exception) -> Response:
        if isinstance(error, duckdb.Error):
            error = failed(self._store.path, error)
        return self._told(str(error), 503 if isinstance(error, StoreError) else 400)

    def _broken(self, _: Request, error: Exception) -> Response:
        return self._told(  # by its kind alone: its text might quote a trace
            f"The viewer failed on this ({type(error).__name__}). Please report it, with what you asked for.", 500
        )

    def _nothing(self, _: Request, __: Exception) -> Response:
        return self._told("There is no such page.", 404)


_MANY = 200  # names that a list to choose from holds
_WORDS = frozenset((*HOOKS, *searching.STATUSES, *arranged.ORDER, "OK", "ERROR", "UNSET", "true", "false"))


def _number(request: Request, name: str) -> int:
    told = request.query_params.get(name, "1")
    if not (told.isascii() and told.isdigit() and 0 < int(told[:6]) < 100_000):
        raise UsageError(f"{name} {told!r}; expected a number from 1")
    return int(told[:6])


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _BODY:
            raise UsageError(f"a form of more than {_BODY} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise UsageError("that is no form") from error
