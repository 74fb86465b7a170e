"""Connections with time limits: one that sends its request too slowly, or sends data that is not read, is closed.

uvicorn limits the idle time between requests, but not the time that a request takes to arrive.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fleetlab.serving.server.app import CLOSE, GONE, JSON
from fleetlab.serving.server.counts import ServerCounts
from fleetlab.serving.server.errors import error_body
from fleetlab.serving.server.limits import ServerLimits

HARD = 2  # connections beyond this multiple of the limit are closed without an answer


class Connection(H11Protocol):
    """A connection of one client."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
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
