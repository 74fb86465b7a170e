"""What the server answers at each address: predictions, and how it is doing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from fleetlab.serving.server.batcher import Answer, Ask, Batcher
from fleetlab.serving.server.counts import Counts
from fleetlab.serving.server.inputs import inputs_of
from fleetlab.serving.server.limits import Limits
from fleetlab.serving.server.metrics import Books, exposition
from fleetlab.serving.server.refusals import Refusal, gone, words

if TYPE_CHECKING:
    from fleetlab.serving.server.models import Engine

Headers = list[tuple[bytes, bytes]]
JSON = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")
GONE = "fleetlab.gone"  # what a connection calls when its client goes away


@dataclass
class Desk:
    """What every request looks at."""

    work: str
    device: str
    limits: Limits
    counts: Counts
    batcher: Batcher
    draining: bool = False

    def engine(self) -> Engine:
        """Ready to answer, or refuse."""
        if self.draining:
            msg = "the server is shutting down"
            raise Refusal(msg, "draining", hint="ask another one")
        if self.batcher.engine is None:
            msg = f"{self.work} is being loaded"
            raise Refusal(msg, "not-ready", hint="ask /ready")
        return self.batcher.engine


class Predict:
    """`POST /predict` and, with `many`, `POST /predict/batch`."""

    def __init__(self, desk: Desk, *, many: bool) -> None:
        self._desk, self._many = desk, many

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer once, count once."""
        if scope["method"] != "POST":
            await _not_taken(scope, send, b"POST")
            return
        began, counts = time.monotonic(), self._desk.counts
        counts.begin()
        try:
            found = await self._found(scope, receive)
        except asyncio.CancelledError:
            counts.end("gone", 0)
            raise
        finally:
            scope.pop(GONE, None)
        why = found.reason if isinstance(found, Refusal) else None
        counts.end(why, time.monotonic() - began)
        close = [CLOSE] if self._desk.draining or why == "slow" else []
        if not isinstance(found, Refusal):
            await _send(send, 200, _body(found, many=self._many), close)
        elif why != "gone":
            await _send(send, found.status, found.body(), [*found.headers(), *close])

    async def _found(self, scope: Scope, receive: Receive) -> list[Answer] | Refusal:
        try:
            return await self._answers(scope, receive)
        except Refusal as e:
            return e.with_traceback(None)  # which would hold this frame, and this frame holds it
        except Exception as e:  # a slip of ours must be answered and counted too
            return Refusal(f"the server failed: {type(e).__name__}: {str(e)[:200]}", "internal")

    async def _answers(self, scope: Scope, receive: Receive) -> list[Answer]:
        desk = self._desk
        if "crowded" in scope["state"]:
            msg = f"more than {desk.limits.connections} connections"
            raise Refusal(msg, "connections", hint="use fewer, and keep them")
        engine = desk.engine()
        desk.batcher.room_for(1)  # before the body is read: that is work too
        body, kind = await self._read(scope, receive)
        inputs = inputs_of(body, kind, engine.shape, many=self._many, most=desk.limits.queue)
        desk.engine()  # it may have begun to shut down meanwhile
        ask: Ask = desk.batcher.put(inputs)
        desk.counts.accepted += 1
        scope[GONE] = ask.gone
        return await ask.done

    async def _read(self, scope: Scope, receive: Receive) -> tuple[bytes, bytes]:
        """The body and its type."""
        limits, kind = self._desk.limits, b""
        for name, value in scope["headers"]:
            if name == b"content-type":
                kind = value
            elif name == b"content-length" and int(value) > limits.most_bytes:
                raise _too_large(limits)
        try:
            async with asyncio.timeout(limits.body_timeout):
                return await _whole(receive, limits), kind
        except TimeoutError:
            msg = f"the body did not come within {limits.body_timeout:g} s"
            raise Refusal(msg, "slow", hint="send it at once") from None


async def _whole(receive: Receive, limits: Limits) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise gone()
        parts.append(message["body"])
        size, more = size + len(message["body"]), message["more_body"]
        if size > limits.most_bytes:
            raise _too_large(limits)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _too_large(limits: Limits) -> Refusal:
    msg = f"a body of more than {limits.max_body:g} MiB"
    return Refusal(msg, "too-large", hint="send fewer inputs at once, or raw ones; --max-body sets the limit")


def _body(answers: Sequence[Answer], *, many: bool) -> bytes:
    said = b", ".join(
        b'{"class": %d, "batch": %d, "queue_ms": %.3f, "compute_ms": %.3f}'
        % (a.found, a.batch, 1000 * a.queue, 1000 * a.compute)
        for a in answers
    )
    return b'{"answers": [%b]}' % said if many else said


async def _send(send: Send, status: int, body: bytes, headers: Headers) -> None:
    headers = [JSON, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Tell:
    """`GET` what is known at once."""

    def __init__(self, say: Callable[[], Response]) -> None:
        self._say = say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Or why not."""
        if scope["method"] not in ("GET", "HEAD"):
            await _not_taken(scope, send, b"GET")
            return
        try:
            await self._say()(scope, receive, send)
        except Refusal as e:
            await _send(send, e.status, e.body(), e.headers())


def app(desk: Desk) -> Router:
    """Every address; a bare router, because layers above it would cost a tenth of each request."""
    metrics = exposition([Books(desk.counts, lambda: len(desk.batcher))])

    def ready() -> Response:
        desk.engine()
        if desk.batcher.stuck:
            msg = f"nothing was computed for more than {desk.limits.deadline:g} s, though something waits"
            raise Refusal(msg, "stuck", hint="its model may hang: restart the server")
        return JSONResponse({"ready": True})

    routes = [
        Route("/predict", Predict(desk, many=False)),
        Route("/predict/batch", Predict(desk, many=True)),
        Route("/health", Tell(lambda: JSONResponse({"alive": True}))),
        Route("/ready", Tell(ready)),
        Route("/stats", Tell(lambda: JSONResponse(_about(desk)))),
        Route("/metrics", Tell(lambda: Response(metrics(), media_type="text/plain; version=0.0.4"))),
    ]
    return Router(routes, redirect_slashes=False, default=_nowhere)


def _about(desk: Desk) -> dict[str, Any]:
    engine = desk.batcher.engine
    return {
        "work": desk.work,
        "device": desk.device,
        "how": engine.how if engine else "",
        "ready": engine is not None and not desk.draining,
        "queue": len(desk.batcher),
        **desk.counts.about(),
        **(engine.memory() if engine else {}),
    }


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    hint = "there are /predict, /predict/batch, /health, /ready, /stats and /metrics"
    await _send(send, 404, words("nothing at this address", hint, "address"), [])


async def _not_taken(scope: Scope, send: Send, allowed: bytes) -> None:
    error = f"{scope['path']} does not take {scope['method']}"
    await _send(send, 405, words(error, f"ask with {allowed.decode()}", "method"), [(b"allow", allowed)])
