"""Compare policies, or any scenarios, on the same jobs: wait, JCT and slowdown, with paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Cluster, Estimate, Figure, Policy, Provenance, Scenario, Words, WorkloadError
from fleetlab.core.catalog import BACKFILLS, METRICS, ORDERS
from fleetlab.core.coverage import Coverage, require
from fleetlab.core.durations import duration
from fleetlab.core.job_classes import GPU_REQUESTS, gpu_request
from fleetlab.core.policy import RULES, title
from fleetlab.core.progress import Progress, silent
from fleetlab.core.result import FieldsResult
from fleetlab.core.scenario import ScenarioLike
from fleetlab.core.words import shorthand
from fleetlab.sim import simulate
from fleetlab.stats import POSITIVE, BlockBootstrap, Floats, Interval, Ints, bonferroni, paired_difference
from fleetlab.studies.requests import NEVER_RUN, left_out, never_run
from fleetlab.studies.sentences import change_of_mean
from fleetlab.studies.workers import Arrays, Call, process_count, run_calls

PolicyLike = str | Policy | Mapping[str, Any] | Scenario

FIVE = ("fifo", "fifo/easy", "smallest", "sjf/estimate=group", "sjf")
WITHOUT_SHARING = "fifo/sharing=exclusive"
MEASURES = {"wait": "wait", "JCT": "jct", "bounded slowdown": "bounded_slowdown"}  # columns of simulated jobs
PER_DAY = {"GPU-hours allocated per day": "GPU-h per day", "energy per day": "energy per day, kWh"}
OF_THE_RUN = (NEVER_RUN, "GPU allocation, %", "preemptions", *PER_DAY.values(), "cost per day")  # of the whole run
POINTS = 200  # of a distribution
SHORT, LONG = "runtime up to the median", "runtime above the median"


class Comparison(FieldsResult):
    """Wait, JCT and slowdown under each policy, and the differences from the first, with intervals."""


def compare(
    source: ScenarioLike | Sequence[Scenario],
    cluster: Cluster | None = None,
    *,
    policies: Sequence[PolicyLike] | None = None,
    workers: int | None = None,
    progress: Progress = silent,
    **words: Unpack[Words],
) -> Comparison:
    """Compare policies on the same jobs; the first is the baseline.

    Parameters
    ----------
    source, cluster, words
        What builds a scenario, as `Scenario.of` takes it; or several scenarios with the same jobs, as `Scenario.vary`
        returns them.
    policies
        Changes of the scenario, each as ORDER/BACKFILL/PLACEMENT/ESTIMATE/SHARING (the last may be left out, WORD=VALUE
        for other words), a `Policy`, a mapping of words, or a `Scenario` (default: fifo, fifo/easy, smallest, sjf with
        estimates by group and with true runtimes; fifo without sharing, where jobs request fractions of a GPU).
    workers
        Processes to run at once (default: one per core, at most 4, for a large workload; 0: none but this one).
    progress
        Called as policies are done.

    """
    scenarios = _scenarios(source, cluster, policies, words)
    base = next(iter(scenarios.values()))
    progress("policies", 0, 0.0)
    # Reservations take several times as long to simulate: started last, one core would be left waiting for them.
    order = sorted(scenarios, key=lambda name: not BACKFILLS[scenarios[name].policy.backfill].reserves)
    results = run_calls(
        f"{__name__}:measure",
        [Call(scenarios[name], {}) for name in order],
        workers=process_count(base.trace.workload.instances, workers),
        done=lambda count: progress("policies", count, count / len(order)),
    )
    by_name = dict(zip(order, results, strict=True))
    settings = base.words() | {"policies": _spellings(scenarios)}
    provenance = Provenance("compare", base.workload.source, settings, base.seed)
    if base.data.is_log:
        require(Coverage.of(base.run_times, _left_out_of(by_name[next(iter(scenarios))])), base.min_coverage)
    return _comparison({name: by_name[name] for name in scenarios}, scenarios, provenance)


# -- what is compared ------------------------------------------------------------------------------------------------


def _scenarios(
    source: ScenarioLike | Sequence[Scenario],
    cluster: Cluster | None,
    policies: Sequence[PolicyLike] | None,
    words: Words,
) -> dict[str, Scenario]:
    """Return the scenarios by a name each, the baseline first."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        if policies is not None:
            msg = "several scenarios are compared as they are: leave `policies` out"
            raise WorkloadError(msg, hint="or pass one scenario and `policies`")
        entries: Sequence[PolicyLike] = [Scenario.of(s, cluster, **words) for s in source]
        base = None
    else:
        base = Scenario.of(source, cluster, **words)
        entries = _usual(base) if policies is None else policies
    distinct = list(dict.fromkeys(entries)) if all(isinstance(e, str) for e in entries) else entries
    named = _by_name([_scenario(entry, base) for entry in distinct])
    if len(named) < 2:
        msg = f"at least two different policies are needed to compare: {', '.join(named) or 'none'}"
        raise WorkloadError(msg, hint="fifo,sjf,fifo/easy,sjf/estimate=group")
    _check_same_jobs(named)
    return named


