"""Summarize the steps of a tenant inside a measurement window: rate, step times, utilization, starvation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.loops import StepLog
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError
from fleetlab.stats import design_effect


@dataclass(frozen=True, slots=True)
class DriveWindow:
    """Times on the monotonic clock for a workload that drives itself: it runs from `start` until `until`."""

    start: float
    opens: float  # what is due or done from here
    closes: float  # to here is measured
    until: float
    seed: int = 0


PERCENTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
PARTS = 10  # parts of a window, to check that it was steady


def summarize_window(fed: StepLog, opens: float, closes: float) -> dict[str, Any]:
    """Rate inside the window, in total and by tenth, and the times of the steps inside."""
    begun, ended, items = (np.asarray(x, float) for x in (fed.begun, fed.ended, fed.items))
    edges = np.linspace(opens, closes, PARTS + 1)
    done = _done_by(edges, begun, ended, items)
    # A scheduled step belongs to its scheduled time: one that a stall delays past the window must still count.
    by = begun if fed.lags else ended
    inside = (by >= opens) & (by < closes)
    took = (ended - begun)[inside]
    times = Histogram.of(took)
    # Step times in one queue are autocorrelated: the design effect is kept, because a histogram loses the order.
    clumps = (
        {name: design_effect(took > np.quantile(took, p)) if took.size else 1.0 for name, p in PERCENTILES}
        if fed.lags
        else {}
    )
    return {
        "rate": float((done[-1] - done[0]) / (closes - opens)),
        "rates": [float(f"{r:.5g}") for r in np.diff(done) / np.diff(edges)],
        "items": int(items[inside].sum()),
        "steps": int(inside.sum()),
        "busy": float(f"{_busy(begun, ended, opens, closes):.4g}"),
        "starved": fed.starved / max(len(ended), 1),
        "times": times.to_json(),
        **_percentiles(times, clumps),
        **({"clumps": {name: round(c, 2) for name, c in clumps.items()}} if clumps else {}),
        **({"offered": int(((due := np.asarray(fed.due)) >= opens).sum() - (due >= closes).sum())} if fed.due else {}),
        **({"lag": Histogram.of(fed.lags).to_json(), "unsent": fed.unsent} if fed.lags or fed.unsent else {}),
    }


def _done_by(edges: NDArray[Any], begun: NDArray[Any], ended: NDArray[Any], items: NDArray[Any]) -> NDArray[Any]:
    """Items done by each time, spread evenly over the time of their step: the window may cut through steps."""
    if not ended.size:
        return np.zeros(len(edges))
    # Steps of one stream end in order, but scheduled steps wait for each other: count from the end of the previous one.
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    at = np.column_stack((taken, np.maximum(ended, taken))).ravel()
    total = np.cumsum(np.column_stack((np.zeros(len(items)), items)).ravel())
    done: NDArray[Any] = np.interp(edges, at, total)
    return done


def _busy(begun: NDArray[Any], ended: NDArray[Any], opens: float, closes: float) -> float:
    """Fraction of the window in which a step was running."""
    if not ended.size:
        return 0.0
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    under_way = np.clip(ended, opens, closes) - np.clip(taken, opens, closes)
    return float(np.maximum(under_way, 0).sum() / (closes - opens))


def _percentiles(times: Histogram, clumps: dict[str, float]) -> dict[str, Any]:
    percentiles: dict[str, Any] = {}
    for name, p in PERCENTILES:
        try:
            percentiles[name] = [
                float(f"{x:.4g}") for x in percentile(times, p, effective_n=times.n / clumps.get(name, 1.0))
            ]
        except BenchError as e:
            percentiles[name] = str(e)
    return percentiles
