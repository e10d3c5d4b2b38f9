"""Who may ask: nobody without the token, no page of another site, no other name for this machine."""

from __future__ import annotations

import hmac
import html
import ipaddress
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # not no-referrer, with which browsers send `Origin: null` for our own forms
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_PAGE = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    "<title>ragtrace</title>{head}</head><body><main><h1>ragtrace</h1><p>{text}</p></main></body></html>"
)
_READING = ("GET", "HEAD")
_PLAIN = 80


@dataclass(frozen=True)
class Address:
    """Where the page is served: ``host`` as it was given, which other names are right, and the port."""

    host: str
    port: int

    @property
    def everywhere(self) -> bool:
        """Whether it listens at every address of this machine."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not listened at

    def names(self) -> set[str]:
        """The values of the Host header that mean this page."""
        own = {self.host, *(("localhost",) if is_loopback(self.host) else ())}
        return {f"{bracketed(name)}:{self.port}" for name in own}

    def is_meant(self, header: str) -> bool:
        """Whether a Host header means this page. A name that somebody made lead here (DNS rebinding) does not.

        Where every address is listened at, any of them written as a number is right: a number is nobody's name.
        """
        given = header.strip().lower()
        if self.port == _PLAIN and not re.search(r":\d+$", given):
            given += f":{_PLAIN}"  # browsers leave the port of http out
        if given in self.names():
            return True
        name, colon, port = given.rpartition(":")
        if not (self.everywhere and colon and port == str(self.port)):
            return False
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


class Guard:
    """Middleware. The token comes once, in the address that was printed; then a cookie stands for it."""

    def __init__(self, app: ASGIApp, address: Address, token: str) -> None:
        self._app, self._address, self._token = app, address, token.encode()
        self._session = secrets.token_urlsafe()
        self._cookie = f"ragtrace_ui_{address.port}"  # browsers do not keep the cookies of two ports apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        answer = self._instead(Request(scope))
        await (self._app if answer is None else answer)(scope, receive, guarded)

    def _instead(self, request: Request) -> Response | None:
        """The answer to a request that goes no further."""
        hosts = request.headers.getlist("host")
        if len(hosts) != 1 or not self._address.is_meant(hosts[0]):
            return _refused("This page is not served under that name: take the address that `ragtrace ui` printed.")
        if request.method not in _READING and not _own(request, hosts[0]):
            return _refused("That came from another site's page, and is not done.")
        if request.url.path == "/" and "token" in request.query_params:
            if not hmac.compare_digest(request.query_params["token"].encode("utf-8", "replace"), self._token):
                return _refused("The token is not the one that `ragtrace ui` printed; it is new at each start.")
            return self._entered()
        given = request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._session.encode()):
            return _refused("No token: open the address that `ragtrace ui` printed, with its token.")
        return None

    def _entered(self) -> Response:
        """A page of ours that leads on. Not a redirect: after one from another site's link the cookie stays behind."""
        head = '<script src="/static/enter.js"></script>'
        answer = HTMLResponse(_PAGE.format(head=head, text='<a href="/">Go on to the traces</a>'))
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return answer


def _own(request: Request, host: str) -> bool:
    """Whether a request that does something was sent by a page of ours."""
    told = request.headers.get("origin", "")
    return told.lower() == f"http://{host.strip().lower()}" and request.headers.get(
        "sec-fetch-site", "same-origin"
    ) in ("same-origin", "none")


def _refused(text: str) -> Response:
    return HTMLResponse(_PAGE.format(head="", text=html.escape(text)), 403)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bracketed(host: str) -> str:
    """``host`` as a URL has it."""
    return f"[{host}]" if ":" in host else host
