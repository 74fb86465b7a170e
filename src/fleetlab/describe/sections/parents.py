"""Parents: what the log groups several jobs by, such as a PAI job of several tasks; their size, status and JCT."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core.durations import duration
from fleetlab.describe.ecdf import Bools, Ecdf, ecdf
from fleetlab.describe.section import Section
from fleetlab.describe.sections.run_times import draw_survival, or_later
from fleetlab.describe.survival import kaplan_meier
from fleetlab.describe.trace_view import OPEN, WHOLE, TraceView
from fleetlab.stats import BlockBootstrap, Floats

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
    said = [pl.coalesce(f"{c}_recorded", c).alias(c) for c in ("submit", "end", "status")]
    return frame.with_columns(said).drop("submit_recorded", "end_recorded", "status_recorded")


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
        made = ecdf("GPUs" if one == WHOLE else name, values, blocks=blocks)
        curves += [made] if made is not None and values.any() else []
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
    made = [ecdf(name, values, where=where, blocks=blocks) for name, where in classes.items()]
    return [c for c in made if c is not None]


def _with_running(view: TraceView, section: Section, classes: dict[str, Bools], jct: Floats, age: Floats) -> None:
    """Kaplan and Meier: a parent that has not ended counts for as long as it was seen."""
    ended = np.isfinite(jct)
    known = ended | (age >= 0)
    if not (known & ~ended).any():
        return
    if view.open_logs > OPEN:
        section.absent("JCT including running parents", "the ends of running jobs were likely not logged")
        return
    time = np.where(ended, jct, age)
    estimates = [
        kaplan_meier(name, time[known & where], ended[known & where])
        for name, where in {"all": known, **classes}.items()
        if (known & where).any()
    ]
    alt = "; ".join(f"median of {s.series}: {or_later(s.quantile(0.5)[0])}" for s in estimates)
    title = "JCT of parents, including those that have not ended"
    draw_survival(section, "JCT of parents, Kaplan–Meier", title, estimates, "parents", alt)
