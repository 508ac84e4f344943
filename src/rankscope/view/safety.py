"""Who may ask: only pages of this server, opened by somebody who knows its token.

A web page elsewhere can make a browser ask a server on this machine. It cannot read the token, set
the Host header, or send the cookie, which is for this site alone. Each rule is enough by itself.
"""

import secrets
from collections.abc import Collection, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",  # the first address holds the token
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
LOCKED = (
    "<!doctype html><meta charset=utf-8><title>rankscope</title>"
    "<p>This page needs the whole address that <code>rankscope view</code> printed, with its "
    "token. Paste it into the address bar."
)


@dataclass(frozen=True)
class Gate:
    """The rules of one server. hosts: names, besides those of loopback, that it answers to."""

    port: int
    hosts: Collection[str] = ()
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """Name of the cookie. Cookies ignore ports, so it holds the port."""
        return f"rankscope_token_{self.port}"

    @property
    def authorities(self) -> set[str]:
        """Values that the Host header may have."""
        names = {f"{host}:{self.port}" for host in (*LOOPBACK, *self.hosts)}
        return names | ({*LOOPBACK, *self.hosts} if self.port == 80 else set())

    def refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is refused; None if it may pass."""
        headers = Headers(scope=scope)
        if headers.getlist("host") not in [[name] for name in self.authorities]:
            return refused(421, "this server answers to its loopback address alone")
        if scope["method"] not in ("GET", "HEAD"):
            return refused(405, "this server only shows runs; it takes no changes")
        origins = headers.getlist("origin")
        if origins and origins not in [[f"http://{name}"] for name in self.authorities]:
            return refused(403, "pages of other origins may not ask here")
        if not {*headers.getlist("sec-fetch-site")} <= {"same-origin", "none"}:
            return refused(403, "paste the address into the address bar; links from pages fail")
        return self._unlocked(scope, headers)

    def _unlocked(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] == "/":
            pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            tokens = [value for name, value in pairs if name == "token"]
            if tokens and self._is_token(tokens[0]):
                rest = urlencode([pair for pair in pairs if pair[0] != "token"])
                answer = RedirectResponse("/" + (f"?{rest}" if rest else ""), status_code=303)
                answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
                return answer
        if self._is_token(cookie_parser(headers.get("cookie", "")).get(self.cookie, "")):
            return None
        if scope["path"].startswith("/api"):
            return refused(
                401, "open the whole address that rankscope view printed, with its token"
            )
        return HTMLResponse(LOCKED, status_code=401)

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self.token.encode())


class Guarded:
    """An application behind a gate; every answer gets the headers that keep it to this page."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app, self._gate = app, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets; lifespan is off
        refusal = self._gate.refusal(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _harden(message)
            await send(message)

        await (self._app if refusal is None else refusal)(scope, receive, guarded)


def _harden(message: MutableMapping[str, Any]) -> None:
    headers = MutableHeaders(raw=list(message.get("headers", [])))
    for name, value in HEADERS.items():
        headers[name] = value
    message["headers"] = headers.raw


def refused(status: int, sentence: str) -> Response:
    """Return an answer that says in one sentence why there is no other."""
    return JSONResponse({"error": sentence}, status_code=status)
