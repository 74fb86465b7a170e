"""Recurring groups, and prediction of run times from earlier jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, share
from fleetlab.describe.section import Section, rough
from fleetlab.describe.trace_view import TraceView
from fleetlab.stats import Floats, Interval, Ints

OFTEN = 5  # runs
WITHIN = (0.05, 0.25, 0.5)  # of the true run time
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
    """The mean run time of those jobs of the same key that had ended when this one was submitted."""
    predictable = view.runtime > 0
    if not predictable.any():
        section.absent("predictability of run times", "no run time above 0 is known")
        return
    past = Past.of(view.submit, view.floats("start"), view.runtime)
    rows, curves = [], []
    for name, keys in PREDICTORS.items():
        if view.role is not None and keys[0] == "group":
            continue
        if view.frame[keys[0]].null_count() == view.frame.height:
            section.absent(f"predictions by {name}", f"the log has no {keys[0]}s")
            continue
        guess = past.mean(_keys(view, keys))
        error = np.abs(guess - view.runtime) / np.where(view.runtime > 0, np.maximum(view.runtime, SHORTEST), np.nan)
        curves += view.ecdf(name, error, weights=view.instances, where=predictable)
        rows.append(_row(view, section, name, error, predictable))
    if not rows:
        return
    section.tables["predictions"] = pl.DataFrame(rows, infer_schema_length=None)
    section.distributions(
        "prediction error", curves, title="Relative error of predicted run times", unit="", of="by",
        x="error over run time", y="share of instances, %",
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


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Submissions and ends of jobs in order of time: ends first, for what ends as another comes is known to it."""

    job: Ints
    ended: Bools
    runtime: Floats  # of those that ended, else 0

    @classmethod
    def of(cls, submit: Floats, start: Floats, runtime: Floats) -> Past:
        """Where a start is not known, a job is taken to have started as it came."""
        known = np.flatnonzero(np.isfinite(runtime))
        end = np.where(np.isfinite(start), start, submit)[known] + runtime[known]
        when, comes = np.concatenate((end, submit)), np.repeat([False, True], [len(known), len(submit)])
        order = np.lexsort((comes, when))
        job = np.concatenate((known, np.arange(len(submit))))
        lasted = np.concatenate((runtime[known], np.zeros(len(submit))))
        return cls(job[order], ~comes[order], lasted[order])

    def mean(self, key: Ints) -> Floats:
        """For each job the mean run time of those of its key that had ended; not a number where none, or no key."""
        of = key[self.job]
        order = np.argsort(of, kind="stable")
        first = np.searchsorted(of[order], of[order])  # where the key begins
        sums, counts = (_within(x[order], first) for x in (self.runtime, self.ended.astype(np.float64)))
        mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
        asks = ~self.ended[order]
        guess = np.full(len(key), np.nan)
        guess[self.job[order][asks]] = mean[asks]
        guess[key < 0] = np.nan
        return guess


def _within(values: Floats, first: Ints) -> Floats:
    """Sums so far, begun anew at each key."""
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return np.asarray(sums[1:] - sums[first])


def _keys(view: TraceView, columns: Sequence[str]) -> Ints:
    """A number for each key, below 0 where it is not named."""
    name = view.frame[columns[0]]
    codes = name.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    if len(columns) > 1:
        rest = view.frame.select(pl.struct(columns[1:]).rank("dense").cast(pl.Int64)).to_series().to_numpy()
        codes = np.where(codes < 0, -1, codes * (int(rest.max(initial=0)) + 1) + rest)
    # Numbered as they first come, so that sums are added in the same order whatever names are called inside.
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    return np.where(codes < 0, -1, np.argsort(np.argsort(first))[of])


def _say(section: Section, rows: list[dict[str, object]]) -> None:
    best = max(rows, key=lambda row: float(row["within 25 %"]) if np.isfinite(row["within 25 %"]) else -1.0)  # type: ignore[arg-type, call-overload]
    interval = Interval(*(float(best[k]) for k in ("within 25 %", "within 25 % low", "within 25 % high")))  # type: ignore[arg-type]
    if np.isfinite(interval[0]):
        section.say(f"instances predicted within 25 % by {best['by']}", interval, "%")
        section.findings.append(
            f"For {rough(interval[0])} % of the instances, the runtime is within 25 % of the mean of earlier jobs of "
            f"the same {best['by']}."
        )
