"""Access control: known hosts, same origin, a token for requests from other machines, and time limits of connections.

A page of another site, open in the same browser, can send requests to this machine. It cannot name our host (checked
against DNS rebinding), and it cannot hide its origin (browsers send it). Ports are not checked: a forwarded port has
another number, and a browser leaves out port 80.

A client that is slow, silent or gone holds nothing that another one needs. uvicorn limits the idle time between
requests, but neither the time in which a request arrives nor that in which an answer is read; and its limit of
connections answers everybody with 503 while somebody holds many. Here a request that does not arrive is dropped, and of
too many connections those go first that have sent no whole request.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import resource
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import h11
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fleetlab.core import FleetlabError

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
UNKNOWN_HOST = "use the printed address; `fleetlab web --allow-host NAME` adds a name"
SAFE = ("GET", "HEAD", "OPTIONS")
OURS = ("same-origin", "none")  # Sec-Fetch-Site of a request by our own page, or by its user
LONGEST = 200  # characters of a token that is tried
HOST = re.compile(r"(?P<name>[a-z0-9._-]{1,253}|\[[0-9a-f:.]{2,45}\])(?P<port>:[0-9]{1,5})?")
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
    """The access rules of one page; `token` is None where only this machine can reach it.

    `hosts` are names without a port. Names and addresses of loopback always count.
    """

    hosts: frozenset[str]
    token: str | None = None
    cookie: str = "fleetlab"

    @classmethod
    def of(cls, listening: socket.socket, host: str, allowed: Sequence[str] = ()) -> Guard:
        """Build one for a listening socket; where others can reach it, with a new token.

        `allowed` are further names, as a proxy has one: whoever comes by them may come from another machine.
        """
        address, port = listening.getsockname()[:2]
        names = frozenset(check_name(name) for name in allowed)
        if is_loopback(address) and not names:
            return cls(names)
        own = {host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
        return cls(names | own, secrets.token_urlsafe(24), f"fleetlab-{port}")

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
            return error_response(421, f"not a host name of this page: `{host[:100]}`", UNKNOWN_HOST)
        site = request.headers.get("sec-fetch-site", "none")
        visit = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
        if site not in OURS and not (visit and request.url.path == "/"):
            return error_response(403, "a page of another site sent this request", "open the page itself")
        origin = request.headers.get("origin")
        if request.method not in SAFE and origin is not None and urlsplit(origin).netloc.lower() != host:
            return error_response(403, "a page of another site sent this request", "open the page itself")
        return None

    def _is_ours(self, host: str) -> bool:
        name = host_name(host)
        if name == "localhost" or name in self.hosts or is_loopback(name):
            return True
        # DNS rebinding needs a name; an IP address is safe. It needs a token all the same.
        return self.token is not None and _is_address(name)

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


def host_name(host: str) -> str:
    """Return the name or address in a Host header; nothing if it is not valid.

    >>> host_name("localhost:9000"), host_name("[::1]:80"), host_name("127.0.0.1"), host_name("localhost:80@evil")
    ('localhost', '::1', '127.0.0.1', '')
    """
    match = HOST.fullmatch(host)
    return match["name"].strip("[]") if match else ""


def check_name(name: str) -> str:
    """Return the name of a host in lower case, or refuse what is none.

    >>> check_name("Lab.example")
    'lab.example'
    """
    match = HOST.fullmatch(name.lower())
    if match is None or match["port"] is not None:
        msg = f"not the name of a host: `{name[:100]}`"
        raise FleetlabError(msg, hint="such as lab.example: a name, without http:// and without a port")
    return match["name"].strip("[]")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# -- connections -----------------------------------------------------------------------------------------------------


SPARE = 200  # open files besides connections: processes, uploads, libraries


@dataclass
class ConnectionLimits:
    """The limits of all connections of a server, and those connections that have sent no whole request."""

    most: int = 2048  # at once
    head: float = 8.0  # s in which the head of a request arrives
    body: float = 8.0  # s in which so much of its body arrives:
    least: int = 8_000  # bytes
    unread: float = 30.0  # s in which a client reads some of a long answer
    waiting: dict[asyncio.Protocol, None] = field(default_factory=dict)  # the oldest first


def allow_open_files(most: int) -> int:
    """Raise the limit of open files for so many connections; return how many connections are possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = most + SPARE
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - SPARE))


class Connection(H11Protocol):
    """A connection of one client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._arriving: asyncio.TimerHandle | None = None  # of a request, or of its body
        self._reading: asyncio.TimerHandle | None = None  # of an answer, by the client
        self._received = 0  # bytes since the timer of a body was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request; close the oldest connection that waits, if there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self._limits.most:
            oldest = next(iter(self._limits.waiting))
            if oldest is self:
                self.limit_concurrency = 0  # all the others are being answered: uvicorn answers this one with 503
            else:
                assert isinstance(oldest, Connection)
                oldest.drop("too many connections: send the whole request at once", 503)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._proceed()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start or end a time limit by what has arrived so far."""
        self._received += len(data)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was answered early."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Start the time limit for a client that does not read."""
        super().pause_writing()
        self._reading = self.loop.call_later(self._limits.unread, self.transport.abort)

    def resume_writing(self) -> None:
        """End it."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self.flow is not None:
            super().resume_writing()

    def _look(self) -> None:
        """Set the time limit by the state of the request."""
        if self.transport.is_closing():
            self._proceed()
        elif self.conn.their_state is h11.SEND_BODY:
            if self in self._limits.waiting:
                self._proceed()
            if self._arriving is None:
                self._expect_body()
        elif self.cycle is not None and not self.cycle.response_complete:
            self._proceed()
        else:
            if self not in self._limits.waiting:
                self._proceed()
            self._wait()

    def _wait(self) -> None:
        """Expect a whole request."""
        self._limits.waiting.setdefault(self)
        # uvicorn's own limit holds until the next request begins.
        if self._arriving is None and self.timeout_keep_alive_task is None:
            self._arriving = self.loop.call_later(self._limits.head, self.drop, "the request did not arrive in time")

    def _expect_body(self) -> None:
        self._received = 0
        self._arriving = self.loop.call_later(self._limits.body, self._check_body)

    def _check_body(self) -> None:
        """Go on if enough has arrived, or if we are those who are slow."""
        if self._received >= self._limits.least or (self.flow.read_paused and not self.cycle.response_complete):
            self._expect_body()
        else:
            self.drop("the request did not arrive in time")

    def _proceed(self) -> None:
        """End the time limit: a whole request is here, or the connection has ended."""
        self._limits.waiting.pop(self, None)
        if self._arriving is not None:
            self._arriving.cancel()
            self._arriving = None

    def drop(self, error: str, status: int = 408) -> None:
        """Close it, with a word if part of a request is here."""
        self._proceed()
        if self.transport.is_closing():
            return
        begun = self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])
        if begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": error, "hint": "send it again"}).encode()
            about = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            head = h11.Response(status_code=status, headers=list(about.items()))
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what the application answers later is not sent
            self.cycle.message_event.set()
        self.transport.close()
