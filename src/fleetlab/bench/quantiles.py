"""P50, P95 and P99 with intervals as table columns, as far as the sample supports them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError

QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
ENDINGS = ("_ms", "_low", "_high")
COLUMNS = [name + ending for name, _ in QUANTILES for ending in ENDINGS]


def quantiles(
    times: Histogram, effective_n: Mapping[str, float] | None = None
) -> tuple[dict[str, float | None], list[str]]:
    """Quantiles in milliseconds; one that the sample does not support is None, and the list says why.

    `effective_n` is the effective sample size by quantile, for autocorrelated times.
    """
    row: dict[str, float | None] = dict.fromkeys(COLUMNS)
    why: list[str] = []
    for name, p in QUANTILES:
        try:
            interval = percentile(times, p, effective_n=(effective_n or {}).get(name, math.inf))
        except BenchError as e:
            why.append(str(e))
        else:
            row |= {name + ending: 1000 * x for ending, x in zip(ENDINGS, interval, strict=True)}
    return row, why