def _usual(base: Scenario) -> Sequence[str]:
    """Return the policies that are compared by default: without sharing too, where jobs request fractions of a GPU."""
    fractions = base.trace.workload.frame["gpu_milli"].is_between(1, 999).any()
    return (*FIVE, WITHOUT_SHARING) if fractions and base.policy.sharing == "fractional" else FIVE


def _scenario(entry: PolicyLike, base: Scenario | None) -> Scenario:
    if isinstance(entry, Scenario):
        return entry
    assert base is not None
    words = {"policy": entry} if isinstance(entry, Policy) else shorthand(entry) if isinstance(entry, str) else entry
    return base.replace(**words)


def _by_name(scenarios: Sequence[Scenario]) -> dict[str, Scenario]:
    """Return the scenarios by order/backfill, and whatever else is not the same in all of them."""
    changes = [s.changes() | ({"cluster": name} if (name := s.data.cluster_name) else {}) for s in scenarios]
    names = [title({k: v for k, v in c.items() if any(o.get(k) != v for o in changes) or k in RULES}) for c in changes]
    unique = [f"{name} ({k})" if name in names[: k - 1] else name for k, name in enumerate(names, 1)]
    return dict(zip(unique, scenarios, strict=True))


def _check_same_jobs(scenarios: Mapping[str, Scenario]) -> None:
    frames = [scenario.trace.workload.frame for scenario in scenarios.values()]
    if not all(frame is frames[0] or frame.equals(frames[0]) for frame in frames):
        msg = f"scenarios of different jobs cannot be compared: {', '.join(scenarios)}"
        raise WorkloadError(msg, hint="`sweep` compares workloads with each other")


def _spellings(scenarios: Mapping[str, Scenario]) -> list[dict[str, Any]]:
    """Return the words of each scenario that differ from the baseline's."""
    words = [scenario.words() for scenario in scenarios.values()]
    return [{k: v for k, v in w.items() if v != words[0].get(k)} for w in words]


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


# -- the comparison --------------------------------------------------------------------------------------------------


def _comparison(results: Mapping[str, Arrays], scenarios: Mapping[str, Scenario], provenance: Provenance) -> Comparison:
    base = next(iter(scenarios.values()))
    jobs, values = _of_the_same_jobs(results)
    submit = base.workload.frame["submit"].to_numpy()
    blocks = BlockBootstrap.of_times(submit[jobs], float(submit[-1]))
    rows = pl.DataFrame([_row(name, values, blocks) for name in results], infer_schema_length=None)
    rows = rows.hstack(_of_whole_runs(results, base))
    refused, classes = _refused(results), _by_class(base, jobs, values, blocks)
    metrics = [(metric, name) for metric in MEASURES for name in results]
    summary = tuple(
        Estimate(f"mean {metric}, {name}", *_mean(metric, values[name], blocks), METRICS[metric].unit)
        for metric, name in metrics
    )
    first, *others = _findings(rows, scenarios, len(jobs))
    of_whom = (*_coverage(base, refused, len(jobs)), *_only_one_side(results))
    findings = (first, *of_whom, *others, _for_whom(rows, classes, scenarios))
    tables = {"policies": rows, "by class": classes, "left out": refused}
    notes = ("`by class`: the intervals of all classes of a policy hold together with 95 % confidence",)
    coverage = Coverage.of(base.run_times, _left_out_of(next(iter(results.values()))))
    return Comparison(provenance, findings, summary, tables, _figures(values, rows), notes, coverage)


def _left_out_of(result: Arrays) -> pl.DataFrame:
    schema = {"job": pl.Int64, "reason": pl.String}
    return pl.DataFrame({"job": result["refused"], "reason": result["reason"]}, schema=schema)


