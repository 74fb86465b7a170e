"""What groups several jobs: parents such as a PAI job of several tasks, and groups that recur."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core.censoring import past_mean
from fleetlab.core.durations import duration, number
from fleetlab.describe import published
from fleetlab.describe.curves import Bools, Ecdf, ecdf, kaplan_meier, share
from fleetlab.describe.section import Section
from fleetlab.describe.sections.run_times import draw_survival, or_later
from fleetlab.describe.trace_view import OPEN, WHOLE, TraceView
from fleetlab.stats import BlockBootstrap, Floats, Interval

RECORDED = "parents"  # the series with what the log says of parents itself
SIZES = ("1 job", "2 jobs", "3 or more")
NO_END = ("running", "waiting")


def parents(view: TraceView, section: Section) -> None:
    """Put together sizes, status and JCT of parents, where there are fewer of them than jobs."""
    work = view.trace.workload.frame
    if work["parent"].n_unique() == work.height:
        section.absent("parents", "every job is its own parent")
        return
    recorded = view.trace.series.get(RECORDED)
    frame = by_parent(work, None if recorded is None else recorded.collect())
    if recorded is None:
        section.absent("status and end of parents", "not in the log: taken from their jobs")
    blocks = view.blocks_at(frame["submit"].fill_null(0.0).to_numpy())
    _sizes(section, frame, blocks)
    _status(section, frame, work)
    _jct(view, section, frame, blocks)


def by_parent(work: pl.DataFrame, recorded: pl.DataFrame | None) -> pl.DataFrame:
    """One row a parent: its jobs, instances and GPUs; its submission, first start, end and status.

    What the log says of a parent itself comes before what its jobs tell. An end that is known of some of its jobs only
    is not the parent's. A parent that is older than the log has no submission.
    """
    many = pl.col("instances").cast(pl.Int64)
    frame = work.group_by("parent", maintain_order=True).agg(
        pl.len().alias("jobs"),
        many.sum().alias("instances"),
        (many * pl.col("gpu_milli")).sum().alias("gpu_milli"),
        pl.when(~pl.col("initial").any()).then(pl.col("submit").min()).alias("submit"),
        pl.col("start").min().alias("start"),
        pl.when(pl.col("end").is_not_null().all()).then(pl.col("end").max()).alias("end"),
        _status_of_jobs().alias("status"),
    )
    if recorded is None:
        return frame
    frame = frame.join(recorded, on="parent", how="left", suffix="_recorded", maintain_order="left")
    recorded_first = [pl.coalesce(f"{c}_recorded", c).alias(c) for c in ("submit", "end", "status")]
    return frame.with_columns(recorded_first).drop("submit_recorded", "end_recorded", "status_recorded")


def _status_of_jobs() -> pl.Expr:
    """A parent has ended when all its jobs have, and as the worst of them did."""
    status = pl.col("status").cast(pl.String)
    kinds = [pl.when((status == kind).any()).then(pl.lit(kind)) for kind in ("failed", "timeout", "cancelled")]
    return pl.coalesce(
        pl.when((status == "waiting").all()).then(pl.lit("waiting")),
        pl.when(status.is_in(list(NO_END)).any()).then(pl.lit("running")),
        *kinds,
        pl.lit("completed"),
    )


def _sizes(section: Section, frame: pl.DataFrame, blocks: BlockBootstrap) -> None:
    curves = []
    for name, one in (("jobs", 1), ("instances", 1), ("gpu_milli", WHOLE)):
        values = frame[name].cast(pl.Float64).to_numpy() / one
        curve = ecdf("GPUs" if one == WHOLE else name, values, blocks=blocks)
        curves += [curve] if curve is not None and values.any() else []
    section.distributions(
        "size of parents", curves, title="Jobs, instances and GPUs of a parent", unit="", of="what",
        x="jobs, instances or GPUs of a parent", y="share of parents, %",
    )  # fmt: skip
    jobs = frame["jobs"].to_numpy()
    part, of_jobs = 100 * (jobs > 1).mean(), 100 * jobs[jobs > 1].sum() / jobs.sum()
    section.say("jobs per parent", curves[0].mean)
    section.findings.append(
        f"{part:.3g} % of {frame.height:,} parents have several jobs; those are {of_jobs:.3g} % of all jobs."
    )


def _status(section: Section, frame: pl.DataFrame, work: pl.DataFrame) -> None:
    """How parents ended, and how jobs did."""
    published = section.published("jobs by status")
    counts = [
        of.select(pl.col("status").cast(pl.String).fill_null("unknown"))["status"].value_counts(name=name)
        for of, name in ((frame, "parents"), (work, "jobs"))
    ]
    table = counts[1].join(counts[0], on="status", how="full", coalesce=True).fill_null(0)
    shares = [(100 * pl.col(c) / pl.col(c).sum()).alias(f"{c}, %") for c in ("parents", "jobs")]
    table = table.select("status", "parents", "jobs").with_columns(shares).sort("jobs", "status", descending=True)
    if published:
        paper = pl.col("status").replace_strict(dict(published), default=None, return_dtype=pl.Float64)
        table = table.with_columns(paper.alias("jobs, %, published"))
    section.tables["status of parents"] = table


def _jct(view: TraceView, section: Section, frame: pl.DataFrame, blocks: BlockBootstrap) -> None:
    """Submission until the last job has ended; by number of jobs, and by status."""
    columns = (frame[c].cast(pl.Float64).fill_null(np.nan).to_numpy() for c in ("submit", "start", "end", "jobs"))
    submit, start, end, jobs = columns
    jct, wait = _positive(end - submit), _positive(start - submit)
    if not np.isfinite(jct).any():
        section.absent("JCT of parents", "no submission or end of a parent is known")
        return
    if unknown := int((~np.isfinite(jct)).sum()):
        section.absent(f"JCT of {unknown:,} parents", "they had not ended, or a time is not in the log")
    classes = dict(zip(SIZES, (jobs == 1, jobs == 2, jobs > 2), strict=True))
    for what, values in (("JCT", jct), ("wait", wait)):
        curves = _curves(values, {"all": np.ones(len(jobs), dtype=bool), **classes}, blocks)
        title = f"{what} of parents, by number of jobs"
        section.distributions(
            f"{what} of parents", curves, title=title, unit="s", of="parents", y="share of parents, %"
        )
    status = frame["status"].fill_null("unknown")
    kinds = {name: (status == name).to_numpy() for name in sorted(status.unique().to_list())}
    section.distributions(
        "JCT of parents by status", _curves(jct, kinds, blocks), title="JCT of parents, by status", unit="s",
        of="status", y="share of parents, %",
    )  # fmt: skip
    _with_running(
        view, section, classes, jct, np.where(status.is_in(list(NO_END)).to_numpy(), view.end - submit, np.nan)
    )
    every = section.compared["JCT of parents"][0]
    section.say("P50 JCT of parents", every.quantiles[50], "s")
    middle, nine = (duration(every.quantiles[p][0]) for p in (50, 90))
    section.findings.append(f"JCT of {every.count:,} parents that ended: P50 {middle}, P90 {nine}.")


def _positive(seconds: Floats) -> Floats:
    return np.where(seconds >= 0, seconds, np.nan)


def _curves(values: Floats, classes: dict[str, Bools], blocks: BlockBootstrap) -> list[Ecdf]:
    curves = [ecdf(name, values, where=where, blocks=blocks) for name, where in classes.items()]
    return [c for c in curves if c is not None]


def _with_running(view: TraceView, section: Section, classes: dict[str, Bools], jct: Floats, age: Floats) -> None:
    """Kaplan and Meier: a parent that has not ended counts for as long as it was seen."""
    ended = np.isfinite(jct)
    observed = ended | (age >= 0)
    if not (observed & ~ended).any():
        return
    if view.open_logs > OPEN:
        section.absent("JCT including running parents", "the ends of running jobs were likely not logged")
        return
    time = np.where(ended, jct, age)
    estimates = [
        kaplan_meier(name, time[observed & where], ended[observed & where])
        for name, where in {"all": observed, **classes}.items()
        if (observed & where).any()
    ]
    alt = "; ".join(f"median of {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
    title = "JCT of parents, including those that have not ended"
    draw_survival(section, "JCT of parents, Kaplan–Meier", title, estimates, "parents", alt)


OFTEN = 5  # runs
WITHIN = (0.05, 0.25, 0.5)  # of the true runtime
SHORTEST = 1e-9  # seconds: what runs for less is off by so many times that the number would overflow
PREDICTORS = {
    "user": ["user"],
    "user+gpu": ["user", "gpu_milli", "type"],
    "group": ["group"],
    "group+gpu": ["group", "gpu_milli", "type"],
}


def recurrence(view: TraceView, section: Section) -> None:
    """Put together runs of groups, and the errors of predictors."""
    _runs(view, section)
    _predictors(view, section)


def _runs(view: TraceView, section: Section) -> None:
    if view.role is not None:
        section.absent("recurring groups", f"in this trace a group is a {view.role}, not a recurring job")
        return
    has_group = view.frame["group"].is_not_null().to_numpy()
    if not has_group.any():
        section.absent("recurring groups", "the log has no groups")
        return
    if nameless := int((~has_group).sum()):
        section.absent(f"groups of {nameless:,} jobs", "not in the log: left out of recurrence")
    runs = view.frame.select(pl.len().over("group").cast(pl.Float64))["len"].to_numpy()
    curves = view.ecdf("jobs", runs, where=has_group)
    section.distributions(
        "runs of a group", curves, title="Runs of a job's group", unit="runs", of="weighted by",
        x="runs of the job's group",
    )  # fmt: skip
    often = share(runs[has_group] >= OFTEN, None, view.blocks.part(has_group))
    section.say(f"jobs in groups with {OFTEN} or more runs", often, "%")
    groups = view.frame["group"].drop_nulls().n_unique()
    section.findings.append(
        f"{often[0]:.3g} % of the jobs are in groups with {OFTEN} or more runs ({groups:,} groups in total)."
    )


def _predictors(view: TraceView, section: Section) -> None:
    """The mean runtime of those jobs of the same key that had ended when this one was submitted."""
    predictable = view.runtime > 0
    if not predictable.any():
        section.absent("predictability of runtimes", "no runtime above 0 is known")
        return
    rows, curves = [], []
    for name, keys in PREDICTORS.items():
        if view.role is not None and keys[0] == "group":
            continue
        if view.frame[keys[0]].null_count() == view.frame.height:
            section.absent(f"predictions by {name}", f"the log has no {keys[0]}s")
            continue
        guess = past_mean(view.frame, keys).fill_null(np.nan).to_numpy()
        error = np.abs(guess - view.runtime) / np.where(view.runtime > 0, np.maximum(view.runtime, SHORTEST), np.nan)
        curves += view.ecdf(name, error, weights=view.instances, where=predictable)
        rows.append(_row(view, section, name, error, predictable))
    if not rows:
        return
    section.tables["predictions"] = pl.DataFrame(rows, infer_schema_length=None)
    section.distributions(
        "prediction error", curves, title="Relative error of predicted runtimes", unit="", of="by",
        x="error over runtime", y="share of instances, %",
    )  # fmt: skip
    _say(section, rows)


def _row(view: TraceView, section: Section, name: str, error: Floats, predictable: Bools) -> dict[str, object]:
    """Of the instances that can be predicted at all: how many within which error."""
    predicted = predictable & np.isfinite(error)
    row: dict[str, object] = {"by": name, "predicted, %": 100 * float(predicted[predictable].mean())}
    for within in WITHIN:
        interval = share(error[predicted] <= within, view.instances[predicted], view.blocks.part(predicted))
        key = f"within {within:.0%}".replace("%", " %")
        row |= interval.columns(key)
        if section.like_pai and within < WITHIN[2]:
            row[f"{key}, published"] = published.numbers(f"predicted {key}").get(name)
    return row


def _say(section: Section, rows: list[dict[str, object]]) -> None:
    best = max(rows, key=lambda row: float(row["within 25 %"]) if np.isfinite(row["within 25 %"]) else -1.0)  # type: ignore[arg-type, call-overload]
    interval = Interval(*(float(best[k]) for k in ("within 25 %", "within 25 % low", "within 25 % high")))  # type: ignore[arg-type]
    if np.isfinite(interval[0]):
        section.say(f"instances predicted within 25 % by {best['by']}", interval, "%")
        section.findings.append(
            f"For {number(interval[0])} % of the instances, the runtime is within 25 % of the mean of earlier jobs of "
            f"the same {best['by']}."
        )
