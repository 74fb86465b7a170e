"""The effect of each change on the same jobs: paired differences with intervals, and what the change costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Prices, Scenario
from fleetlab.core.censoring import Bools
from fleetlab.core.nodes import chosen
from fleetlab.stats import BlockBootstrap, Floats, paired_difference
from fleetlab.studies.diagnose.changes import CPU_ONLY, NODES
from fleetlab.studies.diagnose.runs import Outcome

HOUR = 3600.0
WIDE = 40  # characters of the bar of the baseline
MOST = 70  # of any bar
AMOUNTS = ("cpu", "memory")  # changes that leave a request out, by the reason that it removes
FAR = 10.0  # times what jobs waited for it: then the placement chose other nodes without the request
LOWER, NOT_SIGNIFICANT, HIGHER = "lower", "not significant", "higher"
MEAN = ("mean wait change", "mean wait change low", "mean wait change high")
P90 = ("P90 wait change", "P90 wait change low", "P90 wait change high")
SCHEMA = {
    "change": pl.String, "title": pl.String, "verdict": pl.String,
    **dict.fromkeys(("mean wait", *MEAN, "P90 wait", *P90, "P(lower)"), pl.Float64),
    "action": pl.String, "requires": pl.String, "added GPU-hours": pl.Float64, "added cost": pl.Float64,
    "not completed": pl.Int64, "main reason then": pl.String,
}  # fmt: skip


def effects(
    wait: Floats, outcomes: Sequence[Outcome], scenario: Scenario, blocks: BlockBootstrap, jobs: pl.DataFrame,
    waited: Mapping[str, float],
) -> pl.DataFrame:  # fmt: skip
    """Return one row per change, by verdict (lower mean wait first) and by the change of the mean wait.

    `jobs` are those that waited, with their partitions and GPU types. Nodes help those that may use them, and those
    that get the room which these leave: where their waits are not lower, the rest is that one schedule is not another.
    `waited` has the seconds of waiting by reason: more CPU or memory saves about what jobs waited for it, not many
    times as much.
    """
    rows = [
        _row(wait, outcome, blocks, may_use(outcome.change.name, scenario.cluster, jobs)) | _added(outcome, scenario)
        for outcome in outcomes
    ]
    for row in rows:
        saved = -len(wait) * float(row.get(MEAN[0], 0.0))
        if row["verdict"] == LOWER and row["change"] in AMOUNTS and saved > FAR * waited.get(row["change"], 0.0):
            row["verdict"] = NOT_SIGNIFICANT
    rank = pl.col("verdict").replace_strict({LOWER: 0, NOT_SIGNIFICANT: 1, HIGHER: 2}, return_dtype=pl.Int64)
    table = pl.DataFrame(rows, schema=SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))
    return table.sort(rank, "mean wait change", maintain_order=True)


def may_use(change: str, cluster: Cluster, jobs: pl.DataFrame) -> Bools | None:
    """Return which jobs the nodes that a change adds can help; None: it adds none, or all may use them.

    These are the jobs that may use them, those that share nodes with such jobs and get the room that they leave, and so
    on: not those of partitions or GPU types that have nothing to do with the added ones.
    """
    kind, _, name = change.partition(":")
    if kind != NODES or name == CPU_ONLY:
        return None
    nodes = cluster.frame.with_columns(added=chosen(cluster.frame, name))
    kinds = nodes.group_by("partitions", "gpu_type", maintain_order=True).agg(pl.col("added").any())
    keys = ["partitions", "gpu_types", "gpu"]
    asked = jobs.select("partitions", "gpu_types", gpu=pl.col("gpu_milli") > 0)
    classes = asked.unique(maintain_order=True)
    named = cluster.frame["partitions"].list.len().sum() > 0
    fits = np.array([[_may_run(job, node, named=named) for node in kinds.iter_rows()] for job in classes.iter_rows()])
    fits = fits.reshape(len(classes), len(kinds))
    helped = fits @ kinds["added"].to_numpy()
    gpu = classes["gpu"].to_numpy()[:, None]  # jobs without GPUs take none from others
    for _ in range(len(kinds)):
        helped |= fits @ (helped @ (fits & gpu))
    answer = classes.with_columns(helped=pl.Series(helped, dtype=pl.Boolean))
    found = asked.join(answer, on=keys, how="left", nulls_equal=True, maintain_order="left")
    return found["helped"].fill_null(value=False).to_numpy()


def _may_run(job: tuple[list[str], list[str], bool], node: tuple[list[str], str, bool], *, named: bool) -> bool:
    partitions, types, _ = job
    in_one = not named or not partitions or bool(set(partitions) & set(node[0]))
    return in_one and (not types or node[1] in types)


def _row(wait: Floats, outcome: Outcome, blocks: BlockBootstrap, users: Bools | None) -> dict[str, Any]:
    done, change = ~np.isnan(outcome.wait), outcome.change
    before, after = (wait, outcome.wait) if done.all() else (wait[done], outcome.wait[done])
    part = blocks if done.all() else blocks.part(done)
    row: dict[str, Any] = {"change": change.name, "title": change.title, "action": change.action}
    row |= {"requires": change.requires, "not completed": int((~done).sum())}
    row |= {"main reason then": main_reason(outcome.reasons)}
    if not len(before):
        return row | {"verdict": NOT_SIGNIFICANT}
    mean = paired_difference(part.means(before), part.means(after))
    p90 = paired_difference(*(part.quantiles(x, [0.9])[0] for x in (before, after))).interval()
    row |= dict(zip(MEAN, mean.interval(), strict=True))
    row |= dict(zip(P90, p90, strict=True))
    row |= {"mean wait": float(after.mean()), "P90 wait": float(np.quantile(after, 0.9))}
    verdict = _verdict(*mean.interval())
    if verdict == LOWER and users is not None and not _helps(before, after, part, users[done]):
        verdict = NOT_SIGNIFICANT
    return row | {"P(lower)": mean.probability_below(0.0), "verdict": verdict}


def _helps(before: Floats, after: Floats, blocks: BlockBootstrap, users: Bools) -> bool:
    """Return whether those who may use what is added wait less, and for most of the difference."""
    if not users.any():
        return False
    part, saved = blocks.part(users), before - after
    own = paired_difference(part.means(before[users]), part.means(after[users])).interval()
    return _verdict(*own) == LOWER and float(saved[users].sum()) >= 0.5 * float(saved.sum())


def _verdict(value: float, low: float, high: float) -> str:
    """Return what the interval says; with too few jobs for one, what the difference says: arrivals were the same."""
    low, high = (value, value) if np.isnan(low) else (low, high)
    return LOWER if high < 0 else HIGHER if low > 0 else NOT_SIGNIFICANT


def unexplained(changes: pl.DataFrame) -> list[str]:
    """Return notes on changes with an interval below 0 that what they change does not explain."""
    below = changes.filter((pl.col("verdict") == NOT_SIGNIFICANT) & (pl.col(MEAN[2]) < 0))
    return [
        f"{title}: lower waits, but not because of it: those who need it did not wait for it that long; other jobs "
        "happened to be placed better"
        for title in below["title"]
    ]


def main_reason(seconds: Mapping[str, float]) -> str | None:
    """Return the reason with the most seconds of waiting; None where no job waited."""
    first = max(seconds, key=lambda name: seconds[name])
    return first if seconds[first] > 0 else None


def _added(outcome: Outcome, scenario: Scenario) -> dict[str, float]:
    """Return the GPU-hours that a change adds while jobs arrive, and their cost."""
    if not outcome.change.name.startswith(NODES):
        return {"added GPU-hours": 0.0, "added cost": 0.0}
    hours, prices = float(scenario.workload.frame["submit"].max()) / HOUR, scenario.prices or Prices()  # type: ignore[arg-type]
    before, after = (_gpus(s.cluster) for s in (scenario, outcome.change.apply(scenario)))
    more = {name: count - before.get(name, 0) for name, count in after.items()}
    cost = sum(count * hours * prices.gpu_hour(name) for name, count in more.items() if count)
    return {"added GPU-hours": hours * sum(more.values()), "added cost": float(cost)}


def _gpus(cluster: Cluster) -> dict[str, int]:
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    return dict(nodes.group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum()).iter_rows())


def actions(table: pl.DataFrame) -> pl.DataFrame:
    """Return the changes that lower the mean wait, or may, with what they require."""
    helps = (pl.col("verdict") == LOWER) | ((pl.col("verdict") == NOT_SIGNIFICANT) & (pl.col("mean wait change") < 0))
    return table.filter(helps).select("action", *MEAN, "verdict", "requires", "added GPU-hours", "added cost")


def waterfall(mean: float, table: pl.DataFrame) -> pl.DataFrame:
    """Return the mean wait of the baseline and under each change, as bars: `-` is removed by the change, `+` added.

    >>> rows = {"title": ["a", "b"], "mean wait change": [-5.0, 2.0]}
    >>> [bar.strip("#") for bar in waterfall(10.0, pl.DataFrame(rows))["bar"]]
    ['', '--------------------', '++++++++']
    """
    changes = [0.0, *(table["mean wait change"].fill_null(0.0))]
    bars = pl.Series("bar", [_bar(mean, mean + c) for c in changes], dtype=pl.String)
    rows = {"step": ["baseline", *table["title"]], "mean wait": [mean + c for c in changes], MEAN[0]: changes}
    return pl.DataFrame(rows).with_columns(bars)


def _bar(mean: float, after: float) -> str:
    if not mean:
        return ""
    size = round(WIDE * after / mean)
    if size <= WIDE:
        return "#" * size + "-" * (WIDE - size)
    return "#" * WIDE + "+" * (min(size, MOST - 3) - WIDE) + ("..." if size > MOST - 3 else "")
