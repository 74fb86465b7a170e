"""Recurring groups, and prediction of runtimes from earlier jobs."""

from __future__ import annotations

import numpy as np
import polars as pl

from fleetlab.core.durations import number
from fleetlab.core.history import past_mean
from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, share
from fleetlab.describe.section import Section
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import Floats, Interval

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
    known = view.frame["group"].is_not_null().to_numpy()
    if not known.any():
        section.absent("recurring groups", "the log has no groups")
        return
    if nameless := int((~known).sum()):
        section.absent(f"groups of {nameless:,} jobs", "not in the log: left out of recurrence")
    runs = view.frame.select(pl.len().over("group").cast(pl.Float64))["len"].to_numpy()
    curves = view.ecdf("jobs", runs, where=known)
    section.distributions(
        "runs of a group", curves, title="Runs of a job's group", unit="runs", of="weighted by",
        x="runs of the job's group",
    )  # fmt: skip
    often = share(runs[known] >= OFTEN, None, view.blocks.part(known))
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
    made = predictable & np.isfinite(error)
    row: dict[str, object] = {"by": name, "predicted, %": 100 * float(made[predictable].mean())}
    for within in WITHIN:
        interval = share(error[made] <= within, view.instances[made], view.blocks.part(made))
        key = f"within {within:.0%}".replace("%", " %")
        row |= dict(zip((key, f"{key} low", f"{key} high"), interval, strict=True))
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
