"""The HTTP routes: predictions, health, statistics and metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client.registry import Collector
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from fleetlab.serving.server.batcher import Batcher, PendingPrediction, Prediction
from fleetlab.serving.server.counts import ServerCounts
from fleetlab.serving.server.errors import RequestError, client_gone, error_body
from fleetlab.serving.server.generator import TokenGenerator
from fleetlab.serving.server.hosts import KnownHosts
from fleetlab.serving.server.inputs import parse_inputs
from fleetlab.serving.server.limits import ServerLimits
from fleetlab.serving.server.metrics import ServerMetrics, exposition

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
            msg = "the server is shutting down"
            raise RequestError(msg, "draining", hint="use another server")
        if self.batcher.engine is None:
            msg = f"{self.work} is loading"
            raise RequestError(msg, "not-ready", hint="poll /ready")
        return self.batcher.engine


class PredictRoute:
    """`POST /predict` and, with `many`, `POST /predict/batch`."""

    def __init__(self, desk: ServerState, batcher: Batcher, *, many: bool) -> None:
        self._desk, self._batcher, self._many = desk, batcher, many

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer and count a request."""
        if scope["method"] != "POST":
            await method_not_allowed(scope, send, b"POST")
            return
        began, counts = time.monotonic(), self._desk.counts
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
        close = [CLOSE] if self._desk.draining or why == "slow" else []
        if not isinstance(answer, RequestError):
            await send_json(send, 200, _body(answer, many=self._many), close)
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
        desk = self._desk
        if "crowded" in scope["state"]:
            msg = f"more than {desk.limits.connections} connections"
            raise RequestError(msg, "connections", hint="use fewer connections, and reuse them")
        engine = desk.engine()
        desk.batcher.room_for(1)  # before the body is read, which costs time
        body, kind = await read_body(scope, receive, desk.limits)
        inputs = parse_inputs(body, kind, engine.shape, many=self._many, most=desk.limits.queue)
        desk.engine()  # a shutdown may have begun meanwhile
        ask: PendingPrediction = self._batcher.put(inputs)
        desk.counts.accepted += 1
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


def _body(answers: Sequence[Prediction], *, many: bool) -> bytes:
    rows = b", ".join(
        b'{"class": %d, "batch": %d, "queue_ms": %.3f, "compute_ms": %.3f}'
        % (a.label, a.batch, 1000 * a.queue, 1000 * a.compute)
        for a in answers
    )
    return b'{"answers": [%b]}' % rows if many else rows


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


def predict_routes(desk: ServerState, batcher: Batcher) -> list[Route]:
    """Routes of a server of predictions."""
    return [
        Route("/predict", PredictRoute(desk, batcher, many=False)),
        Route("/predict/batch", PredictRoute(desk, batcher, many=True)),
    ]


def app(desk: ServerState, hosts: KnownHosts, own: list[Route], books: Sequence[Collector] = ()) -> ASGIApp:
    """The model's `own` routes and those of every server, for known hosts.

    A plain router, because middleware costs a tenth of each request.
    """
    metrics = exposition([ServerMetrics(desk.counts, lambda: len(desk.batcher)), *books])

    def ready() -> Response:
        desk.engine()
        if desk.batcher.stuck:
            msg = f"nothing was computed for more than {desk.limits.deadline:g} s, though inputs are queued"
            raise RequestError(msg, "stuck", hint="the model may hang: restart the server")
        return JSONResponse({"ready": True})

    routes = [
        *own,
        Route("/health", GetRoute(lambda: JSONResponse({"alive": True}))),
        Route("/ready", GetRoute(ready)),
        Route("/stats", GetRoute(lambda: JSONResponse(_about(desk)))),
        Route("/metrics", GetRoute(lambda: Response(metrics(), media_type="text/plain; version=0.0.4"))),
    ]
    router = Router(routes, redirect_slashes=False, default=partial(_not_found, [route.path for route in routes]))

    async def known(scope: Scope, receive: Receive, send: Send) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        await (router if host is None or hosts.accepts(host) else _unknown_host)(scope, receive, send)

    return known


def _about(desk: ServerState) -> dict[str, Any]:
    engine = desk.batcher.engine
    return {
        "work": desk.work,
        "device": desk.device,
        "how": desk.batcher.how,
        "ready": engine is not None and not desk.draining,
        "queue": len(desk.batcher),
        **desk.counts.about(),
        **desk.batcher.about(),
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
