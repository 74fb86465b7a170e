"""Runs of the same jobs: what is measured of each, and how it differs from the first."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, Figure, Scenario, WorkloadError
from fleetlab.core.catalog import BACKFILLS, METRICS
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.progress import Progress
from fleetlab.core.result import FieldsResult
from fleetlab.sim import simulate
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, Ints, bonferroni, paired_difference
from fleetlab.studies.requests import NEVER_RUN, left_out, never_run
from fleetlab.studies.workers import Arrays, Call, process_count, run_calls

Values = Mapping[str, Mapping[str, Floats]]  # by run and metric: one for each job

MEASURES = {"wait": "wait", "JCT": "jct", "bounded slowdown": "bounded_slowdown"}  # columns of simulated jobs
PER_DAY = {"GPU-hours allocated per day": "GPU-h per day", "energy per day": "energy per day, kWh"}
OF_THE_RUN = (NEVER_RUN, "GPU allocation, %", "preemptions", *PER_DAY.values(), "cost per day")  # of the whole run
POINTS = 200  # of a distribution


class Comparison(FieldsResult):
    """Wait, JCT and slowdown under each policy, and the differences from the first, with intervals."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Simulations of the same jobs, the baseline first."""

    scenarios: Mapping[str, Scenario]
    results: Mapping[str, Arrays]
    jobs: Ints  # those that completed in every run
    values: Values
    blocks: BlockBootstrap

    @classmethod
    def of(cls, scenarios: Mapping[str, Scenario], *, workers: int | None, progress: Progress) -> Runs:
        """Simulate each scenario."""
        base = next(iter(scenarios.values()))
        progress("simulating policies", 0, 0.0)
        # Reservations take several times as long to simulate: started last, one core would be left waiting for them.
        order = sorted(scenarios, key=lambda name: not BACKFILLS[scenarios[name].policy.backfill].reserves)
        arrays = run_calls(
            f"{__name__}:measure",
            [Call(scenarios[name], {}) for name in order],
            workers=process_count(base.trace.workload.instances, workers),
            done=lambda count: progress("simulating policies", count, count / len(order)),
        )
        by_name = dict(zip(order, arrays, strict=True))
        results = {name: by_name[name] for name in scenarios}
        if base.data.is_log:
            require(Coverage.of(base.run_times, left_out_of(next(iter(results.values())))), base.min_coverage)
        jobs, values = of_the_same_jobs(results)
        submit = base.workload.frame["submit"].to_numpy()
        blocks = BlockBootstrap.of_times(submit[jobs], float(submit[-1]))
        return cls(scenarios, results, jobs, values, blocks)

    def only(self, names: Collection[str]) -> Runs:
        """Return some of the runs, with the same jobs."""
        scenarios = {name: s for name, s in self.scenarios.items() if name in names}
        results = {name: self.results[name] for name in scenarios}
        return Runs(scenarios, results, self.jobs, {name: self.values[name] for name in scenarios}, self.blocks)

    @property
    def base(self) -> Scenario:
        """The baseline."""
        return next(iter(self.scenarios.values()))

    @property
    def frame(self) -> pl.DataFrame:
        """The jobs that completed in every run, as they were submitted."""
        return self.base.workload.frame[self.jobs]

    @property
    def coverage(self) -> Coverage:
        """Which jobs of the log were simulated in the first run."""
        return Coverage.of(self.base.run_times, left_out_of(next(iter(self.results.values()))))

    def rows(self) -> pl.DataFrame:
        """Return what was measured in each run, and how it differs from the first."""
        rows = [row_of(name, self.values, self.blocks) for name in self.results]
        return pl.DataFrame(rows, infer_schema_length=None).hstack(of_whole_runs(self.results, self.base))

    def summary(self) -> tuple[Estimate, ...]:
        """Return the means of each run."""
        return tuple(
            Estimate(f"mean {metric}, {name}", *mean_of_metric(metric, own, self.blocks), METRICS[metric].unit)
            for metric in MEASURES
            for name, own in self.values.items()
        )

    def of_whom(self) -> tuple[str, ...]:
        """Return which jobs are not compared, and which complete in one run only."""
        refused = refused_by_reason(self.results)
        return (*not_compared(self.base, refused, len(self.jobs)), *only_one_side(self.results))

    def by_class(self, classes: Mapping[str, NDArray[np.bool_]]) -> pl.DataFrame:
        """Return how the mean wait of each class of jobs differs from that in the first run.

        The intervals of all classes of a run hold together.
        """
        (_, first), *others = self.values.items()
        rows_by_class = []
        for policy, own in others:
            for name, rows in classes.items():
                part = self.blocks.part(rows)
                before, after = (part.means(side["wait"][rows]) for side in (first, own))
                interval = paired_difference(before, after).interval(bonferroni(len(classes)))
                row = {
                    "policy": policy,
                    "class": name,
                    "jobs": int(rows.sum()),
                    "mean wait": float(own["wait"][rows].mean()),
                }
                rows_by_class.append(row | columns_of("mean wait change", interval) | {"verdict": interval.change()})
        return pl.DataFrame(rows_by_class, infer_schema_length=None)


