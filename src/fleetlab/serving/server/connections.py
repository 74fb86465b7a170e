"""Connections that end: one that dribbles its headers, or goes on sending what nobody reads, is closed.

uvicorn bounds how long a connection may idle between requests, but not how long a request may take to come.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from fleetlab.serving.server.app import CLOSE, GONE, JSON
from fleetlab.serving.server.counts import Counts
from fleetlab.serving.server.limits import Limits
from fleetlab.serving.server.refusals import words

HARD = 2  # times as many connections as may ask: so many are told so, more are cut


class Connection(H11Protocol):
    """One client's."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits,
        counts: Counts,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits, self._counts = limits, counts
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A crowded one may ask how the server is doing, but not for predictions."""
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
        """Whoever computes for it hears of it."""
        super().connection_lost(exc)
        self._disarm()
        self._counts.connections["open"] = len(self.connections)
        if self.scope and (gone := self.scope.get(GONE)):
            gone()  # type: ignore[operator]

    def data_received(self, data: bytes) -> None:
        """A request must come within the time; once it is there, its body has a time of its own."""
        super().data_received(data)
        if self.cycle and not self.cycle.response_complete:
            self._disarm()
        elif self._limit is None and not self.transport.is_closing() and self._unfinished():
            self._arm()

    def on_response_complete(self) -> None:
        """What was refused before all of it came is read on for a while, so that the client sees the refusal."""
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
            self._end(408, f"the request did not come within {seconds}", "send its headers at once")
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Not HTTP."""
        self._counts.connections["broken"] += 1
        self._end(400, "not an HTTP request", "this server speaks HTTP/1.1")
        self.transport.close()

    def _end(self, status: int, error: str, hint: str) -> None:
        """The last words on this connection, if it can still be spoken on."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        body = words(error, hint, "slow" if status == 408 else "malformed")
        headers = [JSON, (b"content-length", b"%d" % len(body)), CLOSE]
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
