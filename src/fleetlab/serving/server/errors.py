"""Errors of a request: each reason has one HTTP status and one name in answers, counters and metrics."""

from __future__ import annotations

import json
from typing import NamedTuple


class ErrorKind(NamedTuple):
    """HTTP status, group and retry time of a reason."""

    status: int
    group: str  # refused: not accepted, or expired; failed: accepted, but went wrong
    again: int = 0  # Retry-After, s


REASONS = {
    "malformed": ErrorKind(400, "refused"),
    "slow": ErrorKind(408, "refused"),
    "too-large": ErrorKind(413, "refused"),
    "queue-full": ErrorKind(429, "refused", 1),
    "not-ready": ErrorKind(503, "refused", 1),
    "draining": ErrorKind(503, "refused", 5),
    "deadline": ErrorKind(503, "refused", 1),
    "connections": ErrorKind(503, "refused", 1),
    "out-of-memory": ErrorKind(503, "failed", 1),
    "stuck": ErrorKind(503, "failed", 5),
    "model": ErrorKind(500, "failed"),
    "internal": ErrorKind(500, "failed"),
    "gone": ErrorKind(499, "failed"),  # the client disconnected: nobody receives this status
}


class RequestError(Exception):
    """A request without an answer; the hint says what to do."""

    def __init__(self, error: str, reason: str, *, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.reason, self.hint = error, reason, hint

    @property
    def status(self) -> int:
        """HTTP status."""
        return REASONS[self.reason].status

    def body(self) -> bytes:
        """Response body."""
        return error_body(self.error, self.hint, self.reason)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Additional response headers."""
        again = REASONS[self.reason].again
        return [(b"retry-after", b"%d" % again)] if again else []


def error_body(error: str, hint: str, reason: str) -> bytes:
    """JSON body of an error."""
    return json.dumps({"error": error, "hint": hint, "reason": reason}).encode()


def malformed(error: str, hint: str = "") -> RequestError:
    """An invalid request."""
    return RequestError(error, "malformed", hint=hint)


def client_gone() -> RequestError:
    """A request whose client disconnected."""
    return RequestError("the client disconnected", "gone")