# -- one run ---------------------------------------------------------------------------------------------------------


def measure(scenario: Scenario) -> dict[str, Any]:
    """Simulate a scenario: the jobs that completed with their wait, JCT and slowdown, and those that are left out."""
    result = simulate(scenario.replace(min_coverage=0.0))  # that of the baseline is looked at
    done = result.completed
    numbers = {e.metric: e.value for e in (*result.summary(), *result.per_day())}
    rates = [numbers.get(name, math.nan) for name in ("GPU allocation while jobs arrive", *PER_DAY, "cost per day")]
    return {
        "run": np.array(
            [len(never_run(result.refused)), rates[0], result.jobs["preemptions"].sum(), *rates[1:]], dtype=np.float64
        ),
        **{name: done[name].to_numpy() for name in ("job", *MEASURES.values())},
        "refused": result.refused["job"].to_numpy(),
        "reason": np.array(result.refused["reason"].to_list(), dtype=str),
    }


# -- all runs --------------------------------------------------------------------------------------------------------


def left_out_of(result: Arrays) -> pl.DataFrame:
    """Return the jobs that are left out of a run, and why."""
    schema = {"job": pl.Int64, "reason": pl.String}
    return pl.DataFrame({"job": result["refused"], "reason": result["reason"]}, schema=schema)


def of_whole_runs(results: Mapping[str, Arrays], base: Scenario) -> pl.DataFrame:
    """Return the numbers of whole runs, a row each; the cost where there are prices."""
    runs = pl.DataFrame(np.array([arrays["run"] for arrays in results.values()]), schema=OF_THE_RUN, orient="row")
    runs = runs.with_columns(pl.col("preemptions", NEVER_RUN).cast(pl.Int64))
    if not base.prices:
        return runs.drop("cost per day")
    return runs.rename({"cost per day": f"cost per day, {base.prices.unit}"})


def of_the_same_jobs(results: Mapping[str, Arrays]) -> tuple[Ints, dict[str, dict[str, Floats]]]:
    """Return the jobs that completed under every policy, and what was measured of them."""
    jobs = next(iter(results.values()))["job"]
    for arrays in results.values():
        jobs = jobs[np.isin(jobs, arrays["job"], assume_unique=True)]
    if not len(jobs):
        msg = "no job completes under every policy"
        raise WorkloadError(msg, hint="`fleetlab simulate` lists the jobs that cannot run, and why")
    values = {}
    for name, arrays in results.items():
        order = np.argsort(arrays["job"])
        rows = order[np.searchsorted(arrays["job"], jobs, sorter=order)]
        values[name] = {metric: arrays[column][rows] for metric, column in MEASURES.items()}
    return jobs, values


def refused_by_reason(results: Mapping[str, Arrays]) -> pl.DataFrame:
    """Return how many jobs are left out under some policy, by reason."""
    parts = [left_out_of(r) for r in results.values()]
    jobs = pl.concat(parts).unique("job", keep="first", maintain_order=True)
    return jobs.group_by("reason").agg(jobs=pl.len()).sort("jobs", "reason", descending=[True, False])


