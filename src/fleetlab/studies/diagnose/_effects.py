"""What each change did to the same jobs: differences with paired intervals, what they cost, and how sure they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Prices
from fleetlab.studies._blocks import Blocks, Floats
from fleetlab.studies.diagnose._changes import Case, Change
from fleetlab.studies.diagnose._runs import Fared

HOUR = 3600.0
WIDE = 40  # characters of the bar of the run as it is
MOST = 70  # of any bar
HELPS, UNSURE, HURTS = "helps", "not sure", "hurts"
SCHEMA = {
    "change": pl.String, "title": pl.String, "verdict": pl.String,
    "mean wait": pl.Float64, "mean change": pl.Float64, "mean low": pl.Float64, "mean high": pl.Float64,
    "P90 wait": pl.Float64, "P90 change": pl.Float64, "P90 low": pl.Float64, "P90 high": pl.Float64,
    "sure": pl.Float64, "to do": pl.String, "takes": pl.String, "GPU-hours": pl.Float64, "cost": pl.Float64,
    "refused": pl.Int64, "then first": pl.String,
}  # fmt: skip


def effects(
    wait: Floats, fared: Sequence[Fared], nodes: pl.DataFrame, rules: Mapping[str, str], blocks: Blocks, *,
    hours: float, prices: Prices,
) -> pl.DataFrame:  # fmt: skip
    """A row for each change: those that surely help first, by the mean; then those that may, then those that hurt."""
    rows = [_row(wait, f, blocks) | _bought(f.change, nodes, rules, hours, prices) for f in fared]
    rank = pl.col("verdict").replace_strict({HELPS: 0, UNSURE: 1, HURTS: 2}, return_dtype=pl.Int64)
    found = pl.DataFrame(rows, schema=SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))
    return found.sort(rank, "mean change", maintain_order=True)


def _row(wait: Floats, fared: Fared, blocks: Blocks) -> dict[str, Any]:
    ran = ~np.isnan(fared.wait)
    before, after = (wait, fared.wait) if ran.all() else (wait[ran], fared.wait[ran])
    cut = blocks if ran.all() else Blocks(blocks.of[ran], blocks.draws)
    told: dict[str, Any] = {"change": fared.change.name, "title": fared.change.title, "to do": fared.change.todo}
    told |= {"takes": fared.change.price, "refused": int((~ran).sum()), "then first": first_of(fared.lacked)}
    if not len(before):
        return told | {"verdict": UNSURE}
    mean, p90 = cut.mean(after - before), cut.shift(before, after, 0.9)
    told |= dict(zip(("mean change", "mean low", "mean high"), mean, strict=True))
    told |= dict(zip(("P90 change", "P90 low", "P90 high"), p90, strict=True))
    told |= {"mean wait": float(after.mean()), "P90 wait": float(np.quantile(after, 0.9))}
    return told | {"sure": cut.better(after - before), "verdict": _verdict(*mean)}


def _verdict(value: float, low: float, high: float) -> str:
    """Where there are too few jobs for an interval, the difference itself decides: arrivals were the same."""
    least, most = (value, value) if np.isnan(low) else (low, high)
    return HELPS if most < 0 else HURTS if least > 0 else UNSURE


def first_of(reasons: Mapping[str, float]) -> str | None:
    """The reason with the most waited seconds; none where nobody waited."""
    first = max(reasons, key=lambda name: reasons[name])
    return first if reasons[first] > 0 else None


def _bought(
    change: Change, nodes: pl.DataFrame, rules: Mapping[str, str], hours: float, prices: Prices
) -> dict[str, float]:
    """GPU-hours that a change adds while jobs arrive, and what they cost."""
    no_jobs = pl.DataFrame(schema={"max_per_node": pl.Int32, "instances": pl.Int32, "job": pl.Int64})
    there = [_gpus(n) for n in (nodes, change.make(Case(no_jobs, nodes, rules)).nodes)]
    more = {name: there[1][name] - there[0].get(name, 0) for name in there[1]}
    cost = sum(count * hours * prices.gpu_hour(name) for name, count in more.items() if count)
    return {"GPU-hours": hours * sum(more.values()), "cost": float(cost)}


def _gpus(nodes: pl.DataFrame) -> dict[str, int]:
    there = nodes.filter(pl.col("gpus") > 0).group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum())
    return dict(there.iter_rows())


def what_to_do(found: pl.DataFrame) -> pl.DataFrame:
    """The ranked list: what helps, or may help, what it takes and how sure it is."""
    may = (pl.col("verdict") == HELPS) | ((pl.col("verdict") == UNSURE) & (pl.col("mean change") < 0))
    columns = {"to do": "to do", "mean wait": "mean change", "low": "mean low", "high": "mean high", "sure": "sure"}
    return found.filter(may).select(
        *(pl.col(c).alias(name) for name, c in columns.items()), "takes", "GPU-hours", "cost"
    )


def waterfall(mean: float, found: pl.DataFrame) -> pl.DataFrame:
    """From the mean wait as it is to that by each change, as a bar: `-` is what it takes off, `+` what it adds.

    >>> rows = {"title": ["a", "b"], "mean change": [-5.0, 2.0]}
    >>> [bar.strip("#") for bar in waterfall(10.0, pl.DataFrame(rows))["bar"]]
    ['', '--------------------', '++++++++']
    """
    changes = [0.0, *(found["mean change"].fill_null(0.0))]
    frame = pl.DataFrame({"step": ["as it is", *found["title"]], "from": mean, "change": changes})
    bars = pl.Series("bar", [_bar(mean, mean + c) for c in changes], dtype=pl.String)
    return frame.select("step", "from", to=pl.col("from") + pl.col("change")).with_columns(frame["change"], bars)


def _bar(mean: float, after: float) -> str:
    if not mean:
        return ""
    size = round(WIDE * after / mean)
    if size <= WIDE:
        return "#" * size + "-" * (WIDE - size)
    return "#" * WIDE + "+" * (min(size, MOST - 3) - WIDE) + ("..." if size > MOST - 3 else "")
