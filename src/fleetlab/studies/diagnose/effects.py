"""The effect of each change, simulated on the jobs that ran in the baseline, in paired replicas.

Differences have intervals and verdicts over the replicas; what a change costs stands beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl

from fleetlab.core import Cluster, Prices, Scenario
from fleetlab.core.durations import duration
from fleetlab.core.progress import Progress
from fleetlab.core.result import Finding
from fleetlab.sim import SimResult, simulate
from fleetlab.sim.simulate import world_of
from fleetlab.stats import (
    BETTER,
    NO_DIFFERENCE,
    NOT_DECIDED,
    POSITIVE,
    SHARE,
    WORSE,
    Floats,
    Interval,
    Ints,
)  # fmt: skip
from fleetlab.studies.diagnose.changes import NODES, WhatIf, besides, changed, parts_of, what_if
from fleetlab.studies.replicas import LOOKS, Plan, Replication, Replicator, Results
from fleetlab.studies.runner import Arrays, Workers

# -- each change, simulated on the jobs that ran in the baseline -------------------------------------------------------

SLOW = ("gangs", "backfill")  # they take several times as long as the others
AS_IS = "nothing"  # the change of the baseline
ALLOWANCE = 3.0  # the ledger takes longer than the simulation, and is computed once


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What jobs waited in each replica as it is and under each change."""

    changes: Mapping[str, WhatIf]
    replication: Replication

    def waits(self, change: str = AS_IS) -> list[Floats]:
        """Return the wait of each job in each replica; NaN where it does not complete."""
        return [replica[_name(change)]["wait"] for replica in self.replication.results]

    @cached_property
    def measured(self) -> list[Floats]:
        """The waits as it is of the jobs that complete."""
        return [wait[~np.isnan(wait)] for wait in self.waits()]

    def mean(self) -> Interval:
        """Return the mean wait as it is."""
        return self.replication.statistic(np.array([wait.mean() for wait in self.measured]), POSITIVE).interval()

    def mean_of(self, jobs: Ints) -> float:
        """Return the mean wait as it is of some jobs of the log."""
        return float(np.mean([np.nanmean(wait[jobs]) for wait in self.waits()]))

    def p90(self) -> Interval:
        """Return the P90 wait as it is."""
        tails = np.array([np.quantile(wait, 0.9) for wait in self.measured])
        return self.replication.statistic(tails, POSITIVE).interval()

    def reasons(self, change: str = AS_IS) -> Mapping[str, float]:
        """Return the seconds of waiting by reason under a change, in the first replica."""
        return _reasons(self.replication.results[0][_name(change)])

    def shares(self) -> dict[str, Interval]:
        """Return which share of all waiting is due to each reason, by the replicas that have a ledger."""
        each = [_reasons(r[BASE]) for r in self.replication.results if len(r[BASE]["reasons"])]
        totals = [sum(seconds.values()) or 1.0 for seconds in each]
        shares = {name: np.array([s[name] / total for s, total in zip(each, totals, strict=True)]) for name in each[0]}
        return {name: self.replication.statistic(values, SHARE).interval() for name, values in shares.items()}


BASE = "as it is"  # beside the change `nothing`, which shows that runs are paired


def _name(change: str) -> str:
    return BASE if change == AS_IS else change


def _reasons(arrays: Arrays) -> dict[str, float]:
    return dict(zip(arrays["reasons"].tolist(), arrays["seconds"].tolist(), strict=True))


def simulate_changes(
    result: SimResult, scenario: Scenario, changes: Sequence[WhatIf], *, plan: Plan, workers: Workers,
    progress: Progress,
) -> Outcomes:  # fmt: skip
    """Simulate every change on the jobs that could run in the baseline, replica after replica."""
    changes = sorted(changes, key=lambda c: c.name not in SLOW)  # else one core waits for the other at the end
    refused = None if plan.scope == "like" else result.refused["job"]
    names = {BASE: AS_IS} | {c.name: c.name for c in changes if c.name != AS_IS}

    def undecided(runs: Replication) -> bool:
        pairs = [_means(runs.results, name) for name in names if name != BASE]
        return not all(runs.is_decided(after - before, float(before.mean()), len(changes)) for before, after in pairs)

    replication = Replicator(
        measure, dict.fromkeys(names, scenario), plan, workers=workers,
        done=partial(progress, "simulating changes, one at a time"),
        arguments={name: {"change": change, "refused": refused} for name, change in names.items()},
        base=BASE, allowance=ALLOWANCE,
    ).run(undecided)  # fmt: skip
    return Outcomes({c.name: c for c in changes}, replication)