def row_of(name: str, values: Values, blocks: BlockBootstrap) -> dict[str, object]:
    """Return what was measured in a run, and how it differs from the first."""
    base, own = next(iter(values.values())), values[name]
    row: dict[str, object] = {"policy": name}
    for metric in MEASURES:
        row |= columns_of(f"mean {metric}", mean_of_metric(metric, own, blocks))
        if metric == "wait":
            row |= {"median wait": float(np.median(own[metric]))}
            row |= columns_of("P90 wait", blocks.quantile(own[metric], 0.9, POSITIVE).interval())
            row |= {f"P{q} wait": float(np.quantile(own[metric], q / 100)) for q in (95, 99)}
            row |= {"share of jobs that wait": float((own[metric] > 0).mean())}
    for metric in MEASURES:
        row |= columns_of(f"mean {metric} change", _change(metric, base, own, blocks))
    return row


def mean_of_metric(metric: str, values: Mapping[str, Floats], blocks: BlockBootstrap) -> Interval:
    """Return a mean of a run with its interval."""
    return blocks.mean(values[metric], (METRICS[metric].least, math.inf)).interval()


def _change(metric: str, base: Mapping[str, Floats], own: Mapping[str, Floats], blocks: BlockBootstrap) -> Interval:
    return paired_difference(blocks.means(base[metric]), blocks.means(own[metric])).interval()


def columns_of(name: str, interval: Interval) -> dict[str, float]:
    """Return an interval as three columns."""
    return dict(zip((name, f"{name} low", f"{name} high"), interval, strict=True))


def difference_of(row: Mapping[str, Any], metric: str) -> tuple[float, float, float]:
    """Return how a mean of a row of `Runs.rows` differs from the first."""
    return row[f"mean {metric} change"], row[f"mean {metric} change low"], row[f"mean {metric} change high"]


def not_compared(base: Scenario, refused: pl.DataFrame, compared: int) -> list[str]:
    """Return which jobs are not compared, and why."""
    submit, reasons = base.workload.frame["submit"], dict(refused.iter_rows())
    parts, jobs = left_out(reasons), len(submit)
    late = 0 if base.until is None else int((submit > base.until).sum())
    parts += [f"{late:,} not yet submitted when the simulation stops"] if late else []
    there = int(base.workload.frame["initial"].sum())
    parts += [f"{there:,} there when the log begins"] if there else []
    if left := jobs - sum(reasons.values()) - compared - late - there:
        parts.append(f"{left:,} do not complete under some policy")
    return [f"{jobs - compared:,} of {jobs:,} jobs are not compared: {', '.join(parts)}."] if parts else []


def only_one_side(results: Mapping[str, Arrays]) -> list[str]:
    """Return which jobs only the first policy or only another completes."""
    (base, first), *others = results.items()
    sentences = []
    for name, arrays in others:
        lost, won = np.setdiff1d(first["job"], arrays["job"]), np.setdiff1d(arrays["job"], first["job"])
        if len(lost) or len(won):
            never = int(np.isin(lost, arrays["refused"]).sum())
            sentences.append(
                f"{len(lost):,} jobs complete only under {base} (under {name} {never:,} of them cannot run, "
                f"{len(lost) - never:,} do not complete), {len(won):,} only under {name}."
            )
    return sentences


# -- figures ---------------------------------------------------------------------------------------------------------


def figures_of(values: Values, rows: pl.DataFrame) -> dict[str, Figure]:
    """Return the mean wait and the distribution of waits of each run."""
    means = rows.select(x="policy", y="mean wait", low="mean wait low", high="mean wait high")
    alt = "; ".join(f"{r['policy']}: {r['mean wait']:.0f} s" for r in rows.iter_rows(named=True))
    waits = {name: v["wait"] for name, v in values.items()}
    return {
        "mean wait by policy": Figure("Mean wait by policy", "bar", means, "policy", "mean wait, s", alt),
        "waits by policy": Figure(
            "Distribution of waits", "line", _distributions(waits), "wait, s", "fraction of jobs",
            "; ".join(f"{name}: {np.mean(w <= 60):.0%} wait at most 1 min" for name, w in waits.items()), log_x=True,
        ),
    }  # fmt: skip


def _distributions(waits: Mapping[str, Floats]) -> pl.DataFrame:
    longest = max(float(w.max(initial=1.0)) for w in waits.values())
    at = np.geomspace(1.0, max(longest, 10.0), POINTS)
    parts = [
        pl.DataFrame({"x": at, "y": np.searchsorted(np.sort(w), at, side="right") / len(w)}).with_columns(
            series=pl.lit(name)
        )
        for name, w in waits.items()
    ]
    return pl.concat(parts)
