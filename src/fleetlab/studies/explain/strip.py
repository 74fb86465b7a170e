"""The strip of a job's life: in characters for a terminal, and as a figure for a report."""

from __future__ import annotations

from textwrap import wrap

import numpy as np
import polars as pl

from fleetlab.core import Figure
from fleetlab.core.catalog import REASONS
from fleetlab.core.durations import duration, readable_unit
from fleetlab.studies.explain.story import Story

WIDTH = 78  # characters of a strip
RUNS, IDLE = "=", " "
RUNNING = "runs"  # the name of this part of a strip
START_UP = next(name for name in REASONS.names if name.startswith("start"))


def letters() -> dict[str, str]:
    """Return the letter of each wait reason: of its name, the first that no reason before it has; rules come first.

    >>> letters()["gpu"], letters()["reservation"], letters()["head_of_line"]
    ('g', 'r', 'h')
    """
    taken = dict[str, str]()
    for name in sorted(REASONS.names, key=lambda name: REASONS[name].kind == "resource"):
        free = (c for c in (*name, *name.upper()) if c.isalpha() and c not in taken.values())
        taken[name] = next(free)
    return taken


def parts(story: Story) -> pl.DataFrame:
    """Return the strip: from, until and what it did then, which is a wait reason or that it ran."""
    waits = story.segments.select("from", "until", "reason")
    runs = story.runs.select("from", "until").unique(maintain_order=True)
    # What it took to start up belongs to its wait, though its GPUs were allocated.
    begins = waits.filter(pl.col("reason") == START_UP).select("from", pl.col("until").alias("later"))
    ran = runs.join(begins, on="from", how="left", maintain_order="left").select(
        pl.coalesce("later", "from").alias("from"), "until", reason=pl.lit(RUNNING)
    )
    return pl.concat([waits, ran.drop_nulls("until")]).sort("from", maintain_order=True)


def strip_text(story: Story, *, width: int = WIDTH) -> list[str]:
    """Return the strip as lines: what most of the time that a character stands for was spent on, and a legend."""
    rows = parts(story)
    if not rows.height:
        return []
    begin, end = float(rows["from"][0]), float(rows["until"].max())  # type: ignore[arg-type]
    if end <= begin:
        return []
    edges = np.linspace(begin, end, width + 1)
    signs = letters() | {RUNNING: RUNS}
    best, strip = np.zeros(width), np.full(width, IDLE, dtype="<U1")
    for reason in rows["reason"].unique(maintain_order=True):
        mine = rows.filter(pl.col("reason") == reason)
        spent = np.zeros(width)
        for a, b in mine.select("from", "until").iter_rows():
            spent += np.clip(np.minimum(b, edges[1:]) - np.maximum(a, edges[:-1]), 0.0, None)
        more = spent > best
        strip[more], best[more] = signs[reason], spent[more]
    sums = rows.group_by("reason", maintain_order=True).agg((pl.col("until") - pl.col("from")).sum().alias("s"))
    legend = [f"{signs[name]} {name} {duration(seconds)}" for name, seconds in sums.iter_rows()]
    total = duration(end - begin)
    axis = "0" + total.rjust(width - 1)
    return ["".join(strip), axis, *wrap("   ".join(x.replace(" ", "\u00a0") for x in legend), width)]


def strip_figure(story: Story) -> Figure | None:
    """Return the strip as a figure, one row a reason and one for its runs; None where nothing took time."""
    rows = parts(story).filter(pl.col("until") > pl.col("from"))
    if not rows.height:
        return None
    begin, end = float(rows["from"][0]), float(rows["until"].max())  # type: ignore[arg-type]
    unit, length = readable_unit(end - begin)
    sums = rows.group_by("reason", maintain_order=True).agg((pl.col("until") - pl.col("from")).sum().alias("s"))
    frame = rows.join(sums, on="reason", how="left", maintain_order="left").select(
        x="reason", y=pl.col("s") / length, low=(pl.col("from") - begin) / length,
        high=(pl.col("until") - begin) / length,
        series=pl.when(pl.col("reason") == RUNNING).then(pl.lit(RUNNING)).otherwise(pl.lit("waits")),
    )  # fmt: skip
    alt = "; ".join(f"{name} {duration(seconds)}" for name, seconds in sums.iter_rows())
    return Figure("Its life", "span", frame, "", f"time since it was submitted, {unit}", alt)
