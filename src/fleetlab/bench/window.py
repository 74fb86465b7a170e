"""What a tenant did inside a window: rates, step times, and how much of it the host was to blame for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.loops import Fed
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError
from fleetlab.stats import design_effect

AT = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
PARTS = 10  # of a window, to see whether it was steady


def tally(fed: Fed, opens: float, closes: float) -> dict[str, Any]:
    """Items a second inside the window, in all and in each tenth, and the times of the steps inside."""
    begun, ended, items = (np.asarray(x, float) for x in (fed.begun, fed.ended, fed.items))
    edges = np.linspace(opens, closes, PARTS + 1)
    done = _done_by(edges, begun, ended, items)
    # A timetable's step belongs to when it was due: one that a stall pushed out of the window must still count.
    by = begun if fed.lags else ended
    inside = (by >= opens) & (by < closes)
    took = (ended - begun)[inside]
    times = Histogram.of(took)
    # Requests that waited in one queue waited alike: what they are worth is kept, for their histogram forgets it.
    clumps = (
        {name: design_effect(took > np.quantile(took, p)) if took.size else 1.0 for name, p in AT} if fed.lags else {}
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
    """Items done by each time, a step's evenly over its own time: a window's ends may cut through steps."""
    if not ended.size:
        return np.zeros(len(edges))
    # Steps of one stream end in order, but a timetable's steps wait for each other: count from the one before.
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    at = np.column_stack((taken, np.maximum(ended, taken))).ravel()
    total = np.cumsum(np.column_stack((np.zeros(len(items)), items)).ravel())
    done: NDArray[Any] = np.interp(edges, at, total)
    return done


def _busy(begun: NDArray[Any], ended: NDArray[Any], opens: float, closes: float) -> float:
    """The share of the window in which a step was under way."""
    if not ended.size:
        return 0.0
    taken = np.maximum(begun, np.concatenate(([begun[0]], ended[:-1])))
    under_way = np.clip(ended, opens, closes) - np.clip(taken, opens, closes)
    return float(np.maximum(under_way, 0).sum() / (closes - opens))


def _percentiles(times: Histogram, clumps: dict[str, float]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, p in AT:
        try:
            found[name] = [float(f"{x:.4g}") for x in percentile(times, p, worth=times.n / clumps.get(name, 1.0))]
        except BenchError as e:
            found[name] = str(e)
    return found
