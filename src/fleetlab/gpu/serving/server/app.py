"""The HTTP routes: predictions, health, statistics and metrics.

uvicorn limits the idle time between requests, but not the time that a request takes to arrive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import h11
from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState as UvicornState

from fleetlab.gpu.serving.server.batcher import Batcher, PendingPrediction, Prediction
from fleetlab.gpu.serving.server.counts import ServerCounts, ServerMetrics, exposition
from fleetlab.gpu.serving.server.generator import TokenGenerator
from fleetlab.gpu.serving.server.limits import ServerLimits
from fleetlab.gpu.serving.server.requests import KnownHosts, RequestError, client_gone, error_body, parse_inputs

Headers = list[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")
GONE = "fleetlab.gone"  # callback for a client that disconnects


@dataclass
class ServerState:
    """State that all requests share."""

    work: str
    device: str
    limits: ServerLimits
    counts: ServerCounts
    batcher: Batcher | TokenGenerator
    draining: bool = False

    def engine(self) -> Any:  # noqa: ANN401  of a batcher or of a generator
        """Return the engine, or raise an error if the server is loading or stopping."""
        if self.draining:
            raise RequestError("the server is shutting down", "draining", hint="use another server")
        if self.batcher.engine is None:
            raise RequestError(f"{self.work} is loading", "not-ready", hint="poll /ready")
        return self.batcher.engine


class PredictRoute:
    """`POST /predict` and, with `many`, `POST /predict/batch`."""

    def __init__(self, state: ServerState, batcher: Batcher, *, many: bool) -> None:
        self._state, self._batcher, self._many = state, batcher, many

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer and count a request."""
        if scope["method"] != "POST":
            await method_not_allowed(scope, send, b"POST")
            return
        began, counts = time.monotonic(), self._state.counts
        counts.begin()
        try:
            answer = await self._predict_or_error(scope, receive)
        except asyncio.CancelledError:
            counts.end("gone", 0)
            raise
        finally:
            scope.pop(GONE, None)
        why = answer.reason if isinstance(answer, RequestError) else None
        counts.end(why, time.monotonic() - began)
        close = [CLOSE] if self._state.draining or why == "slow" else []
        if not isinstance(answer, RequestError):
            rows = b", ".join(
                b'{"class": %d, "batch": %d, "queue_ms": %.3f, "compute_ms": %.3f}'
                % (a.label, a.batch, 1000 * a.queue, 1000 * a.compute)
                for a in answer
            )
            await send_json(send, 200, (b'{"answers": [%b]}' % rows if self._many else rows), close)
        elif why != "gone":
            await send_json(send, answer.status, answer.body(), [*answer.headers(), *close])

    async def _predict_or_error(self, scope: Scope, receive: Receive) -> list[Prediction] | RequestError:
        try:
            return await self._answers(scope, receive)
        except RequestError as e:
            return e.with_traceback(None)  # avoid a reference cycle with this frame
        except Exception as e:  # our own bugs must be answered and counted, too
            return RequestError(f"the server failed: {type(e).__name__}: {str(e)[:200]}", "internal")

    async def _answers(self, scope: Scope, receive: Receive) -> list[Prediction]:
        state = self._state
        if "crowded" in scope["state"]:
            msg = f"more than {state.limits.connections} connections"
            raise RequestError(msg, "connections", hint="use fewer connections, and reuse them")
        engine = state.engine()
        state.batcher.room_for(1)  # before the body is read, which costs time
        body, kind = await read_body(scope, receive, state.limits)
        inputs = parse_inputs(body, kind, engine.shape, many=self._many, most=state.limits.queue)
        state.engine()  # a shutdown may have begun meanwhile
        ask: PendingPrediction = self._batcher.put(inputs)
        state.counts.accepted += 1
        scope[GONE] = ask.client_gone
        return await ask.done


async def read_body(scope: Scope, receive: Receive, limits: ServerLimits) -> tuple[bytes, bytes]:
    """Read the body and its content type, within the limits."""
    kind = b""
    for name, value in scope["headers"]:
        if name == b"content-type":
            kind = value
        elif name == b"content-length" and int(value) > limits.most_bytes:
            raise _too_large(limits)
    try:
        async with asyncio.timeout(limits.body_timeout):
            return await _whole(receive, limits), kind
    except TimeoutError:
        msg = f"the body did not arrive within {limits.body_timeout:g} s"
        raise RequestError(msg, "slow", hint="send it at once") from None


async def _whole(receive: Receive, limits: ServerLimits) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise client_gone()
        parts.append(message["body"])
        size, more = size + len(message["body"]), message["more_body"]
        if size > limits.most_bytes:
            raise _too_large(limits)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: ServerLimits) -> RequestError:
    msg = f"a body larger than {limits.max_body:g} MiB"
    return RequestError(msg, "too-large", hint="send fewer inputs at once, or raw ones; --max-body sets the limit")


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Send a whole response."""
    headers = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class GetRoute:
    """`GET` of something that is known at once."""

    def __init__(self, say: Callable[[], Response]) -> None:
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or return the error."""
        if scope["method"] not in ("GET", "HEAD"):
            await method_not_allowed(scope, send, b"GET")
            return
        try:
            await self._say()(scope, receive, send)
        except RequestError as e:
            await send_json(send, e.status, e.body(), e.headers())


