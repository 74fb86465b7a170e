"""Connections with time limits: a client that is slow, silent or gone holds nothing that another one needs.

uvicorn limits the idle time between requests, but neither the time in which a request arrives nor that in which an
answer is read; and its limit of connections answers everybody with 503 while somebody holds many. Here a request that
does not arrive is dropped, and of too many connections those go first that have sent no whole request.
"""

from __future__ import annotations

import asyncio
import json
import resource
from dataclasses import dataclass, field
from typing import Any

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

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
