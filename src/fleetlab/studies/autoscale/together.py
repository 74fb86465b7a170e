"""Several kinds of nodes as one result: the tables of each, and the node-hours of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from fleetlab.core import Estimate
from fleetlab.stats import POSITIVE, mean_of_runs
from fleetlab.studies.autoscale.result import DIFFERENCES, POLICIES, Autoscaling, difference_sentence

ALL = "all kinds"


def together(parts: Mapping[str, Autoscaling], left_out: Sequence[str]) -> Autoscaling:
    """Put the results of several kinds side by side, each row with its kind; node-hours of all are summed by day."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part.frames))
    frames = {name: _by_kind({kind: part.frames[name] for kind, part in parts.items()}) for name in names}
    days = _days(parts)
    differences = _differences(days)
    frames["differences"] = pl.concat([_named(ALL, differences), frames["differences"]])
    frames = {"all kinds": _totals(days), **frames}
    first = next(iter(parts.values()))
    waits = {kind: part.provenance.settings["wait"] for kind, part in parts.items()}
    learnt = {kind: part.provenance.settings["learn"] for kind, part in parts.items()}
    settings = {**first.provenance.settings, "wait": _one(waits), "learn": _one(learnt), "kinds": list(parts)}
    return Autoscaling(
        replace(first.provenance, settings=settings),
        tuple(_findings(differences, parts)),
        tuple(_estimates(differences, days)),
        frames,
        {f"{name}, {kind}": figure for kind, part in parts.items() for name, figure in part.charts.items()},
        (*left_out, *_notes(parts)),
    )


def _one(values: Mapping[str, float]) -> float | dict[str, float]:
    """Return the value that all kinds share, or that of each."""
    return next(iter(values.values())) if len(set(values.values())) == 1 else dict(values)


def _named(kind: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.lit(kind).alias("kind"), pl.all())


def _by_kind(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([_named(kind, frame) for kind, frame in frames.items()], how="diagonal_relaxed")


def _days(parts: Mapping[str, Autoscaling]) -> pl.DataFrame:
    """Return the node-hours of all kinds on each day that counts for all, of the policies that all kinds meet."""
    days = [part.frames["days"] for part in parts.values()]
    met = [name for name in POLICIES if all(name in frame.columns for frame in days)]
    common = min(frame.height for frame in days)
    summed = {name: sum(frame[name].head(common).to_numpy() for frame in days) for name in met}
    return pl.DataFrame({"day": list(range(1, common + 1)), **summed})


def _differences(days: pl.DataFrame) -> pl.DataFrame:
    rows = []
    for name in days.columns[1:]:
        if name != "forecast" and "forecast" in days.columns:
            interval = mean_of_runs((days["forecast"] - days[name]).to_numpy()).interval()
            rows.append(
                (name, *interval, 100 * interval.value / float(days[name].to_numpy().mean()), interval.change())
            )
    return pl.DataFrame(rows, schema=DIFFERENCES, orient="row")


def _totals(days: pl.DataFrame) -> pl.DataFrame:
    means = [(name, *mean_of_runs(days[name].to_numpy(), POSITIVE).interval()) for name in days.columns[1:]]
    hours = "node-hours per day"
    schema = {"policy": pl.String, hours: pl.Float64, f"{hours} low": pl.Float64, f"{hours} high": pl.Float64}
    return pl.DataFrame(means, schema=schema, orient="row")


def _findings(differences: pl.DataFrame, parts: Mapping[str, Autoscaling]) -> list[str]:
    summed = [f"All kinds together: {difference_sentence(row)}" for row in differences.iter_rows(named=True)]
    return summed + [f"Nodes of kind `{kind}`: {line}" for kind, part in parts.items() for line in part.findings]


def _estimates(differences: pl.DataFrame, days: pl.DataFrame) -> list[Estimate]:
    estimates = [
        Estimate(f"node-hours per day, forecast − {r['baseline']}", r["node-hours per day"], r["low"], r["high"], "h")
        for r in differences.iter_rows(named=True)
    ]
    means = {name: mean_of_runs(days[name].to_numpy(), POSITIVE).interval() for name in days.columns[1:]}
    return estimates + [Estimate(f"node-hours per day, {name}", *interval, "h") for name, interval in means.items()]


def _notes(parts: Mapping[str, Autoscaling]) -> list[str]:
    """Return the notes that all kinds share once, then those of each; and what the sums are of."""
    shared = [note for note in next(iter(parts.values())).notes if all(note in part.notes for part in parts.values())]
    own = [f"{kind}: {note}" for kind, part in parts.items() for note in part.notes if note not in shared]
    days = min(part.frames["days"].height for part in parts.values())
    return [
        "each kind of node meets the goal by itself, for the jobs that go to it; days count from its first job",
        f"node-hours of all kinds are sums over the first {days} days that count for each",
        *shared,
        *own,
    ]
