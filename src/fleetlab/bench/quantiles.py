"""P50, P95 and P99 with intervals as table columns, as far as the sample supports them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile, tail
from fleetlab.devices.errors import BenchError

QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
ENDINGS = ("_ms", "_low", "_high")
COLUMNS = [name + ending for name, _ in QUANTILES for ending in ENDINGS]


def quantiles(
    times: Histogram, effective_n: Mapping[str, float | None] | None = None
) -> tuple[dict[str, float | None], list[str]]:
    """Quantiles in milliseconds; what the sample does not support is None, and the list says why.

    `effective_n` is the effective sample size by quantile, for autocorrelated times; None if it is not known.
    """
    row: dict[str, float | None] = dict.fromkeys(COLUMNS)
    why: list[str] = []
    for name, p in QUANTILES:
        try:
            plain = percentile(times, p)  # as if independent
        except BenchError as e:
            why.append(str(e))
            continue
        interval = plain if effective_n is None else tail(times, p, effective_n.get(name)) or plain
        row |= {name + ending: 1000 * x for ending, x in zip(ENDINGS, interval, strict=True) if math.isfinite(x)}
        if effective_n is not None and row[f"{name}_high"] is None:
            why.append(no_limits(p, effective_n.get(name)))
    return row, why


def no_limits(p: float, effective_n: float | None) -> str:
    """Why a quantile has no interval, or no upper limit."""
    if effective_n is None:
        return f"P{100 * p:g} has no interval: how far they depend on each other is not known"
    return f"P{100 * p:g} has no upper limit: they are worth only {effective_n:.0f} independent ones"
