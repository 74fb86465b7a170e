"""The result of `autoscale`: what each scaling policy needs for the same P95 wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, say
from fleetlab.core.durations import duration
from fleetlab.core.result import FieldsResult
from fleetlab.stats import POSITIVE, BlockBootstrap, mean_of_runs
from fleetlab.studies.autoscale.replay import Replay, ReplayResult

DAY = 86_400.0
POLICIES = ("reactive", "static", "forecast", "oracle")
DIFFERENCES = {
    "baseline": pl.String,
    "node-hours per day": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "percent": pl.Float64,
    "verdict": pl.String,
}


class Autoscaling(FieldsResult):
    """Node-hours of each scaling policy at the same P95 wait."""

    @classmethod
    def of(
        cls, results: Mapping[str, ReplayResult | None], done: Sequence[ReplayResult], replay: Replay, wait: float,
        provenance: Provenance,
    ) -> Autoscaling:  # fmt: skip
        """Build the tables and findings."""
        met = {name: result for name, result in results.items() if result is not None}
        differences = _differences(met)
        frames = {
            "policies": pl.DataFrame([_row(result) for result in met.values()]),
            "differences": differences,
            "settings": pl.DataFrame([_setting(result) for result in done]),
            "days": _by_day(met),
            "ready": _by_step(met, replay),
        }
        figures = _figures(frames["settings"], replay, wait)
        findings = tuple(_findings(differences, met, wait))
        return cls(
            provenance, findings, tuple(_estimates(differences, met)), frames, figures, tuple(_notes(met, replay))
        )

    def __repr__(self) -> str:
        return f"<Autoscaling {say(self.estimates[0]) if self.estimates else 'nothing meets the goal'}>"


def _row(result: ReplayResult) -> dict[str, object]:
    p95 = BlockBootstrap.of_times(result.submit).quantile(result.wait, 0.95, POSITIVE).interval()
    hours, idle, boots = (
        mean_of_runs(values, POSITIVE).interval() for values in (result.node_hours, result.idle, result.boots)
    )
    row: dict[str, object] = {"policy": result.policy, "setting": result.setting}
    names = ("P95 wait", "node-hours per day", "idle GPU-hours per day", "boots per day")
    for name, numbers in zip(names, (p95, hours, idle, boots), strict=True):
        row |= dict(zip((name, f"{name} low", f"{name} high"), numbers, strict=True))
    return row | {"mean wait": float(result.wait.mean()), "share of jobs that wait": float((result.wait > 0).mean())}


def _setting(result: ReplayResult) -> dict[str, object]:
    hours = float(result.node_hours.mean())
    return {
        "policy": result.policy,
        "setting": result.setting,
        "P95 wait": result.p95,
        "node-hours per day": hours,
    }


def _differences(met: Mapping[str, ReplayResult]) -> pl.DataFrame:
    """Return node-hours of the forecast minus those of each other policy, day by day."""
    rows = []
    for name in POLICIES:
        if name != "forecast" and name in met and "forecast" in met:
            interval = mean_of_runs(met["forecast"].node_hours - met[name].node_hours).interval()
            percent = 100 * interval.value / float(met[name].node_hours.mean())
            rows.append((name, *interval, percent, interval.change()))
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")


def _by_day(met: Mapping[str, ReplayResult]) -> pl.DataFrame:
    days = len(next(iter(met.values())).node_hours) if met else 0
    return pl.DataFrame({"day": list(range(1, days + 1)), **{name: r.node_hours for name, r in met.items()}})


def _by_step(met: Mapping[str, ReplayResult], replay: Replay) -> pl.DataFrame:
    """Return the demand in each step that counts, and the nodes that each policy has ready for it."""
    begin = np.arange(len(replay.demand.level)) * replay.demand.every
    first, last = np.searchsorted(begin, replay.edges[[0, -1]]).tolist()
    ready = {name: r.ready[first:last] for name, r in met.items() if r.ready is not None}
    return pl.DataFrame({"begin": begin[first:last], "demand": replay.demand.level[first:last], **ready})


def _findings(differences: pl.DataFrame, met: Mapping[str, ReplayResult], wait: float) -> list[str]:
    if "forecast" not in met:
        return [f"No setting of the forecasts has a P95 wait of at most {duration(wait)}."]
    goal = f"At a P95 wait of at most {duration(wait)}, "
    return [f"{goal}{difference_sentence(row)}" for row in differences.iter_rows(named=True)]


def difference_sentence(row: Mapping[str, Any]) -> str:
    """Return in words how many node-hours forecasts need against another policy."""
    verbs = {"lower": "need fewer node-hours than", "higher": "need more node-hours than"}
    verb = verbs.get(row["verdict"], "do not differ significantly in node-hours from")
    return (
        f"forecasts {verb} `{row['baseline']}`: difference {row['node-hours per day']:+,.4g} per day (95 % CI "
        f"{row['low']:+,.4g} to {row['high']:+,.4g}), {row['percent']:+.3g} %."
    )


def _estimates(differences: pl.DataFrame, met: Mapping[str, ReplayResult]) -> list[Estimate]:
    estimates = [
        Estimate(f"node-hours per day, forecast − {r['baseline']}", r["node-hours per day"], r["low"], r["high"], "h")
        for r in differences.iter_rows(named=True)
    ]
    means = {name: mean_of_runs(result.node_hours, POSITIVE).interval() for name, result in met.items()}
    return estimates + [Estimate(f"node-hours per day, {name}", *interval, "h") for name, interval in means.items()]


def _notes(met: Mapping[str, ReplayResult], replay: Replay) -> list[str]:
    demand, there = replay.demand, len(replay.scenario.cluster)
    notes = [
        f"{replay.days} days count, after {replay.first * demand.every / DAY:.3g} days to learn from",
        f"a node counts from power-on: each boot adds {duration(replay.boot)}",
        "a node that is switched off counts until its last job ends",
        "settings are chosen on the days that count, for every policy alike",
    ]
    if demand.left_out:
        notes.append(f"{demand.left_out:,} jobs request no GPU, never fit or have no runtime: left out")
    if demand.most > there:
        notes.append(f"at the peak jobs need {demand.most:,} nodes, and there are {there:,}: some jobs always wait")
    return [*notes, *(f"{name}: no setting meets the goal" for name in POLICIES if name not in met)]


def _figures(settings: pl.DataFrame, replay: Replay, wait: float) -> dict[str, Figure]:
    curve = settings.select(x="node-hours per day", y="P95 wait", series="policy").sort("series", "x")
    alt = f"P95 wait over node-hours per day of {settings.height} settings; the goal is {duration(wait)}"
    demand = replay.demand
    days = np.arange(len(demand.level)) * demand.every / DAY
    level = pl.DataFrame({"x": days, "y": demand.level})
    return {
        "settings": Figure("P95 wait and node-hours", "line", curve, "node-hours per day", "P95 wait, s", alt),
        "demand": Figure("Demand", "step", level, "days", "nodes", f"at most {demand.most:,} nodes at once"),
    }
