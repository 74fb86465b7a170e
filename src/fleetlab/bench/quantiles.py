"""P50, P95 and P99 as a row of a table, with their limits, as far as the sample carries them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fleetlab.bench.histogram import Histogram
from fleetlab.bench.statistics import percentile
from fleetlab.devices.errors import BenchError

QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
ENDINGS = ("_ms", "_low", "_high")
COLUMNS = [name + ending for name, _ in QUANTILES for ending in ENDINGS]


def quantiles(times: Histogram, worth: Mapping[str, float] | None = None) -> tuple[dict[str, float | None], list[str]]:
    """In milliseconds; what the sample cannot carry is None, and the list says why.

    `worth` says for each as how many independent ones the times count, where neighbours hang together.
    """
    row: dict[str, float | None] = dict.fromkeys(COLUMNS)
    why: list[str] = []
    for name, p in QUANTILES:
        try:
            found = percentile(times, p, worth=(worth or {}).get(name, math.inf))
        except BenchError as e:
            why.append(str(e))
        else:
            row |= {name + ending: 1000 * x for ending, x in zip(ENDINGS, found, strict=True)}
    return row, why
