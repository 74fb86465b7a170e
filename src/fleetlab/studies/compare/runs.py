"""Runs of the same jobs in paired replicas: what is measured of each, and how it differs from the first."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, Figure, Scenario, WorkloadError
from fleetlab.core.catalog import BACKFILLS, METRICS
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.progress import Progress, silent
from fleetlab.core.replicas import perturbed
from fleetlab.core.result import FieldsResult, Finding
from fleetlab.sim import simulate
from fleetlab.stats import ANY, POSITIVE, Floats, Interval, Ints, Range, Statistic, Verdict, bonferroni  # fmt: skip
from fleetlab.studies.explain.job import names_of
from fleetlab.studies.model_error import by_chance, notes_of, with_model_error
from fleetlab.studies.replicas import Plan, Replication, Replicator, Results
from fleetlab.studies.runner import Arrays, Workers
from fleetlab.studies.sentences import NEVER_RUN, left_out, never_run

Values = Mapping[str, Mapping[str, Floats]]  # by run and metric: one for each job
Classes = Mapping[str, NDArray[np.bool_]]  # which jobs are in each

MEASURES = {"wait": "wait", "JCT": "jct", "bounded slowdown": "bounded_slowdown"}  # columns of simulated jobs
PER_DAY = {"GPU-hours allocated per day": "GPU-h per day", "energy per day": "energy per day, kWh"}
OF_THE_RUN = (NEVER_RUN, "GPU allocation, %", "preemptions", *PER_DAY.values(), "cost per day")  # of the whole run
POINTS = 200  # of a distribution


@dataclass(frozen=True, repr=False)
class Comparison(FieldsResult):
    """Wait, JCT and slowdown under each policy, and the differences from the first, with intervals."""

    scenarios: Mapping[str, Scenario] = field(default_factory=dict)

    @cached_property
    def jobs(self) -> pl.DataFrame:
        """The wait and JCT of each job under each policy in the log as it is; null where it does not complete."""
        base = next(iter(self.scenarios.values()))
        table = base.workload.frame.select("job").join(names_of(base), on="job", how="left", maintain_order="left")
        for name, scenario in self.scenarios.items():
            done = measure(scenario)
            own = {f"{metric}, {name}": done[MEASURES[metric]] for metric in ("wait", "JCT")}
            table = table.join(pl.DataFrame({"job": done["job"]} | own), on="job", how="left", maintain_order="left")
        return table.select(column for column in table if column.name != "name" or column.count())

    def _whole_tables(self) -> Mapping[str, Callable[[], pl.DataFrame]]:
        return {next(iter(self.frames)): lambda: next(iter(self.frames.values())), "jobs": lambda: self.jobs}


class Sample(NamedTuple):
    """One replica: the jobs that completed in every run of it, and what was measured of them in each."""

    number: int  # as `core.replicas.perturbed` takes it
    jobs: Ints
    values: Values


@dataclass(frozen=True, eq=False)
class Runs:
    """Simulations of the same jobs in paired replicas, the baseline first."""

    scenarios: Mapping[str, Scenario]
    replication: Replication
    samples: Sequence[Sample]

    @classmethod
    def of(
        cls,
        scenarios: Mapping[str, Scenario],
        *,
        plan: Plan | None = None,
        workers: Workers,
        progress: Progress,
        function: Callable[..., Arrays] | None = None,
        arguments: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        look: Callable[[Runs], None] = lambda runs: None,
    ) -> Runs:
        """Simulate each scenario in as many replicas as decide how mean waits differ.

        `function` is what `measure` returns, from elsewhere; `look` is called with the runs whenever verdicts are
        looked at.
        """
        # Reservations take several times as long to simulate: started last, one core would be left waiting for them.
        order = sorted(scenarios, key=lambda name: not BACKFILLS[scenarios[name].policy.backfill].reserves)
        base, plan = next(iter(scenarios)), plan or Plan()

        def undecided(replication: Replication) -> bool:
            runs = cls(scenarios, replication, _samples(replication.results, scenarios, plan))
            look(runs)
            pairs = [_pair(runs.samples, base, name) for name in scenarios if name != base]
            return not all(replication.is_decided(*pair, len(pairs)) for pair in pairs)

        progress("simulating policies", 0, 0.0)
        done = partial(progress, "simulating policies")
        ordered = {name: scenarios[name] for name in order}
        replicator = Replicator(function or measure, ordered, plan, workers, done, arguments, base=base)
        replication = replicator.run(undecided)
        runs = cls(scenarios, replication, _samples(replication.results, scenarios, plan))
        if runs.base.data.is_log:
            require(runs.coverage, runs.base.min_coverage)
        return runs

    def only(self, names: Collection[str]) -> Runs:
        """Return some of the runs, with the same jobs."""
        scenarios = {name: s for name, s in self.scenarios.items() if name in names}
        return Runs(scenarios, self.replication, self.samples)

    @property
    def base(self) -> Scenario:
        """The baseline."""
        return next(iter(self.scenarios.values()))

    @property
    def base_name(self) -> str:
        """The name of the baseline."""
        return next(iter(self.scenarios))

    @property
    def jobs(self) -> Ints:
        """The jobs that completed in every run of the first replica."""
        return self.samples[0].jobs

    @property
    def results(self) -> Mapping[str, Arrays]:
        """What was measured in the first replica."""
        return {name: self.replication.results[0][name] for name in self.scenarios}

    @cached_property
    def frames(self) -> Sequence[pl.DataFrame]:
        """The jobs of each replica, as they were submitted; those of this log are the same in all of them."""
        drawn = self.replication.resampled
        return [
            (perturbed(self.base, s.number, "like") if drawn else self.base).workload.frame[s.jobs]
            for s in self.samples
        ]

    @property
    def coverage(self) -> Coverage:
        """Which jobs of the log were simulated in the first run."""
        return Coverage.of(self.base.run_times, left_out_of(self.results[self.base_name]))

    def over(self, name: str, metric: str, function: Callable[[Floats], float] = np.mean) -> Floats:
        """Return a function of what was measured of the jobs of a run, one number a replica."""
        return np.array([function(sample.values[name][metric]) for sample in self.samples])

    def statistic(self, values: Floats, within: Range = ANY) -> Statistic:
        """Return the mean over replicas with its standard error."""
        return self.replication.statistic(values, within)

    def verdict(self, name: str, metric: str = "wait") -> Verdict:
        """Return whether a mean is better than in the first run; those of all runs hold together."""
        return self.replication.verdict(*_pair(self.samples, self.base_name, name, metric), len(self.scenarios) - 1)

    def rows(self) -> pl.DataFrame:
        """Return what was measured in each run, and how it differs from the first: means over the replicas."""
        chances = self.replication.chances_of_first({name: self.over(name, "wait") for name in self.scenarios})
        rows = [self._row(name) | {"P(first)": chances[name]} for name in self.scenarios]
        return pl.DataFrame(rows, infer_schema_length=None).hstack(self._of_whole_runs())

    def _row(self, name: str) -> dict[str, object]:
        row: dict[str, object] = {"policy": name}
        for metric in MEASURES:
            row |= self.mean_of_metric(metric, name).columns(f"mean {metric}")
            if metric == "wait":
                row |= {"median wait": float(self.over(name, metric, _quantile(0.5)).mean())}
                p90 = self.statistic(self.over(name, metric, _quantile(0.9)), POSITIVE)
                row |= p90.interval().columns("P90 wait")
                row |= {f"P{q} wait": float(self.over(name, metric, _quantile(q / 100)).mean()) for q in (95, 99)}
                row |= {"share of jobs that wait": float(self.over(name, metric, _share_above_0).mean())}
        for metric in MEASURES:
            row |= self.change(name, metric).interval().columns(f"mean {metric} change")
        return row | {"verdict": self.verdict(name)}

    def mean_of_metric(self, metric: str, name: str) -> Interval:
        """Return a mean of a run; the interval of a wait has the error of the model in it."""
        by_chance = self._by_chance(metric, name)
        return with_model_error(by_chance, self.scenarios[name]) if metric == "wait" else by_chance

    def _by_chance(self, metric: str, name: str) -> Interval:
        return self.statistic(self.over(name, metric), (METRICS[metric].least, math.inf)).interval()

    def without_model_error(self) -> dict[str, pl.DataFrame]:
        """Return the mean waits with intervals by chance alone, where others have more in them."""
        return by_chance({name: (self._by_chance("wait", name), s) for name, s in self.scenarios.items()})

    def notes(self) -> tuple[str, ...]:
        """Return what intervals rest on."""
        several = self.scenarios.values() if self.replication.count > 1 else ()
        return (*self.replication.notes(len(self.scenarios) - 1), *notes_of(several))

    def change(self, name: str, metric: str = "wait") -> Statistic:
        """Return how a mean differs from that of the first run."""
        return self.statistic(_pair(self.samples, self.base_name, name, metric)[0])

    def pairs(self) -> dict[str, pl.DataFrame]:
        """Return how the means differ between every two runs, as a table by its name; of two alone, `rows` says it."""
        rows, others = [], len(self.scenarios) - 1
        for other, policy in combinations(self.scenarios, 2):
            for metric in MEASURES:
                difference, level = _pair(self.samples, other, policy, metric)
                interval = zip(("difference", "low", "high"), self.statistic(difference).interval(), strict=True)
                row = {"policy": policy, "other": other, "metric": f"mean {metric}"} | dict(interval)
                rows.append(
                    row | {"unit": METRICS[metric].unit, "verdict": self.replication.verdict(difference, level, others)}
                )
        return {"pairs": pl.DataFrame(rows)} if len(self.scenarios) > 2 else {}

    def _of_whole_runs(self) -> pl.DataFrame:
        """Return the numbers of whole runs, a row each; the cost where there are prices."""
        each = [np.mean([r[name]["run"] for r in self.replication.results], axis=0) for name in self.scenarios]
        runs = pl.DataFrame(np.array(each), schema=OF_THE_RUN, orient="row")
        runs = runs.with_columns(pl.col("preemptions", NEVER_RUN).round().cast(pl.Int64))
        if not self.base.prices:
            return runs.drop("cost per day")
        return runs.rename({"cost per day": f"cost per day, {self.base.prices.unit}"})

    def summary(self) -> tuple[Estimate, ...]:
        """Return the means of each run."""
        return tuple(
            Estimate(f"mean {metric}, {name}", *self.mean_of_metric(metric, name), METRICS[metric].unit)
            for metric in MEASURES
            for name in self.scenarios
        )

    def of_whom(self) -> tuple[str, ...]:
        """Return which jobs are not compared, and which complete in one run only."""
        refused = refused_by_reason(self.results)
        return (*not_compared(self.base, refused, len(self.jobs)), *only_one_side(self.results))

    def by_class(self, classes_of: Callable[[pl.DataFrame], Classes]) -> pl.DataFrame:
        """Return how the mean wait of each class of jobs differs from that in the first run.

        `classes_of` returns which of some jobs are in each class. The intervals of all classes of a run hold together.
        """
        masks = [classes_of(frame) for frame in self.frames]
        together, table = len(masks[0]), []
        for policy in list(self.scenarios)[1:]:
            for name, rows in masks[0].items():
                before, after = (self._class_means(run, name, masks) for run in (self.base_name, policy))
                change, level = after - before, float(np.nanmean(before))
                row = {"policy": policy, "class": name, "jobs": int(rows.sum())}
                row |= {"mean wait before": level, "mean wait": float(np.nanmean(after))}
                says = self.replication.verdict(change, level, together)
                limits = self.statistic(change).interval(bonferroni(together))
                table.append(row | limits.columns("mean wait change") | {"verdict": says})
        return pl.DataFrame(table, infer_schema_length=None)

    def _class_means(self, run: str, name: str, masks: Sequence[Classes]) -> Floats:
        """Return the mean wait of a class in each replica; NaN in one without such jobs."""
        none = np.zeros(0, dtype=np.int64)
        waits = [s.values[run]["wait"][m.get(name, none)] for s, m in zip(self.samples, masks, strict=True)]
        return np.array([float(w.mean()) if len(w) else math.nan for w in waits])


def _samples(results: Results, scenarios: Collection[str], plan: Plan) -> list[Sample]:
    """Return what was measured of the jobs that completed in every run of each replica."""
    numbers = plan.numbers(len(results))
    return [
        Sample(k, *of_the_same_jobs({name: replica[name] for name in scenarios}))
        for k, replica in zip(numbers, results, strict=True)
    ]


def _pair(samples: Sequence[Sample], base: str, name: str, metric: str = "wait") -> tuple[Floats, float]:
    """Return how a mean differs from that of the baseline, one number a replica, and that of the baseline."""
    before, after = (np.array([s.values[run][metric].mean() for s in samples]) for run in (base, name))
    return after - before, float(before.mean())


def _quantile(level: float) -> Callable[[Floats], float]:
    return lambda values: float(np.quantile(values, level))


def _share_above_0(values: Floats) -> float:
    return float((values > 0).mean())


# -- one run ---------------------------------------------------------------------------------------------------------


def measure(scenario: Scenario, progress: Progress = silent) -> dict[str, Any]:
    """Simulate a scenario: the jobs that completed with their wait, JCT and slowdown, and those that are left out."""
    # The coverage of the baseline is looked at.
    result = simulate(scenario.replace(min_coverage=0.0), progress=progress)
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


def records_of(runs: Runs, where: str, titles: Mapping[str, str] | None = None) -> tuple[Finding, ...]:
    """Return how the means of each run differ from those of the first, of the jobs that completed there."""
    size = f"the {len(runs.jobs):,} jobs" if len(runs.jobs) != 1 else "the one job"
    names = titles or {name: name for name in runs.scenarios}
    return tuple(
        Finding(
            f"mean {metric}", names[name], runs.mean_of_metric(metric, runs.base_name).value,
            runs.mean_of_metric(metric, name).value, *runs.change(name, metric).interval(), METRICS[metric].unit,
            f"{size} that complete {where}", runs.verdict(name, metric), runs.replication.scope,
            runs.replication.count,
        )
        for metric in MEASURES
        for name in list(runs.scenarios)[1:]
    )  # fmt: skip


def not_compared(base: Scenario, refused: pl.DataFrame, compared: int) -> list[str]:
    """Return which jobs are not compared, and why."""
    submit, reasons = base.workload.frame["submit"], dict(refused.iter_rows())
    parts, jobs = left_out(reasons), len(submit)
    late = 0 if base.until is None else int((submit > base.until).sum())
    parts += [f"{late:,} not yet submitted when the simulation stops"] if late else []
    there = int(base.workload.frame["initial"].sum())
    parts += [f"{there:,} there when the log begins"] if there else []
    if unfinished := jobs - sum(reasons.values()) - compared - late - there:
        parts.append(f"{unfinished:,} do not complete under some policy")
    return [f"{jobs - compared:,} of {jobs:,} jobs are not compared: {', '.join(parts)}."] if parts else []


def only_one_side(results: Mapping[str, Arrays]) -> list[str]:
    """Return which jobs only the first policy or only another completes."""
    (base, first), *others = results.items()
    sentences = []
    for name, arrays in others:
        only_base, only_other = np.setdiff1d(first["job"], arrays["job"]), np.setdiff1d(arrays["job"], first["job"])
        if len(only_base) or len(only_other):
            never = int(np.isin(only_base, arrays["refused"]).sum())
            sentences.append(
                f"{len(only_base):,} jobs complete only under {base} (under {name} {never:,} of them cannot run, "
                f"{len(only_base) - never:,} do not complete), {len(only_other):,} only under {name}."
            )
    return sentences


# -- figures ---------------------------------------------------------------------------------------------------------


def figures_of(runs: Runs, rows: pl.DataFrame) -> dict[str, Figure]:
    """Return the mean wait and the distribution of waits of each run."""
    means = rows.select(x="policy", y="mean wait", low="mean wait low", high="mean wait high")
    alt = "; ".join(f"{r['policy']}: {r['mean wait']:.0f} s" for r in rows.iter_rows(named=True))
    waits = {name: v["wait"] for name, v in runs.samples[0].values.items() if name in runs.scenarios}
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
