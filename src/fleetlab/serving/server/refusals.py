"""Why a request was not answered: each reason has one status and one name, the same in answers, counts and metrics."""

from __future__ import annotations

import json
from typing import NamedTuple


class Kind(NamedTuple):
    """What a reason means to a client."""

    status: int
    group: str  # refused: not taken on, or too late; failed: taken on, and went wrong
    again: int = 0  # s after which it may help to ask again


REASONS = {
    "malformed": Kind(400, "refused"),
    "slow": Kind(408, "refused"),
    "too-large": Kind(413, "refused"),
    "queue-full": Kind(429, "refused", 1),
    "not-ready": Kind(503, "refused", 1),
    "draining": Kind(503, "refused", 5),
    "deadline": Kind(503, "refused", 1),
    "connections": Kind(503, "refused", 1),
    "out-of-memory": Kind(503, "failed", 1),
    "stuck": Kind(503, "failed", 5),
    "model": Kind(500, "failed"),
    "internal": Kind(500, "failed"),
    "gone": Kind(499, "failed"),  # the client went away: nobody reads this status
}


class Refusal(Exception):
    """No answer, and why; the message says what and which, the hint what to do next."""

    def __init__(self, error: str, reason: str, *, hint: str = "") -> None:
        super().__init__(error)
        self.error, self.reason, self.hint = error, reason, hint

    @property
    def status(self) -> int:
        """Of the answer."""
        return REASONS[self.reason].status

    def body(self) -> bytes:
        """For the client."""
        return words(self.error, self.hint, self.reason)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Beside its body."""
        again = REASONS[self.reason].again
        return [(b"retry-after", b"%d" % again)] if again else []


def words(error: str, hint: str, reason: str) -> bytes:
    """What every client that is not answered reads."""
    return json.dumps({"error": error, "hint": hint, "reason": reason}).encode()


def malformed(error: str, hint: str = "") -> Refusal:
    """A request that cannot be understood."""
    return Refusal(error, "malformed", hint=hint)


def gone() -> Refusal:
    """A request that nobody waits for."""
    return Refusal("the client went away", "gone")