def _of_whole_runs(results: Mapping[str, Arrays], base: Scenario) -> pl.DataFrame:
    """Return the numbers of whole runs, a row each; the cost where there are prices."""
    runs = pl.DataFrame(np.array([arrays["run"] for arrays in results.values()]), schema=OF_THE_RUN, orient="row")
    runs = runs.with_columns(pl.col("preemptions", NEVER_RUN).cast(pl.Int64))
    if not base.prices:
        return runs.drop("cost per day")
    return runs.rename({"cost per day": f"cost per day, {base.prices.unit}"})


def _of_the_same_jobs(results: Mapping[str, Arrays]) -> tuple[Ints, dict[str, dict[str, Floats]]]:
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


def _refused(results: Mapping[str, Arrays]) -> pl.DataFrame:
    """Return how many jobs are left out under some policy, by reason."""
    parts = [_left_out_of(r) for r in results.values()]
    jobs = pl.concat(parts).unique("job", keep="first", maintain_order=True)
    return jobs.group_by("reason").agg(jobs=pl.len()).sort("jobs", "reason", descending=[True, False])


def _row(name: str, values: Mapping[str, Mapping[str, Floats]], blocks: BlockBootstrap) -> dict[str, object]:
    base, own = next(iter(values.values())), values[name]
    row: dict[str, object] = {"policy": name}
    for metric in MEASURES:
        row |= _columns(f"mean {metric}", _mean(metric, own, blocks))
        if metric == "wait":
            row |= {"median wait": float(np.median(own[metric]))}
            row |= _columns("P90 wait", blocks.quantile(own[metric], 0.9, POSITIVE).interval())
            row |= {f"P{q} wait": float(np.quantile(own[metric], q / 100)) for q in (95, 99)}
            row |= {"share of jobs that wait": float((own[metric] > 0).mean())}
    for metric in MEASURES:
        row |= _columns(f"mean {metric} change", _change(metric, base, own, blocks))
    return row


def _mean(metric: str, values: Mapping[str, Floats], blocks: BlockBootstrap) -> Interval:
    return blocks.mean(values[metric], (METRICS[metric].least, math.inf)).interval()


def _change(metric: str, base: Mapping[str, Floats], own: Mapping[str, Floats], blocks: BlockBootstrap) -> Interval:
    return paired_difference(blocks.means(base[metric]), blocks.means(own[metric])).interval()


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return dict(zip((name, f"{name} low", f"{name} high"), interval, strict=True))


def _difference(row: Mapping[str, Any], metric: str) -> tuple[float, float, float]:
    return row[f"mean {metric} change"], row[f"mean {metric} change low"], row[f"mean {metric} change high"]


def _by_class(
    base: Scenario, jobs: Ints, values: Mapping[str, Mapping[str, Floats]], blocks: BlockBootstrap
) -> pl.DataFrame:
    """Return how the mean wait of each class of jobs differs from that under the first policy.

    The intervals of all classes of a policy hold together.
    """
    (_, first), *others = values.items()
    classes = _classes(base.workload.frame[jobs])
    rows_by_class = []
    for policy, own in others:
        for name, rows in classes.items():
            part = blocks.part(rows)
            before, after = (part.means(side["wait"][rows]) for side in (first, own))
            interval = paired_difference(before, after).interval(bonferroni(len(classes)))
            row = {
                "policy": policy,
                "class": name,
                "jobs": int(rows.sum()),
                "mean wait": float(own["wait"][rows].mean()),
            }
            rows_by_class.append(row | _columns("mean wait change", interval) | {"verdict": interval.change()})
    return pl.DataFrame(rows_by_class, infer_schema_length=None)


def _classes(jobs: pl.DataFrame) -> dict[str, NDArray[np.bool_]]:
    """Return which jobs are in each class by GPU request, and in each by runtime."""
    long = jobs["runtime"] > jobs["runtime"].median()
    request = jobs.select(gpu_request()).to_series()
    classes = {name: request == name for name in GPU_REQUESTS} | {SHORT: ~long, LONG: long}
    return {name: rows.to_numpy() for name, rows in classes.items() if rows.any()}


# -- sentences -------------------------------------------------------------------------------------------------------


