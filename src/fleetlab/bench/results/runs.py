"""How often each mix ran to its end, for how long, and how busy it kept the card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fleetlab.bench.results.cells import Cell, grouped, mean, mix
from fleetlab.stats import wilson


def rows_runs(tries: Sequence[Cell]) -> Iterable[dict[str, Any]]:
    """By mix, alone too; every try counts, also of a cell that was tried again.

    `busy` is the share of the window in which a tenant had a step under way, waiting for its turn included; alone that
    is GPU time over wall time. `util` is the card's own: the share of the time in which it did anything.
    """
    for (stage, name), many in grouped((c["stage"], mix(c), c) for c in tries).items():
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
