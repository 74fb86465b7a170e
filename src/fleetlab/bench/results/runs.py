"""Success rate, duration and utilization of each mix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fleetlab.bench.results.cells import Cell, cell_mix, group_cells, mean
from fleetlab.stats import wilson


def rows_runs(tries: Sequence[Cell]) -> Iterable[dict[str, Any]]:
    """By mix; every try counts, also of a cell that was repeated.

    `busy` is the fraction of the window in which a step of a tenant was running or waiting for the GPU; alone it is GPU
    time over wall time. `util` is the GPU's utilization: the fraction of time in which any kernel ran.
    """
    for (stage, name), many in group_cells((c["stage"], cell_mix(c), c) for c in tries).items():
        good = [c for c in many if c["status"] == "ok"]
        share, low, high = wilson(len(good), len(many))
        util = mean(c["gpu"]["util"] for c in good if c["gpu"] and c["gpu"].get("util", -1) >= 0)
        yield {
            "stage": stage,
            "mix": name,
            "tried": len(many),
            "ok": len(good),
            "success": share,
            "low": low,
            "high": high,
            "seconds": sum(c.get("window", 0.0) for c in good),
            "busy": mean(t["busy"] for c in good for t in c["tenants"] if "busy" in t),
            "util": None if util is None else util / 100,
            "cpu": mean(sum(t.get("cpu", 0.0) for t in c["tenants"]) for c in good),
        }
