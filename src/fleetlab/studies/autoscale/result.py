"""The result of `autoscale`: what each scaling policy needs for the same P95 wait, for one kind of node or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Estimate, Figure, Provenance, say
from fleetlab.core.durations import duration
from fleetlab.core.result import FieldsResult
from fleetlab.stats import BETTER, MARGIN, NO_DIFFERENCE, POSITIVE, WORSE, BlockBootstrap, over_replicas, verdict
from fleetlab.studies.autoscale.replay import Replay, ReplayResult
from fleetlab.studies.replicas import OF_SCOPE, note_of_verdicts
from fleetlab.studies.sentences import percent

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
        policies = {name: result for name, result in results.items() if result is not None}
        days = _by_day(policies)
        differences = _differences(days)
        frames = {
            "policies": pl.DataFrame([_row(result) for result in policies.values()]),
            "differences": differences,
            "settings": pl.DataFrame([_setting(result) for result in done]),
            "days": days,
            "ready": _by_step(policies, replay),
        }
        figures = _figures(frames["settings"], replay, wait)
        findings = tuple(_findings(differences, policies, wait))
        return cls(
            provenance, findings, tuple(_estimates(differences, days)), frames, figures, tuple(_notes(policies, replay))
        )

    def __repr__(self) -> str:
        return f"<Autoscaling {say(self.estimates[0]) if self.estimates else 'nothing meets the goal'}>"


def _row(result: ReplayResult) -> dict[str, object]:
    p95 = BlockBootstrap.of_times(result.submit).quantile(result.wait, 0.95, POSITIVE).interval()
    hours, idle, boots = (
        over_replicas(values, POSITIVE).interval() for values in (result.node_hours, result.idle, result.boots)
    )
    row: dict[str, object] = {"policy": result.policy, "setting": result.setting}
    names = ("P95 wait", "node-hours per day", "idle GPU-hours per day", "boots per day")
    for name, numbers in zip(names, (p95, hours, idle, boots), strict=True):
        row |= dict(zip((name, f"{name} low", f"{name} high"), numbers, strict=True))
    return row | {"mean wait": float(result.wait.mean()), "share of jobs that wait": float((result.wait > 0).mean())}


def _setting(result: ReplayResult) -> dict[str, object]:
    hours = float(result.node_hours.mean())
    return {"policy": result.policy, "setting": result.setting, "P95 wait": result.p95, "node-hours per day": hours}


def _differences(days: pl.DataFrame) -> pl.DataFrame:
    """Return node-hours of the forecast minus those of each other policy, day by day."""
    rows = []
    for name in days.columns[1:] if "forecast" in days.columns else ():
        if name != "forecast":
            apart, mean = (days["forecast"] - days[name]).to_numpy(), float(days[name].to_numpy().mean())
            interval = over_replicas(apart).interval()  # days are paired replicas of each other
            rows.append((name, *interval, 100 * interval.value / mean, verdict(apart, mean)))
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")


def _by_day(policies: Mapping[str, ReplayResult]) -> pl.DataFrame:
    days = len(next(iter(policies.values())).node_hours) if policies else 0
    return pl.DataFrame({"day": list(range(1, days + 1)), **{name: r.node_hours for name, r in policies.items()}})


def _by_step(policies: Mapping[str, ReplayResult], replay: Replay) -> pl.DataFrame:
    """Return the demand in each step that counts, and the nodes that each policy has ready for it."""
    begin = np.arange(len(replay.demand.level)) * replay.demand.every
    first, last = np.searchsorted(begin, replay.edges[[0, -1]]).tolist()
    ready = {name: r.ready[first:last] for name, r in policies.items() if r.ready is not None}
    return pl.DataFrame({"begin": begin[first:last], "demand": replay.demand.level[first:last], **ready})


def _findings(differences: pl.DataFrame, policies: Mapping[str, ReplayResult], wait: float) -> list[str]:
    if "forecast" not in policies:
        return [f"No setting of the forecasts has a P95 wait of at most {duration(wait)}."]
    goal = f"At a P95 wait of at most {duration(wait)}, "
    return [f"{goal}{difference_sentence(row)}" for row in differences.iter_rows(named=True)]


def difference_sentence(row: Mapping[str, Any]) -> str:
    """Return in words how many node-hours forecasts need against another policy."""
    verbs = {BETTER: "need fewer node-hours than", WORSE: "need more node-hours than"}
    verbs |= {NO_DIFFERENCE: f"need as many node-hours (within {percent(MARGIN)}) as"}
    verb = verbs.get(row["verdict"], "may need fewer or more node-hours than")
    return (
        f"forecasts {verb} `{row['baseline']}`: difference {row['node-hours per day']:+,.4g} per day (95 % CI "
        f"{row['low']:+,.4g} to {row['high']:+,.4g}), {row['percent']:+.3g} %."
    )


def _estimates(differences: pl.DataFrame, days: pl.DataFrame) -> list[Estimate]:
    estimates = [
        Estimate(f"node-hours per day, forecast − {r['baseline']}", r["node-hours per day"], r["low"], r["high"], "h")
        for r in differences.iter_rows(named=True)
    ]
    means = {name: over_replicas(days[name].to_numpy(), POSITIVE).interval() for name in days.columns[1:]}
    return estimates + [Estimate(f"node-hours per day, {name}", *interval, "h") for name, interval in means.items()]


def _notes(policies: Mapping[str, ReplayResult], replay: Replay) -> list[str]:
    demand, there = replay.demand, len(replay.scenario.cluster)
    notes = [
        f"{replay.days} days count, after {replay.first * demand.every / DAY:.3g} days to learn from",
        f"intervals are of {OF_SCOPE['like']}: each day is a replica; {note_of_verdicts('days')}",
        f"a node counts from power-on: each boot adds {duration(replay.boot)}",
        "a node that is switched off counts until its last job ends",
        "settings are chosen on the days that count, for every policy alike",
    ]
    if demand.left_out:
        notes.append(f"{demand.left_out:,} jobs request no GPU, never fit or have no runtime: left out")
    if demand.most > there:
        notes.append(f"at the peak jobs need {demand.most:,} nodes, and there are {there:,}: some jobs always wait")
    return [*notes, *(f"{name}: no setting meets the goal" for name in POLICIES if name not in policies)]


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


# -- several kinds of nodes --------------------------------------------------------------------------------------------

ALL_KINDS = "all kinds"


def together(parts: Mapping[str, Autoscaling], left_out: Sequence[str]) -> Autoscaling:
    """Put the results of several kinds side by side, each row with its kind; node-hours of all are summed by day."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.frames))
    frames = {name: _stacked({kind: part.frames[name] for kind, part in parts.items()}) for name in names}
    days = _days(parts)
    differences = _differences(days)
    frames["differences"] = pl.concat([_named(ALL_KINDS, differences), frames["differences"]])
    frames = {ALL_KINDS: _totals(days), **frames}
    first = next(iter(parts.values()))
    waits = {kind: part.provenance.settings["wait"] for kind, part in parts.items()}
    learnt = {kind: part.provenance.settings["learn"] for kind, part in parts.items()}
    settings = {**first.provenance.settings, "wait": _one(waits), "learn": _one(learnt), "kinds": list(parts)}
    return Autoscaling(
        replace(first.provenance, settings=settings),
        tuple(_findings_by_kind(differences, parts)),
        tuple(_estimates(differences, days)),
        frames,
        {f"{name}, {kind}": figure for kind, part in parts.items() for name, figure in part.charts.items()},
        (*left_out, *_notes_by_kind(parts)),
    )