def _findings(rows: pl.DataFrame, scenarios: Mapping[str, Scenario], jobs: int) -> list[str]:
    """Return the best policy by mean wait with its JCT, and those that are significantly worse than the baseline."""
    base = rows.row(0, named=True)
    best = rows.sort("mean wait", maintain_order=True).row(0, named=True)
    of = f"of the {jobs:,} jobs that completed under {'both' if rows.height == 2 else f'all {rows.height}'} policies"
    worse = [row for row in rows.iter_rows(named=True) if row["mean wait change low"] > 0]
    sentences = [f"{change_of_mean('wait', base['mean wait'], _difference(row, 'wait'))} under "
                 f"{_title(row['policy'], scenarios)}." for row in worse]  # fmt: skip
    # Without an interval (few jobs), the lowest mean is reported as it is.
    if best["policy"] == base["policy"] or best["mean wait change high"] >= 0 or not best["mean wait change"]:
        lowest = f"No policy has a significantly lower mean wait than {_title(base['policy'], scenarios)}"
        return [f"{lowest} ({duration(base['mean wait'])}), {of}.", *sentences]
    name = _title(best["policy"], scenarios)
    return [
        f"{change_of_mean('wait', base['mean wait'], _difference(best, 'wait'))} under {name}, {of}.",
        f"{change_of_mean('JCT', base['mean JCT'], _difference(best, 'JCT'))} under {name}.",
        *sentences,
    ]


def _title(name: str, scenarios: Mapping[str, Scenario]) -> str:
    """Return the name of a policy, and whether it knows true runtimes, which no scheduler does."""
    policy = scenarios[name].policy
    needs = (policy.order in ORDERS and ORDERS[policy.order].needs_estimate) or BACKFILLS[policy.backfill].reserves
    oracle = isinstance(policy.estimate, str) and policy.estimate == "oracle"
    return f"{name} (true runtimes known in advance)" if needs and oracle else name


def _coverage(base: Scenario, refused: pl.DataFrame, compared: int) -> list[str]:
    """Return which jobs are not compared, and why."""
    submit, reasons = base.workload.frame["submit"], dict(refused.iter_rows())
    parts, jobs = left_out(reasons), len(submit)
    late = 0 if base.until is None else int((submit > base.until).sum())
    parts += [f"{late:,} not yet submitted when the simulation stops"] if late else []
    there = int(base.workload.frame["initial"].sum())
    parts += [f"{there:,} there when the log begins"] if there else []
    if left := jobs - sum(reasons.values()) - compared - late - there:
        parts.append(f"{left:,} pending or running when it stops, under some policy")
    return [f"{jobs - compared:,} of {jobs:,} jobs are not compared: {', '.join(parts)}."] if parts else []


def _only_one_side(results: Mapping[str, Arrays]) -> list[str]:
    """Return which jobs only the first policy or only another completes."""
    (base, first), *others = results.items()
    sentences = []
    for name, arrays in others:
        lost, won = np.setdiff1d(first["job"], arrays["job"]), np.setdiff1d(arrays["job"], first["job"])
        if len(lost) or len(won):
            never = int(np.isin(lost, arrays["refused"]).sum())
            sentences.append(
                f"{len(lost):,} jobs complete only under {base} ({never:,} of them cannot run under {name}), "
                f"{len(won):,} only under {name}."
            )
    return sentences


def _for_whom(rows: pl.DataFrame, classes: pl.DataFrame, scenarios: Mapping[str, Scenario]) -> str:
    """Return for whom the best policy but the first is better, and at whose cost."""
    base = _title(rows["policy"][0], scenarios)
    name = rows[1:].sort("mean wait", maintain_order=True)["policy"][0]
    best, own = _title(name, scenarios), classes.filter(pl.col("policy") == name).rows(named=True)
    gain, loss = (", ".join(_class(row) for row in own if row["verdict"] == side) for side in ("lower", "higher"))
    if not gain and not loss:
        none = "No class of jobs by GPU request or runtime waits significantly longer or shorter"
        return f"{none} under {best} than under {base}."
    cost = f"at the cost of jobs of {loss}" if loss else "and no class of jobs waits significantly longer"
    return f"{best} is better than {base} for {f'jobs of {gain}' if gain else 'no class of jobs'}, {cost}."


def _class(row: Mapping[str, Any]) -> str:
    change = row["mean wait change"]
    return f"{row['class']} ({row['jobs']:,} jobs, mean wait {'+' if change > 0 else ''}{duration(change)})"


# -- figures ---------------------------------------------------------------------------------------------------------


def _figures(values: Mapping[str, Mapping[str, Floats]], rows: pl.DataFrame) -> dict[str, Figure]:
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
