"""Access control: known hosts, same origin, and a token for requests from other machines.

A page of another site, open in the same browser, can send requests to this machine. It cannot name our host (checked
against DNS rebinding), and it cannot hide its origin (browsers send it).
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
OURS = ("same-origin", "none")  # Sec-Fetch-Site of a request by our own page, or by its user
LONGEST = 200  # characters of a token that is tried
TOKEN_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fleetlab</title><link rel="stylesheet" href="/static/page.css"></head>
<body class="token"><main><h1>fleetlab</h1><form method="post" action="/token">
<label for="token">Token</label> <input id="token" name="token" type="password" autocomplete="off" required autofocus>
<input type="hidden" name="to" value="{to}"> <button>Enter</button></form>
<p>The terminal in which <code>fleetlab web</code> was started shows it.{error}</p></main></body></html>
"""


@dataclass(frozen=True)
class Guard:
    """The access rules of one page; `token` is None where only this machine can reach it."""

    hosts: frozenset[str]
    token: str | None = None
    cookie: str = "fleetlab"

    @classmethod
    def of(cls, listening: socket.socket, host: str) -> Guard:
        """Build one for a listening socket; other than on loopback, with a new token."""
        address, port = listening.getsockname()[:2]
        if is_loopback(address):
            names = {"localhost", "127.0.0.1", "[::1]", address if ":" not in address else f"[{address}]"}
            return cls(frozenset(f"{name}:{port}" for name in names))
        own = {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower(), "localhost"}
        hosts = frozenset(f"{name}:{port}" for name in own)
        return cls(hosts, secrets.token_urlsafe(24), f"fleetlab-{port}")

    def before(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application: check its requests, and add security headers to its responses."""

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

            handler = self._refusal(request) or self._sign_in(request) or app
            await handler(scope, receive, with_headers)

        return guarded

    def _headers(self, request: Request) -> dict[str, str]:
        return HEADERS | ({"Cache-Control": "no-store"} if request.url.path.startswith("/api/") else {})

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").lower()
        if not self._is_ours(host):
            return error_response(421, f"not a host name of this page: `{host[:100]}`", "use the printed address")
        site = request.headers.get("sec-fetch-site", "none")
        visit = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
        if site not in OURS and not (visit and request.url.path == "/"):
            return error_response(403, "a page of another site sent this request", "open the page itself")
        origin = request.headers.get("origin")
        if request.method not in SAFE and origin is not None and urlsplit(origin).netloc.lower() != host:
            return error_response(403, "a page of another site sent this request", "open the page itself")
        return None

    def _is_ours(self, host: str) -> bool:
        # DNS rebinding needs a name; an IP address is safe. It needs a token all the same.
        return host in self.hosts or (self.token is not None and _is_address(host))

    def _sign_in(self, request: Request) -> Response | None:
        """Ask for the token, or take it from the address and set a cookie; None if the request has it."""
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
            return self._signed_in(f"/?{rest}" if rest else "/")
        if request.url.path == "/":
            return token_form(request.url.query)
        return error_response(401, "the token is missing or wrong", "send the header `Authorization: Bearer TOKEN`")

    def _right(self, given: str) -> bool:
        # In constant time: how long it takes must not tell how much of it was right.
        return hmac.compare_digest(given[:LONGEST].encode(), str(self.token).encode())

    async def enter(self, request: Request) -> Response:
        """Check a token from the form."""
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > 20_000:
                return error_response(413, "not a token", "the server printed it when it was started")
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        to = form.get("to", "")
        if self.token is not None and self._right(form.get("token", "")):
            return self._signed_in(f"/?{to}" if to else "/")
        return token_form(to, " Wrong token.")

    def _signed_in(self, to: str) -> Response:
        """Redirect to the page, with a cookie that no script sees and no other site sends."""
        response = RedirectResponse(to, 303)
        response.set_cookie(self.cookie, str(self.token), httponly=True, samesite="strict", path="/")
        return response


def token_form(to: str, error: str = "") -> Response:
    """Return the page that asks for the token."""
    from html import escape

    return HTMLResponse(TOKEN_PAGE.format(to=escape(to, quote=True), error=error), 401)


def error_response(status: int, error: str, hint: str | None) -> Response:
    """Return an error of the HTTP interface."""
    return JSONResponse({"error": error, "hint": hint}, status)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
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