def measure(scenario: Scenario, change: str, refused: pl.Series | None) -> dict[str, Any]:
    """Simulate one change: the wait of each job, NaN where it does not complete; and all waiting by reason.

    The ledger takes longer than a simulation: a change has that of the first replica, the baseline those of a few.
    Other jobs than those of the log (`refused` is None) are refused by themselves.
    """
    refused = world_of(scenario).refused["job"] if refused is None else refused
    other, jobs = changed(scenario, what_if(change, scenario), refused), scenario.workload.frame
    result = simulate(other.replace(min_coverage=0.0))  # that of the baseline is looked at
    done = result.completed
    wait = np.full(len(other.workload), np.nan)
    wait[done["job"].to_numpy()] = done["wait"].to_numpy()
    if len(wait) != jobs.height:  # gangs were split: a job has waited until its last instance runs
        instances = jobs["instances"].to_numpy()
        wait = np.maximum.reduceat(wait, np.append(0, np.cumsum(instances)[:-1]))
    if scenario.replica > (LOOKS[0] if change == AS_IS else 1):
        return {"wait": wait, "reasons": np.zeros(0, dtype=str), "seconds": np.zeros(0)}
    waited = result.ledger.drop("job").sum()
    return {"wait": wait, "reasons": np.array(waited.columns), "seconds": waited.to_numpy()[0]}


# -- the effect of each change -----------------------------------------------------------------------------------------

HOUR = 3600.0
WIDE = 40  # characters of the bar of the baseline
MOST = 70  # of any bar
FEWER = "fewer jobs run"  # some wait for ever: what the others gain is no improvement
MEAN = ("mean wait change", "mean wait change low", "mean wait change high")
P90 = ("P90 wait change", "P90 wait change low", "P90 wait change high")
SCHEMA = {
    "change": pl.String, "title": pl.String, "verdict": pl.String,
    **dict.fromkeys(("mean wait", *MEAN, "P90 wait", *P90, "P(lower)", "P(first)"), pl.Float64),
    "action": pl.String, "requires": pl.String, "longer for": pl.String,
    "setting": pl.String, "edits": pl.String, "line": pl.String,
    "added GPU-hours": pl.Float64, "added cost": pl.Float64,
    "not completed": pl.Int64, "main reason then": pl.String,
}  # fmt: skip


def effects(outcomes: Outcomes, scenario: Scenario, refused: pl.Series) -> pl.DataFrame:
    """Return one row per change, by verdict (better ones first) and by the change of the mean wait."""
    before = _means(outcomes.replication.results, BASE)[0]
    means = {name: _means(outcomes.replication.results, _name(name))[1] for name in outcomes.changes}
    chances = outcomes.replication.chances_of_first({AS_IS: before} | means)
    rows = [
        _row(c, outcomes)
        | _setting(c, scenario, refused)
        | _added(c, scenario)
        | {"P(first)": chances[c.name], "longer for": _longer_for(c, outcomes, scenario)}
        for c in outcomes.changes.values()
    ]
    for row in rows:
        if row["not completed"] and scenario.until is None:
            row["verdict"] = FEWER
    order = {BETTER: 0, NO_DIFFERENCE: 1, NOT_DECIDED: 1, WORSE: 2, FEWER: 3}
    rank = pl.col("verdict").replace_strict(order, return_dtype=pl.Int64)
    table = pl.DataFrame(rows, schema=SCHEMA).with_columns(pl.col(pl.Float64).fill_nan(None))
    return table.sort(rank, "mean wait change", maintain_order=True)


def _longer_for(change: WhatIf, outcomes: Outcomes, scenario: Scenario) -> str | None:
    """Return the teams that wait longer for certain, the first by how much; None where a scheduler knows no teams."""
    teams = None if scenario.scheduler is None else scenario.scheduler.teams(scenario.workload.frame)
    waits = list(zip(outcomes.waits(), outcomes.waits(change.name), strict=True))
    if teams is None or any(len(one) != len(teams) for one, _ in waits):
        return None
    measured = {}
    for team in teams.unique().sort():
        mine = (teams == team).to_numpy()
        means = [[np.nanmean(x[mine]) if (~np.isnan(x[mine])).any() else np.nan for x in pair] for pair in waits]
        before, after = np.array(means, dtype=np.float64).T
        if outcomes.replication.verdict(after - before, float(np.nanmean(before))) == WORSE:
            measured[str(team)] = float(np.nanmean(after - before))
    named = sorted(measured, key=lambda name: -measured[name])[:3]
    return ", ".join(f"{name} (+{duration(measured[name])})" for name in named) or None


def _pairs(results: Results, name: str) -> list[tuple[Floats, Floats]]:
    """Return the waits of the jobs that complete in the baseline and with a change, in each replica."""
    both = [(replica[BASE]["wait"], replica[name]["wait"]) for replica in results]
    done = [~np.isnan(before) & ~np.isnan(after) for before, after in both]
    return [(before[jobs], after[jobs]) for (before, after), jobs in zip(both, done, strict=True)]


def _means(results: Results, name: str) -> tuple[Floats, Floats]:
    pairs = _pairs(results, name)
    means = [(x.mean(), y.mean()) if len(x) else (np.nan, np.nan) for x, y in pairs]
    before, after = np.array(means, dtype=np.float64).T
    return before, after