def predict_routes(state: ServerState, batcher: Batcher) -> list[Route]:
    """Routes of a server of predictions."""
    return [
        Route("/predict", PredictRoute(state, batcher, many=False)),
        Route("/predict/batch", PredictRoute(state, batcher, many=True)),
    ]


def app(state: ServerState, hosts: KnownHosts, own: list[Route], books: Sequence[Collector] = ()) -> ASGIApp:
    """The model's `own` routes and those of every server, for known hosts.

    A plain router, because middleware costs a tenth of each request.
    """
    metrics = exposition([ServerMetrics(state.counts, lambda: len(state.batcher)), *books])

    def ready() -> Response:
        state.engine()
        if state.batcher.stuck:
            msg = f"nothing was computed for more than {state.limits.deadline:g} s, though inputs are queued"
            raise RequestError(msg, "stuck", hint="the model may hang: restart the server")
        return JSONResponse({"ready": True})

    routes = [
        *own,
        Route("/health", GetRoute(lambda: JSONResponse({"alive": True}))),
        Route("/ready", GetRoute(ready)),
        Route("/stats", GetRoute(lambda: JSONResponse(_about(state)))),
        Route("/metrics", GetRoute(lambda: Response(metrics(), media_type="text/plain; version=0.0.4"))),
    ]
    router = Router(routes, redirect_slashes=False, default=partial(_not_found, [route.path for route in routes]))

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        await (router if host is None or hosts.accepts(host) else _unknown_host)(scope, receive, send)

    return known


def _about(state: ServerState) -> dict[str, Any]:
    engine = state.batcher.engine
    return {
        "work": state.work,
        "device": state.device,
        "how": state.batcher.how,
        "ready": engine is not None and not state.draining,
        "queue": len(state.batcher),
        **state.counts.about(),
        **state.batcher.about(),
    }


async def _not_found(paths: list[str], scope: Scope, receive: Receive, send: Send) -> None:
    hint = f"{', '.join(paths[:-1])} or {paths[-1]}"
    await send_json(send, 404, error_body("not found", hint, "address"), [])


async def _unknown_host(scope: Scope, receive: Receive, send: Send) -> None:
    hint = "use the printed address; --allow-host NAME adds a name"
    await send_json(send, 421, error_body("not a host name of this server", hint, "host"), [CLOSE])


async def method_not_allowed(scope: Scope, send: Send, allowed: bytes) -> None:
    """Refuse a method."""
    error = f"{scope['path']} does not allow {scope['method']}"
    await send_json(send, 405, error_body(error, f"use {allowed.decode()}", "method"), [(b"allow", allowed)])


# --- connections with time limits: one that sends its request too slowly, or sends data that is not read, is closed ---


HARD = 2  # connections beyond this multiple of the limit are closed without an answer


class Connection(H11Protocol):
    """A connection of one client."""

    def __init__(
        self,
        config: Config,
        server_state: UvicornState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ServerLimits,
        counts: ServerCounts,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits, self._counts = limits, counts
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection above the limit may query the server's state, but gets no predictions."""
        super().connection_made(transport)
        self._counts.connections["open"] = here = len(self.connections)
        if here > self._limits.connections:
            self._counts.connections["crowded"] += 1
            self.app_state = {**self.app_state, "crowded": True}
        if here > HARD * self._limits.connections:
            transport.abort()
        else:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel its request."""
        super().connection_lost(exc)
        self._disarm()
        self._counts.connections["open"] = len(self.connections)
        if self.scope and (gone := self.scope.get(GONE)):
            gone()  # type: ignore[operator]

    def data_received(self, data: bytes) -> None:
        """A request must arrive within the time limit; its body has a limit of its own."""
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:
            self._disarm()
        elif self._limit is None and not self.transport.is_closing() and self._unfinished():
            self._arm()

    def on_response_complete(self) -> None:
        """After an early error keep reading for a while, so that the client receives it."""
        super().on_response_complete()
        if self._limit is None and not self.transport.is_closing() and self._unfinished():
            self._arm()

    def _unfinished(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY or bool(self.conn.trailing_data[0])

    def _arm(self) -> None:
        self._limit = self.loop.call_later(self._limits.body_timeout, self._too_slow)

    def _disarm(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _too_slow(self) -> None:
        self._limit = None
        if self.transport.is_closing() or (self.cycle and not self.cycle.response_complete):
            return
        self._counts.connections["slow"] += 1
        if self.conn.their_state is h11.IDLE:
            seconds = f"{self._limits.body_timeout:g} s"
            self._end(408, f"the request did not arrive within {seconds}", "send its headers at once")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP."""
        self._counts.connections["broken"] += 1
        self._end(400, "not an HTTP request", "this server speaks HTTP/1.1")
        self.transport.close()

    def _end(self, status: int, error: str, hint: str) -> None:
        """Send a final error, if the connection still allows it."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = error_body(error, hint, "slow" if status == 408 else "malformed")
        headers = [JSON, (b"content-length", b"%d" % len(body)), CLOSE]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
