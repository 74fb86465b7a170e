"""Who may come in: hosts that are ours, pages that are ours, and, from elsewhere than this machine, who has the token.

A page of a stranger, open in the same browser, can send requests to this machine. It cannot name our host (that is
checked against names that resolve to us by trickery), and it cannot hide that it is not ours (browsers say so).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAFE = ("GET", "HEAD", "OPTIONS")
OURS = ("same-origin", "none")  # what a browser says of a request by our own page, or by its user
LONGEST = 200  # characters of a token that somebody tries
DOOR = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fleetlab</title><link rel="stylesheet" href="/static/page.css"></head>
<body class="door"><main><h1>fleetlab</h1><form method="post" action="/token">
<label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="off" required autofocus>
<input type="hidden" name="to" value="{to}"> <button>Enter</button></form>
<p>It was printed in the terminal where <code>fleetlab web</code> was started.{said}</p></main></body></html>
"""


@dataclass(frozen=True)
class Guard:
    """The rules of one page: `token` is None where it is seen from this machine alone."""

    hosts: frozenset[str]
    token: str | None = None
    cookie: str = "fleetlab"

    @classmethod
    def of(cls, door: socket.socket, host: str) -> Guard:
        """For a page behind this socket; elsewhere than on loopback with a token of its own."""
        address, port = door.getsockname()[:2]
        if is_loopback(address):
            names = {"localhost", "127.0.0.1", "[::1]", address if ":" not in address else f"[{address}]"}
            return cls(frozenset(f"{name}:{port}" for name in names))
        own = {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower(), "localhost"}
        hosts = frozenset(f"{name}:{port}" for name in own)
        return cls(hosts, secrets.token_urlsafe(24), f"fleetlab-{port}")

    def before(self, app: ASGIApp) -> ASGIApp:
        """The page with this guard before it, who also says to the browser what the page may do."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            request = Request(scope)

            async def with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    headers = MutableHeaders(scope=message)
                    for name, value in self._headers(request).items():
                        headers.setdefault(name, value)
                await send(message)

            found = self._refusal(request) or self._unknown(request) or app
            await found(scope, receive, with_headers)

        return guarded

    def _headers(self, request: Request) -> dict[str, str]:
        return HEADERS | ({"Cache-Control": "no-store"} if request.url.path.startswith("/api/") else {})

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").lower()
        if not self._is_ours(host):
            return refusal(421, f"this page does not answer to that name: `{host[:100]}`", "use the address it printed")
        site = request.headers.get("sec-fetch-site", "none")
        visit = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
        if site not in OURS and not (visit and request.url.path == "/"):
            return refusal(403, "a page of another site asked for this", "open the page itself")
        origin = request.headers.get("origin")
        if request.method not in SAFE and origin is not None and urlsplit(origin).netloc.lower() != host:
            return refusal(403, "a page of another site asked for this", "open the page itself")
        return None

    def _is_ours(self, host: str) -> bool:
        # A name that leads here by trickery is a name: an address is none. It needs a token all the same.
        return host in self.hosts or (self.token is not None and _is_address(host))

    def _unknown(self, request: Request) -> Response | None:
        """Who has no token is asked for it; who brings it is given a cookie."""
        if self.token is None or request.url.path.startswith("/static/"):
            return None
        if request.url.path == "/token" and request.method == "POST":
            return None
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._right(request.cookies.get(self.cookie, "")) or self._right(given):
            return None
        pairs = parse_qsl(request.url.query, keep_blank_values=True)
        if request.url.path == "/" and any(name == "token" and self._right(value) for name, value in pairs):
            rest = urlencode([pair for pair in pairs if pair[0] != "token"])
            return self.welcomed(f"/?{rest}" if rest else "/")
        if request.url.path == "/":
            return asked(request.url.query)
        return refusal(401, "this needs the token of the page", "`Authorization: Bearer TOKEN`, as it was printed")

    def _right(self, given: str) -> bool:
        # In constant time: how long it takes must not tell how much of it was right.
        return hmac.compare_digest(given[:LONGEST].encode(), str(self.token).encode())

    async def enter(self, request: Request) -> Response:
        """Take a token that was typed in."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > 20_000:
                return refusal(413, "that is no token", "it was printed when the page was started")
        told = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        to = told.get("to", "")
        if self.token is not None and self._right(told.get("token", "")):
            return self.welcomed(f"/?{to}" if to else "/")
        return asked(to, said=" That was not it.", status=401)

    def welcomed(self, to: str) -> Response:
        """Send on to the page, with a cookie that no script sees and no other site sends."""
        found = RedirectResponse(to, 303)
        found.set_cookie(self.cookie, str(self.token), httponly=True, samesite="strict", path="/")
        return found


def asked(to: str, said: str = "", status: int = 401) -> Response:
    """The page that asks for the token."""
    from html import escape

    return HTMLResponse(DOOR.format(to=escape(to, quote=True), said=said), status)


def refusal(status: int, error: str, hint: str | None) -> Response:
    """An error of the interface."""
    return JSONResponse({"error": error, "hint": hint}, status)


def is_loopback(address: str) -> bool:
    """Is it seen from this machine alone?"""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