def _row(change: WhatIf, outcomes: Outcomes) -> dict[str, Any]:
    runs = outcomes.replication
    waits = zip(outcomes.waits(), outcomes.waits(change.name), strict=True)
    lost = max(int((np.isnan(after) & ~np.isnan(before)).sum()) for before, after in waits)
    row: dict[str, Any] = {"change": change.name, "title": change.title, "action": change.action}
    row |= {"requires": change.requires, "not completed": lost, "line": change.line or None}
    row |= {"main reason then": main_reason(outcomes.reasons(change.name))}
    before, after = _means(runs.results, _name(change.name))
    if np.isnan(before).all():
        return row | {"verdict": NOT_DECIDED}
    tails = [
        [np.quantile(x, 0.9) if len(x) else np.nan for x in pair] for pair in _pairs(runs.results, _name(change.name))
    ]
    p90_before, p90_after = np.array(tails, dtype=np.float64).T
    mean = runs.statistic(after - before)
    row |= dict(zip(MEAN, mean.interval(), strict=True))
    row |= dict(zip(P90, runs.statistic(p90_after - p90_before).interval(), strict=True))
    row |= {"mean wait": float(np.nanmean(after)), "P90 wait": float(np.nanmean(p90_after))}
    says = runs.verdict(after - before, float(np.nanmean(before)), len(outcomes.changes))
    return row | {"P(lower)": mean.probability_below(0.0), "verdict": says}


def records_of(changes: pl.DataFrame, outcomes: Outcomes, population: str) -> tuple[Finding, ...]:
    """Return the effect of each change as a finding, in the order of the table."""
    rows = changes.drop_nulls("mean wait change").with_columns(pl.col(*MEAN).fill_null(np.nan))
    lost = pl.format("; {} do not complete with it", "not completed")
    rows = rows.with_columns(lost=pl.when(pl.col("not completed") > 0).then(lost).otherwise(pl.lit("")))
    return tuple(
        Finding(
            "mean wait", row["title"], row["mean wait"] - row[MEAN[0]], row["mean wait"], row[MEAN[0]], row[MEAN[1]],
            row[MEAN[2]], "s", population + row["lost"], row["verdict"], outcomes.replication.scope,
            outcomes.replication.count,
        )
        for row in rows.iter_rows(named=True)
    )  # fmt: skip


def main_reason(seconds: Mapping[str, float]) -> str | None:
    """Return the reason with the most seconds of waiting; None where no job waited."""
    first = max(seconds, key=lambda name: seconds[name], default=None)
    return first if first is not None and seconds[first] > 0 else None


def _setting(change: WhatIf, scenario: Scenario, refused: pl.Series) -> dict[str, str | None]:
    """Return the options of `simulate` that say a change, or what it edits."""
    if (options := change.options(scenario)) is None:
        return {"setting": None, "edits": change.edits}
    more = besides(scenario, change.apply(scenario), refused)
    return {"setting": None, "edits": ", ".join([options, *more])} if more else {"setting": options, "edits": None}


def _added(change: WhatIf, scenario: Scenario) -> dict[str, float]:
    """Return the GPU-hours that a change adds while jobs arrive, and their cost."""
    if not parts_of(change.name)[-1].startswith(NODES):
        return {"added GPU-hours": 0.0, "added cost": 0.0}
    hours, prices = float(scenario.workload.frame["submit"].max()) / HOUR, scenario.prices or Prices()  # type: ignore[arg-type]
    before, after = (_gpus(s.cluster) for s in (scenario, change.apply(scenario)))
    more = {name: count - before.get(name, 0) for name, count in after.items()}
    cost = sum(count * hours * prices.gpu_hour(name) for name, count in more.items() if count)
    return {"added GPU-hours": hours * sum(more.values()), "added cost": float(cost)}


def _gpus(cluster: Cluster) -> dict[str, int]:
    nodes = cluster.frame.filter(pl.col("gpus") > 0)
    return dict(nodes.group_by("gpu_type").agg(pl.col("gpus").cast(pl.Int64).sum()).iter_rows())


def actions(table: pl.DataFrame) -> pl.DataFrame:
    """Return the changes that lower the mean wait, or may, with what they require."""
    helps = (pl.col("verdict") == BETTER) | ((pl.col("verdict") == NOT_DECIDED) & (pl.col("mean wait change") < 0))
    pays = ["longer for"] if table["longer for"].null_count() < table.height else []
    return table.filter(helps).select("action", *MEAN, "verdict", "requires", *pays, "added GPU-hours", "added cost")


def waterfall(mean: float, table: pl.DataFrame) -> pl.DataFrame:
    """Return the mean wait of the baseline and under each change, as bars: `-` is removed by the change, `+` added.

    A change with which some jobs do not complete has no bar: the mean wait of the others is not that of the baseline.

    >>> rows = {"title": ["a", "b"], "mean wait change": [-5.0, 2.0], "not completed": 0}
    >>> [bar.strip("#") for bar in waterfall(10.0, pl.DataFrame(rows))["bar"]]
    ['', '--------------------', '++++++++']
    """
    table = table.filter(pl.col("not completed") == 0)
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
