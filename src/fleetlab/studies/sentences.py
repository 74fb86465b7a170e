"""Findings as sentences, and parts of sentences: percentages, jobs left out, and requests that fit on no node."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fleetlab.core.catalog import GPU_AMOUNTS, NODE_AMOUNTS
from fleetlab.core.catalog.reasons import ABOVE_QUOTA, CANCELLED, FITS_NOWHERE, GANG_TOO_LARGE, UNKNOWN_RUNTIME
from fleetlab.core.durations import brief, duration
from fleetlab.core.result import Finding
from fleetlab.stats import NO_DIFFERENCE, NOT_DECIDED

SURE = 0.975  # that the first of several is the best: as sure as a verdict

# -- numbers -----------------------------------------------------------------------------------------------------------


def percent(fraction: float) -> str:
    """Return a fraction as a percentage.

    >>> percent(0.426)
    '43 %'
    """
    return f"{100 * fraction:.0f} %"


def sentence(f: Finding, how: str = "with") -> str:
    """Return what a finding says: one claim and at most two numbers; its interval is in the tables.

    >>> from dataclasses import replace
    >>> f = Finding("mean wait", "sjf", 80.0, 44.0, -36.0, -67.0, -5.0, "s", "600 jobs", "better", "this log", 5)
    >>> sentence(f, "under")
    'Mean wait falls from 80 s to 44 s under sjf.'
    >>> sentence(replace(f, high=3.0, verdict="not decided"))
    'Mean wait may fall from 80 s to 44 s with sjf: too noisy to be sure.'
    >>> sentence(replace(f, after=80.0, difference=0.0, verdict="no difference"))
    'Mean wait stays at 80 s with sjf.'
    """
    before, after = amounts_apart(f.before, f.after, f.unit)
    metric, falls = f"{f.metric[0].upper()}{f.metric[1:]}", f.difference < 0
    if f.verdict == NO_DIFFERENCE:
        stays = f"stays at {before}" if before == after else f"hardly changes, from {before} to {after},"
        return f"{metric} {stays} {how} {f.subject}."
    if f.verdict != NOT_DECIDED:
        return f"{metric} {'falls' if falls else 'rises'} from {before} to {after} {how} {f.subject}."
    may = "may fall" if falls else "may rise"
    return f"{metric} {may} from {before} to {after} {how} {f.subject}: too noisy to be sure."


def amounts_apart(before: float, after: float, unit: str) -> tuple[str, str]:
    """Return two amounts with two significant digits, or with three where two show no difference.

    >>> amounts_apart(85.4, 39.2, "s"), amounts_apart(85.4, 85.1, "s")
    (('85 s', '39 s'), ('85.4 s', '85.1 s'))
    """
    if unit != "s":
        one, other = (f"{value:.3g}{f' {unit}' * bool(unit)}" for value in (before, after))
        return one, other
    short, long = ([text(value) for value in (before, after)] for text in (brief, duration))
    return (short[0], short[1]) if short[0] != short[1] or before == after else (long[0], long[1])


def who_is_first(chances: Mapping[str, float], metric: str = "mean wait") -> str:
    """Return how sure it is which of several is best.

    >>> who_is_first({"fifo": 0.0, "sjf": 0.98, "smallest": 0.02})
    'The lowest mean wait is that of sjf with a probability of 98 %.'
    >>> who_is_first({"sjf": 0.6, "smallest": 0.4})
    'Which is best is not decided: the lowest mean wait is that of sjf with a probability of 60 %, of smallest 40 %.'
    """
    (first, chance), *others = sorted(chances.items(), key=lambda item: -item[1])
    text = f"he lowest {metric} is that of {first} with a probability of {percent(chance)}"
    if chance >= SURE:
        return f"T{text}."
    return f"Which is best is not decided: t{text}, of {others[0][0]} {percent(others[0][1])}."


# -- jobs left out, and requests that fit on no node -------------------------------------------------------------------

WHOLE = 1000  # milli of one GPU
CANNOT_RUN = [FITS_NOWHERE, GANG_TOO_LARGE]  # jobs that can never run on the cluster
NEVER_RUN = "jobs that cannot run"  # their count, in a table
REQUEST_AMOUNTS = (*GPU_AMOUNTS, *NODE_AMOUNTS)


def never_run(refused: pl.DataFrame) -> pl.Series:
    """Return the jobs that cannot run, of those that a simulation leaves out; one of unknown runtime could."""
    return refused.filter(~pl.col("reason").is_in([UNKNOWN_RUNTIME, CANCELLED]))["job"]


def left_out(reasons: Mapping[str, int]) -> list[str]:
    """Return how many jobs are left out of a simulation, by reason, as parts of a sentence.

    >>> left_out({"runtime unknown": 189, "an instance fits on no node": 2})
    ['2 cannot run on the cluster', '189 left out: runtime unknown']
    """
    texts = {
        UNKNOWN_RUNTIME: "left out: runtime unknown",
        CANCELLED: "were cancelled before they started",
        ABOVE_QUOTA: "request more GPUs than their quota",
    }
    never = sum(reasons.get(name, 0) for name in CANNOT_RUN)
    parts = [f"{never:,} cannot run on the cluster"] if never else []
    return parts + [f"{count:,} {text}" for name, text in texts.items() if (count := reasons.get(name, 0))]


def unmet_requests(jobs: pl.DataFrame, nodes: pl.DataFrame) -> str:
    """Return what no node has enough of, and for how many of these jobs, the most common first; empty where none.

    >>> jobs = {name: [0] for name in REQUEST_AMOUNTS[1:]} | {"gpu_milli": [16_000], "gpu_types": [["T4"]]}
    >>> nodes = {name: [8] for name in REQUEST_AMOUNTS} | {"gpu_type": ["T4"]}
    >>> unmet_requests(pl.DataFrame(jobs), pl.DataFrame(nodes))
    '1 request more `gpus` than any node has (8)'
    """
    requests = jobs.with_columns(gpus=(pl.col("gpu_milli") + WHOLE - 1) // WHOLE)
    most = {name: int(nodes[name].max() or 0) for name in REQUEST_AMOUNTS}  # type: ignore[arg-type]
    counts = [
        (int((requests[name] > most[name]).sum()), f"request more `{name}` than any node has ({most[name]:,})")
        for name in REQUEST_AMOUNTS
    ]
    there = nodes["gpu_type"].drop_nulls().unique().to_list()
    types = pl.col("gpu_types").list
    unknown = (pl.col("gpu_milli") > 0) & (types.len() > 0) & ~types.eval(pl.element().is_in(there)).list.any()
    counts.append((requests.filter(unknown).height, "name only GPU types that no node has"))
    return ", ".join(f"{count:,} {what}" for count, what in sorted(counts, key=lambda f: -f[0]) if count)
