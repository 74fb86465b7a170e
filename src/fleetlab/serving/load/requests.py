"""The record of every request, in compact arrays: there may be millions."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Outcomes of a request. `stopped` was unfinished when the user stopped the load.
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
class Requests:
    """Requests in scheduled order; times are in seconds from the start."""

    due: NDArray[np.float64]
    begun: NDArray[np.float64]  # when the generator started it: late by its lag
    sent: NDArray[np.float64]  # when it got a connection; NaN if never
    first: NDArray[np.float64]  # when the response headers arrived; NaN if never
    done: NDArray[np.float64]
    outcome: NDArray[np.int8]
    status: NDArray[np.int16]  # HTTP status; 0 if none
    queued: NDArray[np.bool_]  # waited for a connection
    # Of a language model: tokens of prompt and output, that came; when the first and the last came. Else no columns.
    tokens: NDArray[np.float64]

    def where(self, mask: NDArray[Any]) -> Requests:
        """Select requests."""
        return Requests(**{f.name: getattr(self, f.name)[mask] for f in fields(self)})

    @property
    def latency(self) -> NDArray[np.float64]:
        """Latency from the scheduled time, not from sending: a stall also delays the requests behind it."""
        latency: NDArray[np.float64] = np.maximum(self.done - self.due, 0)
        return latency

    @property
    def lag(self) -> NDArray[np.float64]:
        """Lag of the generator."""
        lag: NDArray[np.float64] = np.maximum(self.begun - self.due, 0)
        return lag


class RequestLog:
    """Records requests as they end."""

    def __init__(self) -> None:
        self._times = array("d")  # five per request
        self._ends = array("h")  # three per request
        self._tokens = array("d")  # five per request, if it has tokens
        self._gaps = array("d")  # due time and s between two tokens, in turn

    def __len__(self) -> int:
        return len(self._ends) // 3

    def write(self, times: tuple[float, float, float, float, float], ends: tuple[int, int, int]) -> None:
        """Add a request: due, begun, sent, first and done; outcome, status and queued."""
        self._times.extend(times)
        self._ends.extend(ends)

    def write_tokens(self, due: float, tokens: tuple[float, float, float, float, float], gaps: list[float]) -> None:
        """Add the tokens of the request that `write` added last."""
        self._tokens.extend(tokens)
        for gap in gaps:
            self._gaps.extend((due, gap))

    def gaps(self, begin: float, opens: float, closes: float) -> NDArray[np.float64]:
        """Times between two tokens of a request that was due in a window."""
        due, gaps = np.array(self._gaps).reshape(-1, 2).T
        return np.asarray(gaps[(due - begin >= opens) & (due - begin < closes)])

    def rows(self, begin: float) -> Requests:
        """All requests, with times relative to `begin`."""
        times = np.array(self._times).reshape(-1, 5) - begin
        ends = np.array(self._ends).reshape(-1, 3)
        order = np.argsort(times[:, 0], kind="stable")
        due, begun, sent, first, done = times[order].T
        outcome, status, queued = ends[order].T
        tokens = np.array(self._tokens).reshape(len(self), -1) if len(self) else np.empty((0, 0))
        if tokens.shape[1]:
            tokens[:, 3:] -= begin
        ends_ = outcome.astype(np.int8), status, queued.astype(bool)
        return Requests(due, begun, sent, first, done, *ends_, tokens[order])
