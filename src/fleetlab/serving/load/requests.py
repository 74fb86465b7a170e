"""What came of each request: one line each, kept small, because there may be a million."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A request has one of these ends. `stopped` was still under way when the user stopped the load.
OUTCOMES = (
    "answered",
    "refused",
    "client-error",
    "server-error",
    "timeout",
    "reset",
    "unreachable",
    "garbled",
    "stopped",
)
ANSWERED, REFUSED, CLIENT_ERROR, SERVER_ERROR, TIMEOUT, RESET, UNREACHABLE, GARBLED, STOPPED = range(len(OUTCOMES))
FAILED = (CLIENT_ERROR, SERVER_ERROR, TIMEOUT, RESET, UNREACHABLE, GARBLED)


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests in the order in which they were due; times are seconds from the start."""

    due: NDArray[np.float64]
    begun: NDArray[np.float64]  # when the generator took it up: late by its lag
    sent: NDArray[np.float64]  # when there was a connection for it; NaN if never
    first: NDArray[np.float64]  # when the head of an answer came; NaN if none did
    done: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]  # of HTTP; 0 if none came
    queued: NDArray[np.bool_]  # found no free connection

    def where(self, mask: NDArray[Any]) -> Rows:
        """Some of them."""
        return Rows(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    @property
    def latency(self) -> NDArray[np.float64]:
        """From when it was due, not from when it was sent: a server that stalls also delays those behind."""
        latency: NDArray[np.float64] = np.maximum(self.done - self.due, 0)
        return latency

    @property
    def lag(self) -> NDArray[np.float64]:
        """How late the generator was."""
        lag: NDArray[np.float64] = np.maximum(self.begun - self.due, 0)
        return lag


class Book:
    """Where requests are written down as they end."""

    def __init__(self) -> None:
        self._times = array("d")  # five a request
        self._ends = array("h")  # three a request

    def __len__(self) -> int:
        return len(self._ends) // 3

    def write(self, times: tuple[float, float, float, float, float], ends: tuple[int, int, int]) -> None:
        """Due, begun, sent, first and done; outcome, status and queued."""
        self._times.extend(times)
        self._ends.extend(ends)

    def rows(self, begin: float) -> Rows:
        """All of them, with times from `begin` on."""
        times = np.array(self._times).reshape(-1, 5) - begin
        ends = np.array(self._ends).reshape(-1, 3)
        order = np.argsort(times[:, 0], kind="stable")
        due, begun, sent, first, done = times[order].T
        outcome, status, queued = ends[order].T
        return Rows(due, begun, sent, first, done, outcome.astype(np.int8), status, queued.astype(bool))