def _one(values: Mapping[str, float]) -> float | dict[str, float]:
    """Return the value that all kinds share, or that of each."""
    return next(iter(values.values())) if len(set(values.values())) == 1 else dict(values)


def _named(kind: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(kind).alias("kind"), pl.all())


def _stacked(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([_named(kind, frame) for kind, frame in frames.items()], how="diagonal_relaxed")


def _days(parts: Mapping[str, Autoscaling]) -> pl.DataFrame:
    """Return the node-hours of all kinds on each day that counts for all, of the policies that all kinds meet."""
    days = [part.frames["days"] for part in parts.values()]
    names = [name for name in POLICIES if all(name in frame.columns for frame in days)]
    common = min(frame.height for frame in days)
    summed = {name: sum(frame[name].head(common).to_numpy() for frame in days) for name in names}
    return pl.DataFrame({"day": list(range(1, common + 1)), **summed})


def _totals(days: pl.DataFrame) -> pl.DataFrame:
    means = [(name, *over_replicas(days[name].to_numpy(), POSITIVE).interval()) for name in days.columns[1:]]
    hours = "node-hours per day"
    schema = {"policy": pl.String, hours: pl.Float64, f"{hours} low": pl.Float64, f"{hours} high": pl.Float64}
    return pl.DataFrame(means, schema=schema, orient="row")


def _findings_by_kind(differences: pl.DataFrame, parts: Mapping[str, Autoscaling]) -> list[str]:
    summed = [f"All kinds together: {difference_sentence(row)}" for row in differences.iter_rows(named=True)]
    return summed + [f"Nodes of kind `{kind}`: {line}" for kind, part in parts.items() for line in part.findings]


def _notes_by_kind(parts: Mapping[str, Autoscaling]) -> list[str]:
    """Return the notes that all kinds share once, then those of each; and what the sums are of."""
    shared = [note for note in next(iter(parts.values())).notes if all(note in part.notes for part in parts.values())]
    own = [f"{kind}: {note}" for kind, part in parts.items() for note in part.notes if note not in shared]
    days = min(part.frames["days"].height for part in parts.values())
    return [
        "each kind of node meets the goal by itself, for the jobs that go to it; days count from its first job",
        f"node-hours of all kinds are sums over the first {days} days that count for each",
        *shared,
        *own,
    ]
