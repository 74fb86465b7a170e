"""A scenario compared with the baseline: what changes, by how much, and with which interval.

One run each says how the log as it is would go. Paired replicas say what is not up to chance: by the functions of
`fleetlab.compare`, and with its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fleetlab.core import Estimate, Prices, Provenance, SavedResult, Scenario
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import between_text, plural
from fleetlab.core.result import Finding, amount_and_interval
from fleetlab.sim.estimates import jain
from fleetlab.sim.measures import ALLOCATION, FAIRNESS
from fleetlab.stats import BETTER, NO_DIFFERENCE, POSITIVE, WORSE, Floats, over_replicas, verdict
from fleetlab.studies.compare.runs import OF_THE_RUN, PER_DAY, Runs, Sample
from fleetlab.studies.model_error import notes_of, with_model_error
from fleetlab.studies.replicas import OF_SCOPE, Plan
from fleetlab.studies.sentences import NEVER_RUN, amounts_apart, left_out, sentence
from fleetlab.web.figures import comparison_html
from fleetlab.web.link import Link, change_of, changed_words
from fleetlab.web.messages import AllocationRow, MetricRow, Quantity, ReasonRow, RecordedWait, RunComparison
from fleetlab.web.runs import RunNumbers, RunRecord, same_jobs

METRICS: dict[str, Literal["lower", "higher"] | None] = {
    NEVER_RUN: "lower",
    "mean wait": "lower",
    "P50 wait": "lower",
    "P90 wait": "lower",
    "P99 wait": "lower",
    "mean JCT": "lower",
    "P90 JCT": "lower",
    "mean bounded slowdown": "lower",
    ALLOCATION: None,
    FAIRNESS: "higher",
    "GPU-hours allocated per day": None,
    "energy per day": None,
    "cost per day": None,
}
# By metric: what is measured of a job, and what is taken of these.
OF_JOBS: dict[str, tuple[str, Callable[[Floats], float]]] = {
    "mean wait": ("wait", np.mean),
    "P50 wait": ("wait", partial(np.quantile, q=0.5)),
    "P90 wait": ("wait", partial(np.quantile, q=0.9)),
    "P99 wait": ("wait", partial(np.quantile, q=0.99)),
    "mean JCT": ("JCT", np.mean),
    "P90 JCT": ("JCT", partial(np.quantile, q=0.9)),
    "mean bounded slowdown": ("bounded slowdown", np.mean),
}
FACTS = {ALLOCATION: "GPU allocation, %", "cost per day": "cost per day", **PER_DAY}  # of a whole run
SCENARIO = "the scenario"
CLOSE = 0.25  # a simulated mean wait within this share of the recorded one is like it
FAR = 20.0  # a number so many times smaller than its neighbor is shown in a unit of its own


def compare_runs(
    link: Link, base: RunRecord, now: RunRecord, *, drawn: bool = True, runs: Runs | None = None
) -> RunComparison:
    """Compare two runs on the same jobs, by their replicas once there are any; how long they took is not known here."""
    prices = link.base.prices or Prices(), link.now.prices or Prices()
    before, after = same_jobs(base, now, prices, link.between)
    sides = [{m: np.array([float(e.value)]) for m, e in side.estimates.items()} for side in (before, after)]
    if runs is not None:
        names = runs.base_name, list(runs.scenarios)[-1]
        sides = [own | _over_replicas(runs, name, before) for own, name in zip(sides, names, strict=True)]
    simulated = [] if runs is None else [runs.base, list(runs.scenarios.values())[-1]]
    rows = [
        _row(metric, after, sides[0][metric], sides[1][metric], simulated) for metric in METRICS if metric in sides[0]
    ]
    count, planned = _replicas(base, now, runs)
    reasons = _reasons([_of_mean(*side) for side in zip((before, after), sides, strict=True)])
    chance = _only_fewer_nodes(link, base, now)
    # Jobs that can no longer run do not compete any more: what the others gain is no improvement.
    if chance or sides[1][NEVER_RUN][0] > sides[0][NEVER_RUN][0]:
        rows = [_without_gain(row) for row in rows]
    findings = [*_cannot_run(rows[0], before, after), *_findings(rows, reasons, count)]
    if chance and any(row["metric"] == "mean wait" and row["verdict"] == "lower" for row in rows):
        findings.append(OTHER_SCHEDULE)
    submitted = _submitted(link, after)
    return {
        "link": link.query(),
        "title": now.facts["title"],
        "base_title": base.facts["title"],
        "population": _population(submitted, before, after),
        "scope": OF_SCOPE["log"],
        "replicas": count,
        "planned": planned,
        "submitted": submitted,
        "headline": _headline(link, rows[0], findings, submitted),
        "findings": findings,
        "rows": rows,
        "wait_reasons": reasons,
        "allocation": _allocation(before, after),
        "scheduler": now.facts["scheduler"],
        "notes": [*(_evidence(runs) if runs is not None and runs.replication.stopped else []), *now.facts["notes"]],
        "seconds": 0.0,
        "cpu_seconds": 0.0,
        "recorded": _recorded(link, before, runs),
        "html": _html(before, after) if drawn else "",
    }


def _html(base: RunNumbers, now: RunNumbers) -> str:
    scenario, baseline = now.run.facts["title"], base.run.facts["title"]
    how = f"simulate · {now.run.facts['source']} · scenario: {scenario} · baseline: {baseline}"
    return str(comparison_html(base, now, how))


def _replicas(base: RunRecord, now: RunRecord, runs: Runs | None) -> tuple[int, int]:
    """Return how many replicas there are, and how many there will be when verdicts are looked at next."""
    count = 1 if runs is None else runs.replication.count
    if runs is not None and runs.replication.stopped:
        return count, count
    instances = sum(run.facts["instances"] for run in ([base] if base is now else [base, now]))
    looks = Plan().looks(instances)
    return count, next((look for look in looks if look > count), looks[-1])


def _over_replicas(runs: Runs, name: str, before: RunNumbers) -> dict[str, Floats]:
    """Return the numbers of a run by metric, one a replica; those of a part of the jobs are of that part."""
    first, last = before.rows
    users = runs.base.workload.frame["user"]
    parts = [(s, (s.jobs >= first) & (s.jobs < last)) for s in runs.samples]

    def over(column: str, function: Callable[[Floats], float]) -> Floats:
        return np.array([function(s.values[name][column][m]) if m.any() else math.nan for s, m in parts])

    def fairness(sample: Sample, mask: NDArray[np.bool_]) -> float:
        jobs = pl.DataFrame({"user": users[sample.jobs[mask]], "x": sample.values[name]["bounded slowdown"][mask]})
        return jain(jobs.group_by("user", maintain_order=True).agg(pl.col("x").mean())["x"].to_numpy())

    values = {metric: over(*what) for metric, what in OF_JOBS.items()}
    values[FAIRNESS] = np.array([fairness(*part) for part in parts])
    if before.between is None:
        whole = np.array([replica[name]["run"] for replica in runs.replication.results])
        values |= {metric: whole[:, OF_THE_RUN.index(fact)] for metric, fact in FACTS.items()}
    return {metric: x for metric, x in values.items() if metric in before.estimates}


def _row(
    metric: str, after: RunNumbers, base: Floats, now: Floats, simulated: Sequence[Scenario]
) -> MetricRow:  # fmt: skip
    unit, better = after.estimates[metric].unit, METRICS[metric]
    _, within, _ = after.measures.numbers.get(metric, (None, POSITIVE, unit))
    by = np.where(np.isclose(now, base, rtol=1e-9, atol=0.0), 0.0, now - base)
    # What the cluster can never run is the same in every replica.
    says = verdict(
        np.repeat(by, 2) if metric == NEVER_RUN else by, float(base.mean()), lower_is_better=better != "higher"
    )
    limits = [over_replicas(x, within).interval() for x in (base, now)]
    if metric == "mean wait" and simulated:
        limits = [with_model_error(*pair) for pair in zip(limits, simulated, strict=True)]
    levels = [Estimate(metric, *interval, unit) for interval in limits]
    change = Estimate(metric, *over_replicas(by).interval(), "points" if unit == "%" else unit)
    if metric == NEVER_RUN:
        *levels, change = (e._replace(value=round(e.value)) for e in (*levels, change))
    most = max(abs(e.value) for e in levels)
    row: MetricRow = {
        "metric": metric,
        "unit": unit,
        "better": better,
        "base": _quantity(levels[0], most),
        "now": _quantity(levels[1], most),
        "change": _quantity(change, most, signed=True),
        "verdict": says,
    }
    return row if better else _neutral(row)


def _neutral(row: MetricRow) -> MetricRow:
    """Return a row whose difference is neither better nor worse."""
    side: Literal["lower", "higher"] = "lower" if (row["change"]["value"] or 0.0) < 0 else "higher"
    return row | {"better": None, "verdict": side if row["verdict"] in (BETTER, WORSE) else row["verdict"]}


def _without_gain(row: MetricRow) -> MetricRow:
    return _neutral(row) if row["verdict"] == BETTER else row


def _quantity(e: Estimate, most: float, *, signed: bool = False) -> Quantity:
    """Return a number in the unit of `most`; one that is far smaller has its own."""
    value, interval = amount_and_interval(e, most if abs(e.value) > most / FAR else e.value)
    text = "–" if math.isnan(e.value) else f"{value} ({interval})" if interval else value
    text = f"+{text}" if signed and e.value > 0 else text
    return {"value": _finite(e.value), "low": _finite(e.low), "high": _finite(e.high), "text": text}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _of_mean(side: RunNumbers, values: Mapping[str, Floats]) -> dict[str, float]:
    """Return the mean wait by reason: the shares are of one run, of the mean over replicas."""
    total = sum(side.reasons.values())
    return {name: wait / total * over_replicas(values["mean wait"]).value for name, wait in side.reasons.items()}


def _reasons(by_reason: Sequence[Mapping[str, float]]) -> list[ReasonRow]:
    """Return the reasons that any wait is charged to, the largest first; those of a run add up to its mean wait."""
    rows: list[tuple[float, ReasonRow]] = []
    for reason in REASONS:
        if not any(reason.name in reasons for reasons in by_reason):
            continue
        sides = [reasons.get(reason.name, 0.0) for reasons in by_reason]
        most = max(sides)
        before, after, by = (Estimate.exact("", x, "s") for x in (*sides, sides[1] - sides[0]))
        row: ReasonRow = {
            "reason": reason.name,
            "meaning": reason.meaning,
            "base": _quantity(before, most),
            "now": _quantity(after, most),
            "change": _quantity(by, most, signed=True),
        }
        rows.append((most, row))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _allocation(base: RunNumbers, now: RunNumbers) -> list[AllocationRow]:
    sides = base.allocation, now.allocation
    names = sorted({**sides[0], **sides[1]}, key=lambda name: -max(side[name][0] for side in sides if name in side))
    nodes = [numbers.run.facts["nodes"] for numbers in (base, now)]
    shares = [{name: share for name, (_, share) in side.items()} for side in sides]
    return [
        {
            "gpu_type": name,
            "base_nodes": nodes[0].get(name, 0),
            "nodes": nodes[1].get(name, 0),
            "base": shares[0].get(name),
            "now": shares[1].get(name),
        }
        for name in names
    ]


# --- text --------------------------------------------------------------------------------------------------------

AS_BEFORE = ", as in the baseline"
OTHER_SCHEDULE = (
    "Fewer nodes do not make jobs wait less: with them other jobs start first, and one schedule is not another. "
    "Take it as chance, or try another seed and load."
)


def _submitted(link: Link, now: RunNumbers) -> str:
    """Say when the jobs that are measured were submitted; nothing where all are."""
    if link.between is None:
        return ""
    return f"the {plural(now.jobs.height, 'job')} submitted {between_text(*link.between, *now.run.facts['clock'])}"


def _population(submitted: str, base: RunNumbers, now: RunNumbers) -> str:
    """Say of which jobs the numbers are."""
    both, jobs, covered = now.done.height, now.jobs.height, now.run.facts["covered"]
    only = [numbers.completed - both for numbers in (base, now)]
    of = f"{covered} Waits, JCT, slowdown and fairness are of the {both:,} of {jobs:,} jobs that completed"
    if submitted:
        of = f"{covered} Of {submitted}, {both:,} completed"
    sides = (
        f" on both sides; {only[0]:,} completed only in the baseline, {only[1]:,} only in the scenario"
        if any(only)
        else ""
    )
    rest = ": waits, JCT, slowdown and fairness are of these, GPU allocation and rates of that time" * bool(submitted)
    return f"{of}{sides}{rest}."


def _cannot_run(row: MetricRow, base: RunNumbers, now: RunNumbers) -> list[str]:
    """Say how many jobs the cluster can never run: they are in no mean."""
    if not (row["base"]["value"] or row["now"]["value"]):
        return []
    share = f"{100 * now.gpu_time_that_cannot_run:.2g} % of the known GPU time"
    beside = "" if base is now else f"; {row['base']['text']} in the baseline"
    return [f"{row['now']['text']} of {now.jobs.height:,} jobs ({share}) cannot run{beside}."]


def _headline(link: Link, cannot_run: MetricRow, findings: Sequence[str], selected: str) -> str:
    """Return what was changed and what it does, in one sentence: jobs that can no longer run come first."""
    more = (cannot_run["now"]["value"] or 0.0) > (cannot_run["base"]["value"] or 0.0)
    sentence = next((line for line in findings if more or "cannot run" not in line), findings[0])
    sentence = f"{sentence} {OTHER_SCHEDULE}" if OTHER_SCHEDULE in findings else sentence
    if selected:
        sentence = f"of {selected}, {_inside(sentence)}"
        sentence = sentence if change_of(link) else f"{sentence[0].upper()}{sentence[1:]}"
    what = change_of(link)
    return f"{what}: {_inside(sentence)}" if what else sentence.replace(AS_BEFORE, "")


def _inside(sentence: str) -> str:
    """Return a sentence as the rest of another: its first word in lower case, unless that is an acronym.

    >>> _inside("Mean wait falls."), _inside("GPU allocation rises."), _inside("P90 wait falls.")
    ('mean wait falls.', 'GPU allocation rises.', 'P90 wait falls.')
    """
    first = sentence.partition(" ")[0]
    return (
        sentence if any(c.isupper() or c.isdigit() for c in first[1:]) else f"{first.lower()}{sentence[len(first) :]}"
    )


def _only_fewer_nodes(link: Link, base: RunRecord, now: RunRecord) -> bool:
    """Return whether nothing was changed but that nodes were taken away."""
    before, after = base.facts["nodes"], now.facts["nodes"]
    fewer = [before.get(name, 0) - after.get(name, 0) for name in {*before, *after}]
    return (
        set(changed_words(link.base, link.now)) == {"nodes"}
        and min(fewer, default=0) >= 0
        and max(fewer, default=0) > 0
    )


def _recorded(link: Link, base: RunNumbers, runs: Runs | None) -> RecordedWait | None:
    """Return the mean wait in the log beside that of the baseline, where a log has waits that a cluster had."""
    both = base.done.drop_nulls("recorded")
    recorded, simulated = both.select(pl.col("recorded", "wait").mean()).row(0)
    if not recorded or base.run.facts["synthetic"]:  # of a log without starts they are those of the submissions
        return None
    if runs is not None:
        jobs = both["job"].to_numpy()
        waits = [s.values[runs.base_name]["wait"][np.isin(s.jobs, jobs)] for s in runs.samples]
        simulated = float(np.mean([wait.mean() for wait in waits]))
    most = max(recorded, simulated)
    far = not 1 / (1 + CLOSE) <= simulated / recorded <= 1 + CLOSE
    return {
        "jobs": both.height,
        "recorded": _quantity(Estimate.exact("", recorded, "s"), most),
        "simulated": _quantity(Estimate.exact("", simulated, "s"), most),
        "why": _why(link, base, recorded, simulated) if far else "",
    }


def _why(link: Link, base: RunNumbers, recorded: float, simulated: float) -> str:
    """Say how far simulation and log differ, and what is known of the reasons."""
    times = max(recorded, simulated) / min(recorded, simulated) if simulated else math.inf
    scheduler, reasons = base.run.facts["scheduler"], left_out(base.refused)
    causes = [
        *([f"{scheduler['replaces']} is not simulated, but {scheduler['title']}"] if scheduler["replaces"] else []),
        *([f"the load is {link.base.load:g} times that of the log"] if link.base.load != 1 else []),
        *([f"not simulated: {', '.join(reasons)}"] if reasons else []),
    ]
    differ = f"Simulation and log differ by {times:.2g}×" if times < FAR else "Simulation and log are far apart"
    return f"{differ}: {'; '.join(causes)}." if causes else f"{differ}."


def _evidence(runs: Runs) -> tuple[str, ...]:
    of_one = "shares of reasons, allocation by type and figures are of one run"
    return f"as in `fleetlab compare`: {runs.replication.note()}; {of_one}", *notes_of(runs.scenarios.values())


def _findings(rows: Sequence[MetricRow], reasons: Sequence[ReasonRow], count: int) -> list[str]:
    by = {row["metric"]: row for row in rows}
    findings = [_finding(by[m], count) for m in ("mean wait", "mean JCT", ALLOCATION) if m in by]
    if reasons:
        most = max(reasons, key=lambda row: row["now"]["value"] or 0.0)
        findings.append(f"The most wait is due to {most['reason']} ({most['meaning']}): {most['now']['text']} per job.")
    else:
        findings.append("No job waits." if "mean wait" in by else "No job completed.")
    return findings


def _finding(row: MetricRow, count: int) -> str:
    """Return what a row says, in two digits: the table has more."""
    change, name, unit = row["change"], row["metric"][0].upper() + row["metric"][1:], row["unit"]
    before, after = row["base"]["value"] or 0.0, row["now"]["value"] or 0.0
    was, becomes = amounts_apart(before, after, unit)
    if not change["value"] and row["verdict"] == NO_DIFFERENCE:
        return f"{name} is {becomes}{AS_BEFORE}."
    if count == 1:
        return f"{name} is {becomes} instead of {was} in one run of the log."
    by, low, high = (math.nan if x is None else x for x in (change["value"], change["low"], change["high"]))
    record = Finding(row["metric"], SCENARIO, before, after, by, low, high, unit, "", row["verdict"], "this log", count)
    return sentence(record, "in").replace(f" in {SCENARIO}", "")  # all of the page is of it


def as_result(answer: RunComparison, provenance: Provenance) -> SavedResult:
    """Return a comparison as a result that a report can draw: its findings, and the paired differences."""
    frame = pl.DataFrame(
        [
            {"metric": row["metric"], "unit": row["unit"], "baseline": row["base"]["value"], "now": row["now"]["value"]}
            | {"difference": row["change"]["value"], "low": row["change"]["low"], "high": row["change"]["high"]}
            | {"verdict": row["verdict"]}
            for row in answer["rows"]
        ],
        infer_schema_length=None,
    )
    notes = [answer["population"], *answer["notes"][:1]]
    if (waits := answer["recorded"]) is not None:
        sides = (
            f"{waits['recorded']['text']} recorded in the log, {waits['simulated']['text']} in the simulated baseline"
        )
        notes.append(f"Mean wait of {waits['jobs']:,} jobs: {sides}. {waits['why']}".rstrip())
    return SavedResult(
        provenance=provenance,
        findings=tuple(answer["findings"]),
        estimates=(),
        frames={"difference from the baseline": frame},
        charts={},
        notes=tuple(notes),
    )
