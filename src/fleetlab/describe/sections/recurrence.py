"""How often does the same job come again, and how well do those before it tell how long it will run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fleetlab.describe import published
from fleetlab.describe.ecdf import Bools, share
from fleetlab.describe.section import Section, rough
from fleetlab.describe.trace_view import Seen
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


def recurrence(seen: Seen, section: Section) -> None:
    """Put together runs of groups, and the errors of predictors."""
    _runs(seen, section)
    _predictors(seen, section)


def _runs(seen: Seen, section: Section) -> None:
    if seen.role is not None:
        section.lacks("recurring groups", f"in this trace a group is a {seen.role}, not a job that recurs")
        return
    known = seen.frame["group"].is_not_null().to_numpy()
    if not known.any():
        section.lacks("recurring groups", "the log names no groups")
        return
    if nameless := int((~known).sum()):
        section.lacks(f"the group of {nameless:,} jobs", "the log does not name it: left out of recurrence")
    runs = seen.frame.select(pl.len().over("group").cast(pl.Float64))["len"].to_numpy()
    curves = seen.curve("jobs", runs, where=known)
    section.distributions(
        "runs of a group", curves, title="How often the group of a job runs", unit="runs", of="weighed by",
        x="runs of the job's group",
    )  # fmt: skip
    often = share(runs[known] >= OFTEN, None, seen.blocks.part(known))
    section.say(f"jobs of groups that run {OFTEN} times or more", often, "%")
    groups = seen.frame["group"].drop_nulls().n_unique()
    section.sentences.append(
        f"{often[0]:.3g} % of the jobs are of groups that run {OFTEN} times or more ({groups:,} groups in all)."
    )


def _predictors(seen: Seen, section: Section) -> None:
    """The mean run time of those jobs of the same key that had ended when this one was submitted."""
    asked = seen.runtime > 0
    if not asked.any():
        section.lacks("predictability of run times", "no run time above 0 is known")
        return
    past = Past.of(seen.submit, seen.floats("start"), seen.runtime)
    rows, curves = [], []
    for name, keys in PREDICTORS.items():
        if seen.role is not None and keys[0] == "group":
            continue
        if seen.frame[keys[0]].null_count() == seen.frame.height:
            section.lacks(f"predictions by {name}", f"the log names no {keys[0]}s")
            continue
        guess = past.mean(_keys(seen, keys))
        error = np.abs(guess - seen.runtime) / np.where(seen.runtime > 0, np.maximum(seen.runtime, SHORTEST), np.nan)
        curves += seen.curve(name, error, weights=seen.instances, where=asked)
        rows.append(_row(seen, section, name, error, asked))
    if not rows:
        return
    section.tables["predictions"] = pl.DataFrame(rows, infer_schema_length=None)
    section.distributions(
        "prediction error", curves, title="Error of a predicted run time, where one can be made", unit="", of="by",
        x="error over the true run time", y="share of instances, %",
    )  # fmt: skip
    _say(section, rows)


def _row(seen: Seen, section: Section, name: str, error: Floats, asked: Bools) -> dict[str, object]:
    """Of the instances that can be predicted at all: how many within which error."""
    made = asked & np.isfinite(error)
    row: dict[str, object] = {"by": name, "predicted, %": 100 * float(made[asked].mean())}
    for within in WITHIN:
        told = share(error[made] <= within, seen.instances[made], seen.blocks.part(made))
        key = f"within {within:.0%}".replace("%", " %")
        row |= dict(zip((key, f"{key} low", f"{key} high"), told, strict=True))
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


def _keys(seen: Seen, columns: Sequence[str]) -> Ints:
    """A number for each key, below 0 where it is not named."""
    name = seen.frame[columns[0]]
    codes = name.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    if len(columns) > 1:
        rest = seen.frame.select(pl.struct(columns[1:]).rank("dense").cast(pl.Int64)).to_series().to_numpy()
        codes = np.where(codes < 0, -1, codes * (int(rest.max(initial=0)) + 1) + rest)
    # Numbered as they first come, so that sums are added in the same order whatever names are called inside.
    _, first, of = np.unique(codes, return_index=True, return_inverse=True)
    return np.where(codes < 0, -1, np.argsort(np.argsort(first))[of])


def _say(section: Section, rows: list[dict[str, object]]) -> None:
    best = max(rows, key=lambda row: float(row["within 25 %"]) if np.isfinite(row["within 25 %"]) else -1.0)  # type: ignore[arg-type, call-overload]
    told = Interval(*(float(best[k]) for k in ("within 25 %", "within 25 % low", "within 25 % high")))  # type: ignore[arg-type]
    if np.isfinite(told[0]):
        section.say(f"instances that {best['by']} predicts within 25 %", told, "%")
        section.sentences.append(
            f"Where earlier runs of the same {best['by']} are known, their mean is within 25 % of the run time for "
            f"{rough(told[0])} % of the instances."
        )
